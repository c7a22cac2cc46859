# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why pods are not adopted: something else on their node assigns CPUs to them, or an update would cost one its device. Reads only.

Sources: Kubernetes ``pkg/kubelet/cm``: CPU manager policy ``none`` never writes a CPU set, ``static`` overwrites foreign ones, and memory
manager policy ``Static`` owns memory nodes; containerd ``docs/NRI.md``; NVIDIA/nvidia-container-toolkit issues 48 and 1227.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping

from ..._host.host import Host
from ..._kernel.masks import online
from ..._users.devices import numbers
from ..._users.engines import bundle, listed_in
from ..kubelet import settings
from ..kubelet.facts import kubelet

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

_SWITCHED_OFF = "the kubelet places pods; adopt them with npu_affinity_adopt_pods: true (docs/kubelet.md)"
_NRI_PLUGINS = "/opt/nri/plugins"
_NRI = re.compile(r"^\S+ \S+ \S+ \S+ \S+ 03 +\d+ ((?:/var)?/run/nri/nri\.sock)$", re.MULTILINE)
"""A connection (state 03) that was accepted at the socket to which plugins connect, in /proc/net/unix."""


class Pods:
    """The pods of a node, which are adopted if that is ``wanted`` and nothing speaks against it."""

    def __init__(self, host: Host, wanted: bool) -> None:
        self.host = host
        self.wanted = wanted
        self._why: str | None = None

    def why(self) -> str:
        """Return why no pod of this node is adopted, '' where pods are."""
        if not self.wanted:
            return _SWITCHED_OFF
        if self._why is None:
            self._why = _of_node(self.host)
        return self._why

    def refusal(self, user: NpuUser, spec: Mapping[str, Any] | None = None) -> str:
        """Return why the container of a pod is left alone, '' where it is adopted. ``spec``: that of a container that has not started."""
        found = bundle(self.host, user["container"] or "") if spec is None else spec
        return self.why() or _of_devices(self.host, found, user["devices"])

    def keep_memory(self) -> bool:
        """Whether the kubelet's memory manager sets memory nodes."""
        policy = settings.settings(self.host)[0].get("memoryManagerPolicy") or "None"
        return policy != "None"


def _of_node(host: Host) -> str:
    """Return what else assigns CPUs to the pods of this node."""
    facts = kubelet(host, online(host))
    if facts is None:
        return "the CPU manager policy of this node's kubelet is not known: it has neither a configuration nor a state file"
    if facts["policy"] != "none" or facts["default_cpus"] or facts["exclusive"]:
        return "the kubelet assigns CPUs to pods (CPU manager policy %s)" % (facts["policy"] if facts["policy"] != "none" else "static")
    plugins = host.names(_NRI_PLUGINS)
    connected = _NRI.search(host.read("/proc/net/unix") or "")
    if plugins or connected:
        where = "%s has %s" % (_NRI_PLUGINS, plugins[0]) if plugins else "one is connected to %s" % (connected and connected.group(1))
        return "a plugin of the container runtime (NRI) can assign CPUs to pods: %s" % where
    return ""


def _of_devices(host: Host, spec: Mapping[str, Any], devices: Iterable[str]) -> str:
    """Return which GPU an update may cost a container, because no specification has it: NVIDIA's hook added it."""
    missing = sorted(name for name in set(devices) - listed_in(spec, numbers(host)) if name.startswith("nvidia"))
    text = 'NVIDIA\'s hook gave it /dev/%s, which it can lose at any update; use CDI (mode = "cdi" of nvidia-container-runtime)'
    return text % missing[0] if missing else ""

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's CPU manager as its files show it: its configuration, and the CPUs that it has given away. Reads only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from . import settings as _settings, state_file

if TYPE_CHECKING:
    from ..._base.documents import Kubelet

FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/bin", "/usr/sbin")
_PRINTED = re.compile(r"Kubernetes v(\d+\.\d+\S*)")
_SECONDS = 5
_QUANTITY = re.compile(r"^(\d+)(?:\.(\d+))?(m?)\Z")


def kubelet(host: Host, online: set[int]) -> Kubelet | None:
    """Return the kubelet's part of the topology, None on a host without kubelet files. ``online`` is the set of online CPUs."""
    settings, places = _settings.settings(host)
    path = "%s/%s" % (places.root, state_file.FILE)
    text = host.read(path)
    if not places.sources and text is None:
        return None
    version, reserved, state, warnings = _version(host), set(), None, []
    try:
        reserved = set(expand(settings.get("reservedSystemCPUs") or "", "%s: reservedSystemCPUs" % places.config))
        state = state_file.parse(text, path) if text is not None else None
    except ValueError as error:
        warnings.append("The CPU manager's sets cannot be used: %s" % error)
    wanted, options = settings.get("cpuManagerPolicy"), settings.get("cpuManagerPolicyOptions", {})
    if state:
        if wanted and wanted != state.policy:
            warnings.append(
                "%s wants CPU manager policy %s, but kubelet last ran with %s (%s): it refuses to start until that file is removed"
                % (places.config if len(places.sources) < 2 else "The configuration", wanted, state.policy, path)
            )
        warnings.extend(state.problems)
        warnings.extend(state_file.against_kubelet(state, version, path))
        if state.policy == "static":
            strict = options.get("strict-cpu-reservation") == "true"
            warnings.extend(state_file.against_machine(state, online, reserved, strict, path))
    policy = wanted or (state.policy if state else "none")
    gone: dict[str, str | None] = dict.fromkeys(places.ours)
    return {
        "version": version,
        "policy": policy,
        "policy_without": _settings.settings(host, gone)[0].get("cpuManagerPolicy", "none") if gone else policy,
        "options": options,
        "topology_policy": settings.get("topologyManagerPolicy") or "none",
        "topology_options": settings.get("topologyManagerPolicyOptions", {}),
        "topology_scope": settings.get("topologyManagerScope") or "container",
        "feature_gates": {gate: on for gate, on in settings.get("featureGates", {}).items() if str(on).lower() in ("true", "false")},
        "fail_cgroup_v1": settings.get("failCgroupV1"),
        "reserved_cpus": compress(reserved) if settings.get("reservedSystemCPUs") else None,
        "reserved_millicpus": _reserved(settings),
        "default_cpus": state.default_cpus if state else None,
        "exclusive": state.exclusive if state else {},
        "config": places.config,
        "config_dir": places.config_dir,
        "sources": places.sources,
        "warnings": warnings,
    }


def _reserved(settings: _settings.Settings) -> int:
    """Return the CPUs that kubeReserved and systemReserved keep together, in thousandths; what is not a quantity counts as 0."""
    total = 0
    for key in ("kubeReserved", "systemReserved"):
        match = _QUANTITY.match(settings.get(key, {}).get("cpu", ""))
        if match:
            whole, fraction, thousandths = match.groups()
            total += int(whole) if thousandths else int(whole) * 1000 + int(((fraction or "") + "000")[:3])
    return total


def _version(host: Host) -> str | None:
    """Return the version of the installed kubelet, such as ``1.36.2``, which its next start gives; None where it does not say."""
    program = host.find_program("kubelet", FOLDERS)
    try:
        match = _PRINTED.search(host.run([program, "--version"], timeout=_SECONDS).output) if program else None
    except CommandError:
        return None
    return match.group(1) if match else None

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature device_share: whether containers may share chips, and the unit that sets it again at boot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import OLDEST_DRIVER
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.places import DEVICE_SHARE_SERVICE
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import ENVIRONMENT, Feature, no_effect, unit

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

OWNED = FEATURE.owned
LONGER = 2
"""How many times as long as other commands a call may take that changes device share."""


def wanted(topology: Topology, plan: Plan, settings: Mapping[str, Any]) -> Feature:
    """Return device share as the host applies and compares it, and the unit, where the host has NPUs; ``settings``: those of the role."""
    if not settings["enabled"]:
        return Feature(owned=OWNED)
    has_npus = any(npu["kind"] == "npu" for npu in topology["npus"])
    if not (has_npus or settings["npus"]):
        absent = Sentence("NPU_NO_EFFECT", f"{no_effect('npu_affinity_device_share_enabled', 'this host')}: it has no NPU.")
        return Feature(owned=OWNED, python=settings["python"], needs_plan=True, notes=(absent,) if plan["npus"] else ())
    live = {
        "enabled": True,
        "npus": settings["npus"],
        "only_ours": True,
        "ignore_busy": settings["ignore_busy"],
        "min_driver": OLDEST_DRIVER,
        "timeout": LONGER * settings["timeout"],
    }
    if not has_npus:
        return Feature(owned=OWNED, python=settings["python"], needs_plan=True, live=live)
    return Feature(
        files=(unit(DEVICE_SHARE_SERVICE, service(settings)),),
        owned=OWNED,
        enabled=(DEVICE_SHARE_SERVICE,),
        python=settings["python"],
        runtime=True,
        needs_plan=True,
        live=live,
    )


def service(settings: Mapping[str, Any]) -> str:
    """Return the unit except for its first line."""
    chips = "".join(f" {_chosen(choice)}" for choice in settings["npus"])
    tool = f" --npu-smi {settings['npu_smi']}" if settings["npu_smi"] else ""
    wait, timeout = settings["wait"], LONGER * settings["timeout"]
    return (
        "[Unit]\nDescription=Let containers share the NPUs, which the driver forgets at a reboot\n"
        "After=systemd-modules-load.service systemd-udev-settle.service\n"
        "Before=containerd.service crio.service docker.service isulad.service kubelet.service podman.service\n\n"
        f"[Service]\nType=oneshot\n{ENVIRONMENT}"
        f"ExecStart={settings['python']} -m npu_affinity device_share{chips} --wait {wait} --timeout {timeout}{tool}\n"
        f"TimeoutStartSec={wait + 180 + 10 * timeout}\n\n[Install]\nWantedBy=multi-user.target\n"
    )


def _chosen(choice: Any) -> str:
    """Return a card or a chip (``card:chip``) as the program takes it."""
    if isinstance(choice, Mapping):
        return f"{choice['card']}:{choice['chip']}" if "chip" in choice else str(choice["card"])
    return str(choice)

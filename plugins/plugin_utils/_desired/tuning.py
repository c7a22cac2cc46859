# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature tuning: settings of the whole host, now and at every boot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.places import FILE, TUNING_SERVICE
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.host_settings import text
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import ENVIRONMENT, Feature, unit

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

SETTINGS = {"governor": str, "numa_balancing": int, "transparent_hugepages": str, "swappiness": int}
"""The settings that there are, each with its type."""
OWNED = FEATURE.owned


def is_on(settings: Mapping[str, Any]) -> bool:
    return any(value not in ("", None) for value in settings["tuning"].values())


def wanted(topology: Topology, plan: Plan, settings: Mapping[str, Any]) -> Feature:
    """Return the settings of the host that are wanted, and the unit that sets them at boot; ``settings``: those of role tuning."""
    if not settings["enabled"]:
        return Feature(owned=OWNED)
    asked = settings["tuning"]
    values = {name: check(asked[name]) for name, check in SETTINGS.items() if asked.get(name) not in ("", None)}
    return Feature(
        files=({"path": FILE, "content": text(values), "mode": "0644"}, unit(TUNING_SERVICE, _service(settings))),
        owned=OWNED,
        enabled=(TUNING_SERVICE,),
        python=settings["python"],
        runtime=True,
        needs_plan=bool(plan["npus"]),
        live=values,
    )


def _service(settings: Mapping[str, Any]) -> str:
    return (
        "[Unit]\nDescription=Set governor, NUMA balancing, huge pages and swappiness as NPUs want them\n"
        "After=systemd-modules-load.service systemd-udev-settle.service systemd-sysctl.service systemd-tmpfiles-setup.service\n"
        "After=tuned.service cpupower.service cpufrequtils.service\n"
        f"ConditionPathExists={FILE}\n\n"
        f"[Service]\nType=oneshot\n{ENVIRONMENT}ExecStart={settings['python']} -m npu_affinity tuning\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )

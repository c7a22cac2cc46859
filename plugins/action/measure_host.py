# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.npu.affinity.plugins.action import save
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction
from ansible_collections.npu.affinity.plugins.plugin_utils._report.measures_table import measures_table

BEFORE = "before"
UNPLANNED = (
    "npu.affinity.measure_host counts what disturbs the plan of a host, and host {0} has none: run role npu.affinity.plan before it in the "
    "same play, as playbook npu.affinity.measure does."
)
KEPT = ("seconds", "measured_at", "workloads", "remarks")


class ActionModule(HostAction):
    """Measures a host, keeps the measurement on the controller, and prints it next to an earlier one."""

    _VALID_ARGS = frozenset()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = dict(task_vars or {})
        host, of_playbooks = variables["inventory_hostname"], self.settings(variables, playbooks=True)
        topology, plan, state = (self.known(f"npu_affinity_{name}", variables) for name in ("topology", "plan", "state"))
        if not (topology and plan and state):
            raise AnsibleActionFail(UNPLANNED.format(host))
        options = {
            "root": self.settings(variables, gather=True)["root"],
            "plan": plan,
            "processes": [*state["processes"], {"devices": True}],
            "seconds": of_playbooks["measure_seconds"],
        }
        folder = Path(of_playbooks["measures"], host)
        label = of_playbooks["measure_label"] or ("after" if topology["applied"] else BEFORE)
        before = _earlier(folder / f"{BEFORE}.json") if label != BEFORE else None
        result |= self.on_host("measure_info", options, variables)
        if result.get("failed"):
            return result
        measure = {"host": host, "label": label, **{key: result[key] for key in KEPT if key in result}}
        result["lines"] = [f"{host}:", *measures_table(measure, before, label, BEFORE)]
        self.say(result["lines"])
        result["files"] = save.write({str(folder / f"{label}.json"): json.dumps(measure, indent=4, sort_keys=True)})
        return result


def _earlier(path: Path) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        measures_table(found)
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise AnsibleActionFail(
            f"{path} cannot be read as a measurement ({type(error).__name__}: {error}); remove it, or set npu_affinity_measures to "
            "another directory."
        ) from error
    return found

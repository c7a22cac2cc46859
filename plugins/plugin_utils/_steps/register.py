# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of playbooks and roles by their names. A step is a function of the task and of the options that the task gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._steps import changing, comparing, looking, planning, reporting
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import StepTask


def say(task: StepTask, msg: str | list[str]) -> dict[str, Any]:
    """Print lines as they are, without quotes."""
    task.say(msg)
    return {"msg": msg}


def fail(task: StepTask, msg: str | list[str]) -> dict[str, Any]:
    """Fail the host with a message alone. ansible-core 2.19 and newer would add the lines of the playbook."""
    return refused({"msg": msg if isinstance(msg, str) else "\n".join(map(str, msg))})


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    step.__name__: step
    for step in (
        changing.apply,
        reporting.check_all_settings,
        looking.check_health,
        reporting.check_request,
        reporting.check_settings,
        planning.choose_entry,
        looking.collect,
        comparing.compare,
        reporting.end,
        fail,
        planning.gather,
        looking.measure,
        looking.open_archives,
        reporting.place,
        planning.plan,
        planning.plan_to_bind,
        planning.plan_to_compare,
        planning.plan_to_show,
        planning.read_history,
        planning.resolve_run,
        say,
        reporting.show_measures,
        reporting.show_plans,
        reporting.show_progress,
        reporting.show_runs,
        reporting.summarize,
        changing.unbind,
        comparing.verify,
        comparing.verify_after_bind,
        reporting.write_report,
    )
}

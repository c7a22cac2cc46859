# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import inspect
from collections.abc import Callable

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import Refused, refused
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import of_this_run
from ansible_collections.npu.affinity.plugins.plugin_utils._steps import changing, comparing, looking, planning, reporting
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import Result, StepTask, unreachable

STEPS: dict[str, Callable[..., Result]] = {
    name: function
    for module in (changing, comparing, looking, planning, reporting)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and next(iter(inspect.signature(function).parameters), "") == "task" and name[0] != "_"
}
"""The public functions of these files whose first argument is the task."""


class ActionModule(StepTask):
    """Runs one step of a playbook in the process of the task. Its result names the step."""

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        result = super().run(tmp, task_vars) | {"changed": False}
        options = dict(self._task.args)
        name = str(options.pop("name", ""))
        if name not in STEPS:
            raise AnsibleActionFail(f"npu.affinity.step: expected one of {', '.join(sorted(STEPS))} as name; got {name!r}")
        try:
            inspect.signature(STEPS[name]).bind(self, **options)
        except TypeError as error:
            raise AnsibleActionFail(f"npu.affinity.step {name}: {error}") from error
        self.variables = of_this_run(task_vars or {})
        result["step"] = name
        try:
            return result | STEPS[name](self, **options)
        except Refused as error:
            error.result["step"] = name
            raise
        except AnsibleConnectionFailure as error:
            if not self._task.ignore_unreachable:
                raise
            return result | unreachable(error)
        except ValueError as error:  # a setting that cannot be followed
            return refused(result | {"msg": shown_lines(str(error))})

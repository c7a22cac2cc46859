# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failed tasks whose message is a sentence for the user.

ansible-core 2.19 and newer print the lines of the playbook with every failure, except for errors that say that they leave them out.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

_OF_CORE = ("deprecations", "exception", "failed", "msg", "warnings")


class Refused(AnsibleActionFail):
    """Fails a task with the message alone."""

    @property
    def omit_exception_key(self) -> bool:
        return True

    def as_task_result(self, utr: Any) -> Any:
        utr = super().as_task_result(utr)
        utr.changed = bool(self.result.get("changed"))
        return utr


def refused(result: dict[str, Any]) -> dict[str, Any]:
    """Fail a task of which this is the result: by raising ``Refused``, or by returning the result to ansible-core before 2.19."""
    if not hasattr(AnsibleActionFail, "omit_exception_key"):
        return {**result, "failed": True}
    kept = {key: value for key, value in result.items() if key not in _OF_CORE}
    raise Refused(str(result["msg"]), result=kept)  # type: ignore[no-untyped-call]

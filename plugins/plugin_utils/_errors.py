# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of actions and filters whose message is a sentence for the user.

ansible-core 2.19 and newer print the lines of the playbook with every failure, except for errors that say that they leave them out.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ansible.errors import AnsibleActionFail, AnsibleFilterError

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines

_OF_CORE = ("deprecations", "exception", "failed", "msg", "warnings")
P = ParamSpec("P")
R = TypeVar("R")


class Refused(AnsibleActionFail):
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


def filter_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Make a filter of a function of the same name, whose ``ValueError`` has a sentence for the user."""
    name, signature = f"npu.affinity.{function.__name__}", inspect.signature(function)

    @functools.wraps(function)
    def filtered(*args: P.args, **options: P.kwargs) -> R:
        try:
            signature.bind(*args, **options)
        except TypeError as error:
            raise AnsibleFilterError(f"{name}: {shown_lines(str(error))}") from error
        try:
            return function(*args, **options)
        except ValueError as error:
            raise AnsibleFilterError(f"{name}: {shown_lines(str(error))}") from error
        except (AttributeError, LookupError, TypeError) as error:
            raise AnsibleFilterError(
                f"{name}: the input has an unexpected form ({type(error).__name__}: {shown_lines(str(error))})"
            ) from error

    return filtered


def filter_module(filtered: Callable[..., Any]) -> type:
    """Return the class that Ansible looks for in a file with one filter."""
    return type("FilterModule", (), {"filters": lambda self: {filtered.__name__: filtered}})

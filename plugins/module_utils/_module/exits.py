# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What leaves a host by a module: names of processes, lines of files and answers of programs are in it, and everybody shows it."""

from __future__ import annotations

from typing import Any, NoReturn

from ansible.module_utils import basic

from .._base import zipped
from .._base.outside import shown, shown_data, shown_lines

zipped.compile_once()  # before what modules import after this

AUTHORED: dict[str, Any] = {
    "author": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "run": {
        "type": "dict",
        "options": {
            "id": {"type": "str", "required": True},
            "time": {"type": "str", "required": True},
            "inventory": {"type": "str", "default": ""},
        },
    },
}
"""The options of modules that change a host, as ``_attributes.author`` documents them."""
_LINES = ("archives", "diff", "exception")
_AS_IT_IS = ("entry",)
"""Results that are applied again: a state of the history."""


class AnsibleModule(basic.AnsibleModule):
    """Ansible's own, with control characters and line breaks escaped in all that it returns; a diff keeps its line breaks."""

    def __init__(self, argument_spec: dict[str, Any], **options: Any) -> None:
        basic.AnsibleModule.__init__(self, argument_spec, **options)

    def warn(self, warning: str, *arguments: Any, **options: Any) -> None:
        super().warn(shown(warning), *arguments, **options)

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        super().fail_json(shown(msg), **_escaped(result))
        raise SystemExit(1)  # Ansible's has ended the process

    def exit_json(self, **result: Any) -> NoReturn:
        super().exit_json(**_escaped(result))
        raise SystemExit(0)


def _escaped(result: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if name in _AS_IT_IS else shown_data(value, shown_lines if name in _LINES else shown) for name, value in result.items()
    }

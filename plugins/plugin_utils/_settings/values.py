# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of settings that no role takes, each as one sentence.

Ansible's own check of a role's arguments finds them as well, and prints the whole argument spec with them.

This module is private to the collection.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import ArgumentTypeError, ArgumentValueError, ElementError, UnsupportedError

KINDS = {
    "bool": "true or false",
    "dict": "a dictionary",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "raw": "a value",
    "str": "a text",
}


def refusals(host: str, given: Mapping[str, Any], specs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return a sentence for each setting with a value of the wrong type, or another than its choices. ``given`` are templated values."""
    options = {name: option for of_role in specs.values() for name, option in of_role.items()}
    sentences = []
    for name, value in sorted(given.items()):
        option = options.get(name)
        if option is None or value is None:
            continue
        errors = list(ArgumentSpecValidator({name: option}).validate({name: value}).errors)
        errors.sort(key=lambda error: not isinstance(error, ElementError))
        sentences += [f"Host {host}: {_sentence(name, option, value, error)}" for error in errors[:1]]
    return sentences


def _sentence(name: str, option: Mapping[str, Any], value: Any, error: Exception) -> str:
    if isinstance(error, ElementError):
        return f"{name} takes a list, each entry {KINDS[option['elements']]}, and got {value!r}."
    if isinstance(error, UnsupportedError):
        return f"{name} has a key that it does not take: {error}"
    if isinstance(error, ArgumentTypeError) and not isinstance(value, Mapping | list):
        return f"{name} takes {KINDS[option['type']]}, and got {value!r}."
    if isinstance(error, ArgumentValueError):
        choices = list(map(str, option.get("choices", ())))
        near = difflib.get_close_matches(str(value), choices, n=1)
        return f"{name} takes one of {', '.join(filter(None, choices))}, and got {value!r}{f'; did you mean {near[0]}?' if near else '.'}"
    return f"{name}: {str(error).rstrip('.')}."

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain data from outside, checked against the types that documents have in :mod:`_base.documents`."""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base import documents

PARTIAL = (documents.PlanEntry,)
"""What can lack members in a document: a plan in force that somebody edited, which :func:`_state.plan_file.plan_npus` checks."""
LONGEST_TEXT = 1 << 20
LARGEST_NUMBER = 1 << 62


def require(value: object, shape: Any, title: str) -> None:
    """Raise ``ValueError`` with the first member of a document that has another shape; ``title`` is what sentences call the document.

    A ``TypedDict`` has its required members and no others.
    """
    kind = typing.get_origin(shape)
    if typing.is_typeddict(shape):
        _require_members(value, shape, title)
    elif kind in (typing.Union, types.UnionType):
        _require_any(value, typing.get_args(shape), title)
    elif kind is dict:
        _require_type(value, dict, title)
        for key, member in typing.cast("dict[str, Any]", value).items():
            require(key, str, f"a name in {title}")
            require(member, typing.get_args(shape)[1], f"{title}.{key:.60}")
    elif kind is not None:
        _require_type(value, list, title)
        for number, member in enumerate(typing.cast("list[Any]", value)):
            require(member, typing.get_args(shape)[0], f"{title}[{number}]")
    elif shape is not Any:
        _require_type(value, shape, title)
    else:
        _require_plain(value, title)


def _require_members(value: object, shape: Any, title: str) -> None:
    _require_type(value, dict, title)
    members, required = _members(shape)
    found = typing.cast("dict[str, Any]", value)
    if missing := sorted(required - found.keys()):
        raise ValueError(f"{title} lacks '{missing[0]}'")
    for key, member in found.items():
        if key not in members:
            raise ValueError(f"{title} has '{key:.60}', which is unknown")
        require(member, members[key], f"{title}.{key}")


@functools.cache
def _members(shape: Any) -> tuple[dict[str, Any], frozenset[str]]:
    hints = typing.get_type_hints(shape, include_extras=True)
    optional = {key for key, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}
    required = shape.__required_keys__ - optional if shape not in PARTIAL else frozenset()
    return typing.get_type_hints(shape), required


def _require_any(value: object, shapes: tuple[Any, ...], title: str) -> None:
    refusals = []
    for shape in shapes:
        try:
            return require(value, shape, title)
        except ValueError as error:
            refusals.append(error)
    raise refusals[1 if value is None else 0]


def _require_plain(value: object, title: str) -> None:
    """Check the texts and numbers of data whose shape is that of settings, or is not a document of its own."""
    if isinstance(value, dict):
        for key, member in value.items():
            require(key, str, f"a name in {title}")
            _require_plain(member, title)
    elif isinstance(value, list):
        for member in value:
            _require_plain(member, title)
    elif value is not None:
        _require_type(value, (str, bool, int, float), title)


def _require_type(value: object, kinds: Any, title: str) -> None:
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    if isinstance(value, bool) and bool not in wanted or not isinstance(value, wanted):
        names = " or ".join("null" if kind is types.NoneType else kind.__name__ for kind in wanted)
        raise ValueError(f"{title} is {value!r:.60}, and should be {names}")
    if isinstance(value, str) and (len(value) > LONGEST_TEXT or not _is_unicode(value)):
        raise ValueError(f"{title} is a text that is too long, or not Unicode")
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise ValueError(f"{title} is a number that is too large")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

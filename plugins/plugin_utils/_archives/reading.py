# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of hosts on the controller. What somebody sent is not trusted: its size, JSON and shape are checked first.

Its shape is that of the types of documents in :mod:`_base.documents`.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import SCHEMA
from ansible_collections.npu.affinity.plugins.module_utils._base import documents
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import NEVER_BOUND
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import json_of, require_shape, shown
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied
from ansible_collections.npu.affinity.plugins.module_utils._state.history import STATE, reduced
from ansible_collections.npu.affinity.plugins.module_utils._state.difference import difference
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import plan_npus

VARIABLE = "__npu_affinity_archive"
"""The variable of a host that is an archive; it has the ``path``."""
SUFFIX = ".json"
LARGEST = 8 << 20
"""Bytes of the largest archive. A host with 640 CPUs and 16 NPUs has less than one MiB."""
_NAME = re.compile(r"[^\w.-]+", re.ASCII)
_LONGEST_NAME = 64
_NO_HOSTS = ("", "removed", "all", "ungrouped", "npu_affinity_archives")
"""What an anonymous archive says, and names that are those of groups."""
PARTIAL = (documents.PlanEntry,)
"""What can lack members in a document: a plan in force that somebody edited, which :func:`_state.plan_file.plan_npus` checks."""
LONGEST_TEXT = 1 << 20
LARGEST_NUMBER = 1 << 62


def read(path: str) -> documents.Archive:
    """Return an archive. Raises ``ValueError`` with a sentence for what is none."""
    try:
        document = json_of(_text(path))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not an archive of playbook npu.affinity.collect ({shown(error)})") from error
    if isinstance(document, dict) and document.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} is not an archive of this version of the collection: its schema is {document.get('schema')!r:.60}, not {SCHEMA}"
        )
    try:
        _require(document, documents.Archive, "archive")
        if document["topology"]["applied"]:
            plan_npus(document["topology"]["applied"])
        if document["in_force"]:
            require_shape(document["in_force"], {**STATE, "live": {str: str}}, "archive.in_force")
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{path} is not an archive of playbook npu.affinity.collect ({shown(error)})") from error
    return cast("documents.Archive", document)


def _text(path: str) -> str:
    """Return the text of a regular file that is not too large; opening it never waits."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST >> 20} MiB")
    return data.decode()


def opened(path: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a description of each archive that a path names, itself or those in the folder, with the name that its host gets, and a
    sentence for each bad one. Raises ``ValueError`` where none can be read."""
    files = sorted(map(str, Path(path).glob("*" + SUFFIX))) if os.path.isdir(path) else [path]
    if not files:
        raise ValueError(
            f"npu_affinity_archives '{path}' has no archive (*{SUFFIX}): name what playbook npu.affinity.collect wrote, or its folder"
        )
    rows: dict[str, dict[str, Any]] = {}
    refused = []
    for file in files:
        try:
            archive = read(file)
        except ValueError as error:
            refused.append(str(error))
            continue
        name = _host_name(archive["host"])
        if name in _NO_HOSTS or name in rows:
            name = _host_name(Path(file).stem) or "host"
            name = f"{name}-{len(rows) + 1}" if name in rows else name
        rows[name] = {"name": name, "path": file, **{key: archive[key] for key in ("time", "version", "settings")}}
    if not rows:
        raise ValueError(" ".join(refused))
    return list(rows.values()), refused


def _host_name(text: str) -> str:
    return _NAME.sub("-", text).strip("-.")[:_LONGEST_NAME]


def answer(path: str, module: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a module would return on the host of an archive. Raises ``ValueError`` for one that is not answered."""
    archive = read(path)
    if module == "gather":
        others = options.get("others")
        topology = {key: value for key, value in archive["topology"].items() if key != "others" or others}
        return {"changed": False, "ansible_facts": {"npu_affinity_topology": topology}}
    if module != "binding_info":
        raise ValueError(f"module {module} needs a host; {path} is an archive")
    compared: Mapping[str, Any] = archive["compared"]
    if "msg" in compared:
        return {"failed": True, **compared}
    drift = [finding for finding in compared["drift"] if options.get("must_be_bound") or finding["cause"] != NEVER_BOUND]
    wanted, in_force = options.get("desired"), cast("Any", archive["in_force"])
    return {
        "changed": False,
        **compared,
        "drift": drift,
        "changes": difference(reduced(applied(wanted)), in_force) if wanted and in_force else [],
    }


def _require(value: object, shape: Any, title: str) -> None:
    """Raise ``ValueError`` with the first member of a document that has another shape; ``title`` is what sentences call the document."""
    kind = typing.get_origin(shape)
    if typing.is_typeddict(shape):
        _require_members(value, shape, title)
    elif kind in (typing.Union, types.UnionType):
        refusals = []
        for one in typing.get_args(shape):
            try:
                _require(value, one, title)
                break
            except ValueError as error:
                refusals.append(error)
        else:
            raise refusals[1 if value is None else 0]
    elif kind is dict:
        _require_type(value, dict, title)
        for key, member in typing.cast("dict[str, Any]", value).items():
            _require(key, str, f"a name in {title}")
            _require(member, typing.get_args(shape)[1], f"{title}.{key:.60}")
    elif kind is not None:
        _require_type(value, list, title)
        for number, member in enumerate(typing.cast("list[Any]", value)):
            _require(member, typing.get_args(shape)[0], f"{title}[{number}]")
    elif shape is not Any:
        _require_type(value, shape, title)
    else:
        _require_plain(value, title)


def _require_members(value: object, shape: Any, title: str) -> None:
    _require_type(value, dict, title)
    members, required = _members(shape)
    document = typing.cast("dict[str, Any]", value)
    if missing := sorted(required - document.keys()):
        raise ValueError(f"{title} lacks '{missing[0]}'")
    for key, member in document.items():
        if key not in members:
            raise ValueError(f"{title} has '{key:.60}', which is unknown")
        _require(member, members[key], f"{title}.{key}")


@functools.cache
def _members(shape: Any) -> tuple[dict[str, Any], frozenset[str]]:
    hints = typing.get_type_hints(shape, include_extras=True)
    optional = {key for key, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}
    required = shape.__required_keys__ - optional if shape not in PARTIAL else frozenset()
    return typing.get_type_hints(shape), required


def _require_plain(value: object, title: str) -> None:
    """Check the texts and numbers of data whose shape is that of settings, or is not a document of its own."""
    if isinstance(value, dict):
        for key, member in value.items():
            _require(key, str, f"a name in {title}")
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
    if isinstance(value, str) and (len(value) > LONGEST_TEXT or value.encode(errors="ignore").decode() != value):
        raise ValueError(f"{title} is a text that is too long, or not Unicode")
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise ValueError(f"{title} is a number that is too large")

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of hosts on the controller. What somebody sent is not trusted: its size, JSON and shape are checked first."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import SCHEMA
from ansible_collections.npu.affinity.plugins.module_utils._base import documents
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import NEVER_BOUND
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import json_of, require_shape, shown
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied
from ansible_collections.npu.affinity.plugins.module_utils._state.history.digest import reduced
from ansible_collections.npu.affinity.plugins.module_utils._state.history.difference import difference
from ansible_collections.npu.affinity.plugins.module_utils._state.history.entries import STATE
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import plan_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import shapes

VARIABLE = "__npu_affinity_archive"
"""The variable of a host that is an archive; it has the ``path``."""
SUFFIX = ".json"
LARGEST = 8 << 20
"""Bytes of the largest archive. A host with 640 CPUs and 16 NPUs has less than one MiB."""
_NAME = re.compile(r"[^\w.-]+", re.ASCII)
_LONGEST_NAME = 64
_NO_HOSTS = ("", "removed", "all", "ungrouped", "npu_affinity_archives")
"""What an anonymous archive says, and names that are those of groups."""


def archives(path: str) -> list[str]:
    """Return the archives that a path names: itself, or those in the folder. Raises ``ValueError`` if there is none."""
    if not os.path.isdir(path):
        return [path]
    if found := sorted(str(file) for file in Path(path).glob("*" + SUFFIX)):
        return found
    raise ValueError(
        f"npu_affinity_archives '{path}' has no archive (*{SUFFIX}): name what playbook npu.affinity.collect wrote, or its folder"
    )


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
        shapes.require(document, documents.Archive, "archive")
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
    """Return a description of each archive that a path names, with the name that its host gets, and a sentence for each bad one.

    Raises ``ValueError`` where none can be read.
    """
    rows: dict[str, dict[str, Any]] = {}
    refused = []
    for file in archives(path):
        try:
            archive = read(file)
        except ValueError as error:
            refused.append(str(error))
            continue
        name = _free_name(_NAME.sub("-", archive["host"]).strip("-.")[:_LONGEST_NAME], Path(file).stem, rows)
        rows[name] = {"name": name, "path": file, **{key: archive[key] for key in ("time", "version", "settings")}}
    if not rows:
        raise ValueError(" ".join(refused))
    return list(rows.values()), refused


def _free_name(wanted: str, stem: str, taken: Collection[str]) -> str:
    if wanted not in _NO_HOSTS and wanted not in taken:
        return wanted
    name = _NAME.sub("-", stem).strip("-.")[:_LONGEST_NAME] or "host"
    return name if name not in taken else f"{name}-{len(taken) + 1}"


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

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources: rooms of the architecture import those above them, files never each other, and no pattern ends with a ``$``.

A ``$`` matches before a newline, too.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand

REPOSITORY = Path(__file__).resolve().parents[4]
DRAWERS = ("module_utils", "plugin_utils")
PREFIX = "ansible_collections.npu.affinity.plugins"


def table(drawer: str) -> list[str]:
    text = (REPOSITORY / "docs/architecture.md").read_text()
    return re.findall(r"^\| `(_\w+)` \|", text[text.index(f"`plugins/{drawer}`\n") :].split("\n###")[0], re.MULTILINE)


def imported(drawer: Path, path: Path) -> Iterator[str]:
    """Yield the names, from the drawer on, of what a file imports out of it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            source = (node.module or "").removeprefix(f"{PREFIX}.{drawer.name}")
            if node.level:
                source = ".".join(["", *path.relative_to(drawer).parent.parts[: len(path.relative_to(drawer).parts) - node.level], source])
            elif source == node.module:
                continue
            yield from (f"{source}.{alias.name}".lstrip(".") for alias in node.names)


@pytest.mark.parametrize("drawer", DRAWERS)
def test_every_room_is_in_the_table(drawer):
    found = {path.stem for path in (REPOSITORY / "plugins" / drawer).glob("_[a-z]*") if path.is_dir() or path.suffix == ".py"}
    assert sorted(table(drawer)) == sorted(found)


@pytest.mark.parametrize("drawer", DRAWERS)
def test_rooms_import_rooms_above_them(drawer):
    folder, rooms = REPOSITORY / "plugins" / drawer, table(drawer)
    for path in folder.rglob("_[a-z]*/**/*.py"):
        room = path.relative_to(folder).parts[0]
        others = {name.split(".")[0] for name in imported(folder, path)} - {room}
        assert others <= set(rooms[: rooms.index(room)]), path
    for path in folder.glob("_[a-z]*.py"):
        assert {name.split(".")[0] for name in imported(folder, path)} <= set(rooms[: rooms.index(path.stem)]), path


@pytest.mark.parametrize("drawer", DRAWERS)
def test_no_file_imports_itself_through_others(drawer):
    folder = REPOSITORY / "plugins" / drawer
    files = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in folder.rglob("*.py")}
    graph = {}
    for file, path in files.items():
        names = list(imported(folder, path))
        graph[file] = {name if name in files else name.rpartition(".")[0] for name in names} & files.keys()
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these files import each other: {' -> '.join(error.args[1])}")


PLUGINS = REPOSITORY / "plugins"


def patterns():
    """Every pattern that a plugin gives to ``re`` as a literal, except those of many lines."""
    for path in sorted(PLUGINS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "re":
                literal = node.args[0] if node.args and isinstance(node.args[0], ast.Constant) else None
                if literal and "MULTILINE" not in ast.dump(node):
                    yield f"{path.name}:{node.lineno}", literal.value


def test_no_pattern_ends_with_a_dollar():
    found = list(patterns())
    assert len(found) > 40
    assert [place for place, text in found if text.rstrip(")").endswith("$") and not text.endswith(r"\$")] == []


@pytest.mark.parametrize("text", ["0-3\n4", "0-3\n,4\x0b5"])
def test_a_newline_inside_a_cpulist_is_none(text):
    with pytest.raises(ValueError, match="is not a CPU number or range"):
        expand(text)

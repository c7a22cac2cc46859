# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of docs/architecture.md name every room of the host's and of the controller's code, below all rooms that it imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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

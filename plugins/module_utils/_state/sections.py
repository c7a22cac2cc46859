# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of the sections of previous.json. Nobody changes a host whose record has another one: it could not be restored.

The sections of features are checked by their packages: the register of features adds them to :data:`CHECKS`, to :data:`LIVE` what an
entry of the history has of each, and to :data:`EFFECTS` what each does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Dict

if TYPE_CHECKING:
    from typing import List, TypedDict

    from .files import FileRecord

    UnitRecord = TypedDict("UnitRecord", {"running": bool, "enabled": bool}, total=False)
    ValueRecord = TypedDict("ValueRecord", {"original": str, "given": List[str]})

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.(service|slice|scope|timer|socket|target)\Z")


def check(name: str, data: Any) -> None:
    """Raise ``ValueError`` with the error if a section is not managed. A stopped unit has a section of its name."""
    try:
        if name not in CHECKS and not is_unit(name):
            raise ValueError("it is unknown")
        checked: Callable[[Any], None] = CHECKS.get(name, check_unit)
        checked(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("%s: %s" % (type(error).__name__, error))


def is_unit(name: str) -> bool:
    return bool(_UNIT.match(name))


def check_unit(data: UnitRecord) -> None:
    if not set(data) <= {"running", "enabled"} or not all(isinstance(value, bool) for value in data.values()):
        raise ValueError("it does not say whether the unit was running and enabled")


def check_files(data: dict[str, FileRecord]) -> None:
    from .files import FileState  # a program that is only started needs nothing of what it imports

    for path, values in data.items():
        check_path(path)
        FileState.from_record(values)


def check_path(path: str) -> None:
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError("'%s' is not an absolute path" % path)


def check_paths(data: list[str]) -> None:
    check_names(data)
    for path in data:
        check_path(path)


def check_names(data: list[str]) -> None:
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError("it is not a list of names")


CHECKS: Dict[str, Callable[[Any], None]] = {
    "files": check_files,
    "folders": check_paths,
    "interrupted": check_paths,
    "libraries": check_paths,
    "stopped": check_names,
}
LIVE: Dict[str, Any] = {}
"""The shapes of the live values of features, each by its name with a question mark."""
EFFECTS: Dict[str, str] = {}
"""What each feature does to a host, as a clause, by its name."""

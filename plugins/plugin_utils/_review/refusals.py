# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why hosts are not bound by a reviewed file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import changes
from ansible_collections.npu.affinity.plugins.plugin_utils._review.entry import Entry, differences, plan_differences
from ansible_collections.npu.affinity.plugins.plugin_utils._review.file import Reviewed

ADVICE = "Write the file again with playbook npu.affinity.plan and npu_affinity_plan_file, have it reviewed, and bind with that."


def refusals(entries: Mapping[str, Entry], files: Mapping[str, str | None]) -> dict[str, str]:
    """Return the sentence for each host that must not be bound. ``files`` are the contents of files by their paths, None for one that is
    not there."""
    try:
        reviewed = [Reviewed(path, content) for path, content in files.items()]
    except ValueError as error:
        return {name: _sentence(str(error)) for name in entries}
    found = {name: _refusal(name, entry, reviewed) for name, entry in entries.items()}
    return {name: _sentence(why) for name, why in found.items() if why}


def _sentence(why: str) -> str:
    return f"npu_affinity_reviewed: {why}. {ADVICE}"


def _refusal(name: str, now: Entry, reviewed: Iterable[Reviewed]) -> str:
    """Return why a host must not be bound, or an empty text."""
    files = list(reviewed)
    having = [file for file in files if name in file]
    if len(having) != 1:
        return (
            f"{_all(files)} {'has' if len(files) == 1 else 'have'} no plan of this host"
            if not having
            else f"{_all(having)} all have this host"
        )
    (file,) = having
    try:
        then = file.host(name)
        return _moved(file.path, then, now)
    except (KeyError, TypeError, ValueError) as error:
        return str(error) if isinstance(error, ValueError) else f"what {file.path} has of this host was changed by hand, and lacks {error}"


def _all(files: Sequence[Reviewed]) -> str:
    return " and ".join(file.path for file in files)


def _moved(path: str, then: Mapping[str, Any], now: Entry) -> str:
    """Return what is not as it was when the file was written. What was bound by the file already is as the file wants it."""
    if "refused" in then:
        return f"{path} has no plan of this host, because a bind was refused then: {' '.join(then['refused']).rstrip('.')}"
    if "unreachable" in then:
        return f"{path} has no plan of this host, which did not answer then"
    if not then["plan"]["npus"] and not now["plan"]["npus"]:
        return ""
    if changed := "; ".join(changes(then["machine"], now["machine"])):
        return f"the hardware is not what {path} was written for: {changed}"
    if now["in_force"] != then["plan"] and (changed := plan_differences(then["in_force"], now["in_force"])):
        return f"the plan in force is not the one that {path} compares with: {changed}"
    if changed := differences(then, now):
        return f"a bind would not do what {path} says: {changed}"
    return ""

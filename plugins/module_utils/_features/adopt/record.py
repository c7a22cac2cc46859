# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What previous.json has of adopted work: a value for each service, container and process, which the engine keeps (:mod:`_state.values`).

The key of a service is its unit, of a container ``engine:id``, of a process ``pid:start:boot``: another process with its number has another
key. A value is a text of pairs: the cpulists ``cpus`` and ``mems`` (the memory nodes of a group, or to which the memory of a process was
moved), the variables of a drop-in, and of a process that is given back what its threads had asked for, by their ids. Empty ``cpus`` of a
process mean that its group alone confines it, on a kernel that forgets what threads asked for.

Besides ``original`` and ``given``, an entry has ``npus``, pairs of kind and logic id, the ``group`` where it was and a ``title``; that of a
service ``folders`` made for its drop-in, and ``foreign``, what somebody else had in its place; that of a rank its number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping

from ..._base.cpulist import expand
from ..._base.outside import require_shape
from ..._host.host import Host
from ..._kernel.processes import BOOT, START
from ..._state import previous
from ..._state.sections import check_files, check_paths, is_unit
from .feature import SECTION

if TYPE_CHECKING:
    from typing import TypedDict

    from ..._state.files import FileRecord

    class Entry(TypedDict, total=False):
        original: str
        given: List[str]
        npus: List[List[Any]]
        group: str
        title: str
        rank: int
        folders: List[str]
        foreign: FileRecord


SETS = ("cpus", "mems")
SERVICE, CONTAINER, PROCESS = "service", "container", "process"
Pairs = Dict[str, str]
WORDS = {"cpus": "CPUs", "mems": "memory nodes"}
KEPT = "%s was given other %s than %s by someone else since it was adopted, and keeps them"
LEFT = "left="
"""In the place of the value of a service: somebody else has given it other sets, and its drop-in alone is removed."""
_CONTAINER = re.compile(r"(?:docker|podman|cri):[0-9a-f]{64}\Z")
_PROCESS = re.compile(r"[0-9]{1,9}:[0-9]{1,19}:[\w-]*\Z", re.ASCII)
_SHAPE = {
    str: {"original": str, "given": [str], "npus": [list], "group": str, "title": str, "rank?": int, "folders?": [str], "foreign?": dict}
}


def pairs(text: str) -> Pairs:
    return dict(word.partition("=")[::2] for word in text.split())


def text_of(values: Mapping[str, str]) -> str:
    return " ".join("%s=%s" % pair for pair in sorted(values.items()))


def entries(host: Host) -> dict[str, Entry]:
    return dict(previous.recorded(host).get(SECTION, {}))


def given(entry: Entry) -> list[Pairs]:
    """Return every value of an entry that may be in force, the last one last."""
    return [values for values in map(pairs, entry["given"]) if "cpus" in values]


def last(entry: Entry) -> Pairs:
    return (given(entry) or [{"cpus": ""}])[-1]


def given_cpus(entry: Entry) -> list[set[int]]:
    """Return the sets of CPUs that an entry was given and that confine by themselves."""
    return [set(expand(values["cpus"])) for values in given(entry) if values["cpus"]]


def kind_of(key: str) -> str:
    return CONTAINER if _CONTAINER.match(key) else PROCESS if _PROCESS.match(key) else SERVICE


def process(host: Host, pid: int) -> str:
    """Return the key of a process, '' if there is none. Raises ``ValueError`` where it cannot be read, which does not mean an end."""
    start = started(host, pid)
    return "" if start is None else "%d:%d:%s" % (pid, start, host.read(BOOT) or "")


def started(host: Host, pid: int) -> int | None:
    """Return when a process was started, in clock ticks since the boot."""
    fields = (host.text("/proc/%d/stat" % pid) or "").rpartition(")")[2].split()
    return int(fields[START]) if len(fields) > START else None


def pid_of(key: str) -> int:
    return int(key.partition(":")[0])


def lives(host: Host, key: str) -> bool:
    """Whether a recorded process is the one that has its number now."""
    return process(host, pid_of(key)) == key


def processes(recorded: Mapping[str, Entry]) -> Iterator[tuple[str, Entry]]:
    return ((key, entry) for key, entry in recorded.items() if kind_of(key) == PROCESS)


def original(_host: Host, _key: str, before: str, entry: Entry) -> tuple[str, list[str]]:
    """Return the original of a container, without what somebody else has changed since, and sentences on that."""
    sets, recorded, remarks = pairs(before), pairs(entry["original"]), []
    for kind in SETS:
        written = [values[kind] for values in given(entry) if kind in values]
        if written and sets[kind] not in (*written, recorded.get(kind)):
            remarks.append(KEPT % (entry["title"], WORDS[kind], written[-1]))
        elif written:
            sets[kind] = recorded.get(kind, "")
    return text_of(sets), remarks


def check(recorded: Any) -> None:
    require_shape(recorded, _SHAPE, "it")
    for key, entry in recorded.items():
        if not (_CONTAINER.match(key) or _PROCESS.match(key) or is_unit(key) and key.endswith(".service")):
            raise ValueError("%r is neither a service, a container nor a process" % key)
        check_paths([entry["group"], *entry.get("folders", ())])
        if entry.get("foreign"):
            check_files({"/foreign": entry["foreign"]})
        for name, value in (pair for text in [entry["original"], *entry["given"]] for pair in pairs(text).items()):
            if name in SETS or name.isdecimal():
                expand(value, name)
            elif kind_of(key) != SERVICE:
                raise ValueError("%s has %r" % (key, name))
        if not all(len(npu) == 2 and isinstance(npu[0], str) and isinstance(npu[1], int) for npu in entry["npus"]):
            raise ValueError("%s has the NPUs %r" % (key, entry["npus"]))

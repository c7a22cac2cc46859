# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the archive of a host: one JSON document of its topology, its state in force, the comparison of both, and what npu-smi printed.

It has no file of the host, and of the files that a bind wrote the digests, so it cannot tell more than the collection shows. In an
anonymous archive, a name of the host counts in any case, and also where a hyphen, an underscore, a dot or a capital joins it to other
words. The kernel's own names below /sys, PCI addresses and the slices of NPUs stay, whatever the host is called.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from typing import Any, Callable, cast, Iterable, Mapping, Match, NamedTuple, Sequence, TYPE_CHECKING

from .._drift.in_force import compare, comparison
from .._base.outside import shown_data
from .._base.version import VERSION
from .._host.host import CommandError, Host, Result
from .._state.history import in_force, reduced
from .._topology.gather import gather

if TYPE_CHECKING:
    from typing import List, Optional, TypedDict

    from .._base.documents import AppliedState, Archive, Comparison, Drift, NotCompared, ToolAnswer
    from .._host.installed import HostCode

    Tool = Optional[str]
    Questions = TypedDict("Questions", {"device_share": bool, "units": List[str], "npu_smi": Tool, "nvidia_smi": Tool}, total=False)

ABOUT = "What npu.affinity knows of a host: playbook npu.affinity.inspect plans it and shows its comparison from here."
SCHEMA = 1
_TOOLS = {"npu_smi": "npu-smi", "nvidia_smi": "nvidia-smi"}
"""Options that name a command, and the tool that it runs."""
_COMMANDS = {"npu_affinity_" + option for option in _TOOLS}
_FIXED = re.compile(
    r"(?:mode [0-7]{4}|no such (?:file|line)|not executable|a file that no bind in force has|another text, not shown|other content"
    r"|its lines in another order or number|(?:not executable|no such file); this host has /[\w./+-]*"
    r"|(?:(?:(?:Allowed(?:CPUs|MemoryNodes)|CPUAffinity|NUMAMask)=[\d ,-]*|Slice=[\w@.-]+\.slice)(?: / |\Z))+)\Z"
)
"""What a comparison finds of a file other than lines of its text, or settings of CPU sets and slices."""
NOT_KEPT = "other lines, which an archive does not have"


class Request(NamedTuple):
    """What an archive is to be of.

    ``questions`` are the options of :func:`_topology.gather.gather`, ``settings`` those that the host is planned with, ``anonymous`` says
    whether ``host``, its other names and serial numbers are taken out, and ``host_code`` is that of :func:`_drift.in_force.compare`.
    """

    host: str
    questions: Questions = {}
    settings: Mapping[str, Any] = {}
    anonymous: bool = False
    host_code: HostCode | None = None


class _WithAnswers(Host):
    """A host that keeps what vendors' tools answered. Where a tool is run by a command of several words, such as one that starts a
    container, these words are the user's, and the tool stands for them."""

    def __init__(self, root: str, timeout: float, questions: Questions) -> None:
        Host.__init__(self, root, timeout)
        given = {tool: str(questions.get(option) or "") for option, tool in _TOOLS.items()}
        self.wrapped = {" ".join(command.split()): tool for tool, command in given.items() if len(command.split()) > 1}
        self.answers_of_tools: dict[str, ToolAnswer] = {}

    def run(self, argv: Sequence[str], stdin: str = "", timeout: float | None = None) -> Result:
        first, _blank, rest = self.without_wrapping(" ".join(argv)).partition(" ")
        command = ("%s %s" % (os.path.basename(first), rest)).strip()
        is_tool = os.path.basename(first) in _TOOLS.values()
        try:
            result = Host.run(self, argv, stdin, timeout)
        except CommandError as error:
            if is_tool:
                self.answers_of_tools[command] = {"command": command, "rc": None, "output": [str(error)]}
            raise
        if is_tool:
            self.answers_of_tools[command] = {"command": command, "rc": result.rc, "output": result.output.splitlines()}
        return result

    def as_shown(self, text: str) -> str:
        """Return a text without the words that run a tool, and without the folder in which the host's tree lies."""
        text = self.without_wrapping(text)
        return text if self.live else "/" if text == self.root else text.replace(self.root + "/", "/")

    def without_wrapping(self, text: str) -> str:
        for command, tool in self.wrapped.items():
            text = text.replace(command, tool)
        return text


def collect(root: str, timeout: float, request: Request) -> tuple[Archive, list[str]]:
    """Look at the host below a root, and return its archive, and sentences on what it lacks. Nothing is written."""
    host = _WithAnswers(root, timeout, request.questions)
    topology = gather(host, others=True, **request.questions)
    warnings: list[str] = []
    state: AppliedState | None = None
    compared: Comparison | NotCompared
    try:
        history = in_force(host)
        state = history.state
        if request.anonymous:
            entries = [entry._replace(author="", reason="", run={**entry.run, "inventory": ""}) for entry in history.entries]
            history = history._replace(entries=entries)
        compared = comparison(host, compare(host, topology, True, request.host_code, history))
        compared["drift"] = [_without_lines(finding) for finding in compared["drift"]]
    except (OSError, ValueError, CommandError) as error:
        warnings.append("the comparison did not finish: %s" % error)
        compared = {"msg": str(error)}
    archive: Archive = {
        "about": ABOUT,
        "schema": SCHEMA,
        "version": VERSION,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": request.host,
        "settings": {name: value for name, value in request.settings.items() if name not in _COMMANDS or len(str(value).split()) < 2},
        "topology": topology,
        "in_force": cast("Any", reduced(state)) if state else None,
        "compared": compared,
        "tools": list(host.answers_of_tools.values()),
    }
    archive = shown_data(archive, host.as_shown)
    return _without_names(archive, host, warnings) if request.anonymous else archive, warnings


def write(archive: Archive, target: str) -> None:
    """Write an archive to a file that its owner can read."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(archive, indent=1, sort_keys=True) + "\n")


def _without_lines(finding: Drift) -> Drift:
    """Return drift without the lines of a file, which anybody may have written."""
    if finding["kind"] != "files" or _FIXED.match(finding["found"]):
        return finding
    sentence = finding["sentence"].replace(finding["found"], NOT_KEPT)
    return cast("Drift", dict(finding, found=NOT_KEPT, sentence=sentence))


def _without_names(archive: Archive, host: Host, warnings: list[str]) -> Archive:
    """Return an archive without the names by which the host is known; warn of those that stay."""
    node = [platform.node()] if host.live else []
    names, common = names_of([archive["host"], host.read("/etc/hostname") or "", *node])
    warnings += [
        "The name %s of this host stays in the archive, because it is a word that archives are made of; rename the file and look into it "
        "before you send it" % name
        for name in common
    ]
    hide = without_names(names)
    keys = re.compile(r"[a-z_]+\Z")

    def hidden(value: Any) -> Any:
        if isinstance(value, dict):
            return {key if keys.match(key) else hide(key): hidden(inner) for key, inner in value.items()}
        return [hidden(inner) for inner in value] if isinstance(value, list) else hide(value) if isinstance(value, str) else value

    return cast("Archive", dict(hidden(archive), about=ABOUT, host=REMOVED))


REMOVED = "removed"
GENERIC = frozenset(
    re.findall(
        r"\w+",
        "absent auto bin bind boot bound cgroup changed cluster container cpu cpus default dev driver etc file files gpu home host idle "
        "irq irqbalance kernel kubelet lib linux local localhost machine main manual memory near node none npu npus off open opt plan pod "
        "pool present proc root run service services session slice slices static sys system systemd threads tmp tool unit units unknown "
        "user usr var vllm workers",
    )
)
"""Words of which an archive is made: a host of such a name cannot be told from them."""
_JOINT = r"(?:[-_.]|\\{1,2}x2d)"
"""What a name's parts are joined by; systemd writes a hyphen as ``\\x2d`` where a hyphen means a folder."""
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\x2d)|(?<=[a-z0-9])(?=[A-Z]))"
_RIGHT_OF_DIGIT = r"(?![0-9])"
_RIGHT_OF_LETTER = r"(?:(?![A-Za-z0-9])|(?<=[a-z])(?=[A-Z]))"
_ADDRESS = re.compile(r"[0-9.]+\Z|[0-9a-f:]*:[0-9a-f:]*\Z", re.IGNORECASE)
_KERNEL_PATH = re.compile(r"/sys/(?!fs/cgroup/)[\w./:-]*\Z")
_PATH_BEFORE = 200
_OURS = re.compile(r"(?:npu|gpu)(?:-\d+)?\.slice|(?:system|user|machine)\.slice|npu\d+:|npu[-_](?:affinity|smi)")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_IDENTITY = re.compile(r"^(.*(?:serial|die id|uuid|mac addr)[^:\n]*[:=][ \t]*)\S.*", re.IGNORECASE)
_GPU_IDENTITY = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}", re.IGNORECASE)


def names_of(known_as: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names to take out of a host that is ``known_as`` these, short names included, and those that are too common for that."""
    names = set()
    for name in (text.strip() for text in known_as):
        names |= {name} if _ADDRESS.match(name) else {name, name.partition(".")[0]}
    names = {name for name in names if len(name) > 1 and (not name.isdigit())}
    return sorted(names - GENERIC), sorted(name for name in names & GENERIC if name != "localhost")


def without_names(names: Sequence[str]) -> Callable[[str], str]:
    """Return the function that takes the given names, serial numbers and identities of GPUs out of a line of text."""
    patterns = [_pattern(name) for name in sorted(names, key=len, reverse=True)]
    any_name = re.compile("|".join(patterns)) if patterns else None

    def hide(text: str) -> str:
        text = any_name.sub(_replaced, text) if any_name else text
        return _GPU_IDENTITY.sub(REMOVED, _IDENTITY.sub(r"\g<1>" + REMOVED, text))

    return hide


def _pattern(name: str) -> str:
    parts = [re.escape(part) for part in re.split(r"[-_.]", name)]
    return "%s(?i:%s)%s" % (_LEFT, _JOINT.join(parts), _RIGHT_OF_DIGIT if name[-1].isdigit() else _RIGHT_OF_LETTER)


def _replaced(match: Match[str]) -> str:
    start, end = match.span()
    before, around = match.string[max(0, start - _PATH_BEFORE) : start], match.string[max(0, start - 12) : end + 12]
    is_kept = (
        _KERNEL_PATH.search(before)
        or _OURS.match(match.string, start)
        or any(address.group().find(match.group()) >= 0 for address in _PCI.finditer(around))
    )
    return match.group() if is_kept else REMOVED

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command ``npu-affinity``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import Any, Callable, Iterable, Sequence, cast

from .._state.difference import paragraphs, rows
from .._host.host import CommandError, Host
from .._host.installed import UNIT_FOLDER
from .._kernel.pci import numa_node
from .._base.outside import require_shape, say, shown
from .._state.plan_file import PATH
from .._base.table import plan_table, wrapped
from .._drift.codes import WORK_OUTSIDE_POOL
from .._users import pools
from .._base.version import VERSION
from . import explaining, launching, running
from .exec import REFUSED, main as execute, start
from .state import CODES, OUTSIDE, HostRecord, record_of, status_of

PROGRAM = "npu-affinity"
_ABOUT = "Show and verify the CPU binding of this host, explain it, and run commands in it."
_WIDTH = 120
_SUBJECTS = "subjects: pid 1234, container NAME, npu 3, gpu 0, cpu 17, or in one word npu3, npu-3.slice, cpu17, 0000:c1:00.0"
_STATES = (
    "exit status: 0 bound, 3 drifted, 4 pending, 5 not bound, 6 bound and its workloads are not; 1 not known, because of an error; "
    "2 wrong arguments"
)
_EXEC = "Start a rank of a job on the CPUs and memory of its device; exec --help shows more."
_RUNNING = (
    "The command takes the place of this process. It starts in the slice of its NPUs, with their memory nodes and with "
    "ASCEND_RT_VISIBLE_DEVICES (GPUs: CUDA_VISIBLE_DEVICES); its affinity mask has the CPUs of role main where role threads is on, else "
    "those of the slice. Exit status: that of the command; 125 when it was not started, because of what standard error says."
)
_LAUNCHING = (
    "Comments above the text say what else to do. A request that cannot work is refused. Several NPUs make one workload, in the slice of "
    "all NPUs. Forms for Kubernetes need more than one host knows: filter npu.affinity.launch has them."
)
_QUALITY = {"disjoint": bool, "whole_cores": bool, "local?": (int, float), "balance": int, "idle": str}
_PLAN_TEXTS = {"strategy": str, "requested": str, "reason": str, "cpus": str, "housekeeping": str, "repaired": [str], "warnings": [str]}
"""What a plan says besides its NPUs."""
_SUBJECT = re.compile(r"(pid|npu|gpu|cpu)[ -]?(\d+)(?:\.slice)?\Z")
_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog=PROGRAM, description=_ABOUT, epilog="It reads this host only, and needs no network.")
    top.add_argument("--version", action="version", version="%(prog)s " + VERSION)
    top.add_argument("--root", default="/", help=argparse.SUPPRESS)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, function: Callable[..., int], words: str, epilog: str = "", data: bool = False) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".", epilog=epilog)
        command.set_defaults(function=function)
        if data:
            command.add_argument("--json", action="store_true", help="print data")
        return command

    add("status", _status, "print the binding state in one line and as exit status", _STATES, data=True)
    add("verify", _status, "list every difference from the binding, with its likely cause", _STATES, data=True)
    add("plan", _plan, "print the plan in force as a table", data=True)
    explain = add("explain", _explain, "explain the settings of a process, a container, an NPU or a CPU", _SUBJECTS, data=True)
    explain.add_argument(
        "subject",
        nargs="+",
        metavar="SUBJECT",
        help="pid 1234, container NAME, cpu 17, or npu 3 or gpu 0, where the number is that of the slice",
    )
    run = add("run", _run, "start a command on the CPUs, memory and devices of an NPU or a workload", _RUNNING)
    run.usage = "%s run [-h] [--user USER] NPU|WORKLOAD -- COMMAND [ARGUMENT ...]" % PROGRAM
    run.add_argument("--user", help="start it as this user, with the groups of that user")
    run.add_argument("name", metavar="NPU|WORKLOAD", help="3, npu-3, gpu-0, a PCI function, or the name of a workload")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command with its arguments")
    launch = add("launch", _launch, "print the command or file that starts work on the CPUs and devices of NPUs", _LAUNCHING)
    launch.usage = "%s launch [-h] FORM NPU|WORKLOAD ... [OPTION ...] [--command WORD ...]" % PROGRAM
    launching.add_arguments(launch)
    commands.add_parser("exec", help=_EXEC[0].lower() + _EXEC[1:-1], description=_EXEC)
    add("history", _history, "list what was applied to this host, newest first, with author, time, reason and difference", data=True)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["exec"]:
        return execute(words[1:])
    options = parser().parse_args(words)
    try:
        host = Host(options.root)
        code: int = options.function(host, options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who read has seen enough
        return 1
    except (OSError, ValueError, CommandError) as error:
        _say([str(error)])
        return REFUSED if options.command == "run" else 1


def _require_root(host: Host, command: str) -> None:
    if host.live and os.geteuid() != 0:
        raise ValueError("only root can read all of it: sudo %s %s" % (os.path.abspath(sys.argv[0]), command))


def _status(host: Host, options: argparse.Namespace) -> int:
    _require_root(host, options.command)
    status = status_of(host)
    if options.json:
        _print_data(status.document())
    elif options.command == "status":
        _print([status.line(), *(text for text in status.remarks if text.endswith("[NPU_HOUSEKEEPING_FOLLOWS]")), *status.ranks])
    else:
        _print([status.line().partition("; 'npu-affinity verify'")[0], *(entry["sentence"] for entry in status.drift)])
        if status.outside and status.state != OUTSIDE:
            _print(["%s [%s]" % (pools.sentence(status.outside), WORK_OUTSIDE_POOL)])
        _print("%s: %s" % (user["title"], user["next"]) for user in status.outside)
        _print("remark: " + text for text in status.remarks)
    return CODES[status.state]


def _plan(host: Host, options: argparse.Namespace) -> int:
    record = _bound(host)
    plan = record.plan or {}
    if options.json:
        _print_data(plan)
        return 0
    try:
        require_shape(plan, dict(_PLAN_TEXTS, quality=_QUALITY), "the plan")
    except ValueError as error:
        raise ValueError("%s cannot be shown (%s): bind the host again, or print it with --json" % (PATH, error))
    written = host.names(UNIT_FOLDER, "*.slice")
    entries = [dict(npu, slice=npu.get("slice") if npu.get("slice") in written else None) for npu in plan["npus"]]
    nodes = (numa_node(host, npu["pci"]) if npu.get("pci") else None for npu in plan["npus"])
    npus = [{"pci": npu.get("pci"), "id": npu["id"], "name": None, "numa": node} for npu, node in zip(plan["npus"], nodes)]
    notes = [note for feature in sorted(record.notes, key=lambda feature: feature != "slices") for note in record.notes[feature]]
    _print(plan_table(cast("Any", {**plan, "npus": entries}), cast("Any", {"npus": npus}), summary=" ".join(notes)))
    return 0


def _explain(host: Host, options: argparse.Namespace) -> int:
    kind, number = _subject(" ".join(options.subject))
    record = record_of(host, private=False)
    if kind == "container":
        lines = explaining.of_container(record, number)
    elif kind in ("pid", "cpu"):
        lines = (explaining.of_process if kind == "pid" else explaining.of_cpu)(record, int(number))
    else:
        lines = explaining.of_npu(_bound(host), running.find_npu(record, number))
    if options.json:
        texts = [{"title": title, "text": sentence} for title, sentence in lines]
        _print_data({"kind": kind, "subject": number, "rows": texts, "remarks": list(record.remarks)})
    else:
        _print(line for title, sentence in lines for line in wrapped(title, sentence, _WIDTH))
        _say(record.remarks)
    return 0


def _subject(text: str) -> tuple[str, str]:
    """Return the kind of what is to be explained, and its number or name."""
    if text.startswith("container "):
        return "container", text.partition(" ")[2].lstrip()
    text = text.lower()
    match = _SUBJECT.match(text)
    if match:
        kind, number = match.groups()
        return (kind, number) if kind in ("pid", "cpu") else (kind, "%s-%s" % (kind, number))
    if _PCI.match(text):
        return "npu", text
    more = "; a number alone can be each of them: pid %s, npu %s, cpu %s" % (text, text, text) if text.isdigit() else ""
    raise ValueError("'%s' is not a process, container, NPU or CPU%s. %s" % (text, more, _SUBJECTS[0].upper() + _SUBJECTS[1:]))


def _run(host: Host, options: argparse.Namespace) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words or words[0].startswith("-"):
        raise ValueError("run needs a command, behind its own options: npu-affinity run [--user USER] NPU -- COMMAND")
    if not host.live:
        raise ValueError("nothing can be started below %s: it is not the running machine" % host.root)
    _require_root(host, "run %s -- %s" % (options.name, " ".join(words)))
    launched = running.launch(record_of(host), options.name, words, options.user)
    _say([launched.where])
    return start(launched.argv, dict(os.environ, **launched.environment))


def _launch(host: Host, options: argparse.Namespace) -> int:
    _require_root(host, "launch %s %s" % (options.form, " ".join(options.places)))
    text = launching.text(record_of(host), options)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0


def _history(host: Host, options: argparse.Namespace) -> int:
    _require_root(host, "history")
    record = record_of(host)
    if options.json:
        _print_data(rows(record.entries))
    else:
        _print([*paragraphs(record.entries)] or ["This host has no history."])
    _say(record.remarks)
    return 0


def _bound(host: Host) -> HostRecord:
    record = record_of(host, private=False)
    if record.plan is None:
        raise ValueError(" ".join(record.remarks) or "there is no plan in force: this host is not bound")
    return record


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def _print_data(data: Any) -> None:
    sys.stdout.write("%s\n" % json.dumps(data, indent=2, sort_keys=True))


def _say(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        sys.stderr.write("%s: %s\n" % (PROGRAM, shown(sentence)))


if __name__ == "__main__":
    raise SystemExit(main())

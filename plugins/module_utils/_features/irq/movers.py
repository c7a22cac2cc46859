# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may move interrupts on a host: what runs there, and what systemd and cron start, as far as it is known to write their affinities.

The kernel does not record which program wrote an affinity. So these are suspects, the most certain first: programs by name and variables
(torch_npu: Ascend/pytorch@9e73e708a ``NPUInterruptAffinity.cpp``; vLLM-Ascend: ``cpu_binding.py``), and scripts by their text, which finds
those of vendors of network cards and of NPUs by whatever name.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Callable, Iterator, Sequence

from ..._host.host import Host
from ..._state.systemd import UNIT_FOLDER, UNIT_FOLDERS
from .irqbalance import freedom, processes

_TORCH_NPU = re.compile(r"CPU_AFFINITY_CONF=.*\bbind_irq:1")
UNKNOWN = (
    "unknown: nothing that runs here, and nothing that systemd or cron starts, is known to move interrupts. bpftrace shows the program: "
    "docs/troubleshooting.md"
)
SIGN = "smp_affinity"
_SCRIPT_LIMIT = 1 << 18
_SCRIPT = re.compile(r"/(?:bin|etc|lib|opt|root|sbin|usr|var)/")
"""Where a system's own scripts lie. Those of jobs can lie on file systems of a network that answers no more."""
_USER = re.compile(r"^Uid:\s+\d+\s+(\d+)", re.MULTILINE)
_VLLM = re.compile(r"\bvllm\b", re.IGNORECASE)
_SERVICE = re.compile(r"/([^/\n]+\.service)(?:/|$)", re.MULTILINE)
_COMMAND = re.compile(r"^Exec\w+=[-@:+!]*(.*)$", re.MULTILINE)
_CRON_FOLDERS = ("/etc/cron.d", "/etc/cron.hourly", "/var/spool/cron", "/var/spool/cron/crontabs")
_PROGRAM = re.compile(r"(?:[\w./+@()-]|::(?=\w)){0,256}")
_SHOWN = 3
_WEAK = 3
"""From this rank on programs run that may never have moved an interrupt here."""


def movers(host: Host) -> Callable[[str], str]:
    """Return a function that says who probably moves the interrupts of a PCI function, or that this is unknown."""
    running, started = _running(host), list(_started(host))
    sure, other = [text for rank, text in running if rank < _WEAK], [text for rank, text in running if rank >= _WEAK]
    free = freedom(host)
    told = bool(processes(host))

    def who(pci: str) -> str:
        why = free(pci)
        found = sure + (["irqbalance: %s" % why] if why else []) + started + other
        if not found and told:
            found = ["irqbalance, although its policy excludes this function: 'systemctl restart irqbalance' makes it apply the policy"]
        return "likely " + "; or ".join(found[:_SHOWN]) if found else UNKNOWN

    return who


def _running(host: Host) -> list[tuple[int, str]]:
    """Return ``[(rank, suspect)]``, one for each kind of process, the surest first."""
    found: dict[int, str] = {}
    for pid in sorted((name for name in host.names("/proc", "[0-9]*") if name != str(os.getpid())), key=int):
        words = (host.read("/proc/%s/cmdline" % pid) or "").rstrip("\0").split("\0")
        user = _USER.search(host.read("/proc/%s/status" % pid) or "")
        if words == [""] or (user and user.group(1) != "0"):
            continue  # a kernel thread, one that ended, or one that may write no affinity
        service = _SERVICE.search(host.read("/proc/%s/cgroup" % pid) or "")
        title = "process %s (%s)" % (pid, posixpath.basename(program_of(words))) + (" of " + service.group(1) if service else "")
        rank, text = _suspicion(host, pid, words)
        if text:
            found.setdefault(rank, "%s: %s" % (title, text))
    return sorted(found.items())


def program_of(command: Sequence[str]) -> str:
    """Return the program of a command line. A process that set its title has all of that in the first word, and secrets perhaps."""
    found = _PROGRAM.match(command[0])
    return found.group() if found else ""


def _suspicion(host: Host, pid: str, words: list[str]) -> tuple[int, str]:
    """Return how sure it is that a process moves interrupts, 0 for most, and why, or ''."""
    names = {posixpath.basename(word) for word in words[:2]}
    setting = next((word for word in (host.read("/proc/%s/environ" % pid) or "").split("\0") if _TORCH_NPU.match(word)), "")
    if setting:
        return 0, "started with %s: torch_npu moves the interrupts of its NPUs: remove bind_irq" % setting
    if "tuna" in names:
        return 1, "tuna moves interrupts"
    if "tuned" in names:
        profile = (host.read("/etc/tuned/active_profile") or "").strip() or "no profile"
        return 3, "TuneD, with %s, places interrupts where a profile isolates CPUs or sets irq affinities" % profile
    script = next((word for word in words[:4] if _writes_affinities(host, word, "/proc/%s/root" % pid)), "")
    if script:
        return 2, "%s writes affinities of interrupts" % script
    if any(_VLLM.search(word) for word in words):
        return 4, "vLLM-Ascend places the interrupts of its NPU when a worker starts, unless enable_cpu_binding is false"
    return 0, ""


def _started(host: Host) -> Iterator[str]:
    """Yield the enabled services, and the lines of cron, that start a script which writes affinities of interrupts."""
    wanted = {name for folder in host.names(UNIT_FOLDER, "*.wants") for name in host.names("%s/%s" % (UNIT_FOLDER, folder))}
    enabled = {posixpath.splitext(name)[0] for name in wanted if name.endswith((".service", ".timer"))}
    seen = set()
    for folder in UNIT_FOLDERS:
        for name in host.names(folder, "*.service"):
            if name[: -len(".service")] in enabled and name not in seen:
                seen.add(name)
                script = _script_of(host, " ".join(_COMMAND.findall(host.read("%s/%s" % (folder, name)) or "")))
                if script:
                    yield "%s: %s writes affinities of interrupts" % (name, script)
    tables = ["/etc/crontab"] + ["%s/%s" % (folder, name) for folder in _CRON_FOLDERS for name in host.names(folder)]
    for path in tables:
        lines = [line for line in (host.read(path) or "").splitlines() if not line.lstrip().startswith("#")]
        script = _script_of(host, " ".join(lines))
        if script:
            yield "cron, by %s: %s writes affinities of interrupts" % (path, script)


def _script_of(host: Host, command: str) -> str:
    """Return the script in a command that writes affinities of interrupts; 'it' where the command itself does."""
    if SIGN in command:
        return "it"
    return next((word for word in command.split() if _writes_affinities(host, word)), "")


def _writes_affinities(host: Host, path: str, root: str = "") -> bool:
    """Whether a path is that of a script which writes affinities; ``root``: where the file tree of its process begins."""
    if not _SCRIPT.match(path):
        return False
    place = host.resolve(root + path if root and host.exists(root) else path)
    try:
        if not os.path.isfile(place):
            return False
        with open(place, "rb") as file:
            return file.read(2) == b"#!" and SIGN.encode() in file.read(_SCRIPT_LIMIT)
    except OSError:
        return False

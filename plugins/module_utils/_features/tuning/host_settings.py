# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a whole host that concern NPUs: CPU governor, NUMA balancing, transparent huge pages, swappiness.

Kernel ``Documentation/admin-guide/pm/cpufreq.rst``, ``admin-guide/sysctl/kernel.rst``, ``admin-guide/mm/transhuge.rst``,
``admin-guide/sysctl/vm.rst``. What a host does not have (cpufreq on a virtual machine, NUMA balancing in
a kernel) is reported and is not a failure.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import Any, Dict, Iterable, Mapping, Sequence

from ..._base.table import count
from ..._host.host import Host
from ..._base.outside import json_of, say
from ..._state.diffs import diffs
from ..._state import previous, release
from ..._state.files import MARKER
from ..._state.lock import changing
from ..._state.log import Change, log_change
from .places import FILE, SECTION

PROGRAM = "npu_affinity tuning"
ABOUT = MARKER + ": the settings that are set at boot. Changes are overwritten."
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
PLACES = {
    "numa_balancing": "/proc/sys/kernel/numa_balancing",
    "swappiness": "/proc/sys/vm/swappiness",
    "transparent_hugepages": "/sys/kernel/mm/transparent_hugepage/enabled",
}
SETTINGS = ("governor",) + tuple(PLACES)
_CHOSEN = re.compile(r"\[(\S+)\]")

Step = Dict[str, str]
"""One value to change: ``path``, ``before`` and ``after``."""


def places(host: Host, setting: str) -> list[str]:
    """Return the paths that hold a setting: one, or that of every CPU frequency policy; none where the host does not support it."""
    if setting == "governor":
        paths = ["%s/%s/scaling_governor" % (CPUFREQ, name) for name in host.names(CPUFREQ, "policy*")]
    else:
        paths = [PLACES[setting]]
    return [path for path in paths if host.exists(path)]


def value_of(host: Host, path: str) -> str:
    """Return the value at a path: the one in brackets where the kernel lists what it could be."""
    text = host.read(path)
    if text is None:
        raise ValueError("%s cannot be read; run as root (become: true)" % path)
    chosen = _CHOSEN.search(text)
    return chosen.group(1) if chosen else text.strip()


def text(wanted: Mapping[str, Any]) -> str:
    """Return the text of :data:`FILE` for these settings."""
    return previous.dump(ABOUT, wanted)


def missing(host: Host, wanted: Iterable[str]) -> list[str]:
    """Return a sentence for every wanted setting that the host does not support."""
    return ["this host has no %s to set" % setting for setting in sorted(wanted) if not places(host, setting)]


def applied(host: Host) -> dict[str, Any]:
    """Return the settings of the last run, ``{setting: value}``. Raises ``ValueError`` for a file that role tuning does not write."""
    text = host.text(FILE)
    try:
        found = {} if text is None else dict(json_of(text))
        found.pop("about", None)
        strange = [key for key, value in found.items() if key not in SETTINGS or not isinstance(value, (str, int))]
        if strange:
            raise ValueError("'%s' is not a setting" % strange[0])
    except (TypeError, ValueError) as error:
        raise ValueError("%s is not what role tuning writes (%s); remove it and bind the host again" % (FILE, error))
    return found


def settle(host: Host, wanted: Mapping[str, Any], check: bool = False) -> list[Step]:
    """Bring the host to ``{setting: value}`` and return the steps ``[{path, before, after}]``, only what differs.

    When a step fails, those before it are taken back. Raises ``ValueError`` with a sentence.
    """
    steps = look(host, wanted)
    if not check:
        carry_out(host, steps)
    return steps


def look(host: Host, wanted: Mapping[str, Any]) -> list[Step]:
    """Return the steps that bring the host to ``{setting: value}``, without a write.

    A setting of the last run that is not wanted any more goes back to what it was before the first. Raises ``ValueError`` with a sentence
    for a value that the host does not have, and for a place that cannot be written.
    """
    steps = [step for setting in sorted(wanted) for step in _steps(host, setting, str(wanted[setting]))]
    dropped = set(applied(host)) - set(wanted)
    recorded = previous.recorded(host).get(SECTION, {}) if dropped else {}
    targets = {path: recorded[path] for setting in sorted(dropped) for path in places(host, setting) if path in recorded}
    steps += _differing(host, targets)
    for step in steps:
        if not os.access(host.path(step["path"]), os.W_OK):
            raise ValueError("%s cannot be written; run as root (become: true), and not where /proc and /sys are read-only" % step["path"])
    return steps


def restore(host: Host, recorded: Mapping[str, str], check: bool = False) -> tuple[list[Step], list[str]]:
    """Restore what the section of previous.json holds and return ``(steps, sentences on what could not be restored)``."""
    failed = []
    steps = _differing(host, {path: value for path, value in sorted(recorded.items()) if host.exists(path)})
    for step in steps if not check else ():
        try:
            _write(host, step["path"], step["after"])
        except ValueError as error:
            failed.append(str(error))
    return steps, failed


class Release(release.Release):
    """``report`` are the steps of :func:`restore`."""

    report: list[Step]

    def __init__(self, host: Host, outcome: release.Outcome, options: release.Options) -> None:
        super().__init__(host, outcome, options)
        self.report = []

    @property
    def changed(self) -> bool:
        return bool(self.report)

    def look(self) -> None:
        self._restore(check=True)

    def release(self) -> None:
        self._restore(check=False)

    def lines(self) -> dict[str, list[str]]:
        return {diffs.SETTINGS: diffs.settings(self.report)}

    def take_back(self) -> None:
        left = put_back(self.host, self.report)
        if left:
            raise ValueError("; ".join(left))

    def _restore(self, check: bool) -> None:
        if SECTION not in self.outcome.recorded:
            return
        restored = self.outcome.attempt(SECTION, restore, self.host, self.outcome.recorded[SECTION], check)
        self.report, failed = restored or ([], [])
        for sentence in failed:
            self.outcome.leave(SECTION, sentence)


def _steps(host: Host, setting: str, value: str) -> list[Step]:
    paths = places(host, setting)
    for path in paths if setting == "governor" else ():
        known = (host.read(path.replace("scaling_governor", "scaling_available_governors")) or value).split()
        if value not in known:
            raise ValueError("%s: there is no governor %s; this host has %s" % (path, value, ", ".join(known)))
    return _differing(host, dict.fromkeys(paths, value))


def _differing(host: Host, targets: Mapping[str, str]) -> list[Step]:
    steps = [{"path": path, "before": value_of(host, path), "after": value} for path, value in targets.items()]
    return [step for step in steps if step["before"] != step["after"]]


def carry_out(host: Host, steps: Sequence[Step]) -> None:
    """Record what was there before, and take the steps: all, or none."""
    if steps:
        previous.record(host, SECTION, {step["path"]: step["before"] for step in steps})
    for number, step in enumerate(steps):
        try:
            _write(host, step["path"], step["after"])
        except ValueError as error:
            raise ValueError("; ".join([str(error)] + put_back(host, steps[:number])))


def put_back(host: Host, steps: Sequence[Step]) -> list[str]:
    """Take back steps that were taken, and return a sentence for every one that could not be."""
    sentences = []
    for step in reversed(steps):
        try:
            _write(host, step["path"], step["before"])
        except ValueError as error:
            sentences.append(str(error))
    return sentences


def _write(host: Host, path: str, value: str) -> None:
    try:
        host.set_attribute(path, value)
    except OSError as error:
        raise ValueError("%s does not take '%s': %s" % (path, value, error.strerror or error))
    found = value_of(host, path)
    if found != value:
        raise ValueError("%s was set to '%s' and holds '%s'" % (path, value, found))


def main(argv: Sequence[str] | None = None) -> int:
    """Set what the installed file holds; role tuning's unit runs it at boot. Returns 0, or 1 with a sentence when a setting was refused."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Set what concerns NPUs on this host, as it was applied.")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    host = Host(parser.parse_args(argv).root)
    try:
        with changing(host, PROGRAM):
            wanted = applied(host)
            steps = settle(host, wanted)
    except (OSError, ValueError) as error:
        say(error)
        return 1
    done = ["%(path)s: %(before)s -> %(after)s" % step for step in steps]
    if done:
        log_change(host, Change("rebind", PROGRAM, count(len(done), "change") + " of settings", done))
    for sentence in missing(host, wanted) + done:
        say(sentence)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

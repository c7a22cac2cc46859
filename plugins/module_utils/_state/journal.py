# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes in previous.json on what is under way: files that a run changes, and services that it stops for a moment.

They are forgotten when that has ended. A run that is killed in between leaves its notes: the next one that concerns these files finishes
them, and the next one, whatever it was started for, starts the services.
"""

from __future__ import annotations

from .._host.host import CommandError, Host
from . import previous
from .systemd import Systemd

SECTION = "stopped"
"""The section of previous.json: names of units."""
INTERRUPTED = "interrupted"
"""The section with the paths that a run writes or removes at the moment; one that was killed left it there."""


def stopped(host: Host) -> list[str]:
    """Return the units that an earlier run stopped and did not come to start again."""
    return previous.recorded(host).get(SECTION, []) if host.live else []


def stop(host: Host, systemd: Systemd, unit: str) -> None:
    previous.record(host, SECTION, [unit])
    systemd.stop([unit])


def start(host: Host, systemd: Systemd, unit: str) -> None:
    systemd.start([unit])
    previous.forget(host, SECTION, [unit])


def finish(host: Host, systemd: Systemd) -> list[str]:
    """Start what an earlier run had stopped, and return a sentence for every unit that does not start; its note stays."""
    failed = []
    for unit in stopped(host):
        try:
            start(host, systemd, unit)
        except (CommandError, OSError, ValueError) as error:
            failed.append("%s was stopped by a run that ended too early, and does not start: %s" % (unit, error))
    return failed


def sentence(unit: str) -> str:
    """Return what to say of a unit that :func:`finish` starts."""
    advice = "; a node that was drained for that is still cordoned (kubectl uncordon)" if unit == "kubelet.service" else ""
    return "%s was stopped by a run that ended before it started it again, and is started now%s" % (unit, advice)

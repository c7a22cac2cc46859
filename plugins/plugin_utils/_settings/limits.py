# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers and time spans that no unit could use, and limits that have no effect because of another setting."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._features.irq.rebinds import WITHIN
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark

INTERVAL = "10min"
"""Of the timer that checks interrupts, where no other is set."""

LIMIT, SPAN = "npu_affinity_rebind_limit", "npu_affinity_interval"
LEAST = {LIMIT: 0, "npu_affinity_wait": 0, "npu_affinity_timeout": 1, "npu_affinity_threads_memory_limit": 0}
"""The least value of numbers that units take."""
SWAPPIEST = 200
"""Before Linux 5.8, 100."""
COMM = 15
"""The characters of a thread's name that the kernel keeps: TASK_COMM_LEN of linux/sched.h, without the 0 at the end."""
_PART = re.compile(r" *(\d+(?:\.\d+)?) *([A-Za-zµ]*)")
_SECONDS = {
    **dict.fromkeys(("usec", "us", "µs"), 1e-6),
    **dict.fromkeys(("msec", "ms"), 1e-3),
    **dict.fromkeys(("", "seconds", "second", "sec", "s"), 1),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3600),
    **dict.fromkeys(("days", "day", "d"), 86400),
    **dict.fromkeys(("weeks", "week", "w"), 604800),
    **dict.fromkeys(("months", "month", "M"), 2629800),
    **dict.fromkeys(("years", "year", "y"), 31557600),
}
"""Units of time spans: systemd.time(7)."""


def seconds(span: str) -> float | None:
    """Return a time span of systemd in seconds; None for one that is not understood."""
    parts = list(_PART.finditer(span))
    if not parts or "".join(part.group() for part in parts) != span.rstrip() or any(part.group(2) not in _SECONDS for part in parts):
        return None
    return sum(float(part.group(1)) * _SECONDS[part.group(2)] for part in parts)


def checked_span(value: str, setting: str) -> None:
    """Raise ``ValueError`` for an interval that is no time span; '' is the default of each timer."""
    if value and not seconds(value):
        raise ValueError(f"{setting}: expected a time span of systemd, such as 5min or 1h 30min; got {value!r}")


def checked_number(value: int, setting: str) -> None:
    """Raise ``ValueError`` for a number that is too small."""
    if value < LEAST[setting]:
        raise ValueError(f"{setting}: expected {LEAST[setting]} or more; got {value}")


def checked_patterns(value: Mapping[str, Sequence[str]], setting: str) -> None:
    """Raise ``ValueError`` for a pattern of thread names that are longer than any."""
    for role, patterns in value.items():
        for pattern in patterns or ():
            if len(re.split(r"[*?[]", pattern, maxsplit=1)[0]) > COMM:
                raise ValueError(
                    f"{setting}, {role}: '{pattern}' is the name of no thread, because the kernel keeps {COMM} characters of a name; "
                    f"write '{pattern[:COMM]}'"
                )


def checked_tuning(value: Mapping[str, Any], setting: str) -> None:
    """Raise ``ValueError`` for a swappiness that no kernel takes (kernel documentation, admin-guide/sysctl/vm.rst)."""
    found = value.get("swappiness")
    if found not in ("", None) and not (str(found).isdecimal() and int(found) <= SWAPPIEST):
        raise ValueError(f"{setting}, swappiness: expected a whole number from 0 to {SWAPPIEST}; got {found!r}")


@remark("NPU_NO_EFFECT")
def remarks(given: Mapping[str, Any], off: Container[str], defaults: Mapping[str, Any]) -> list[str]:
    """Return a sentence if the timers of roles irq and nic run too rarely to reach their limit of rebinds within an hour."""
    if "irq" in off and "nic" in off:
        return []
    limit, span = (given.get(name, defaults[name]) for name in (LIMIT, SPAN))
    span = span or INTERVAL
    interval = seconds(str(span))
    if not interval or not str(limit).isdecimal() or not int(limit):
        return []
    most = math.ceil(WITHIN / interval) if interval < WITHIN else 0
    if int(limit) <= most:
        return []
    advice = f"set the limit to {most} or less, or a shorter interval" if most else "set an interval of less than an hour"
    return [
        f"{LIMIT} {limit} has no effect on interrupts with {SPAN} {span}: the timer runs too rarely to restore an object {limit} "
        f"times within an hour, and never stops if another program moves interrupts; {advice}. 0 disables the limit."
    ]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of settings: those that no role takes or no unit could use, each as one sentence, and paths on the controller.

Ansible's own check of a role's arguments finds the former as well, and prints the whole argument spec with them.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import ArgumentTypeError, ArgumentValueError, ElementError

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.rebinds import WITHIN
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import hosts, mutes
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.specs import Option, Options, Values, by_name

_OF_PLAYBOOKS = ("plan_file", "reviewed", "measures", "archives")
_OF_REPORTS = ("reports", "report", "report_from", "report_runs")
LABEL = "npu_affinity_measure_label"
ON_CONTROLLER = {f"npu_affinity_{name}" for name in _OF_PLAYBOOKS + _OF_REPORTS}
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


def with_absolute_paths(name: str, value: Any) -> Any:
    """Return the value of a setting, with absolute paths if it names files on the controller."""
    if name not in ON_CONTROLLER or not value:
        return value
    return [absolute(path) for path in value] if isinstance(value, list) else absolute(value)


def absolute(path: str) -> str:
    return os.path.join(os.environ.get("PWD") or os.getcwd(), path.strip())


def checked_label(value: str, setting: str) -> None:
    """Raise ``ValueError`` for the name of a measurement that would be a file in another directory."""
    if not re.fullmatch(r"([\w-][\w. -]*)?", value):
        raise ValueError(f"{setting}: expected a name of letters, digits, dots, blanks and hyphens, such as housekeeping; got {value!r}")


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


def checked_tuning(value: Values, setting: str) -> None:
    """Raise ``ValueError`` for a swappiness that no kernel takes (kernel documentation, admin-guide/sysctl/vm.rst)."""
    swappiness = value.get("swappiness")
    if swappiness not in ("", None) and not (str(swappiness).isdecimal() and int(swappiness) <= SWAPPIEST):
        raise ValueError(f"{setting}, swappiness: expected a whole number from 0 to {SWAPPIEST}; got {swappiness!r}")


KINDS = {
    "bool": "true or false",
    "dict": "a dictionary",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "raw": "a value",
    "str": "a text",
}

CHECKS: dict[str, Callable[..., object]] = {
    hosts.SETTING: hosts.checked,
    mutes.SETTING: mutes.checked,
    LABEL: checked_label,
    SPAN: checked_span,
    "npu_affinity_threads_patterns": checked_patterns,
    "npu_affinity_tuning": checked_tuning,
    **dict.fromkeys(LEAST, checked_number),
}
"""What refuses values of the right type, with a ``ValueError``."""


def refusals(given: Values, options: Options) -> list[str]:
    """Return a sentence for each setting with a value of the wrong type, or another than its choices. ``given`` are templated values."""
    sentences = []
    for name in sorted(given.keys() & options):
        option, value = options[name], given[name]
        if value is None:
            continue
        if wrong := list(_wrong_keys(name, option, value)):
            sentences += wrong
            continue
        result = validated(name, option, {name: value})
        errors = sorted(result.errors, key=lambda error: not isinstance(error, ElementError))
        sentences += [_sentence(name, option, value, error) for error in errors[:1]]
        if name in CHECKS and not errors:
            try:
                CHECKS[name](result.validated_parameters[name], name)
            except ValueError as refusal:
                sentences.append(f"{refusal}.")
    return sentences


def _wrong_keys(place: str, option: Option, value: Any) -> Iterator[str]:
    """Yield a sentence for what is no dictionary, and for each key, at any depth, that nothing reads, has no value, or is missing."""
    options = option.get("options")
    if option.get("type") == "dict" and not isinstance(value, Mapping | str | None):
        yield f"{place} takes a dictionary, and got {value!r}."
    elif options and isinstance(value, list | tuple):
        for number, entry in enumerate(value, start=1):
            yield from _wrong_keys(f"{place}: entry {number}", {"options": options}, entry)
    if isinstance(value, Mapping) and not options and option.get("type") == "dict":
        yield from (f"{place} has no value for {key}; set one, or remove the key." for key in value if value[key] is None)
    if not options or not isinstance(value, Mapping):
        return
    aliases = {alias for of_key in options.values() for alias in of_key.get("aliases") or ()}
    meant = []
    for key in map(str, value):
        if key not in options and key not in aliases:
            near = difflib.get_close_matches(key, options, n=1)
            meant += near
            advice = f"did you mean {near[0]}?" if near else f"its keys are {', '.join(sorted(options))}."
            yield f"{place} has the key {key}, which nothing reads; {advice}"
    for key, of_key in options.items():
        if of_key.get("required") and value.get(key) is None and key not in meant:
            yield f"{place} lacks the key {key}."
        elif of_key.get("type") == "list" and isinstance(value.get(key), str | int):
            yield f"{place}: {key} is {value[key]!r}, which is not a list; write {_as_list(str(value[key]))}."
        elif value.get(key) is not None:
            here, inner = f"{place}, {key}", value[key]
            wrong = list(_wrong_keys(here, of_key, inner))
            errors = [] if wrong or of_key.get("options") else validated(key, of_key, {key: inner}).errors
            yield from wrong or (_sentence(here, of_key, inner, error) for error in errors[:1])


def _as_list(text: str) -> str:
    """Return a text as the list that was probably meant: ``0-3`` as ``[0, 1, 2, 3]``."""
    try:
        return str(expand(text))
    except ValueError:
        return f"[{text}]"


def validated(name: str, option: Option, given: Values) -> Any:
    """Return the ``ValidationResult`` of one setting by its argument spec; without a value, that of its default."""
    optional = {**option, "required": False}
    if isinstance(optional.get("default"), dict):
        optional["default"] = dict(optional["default"])  # validation adds keys to it
    return ArgumentSpecValidator({name: optional}).validate(dict(given))


def _sentence(name: str, option: Option, value: Any, error: Exception) -> str:
    if isinstance(error, ElementError):
        return f"{name} takes a list, each entry {KINDS[option['elements']]}, and got {value!r}."
    kind = option.get("type", "str")
    if kind == "dict" and isinstance(value, str) or isinstance(error, ArgumentTypeError) and not isinstance(value, Mapping | list):
        return f"{name} takes {KINDS[kind]}, and got {value!r}."
    if isinstance(error, ArgumentValueError):
        choices = list(map(str, option.get("choices", ())))
        number = "one"
        if kind == "list":
            entries = value.split(",") if isinstance(value, str) else value
            number, value = "some", next((entry for entry in entries if str(entry).strip() not in choices), value)
        near = difflib.get_close_matches(str(value), choices, n=1)
        advice = f"; did you mean {near[0]}?" if near else "."
        return f"{name} takes {number} of {', '.join(filter(None, choices))}, and got {value!r}{advice}"
    return f"{name}: {str(error).rstrip('.')}."


@remark("NPU_NO_EFFECT")
def remarks(given: Values, off: Container[str]) -> list[str]:
    """Return a sentence if the timers of roles irq and nic run too rarely to reach their limit of rebinds within an hour."""
    if "irq" in off and "nic" in off:
        return []
    limit, span = (given.get(name, by_name()[name]["default"]) for name in (LIMIT, SPAN))
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

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the forms, and sentences for what they may not be."""

from __future__ import annotations

import re
import shlex
from typing import Any, Callable, Iterable, Mapping, NamedTuple

from .._base.binders import ENGINES
from .._base.fitting import SWITCHES
from .._host.installed import CODE_FOLDER

_RELEASE = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)*\Z")
OF_ALL_FORMS = ("name", "notes")


def _text(option: str, value: object) -> str:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError(f"{option}: expected a text of one line; got {value!r}")
    return text


def _words(option: str, value: object) -> list[str]:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{option}: {value!r} cannot be split into words ({error}); give a list") from error
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{option}: expected a list of words, or a text to split as a shell does; got {value!r}")
    words = list(value)
    for word in words:
        if isinstance(word, bool) or not isinstance(word, (str, int, float)) or "\0" in str(word):
            raise ValueError(f"{option}: expected words; got {word!r} (quote it)")
    return list(map(str, words))


def _expecting(expected: str, is_valid: Callable[[Any], object]) -> Callable[[str, object], object]:
    def read(option: str, value: object) -> object:
        if not is_valid(value):
            raise ValueError(f"{option}: expected {expected}; got {value!r}")
        return value

    return read


_flag = _expecting("true or false", lambda value: isinstance(value, bool))
_version = _expecting("a release such as '24.11', as text", lambda value: isinstance(value, str) and _RELEASE.match(value))


def _plan(option: str, value: object) -> object:
    if not isinstance(value, Mapping) or not isinstance(value.get("npus"), list):
        raise ValueError(f"{option}: expected the fact npu_affinity_plan, with npus; got {type(value).__name__}")
    return value


def _environment(option: str, value: object) -> Mapping[str, bool]:
    if value is True:
        return dict.fromkeys(SWITCHES, True)
    if not isinstance(value, Mapping) or set(value) - set(SWITCHES) or not all(isinstance(on, bool) for on in value.values()):
        raise ValueError(f"{option}: expected true, or a dictionary with {', '.join(SWITCHES)} set to true or false; got {value!r}")
    return value


class Option(NamedTuple):
    """``words`` say in a list of options what it is."""

    read: Callable[[str, object], object]
    default: object
    words: str


OPTIONS = {
    "name": Option(_text, "", "name of the container, service, scope or, for slurm, node"),
    "notes": Option(_flag, True, "write comments above the text"),
    "image": Option(_text, "IMAGE", "image of the container"),
    "command": Option(_words, (), "the program with its arguments"),
    "arguments": Option(_words, (), "further arguments of the container engine, as in --arguments='--detach --rm'"),
    "devices": Option(_flag, True, "give the container its devices and the files of their driver"),
    "ascend_runtime": Option(_flag, False, "use the Ascend Docker Runtime"),
    "vnpu": Option(_text, "", "the template by which the Ascend Docker Runtime splits the NPU"),
    "npu_smi": Option(_text, "/usr/local/bin/npu-smi", "path of npu-smi"),
    "library": Option(_text, CODE_FOLDER, "folder of the host code"),
    "memory": Option(_text, "MEMORY", "memory limit of the pod"),
    "resource": Option(_text, "", "the device plugin's name of the NPUs"),
    "node": Option(_text, "NODE", "name of the node in Kubernetes"),
    "plan": Option(_plan, None, "the plan of the host"),
    "one_claim": Option(_flag, False, "claim NPUs and CPUs together"),
    "visible_devices": Option(_flag, True, "set the variable that confines the program to its devices"),
    "containerd_version": Option(_version, "1.7", "version of containerd"),
    "slurm_version": Option(_version, "24.11", "version of Slurm"),
    "slurm_sockets": Option(_expecting("numa or l3", ("numa", "l3").__contains__), "numa", "what Slurm takes as a socket: numa or l3"),
    "torch_npu_version": Option(_version, "7.3", "version of torch_npu"),
    "engine": Option(
        _expecting("one of " + ", ".join(ENGINES), tuple(ENGINES).__contains__),
        "",
        "the program that runs, whose own CPU binding is to be disabled: " + ", ".join(ENGINES),
    ),
    "environment": Option(_environment, None, "variables that fit the program to its CPUs: " + ", ".join(SWITCHES)),
}
"""Words in capitals stand for what only the user can know; no engine takes them as they are."""


def checked(form: str, taken: Iterable[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a form with defaults; ``ValueError`` names the option, what was given and what is expected."""
    allowed = sorted({*OF_ALL_FORMS, *taken})
    for option in given:
        if option not in allowed:
            raise ValueError(f"form {form} has no option {option}; it has {', '.join(allowed)}")
    read = {option: OPTIONS[option].read(option, value) for option, value in given.items() if value not in (None, "")}
    return {**{name: option.default for name, option in OPTIONS.items()}, **read}

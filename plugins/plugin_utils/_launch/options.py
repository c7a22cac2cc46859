# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the forms, in one type each, and sentences for what they may not be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES
from ansible_collections.npu.affinity.plugins.module_utils._host.installed import LIBRARY

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan

_RELEASE = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)*\Z")
OF_ALL_FORMS = ("name", "notes")
_ENVIRONMENT = ("openmp", "task_queue", "allocator")


@dataclass(frozen=True)
class Options:
    """What the user asks of a form. Words in capitals stand for what only the user can know; no engine takes them as they are."""

    name: str = ""
    notes: bool = True
    image: str = "IMAGE"
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    devices: bool = True
    ascend_runtime: bool = False
    vnpu: str = ""
    npu_smi: str = "/usr/local/bin/npu-smi"
    library: str = LIBRARY
    memory: str = "MEMORY"
    resource: str = ""
    node: str = "NODE"
    plan: Plan | None = None
    one_claim: bool = False
    visible_devices: bool = True
    containerd_version: str = "1.7"
    slurm_version: str = "24.11"
    slurm_sockets: str = "numa"
    torch_npu_version: str = "7.3"
    engine: str = ""
    environment: Mapping[str, bool] | None = None

    @property
    def switches(self) -> Mapping[str, str]:
        """The variables that switch off what the engine binds itself."""
        return ENGINES[self.engine].environment if self.engine else {}

    @property
    def program(self) -> tuple[str, ...]:
        """The command, for forms that cannot do without."""
        return self.command or ("COMMAND",)


def checked(form: str, taken: Iterable[str], given: Mapping[str, Any]) -> Options:
    """Return the options given to a form; ``ValueError`` names the option, what was found and what is expected."""
    allowed = sorted({*OF_ALL_FORMS, *taken})
    for option in given:
        if option not in allowed:
            raise ValueError(f"form {form} has no option {option}; it has {', '.join(allowed)}")
    return Options(**{option: _READERS[option](option, value) for option, value in given.items() if value not in (None, "")})


def _text(option: str, value: object) -> str:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError(f"{option}: expected a text of one line; got {value!r}")
    return text


def _words(option: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"{option}: {value!r} cannot be split into words ({error}); give a list") from error
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{option}: expected a list of words, or a text to split as a shell does; got {value!r}")
    words = list(value)
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | int | float) or "\0" in str(word):
            raise ValueError(f"{option}: expected words; got {word!r} (quote it)")
    return tuple(str(word) for word in words)


def _flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{option}: expected true or false; got {value!r}")
    return value


def _plan(option: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not isinstance(value.get("npus"), list):
        raise ValueError(f"{option}: expected the fact npu_affinity_plan, with npus; got {type(value).__name__}")
    return value


def _sockets(option: str, value: object) -> str:
    if value not in ("numa", "l3"):
        raise ValueError(f"{option}: expected numa or l3; got {value!r}")
    return str(value)


def _version(option: str, value: object) -> str:
    if not isinstance(value, str) or not _RELEASE.match(value):
        raise ValueError(f"{option}: expected a release such as '24.11', as text; got {value!r}")
    return value


def _engine(option: str, value: object) -> str:
    if not isinstance(value, str) or value not in ENGINES:
        raise ValueError(f"{option}: expected one of {', '.join(ENGINES)}; got {value!r}")
    return value


def _environment(option: str, value: object) -> Mapping[str, bool]:
    if value is True:
        return dict.fromkeys(_ENVIRONMENT, True)
    if not isinstance(value, Mapping) or set(value) - set(_ENVIRONMENT) or not all(isinstance(on, bool) for on in value.values()):
        raise ValueError(f"{option}: expected true, or a dictionary with {', '.join(_ENVIRONMENT)} set to true or false; got {value!r}")
    return value


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release that :func:`checked` has let pass, for comparison."""
    return tuple(map(int, version.split(".")))


_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "name": _text,
    "notes": _flag,
    "image": _text,
    "command": _words,
    "arguments": _words,
    "devices": _flag,
    "ascend_runtime": _flag,
    "vnpu": _text,
    "npu_smi": _text,
    "library": _text,
    "memory": _text,
    "resource": _text,
    "node": _text,
    "plan": _plan,
    "one_claim": _flag,
    "visible_devices": _flag,
    "containerd_version": _version,
    "slurm_version": _version,
    "slurm_sockets": _sockets,
    "torch_npu_version": _version,
    "engine": _engine,
    "environment": _environment,
}

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What does not leave a host: of files that can hold secrets, only what the collection reads of them is kept.

This module is private to the collection.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Callable, Container, Iterable

from .._engines import SWITCHES
from .._history.entries import FOLDER as HISTORY
from .._kubelet import settings as _kubelet
from .._processes import torch_npu
from .._state.files import is_ours
from .._state.previous import PATH as PREVIOUS
from .._state.unit_environment import VARIABLES
from .._state.unit_files import FOLDERS, LISTS
from .._vnpu_layout import LIBRARY

DEVICE_FILE = re.compile(r"/dev/(davinci(\d+|_manager)|nvidia[\w-]*)\Z")
_KEPT_VARIABLES = {
    *VARIABLES,
    *SWITCHES,
    torch_npu.NAME,
    "ASCEND_VISIBLE_DEVICES",
    "ATB_SPEED_HOME_PATH",
    "BIND_CPU",
    "NPU_MEM_QUOTA",
    "OMP_PROC_BIND",
    "SGLANG_SET_CPU_AFFINITY",
    "VLLM_CPU_AFFINITY",
}
_KEPT_KEYS = {*LISTS, "NUMAPolicy", "Slice", "Delegate", "EnvironmentFile", "WantedBy", "RequiredBy", "Alias"}
_COMMANDS = ("irqbalance.service", "kubelet.service")
"""Units of which the collection reads the command line."""
_PROCESS = re.compile(r"/proc/\d+/(environ|cmdline|maps)\Z")
_FLAGS = {*_kubelet.FLAGS, "config", "config-dir", "root-dir"}
_IDENTITY = re.compile(r"^(.*(?:serial|die id|uuid|mac addr)[^:\n]*[:=][ \t]*)\S.*$", re.IGNORECASE | re.MULTILINE)
_GPU_IDENTITY = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}", re.IGNORECASE)
REMOVED = "removed"
_CONTAINER = re.compile(r"^/proc/\d+/root/")
_CONFIGURATION = "--additional-config"
_SCRIPT_WORDS = 4
"""In so many words from the first one, a script that runs is looked for."""
_SIGN = "smp_affinity"
_KEPT_NAMES = ("/cpu_manager_state", "/ld.so.preload", "/active_profile")
_UNITS = (*FOLDERS, "/run/systemd/")
_WHOLE = (
    "/sys/",
    "/proc/",
    "/dev/",
    "/run/npu-affinity/",
    "/run/npu-smi/",
    "/etc/npu-affinity/",
    "/usr/local/lib/npu-affinity/",
    "/usr/local/hami-",
    "/usr/local/Ascend/",
)


def scrub(path: str, data: bytes, kubelet_files: Container[str] = ()) -> bytes:
    """Return what is kept of a file. ``kubelet_files`` are the kubelet's configuration files."""
    path = _CONTAINER.sub("/", path)
    text = data.decode("utf-8", "surrogateescape")
    process = _PROCESS.match(path)
    if process:
        text = _PARTS[process.group(1)](text)
    elif path == PREVIOUS:
        text = _scrub_previous(text)
    elif path in kubelet_files:
        text = json.dumps(_kubelet.read(text), indent=1, sort_keys=True) + "\n"
    elif path.startswith(_WHOLE) or path.endswith(_KEPT_NAMES) or data.startswith(b"\x7fELF") or is_ours(text):
        return data
    elif text.startswith("#!"):
        text = _scrub_script(text)
    elif "/cron" in path:
        text = "".join(_scripts_of(line) + "\n" for line in text.splitlines() if not line.lstrip().startswith("#"))
    elif path.startswith(_UNITS):
        text = _scrub_unit(path, text)
    else:
        text = _scrub_assignments(text, "irqbalance" in path)
    return text.encode("utf-8", "surrogateescape")


def _variable(word: str) -> bool:
    """Whether an assignment is one of a variable that is looked at, or has flags, as files of the kubelet do."""
    name, _equals, value = word.strip("\"' \t").partition("=")
    return name in _KEPT_VARIABLES or value.lstrip("\"'").startswith("--")


def _environ(text: str) -> str:
    return "\0".join(word for word in text.split("\0") if word.partition("=")[0] in _KEPT_VARIABLES)


def _cmdline(text: str) -> str:
    words = text.split("\0")
    program = words[0].rpartition("/")[2]
    if program == "irqbalance":
        return text
    if program == "kubelet":
        return "\0".join(_kept_flags(words))
    return "\0".join([words[0], *map(_kept_word, words[1:], [words[0], *words[1:]], range(1, len(words)))])


def _kept_word(word: str, before: str, place: int) -> str:
    """Return what is kept of a word of a command line: names of scripts and of vLLM's parts, and what it says of binding itself."""
    name, equals, value = word.partition("=")
    option = name.replace("_", "-")
    if before.replace("_", "-") == _CONFIGURATION:
        return _kept_configuration(word)
    if option == _CONFIGURATION:
        return "%s=%s" % (name, _kept_configuration(value)) if equals else word
    if option == "--config" or option.startswith("--numa-bind"):
        return name + equals
    if equals or not (
        word.rpartition("/")[2] in ("vllm", "serve") or word.startswith("vllm.") or place < _SCRIPT_WORDS and word.startswith("/")
    ):
        return ""
    return word


def _kept_configuration(text: str) -> str:
    try:
        return json.dumps({name: value for name, value in json.loads(text).items() if name == "enable_cpu_binding"})
    except (AttributeError, ValueError):
        return ""


def _kept_flags(words: list[str]) -> Iterable[str]:
    """Yield the words of the kubelet's command line that are read, flags with their values."""
    yield words[0]
    for word, following in zip(words[1:], words[2:] + [""]):
        name, equals, _value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in _FLAGS:
            yield word
            if not equals and not following.startswith("-"):
                yield following


def _maps(text: str) -> str:
    return "".join(line + "\n" for line in text.splitlines() if LIBRARY in line)


_PARTS: dict[str, Callable[[str], str]] = {"environ": _environ, "cmdline": _cmdline, "maps": _maps}


def _scrub_unit(path: str, text: str) -> str:
    """Return a unit file with the settings that are read, and of its environment the variables."""
    with_commands = any("/" + unit in path for unit in _COMMANDS)
    kept = []
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.partition("=")
        key = key.strip()
        if equals and key.startswith("Exec") and not with_commands:
            kept.append("%s=%s" % (key, _scripts_of(value)))
        elif line.startswith("[") or equals and (key in _KEPT_KEYS or with_commands and key == "ExecStart"):
            kept.append(_with_kept_flags(line) if key == "ExecStart" and "kubelet.service" in path else line)
        elif equals and key == "Environment":
            mine = [shlex.quote(word) for word in _words(value) if _variable(word) or "irqbalance.service" in path]
            if mine or not value.strip():
                kept.append("%s=%s" % (key, " ".join(mine)))
    return "".join(line + "\n" for line in kept)


def _scripts_of(command: str) -> str:
    """Return the words of a command that are paths of programs, or say that it writes affinities of interrupts."""
    words = (word.lstrip("-@:+!") for word in command.split())
    return " ".join(word if word.startswith("/") else _SIGN for word in words if word.startswith("/") and "=" not in word or _SIGN in word)


def _scrub_script(text: str) -> str:
    first = text.splitlines()[0]
    return "%s\n%s" % (first, "# %s\n" % _SIGN if _SIGN in text else "")


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return []  # systemd ignores such a line


def _with_kept_flags(line: str) -> str:
    key, _equals, value = line.partition("=")
    words = value.split()
    variables = [word for word in words[1:] if word.startswith("$")]
    return "%s=%s" % (key, " ".join([*_kept_flags(words), *variables])) if words else line


def _scrub_assignments(text: str, everything: bool) -> str:
    lines = text.replace("\\\n", "").splitlines()
    return "".join(line + "\n" for line in lines if "=" in line and not line.startswith("#") and (everything or _variable(line)))


def _scrub_previous(text: str) -> str:
    """Return the record of what there was before the first bind, without the texts of files that were not ours."""

    def without_texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: "" if key == "content" and isinstance(inner, str) else without_texts(inner) for key, inner in value.items()}
        return [without_texts(inner) for inner in value] if isinstance(value, list) else value

    try:
        return json.dumps(without_texts(json.loads(text)), indent=1, sort_keys=True) + "\n"
    except ValueError:
        return text


def anonymous(member: str, data: bytes, names: Iterable[str]) -> bytes:
    """Return a member of an archive without the names of the host, and without serial numbers and who bound it.

    In sysfs and procfs there are none.
    """
    if member.startswith(("sys/", "proc/")):
        return data
    text = data.decode("utf-8", "surrogateescape")
    for name in sorted(set(names), key=len, reverse=True):
        text = re.sub(r"(?<![\w-])%s(?![\w-])" % re.escape(name), REMOVED, text)
    text = _GPU_IDENTITY.sub(REMOVED, _IDENTITY.sub(r"\g<1>" + REMOVED, text))
    if member.startswith(HISTORY[1:] + "/"):
        text = re.sub(r'^(\s*"(?:author|reason)": )".*"', r'\1"%s"' % REMOVED, text, flags=re.MULTILINE)
    return text.encode("utf-8", "surrogateescape")

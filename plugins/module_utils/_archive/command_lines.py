# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of command lines and the variables that a plan or a comparison reads. Everything else can be a secret, and is left out.

Sources: irqbalance(1); the kubelet's flags of :mod:`_features.kubelet.settings`; what programs that bind themselves read is in
:mod:`_base.binders` and :mod:`threads.torch_npu`.
"""

from __future__ import annotations

import json
import re
from typing import Dict, Iterator, Sequence, Tuple

from .._base import binders
from .._features.kubelet import settings as _kubelet
from .._features.threads import torch_npu
from .._state.unit_environment import VISIBLE

REMOVED = "removed"
SIGN = "smp_affinity"
_PROGRAM = re.compile(r"(?:[\w./@+()-]|::(?=\w)){0,256}")
_PATH = r"/[\w./@+-]*"
_DEVICES = r"(?:[\d, -]|%[iInNpP%])*|(?:GPU|MIG)-[\w/, -]*|all|none|void|NoDevFiles"
_PART = r"(?:(?:mode:)? *\d+|npu\d{1,2}:\d+(?:-\d+)?|[a-z_]{1,20}:\d+)"
_SWITCH = r"[A-Za-z0-9, ]{0,24}"
VARIABLES: Dict[str, str] = {
    **dict.fromkeys((*VISIBLE, "ASCEND_VISIBLE_DEVICES"), _DEVICES),
    **dict.fromkeys(binders.VARIABLES, _SWITCH),
    **dict.fromkeys(("OMP_NUM_THREADS", "TASK_QUEUE_ENABLE"), _SWITCH),
    "LD_PRELOAD": r"/[\w./@+: -]*",
    "CUDA_DEVICE_ORDER": r"[A-Z_]{0,24}",
    "NPU_MEM_QUOTA": r"[\w.]{0,16}",
    **dict.fromkeys(binders.MARKS, _PATH),
    "NPU_PRIORITY": r"\d{0,9}",
    **dict.fromkeys(("NPU_GLOBAL_SHM_PATH", "NPU_LOCAL_SHM_PATH"), _PATH),
    torch_npu.NAME: r"%s(?: *, *%s)*" % (_PART, _PART),
}
"""The variables of which the value is kept, and what it looks like; another value is replaced."""
_SETTINGS = r"[\w.,=%-]*"
_KUBELET_FLAGS: Dict[str, str] = {
    **dict.fromkeys(_kubelet.FLAGS, _SETTINGS),
    **dict.fromkeys(("config", "config-dir", "root-dir"), _PATH),
}
_NUMBER = r"\d{1,6}|off"
_IRQBALANCE_OPTIONS: Dict[str, str] = {
    **dict.fromkeys(("oneshot", "debug", "foreground", "journal", "o", "d", "f", "J"), ""),
    **dict.fromkeys(("powerthresh", "deepestcache", "interval", "banirq", "migrateval", "p", "c", "t", "i", "e"), _NUMBER),
    **dict.fromkeys(("policyscript", "banscript", "pid", "l", "b", "s"), _PATH),
    **dict.fromkeys(("hintpolicy", "h"), "exact|subset|ignore"),
    **dict.fromkeys(("banmod", "m"), r"[A-Za-z0-9_]{1,24}"),
}
"""The options of programs, and what their values look like."""
_OPTION = re.compile(r"--?([A-Za-z][a-z-]*)(?:=(.*))?\Z", re.DOTALL)
_SHORT = re.compile(r"-([A-Za-z])([^=].*)\Z", re.DOTALL)
_REFERENCE = re.compile(r"\$\{?\w+\}?\Z")
_CONFIGURATION = "--additional-config"
_BINDER = re.compile(r"(?:[\w./@+-]{0,250}/)?(?:%s)(?:\.\w+)*\Z" % "|".join(map(re.escape, sorted(binders.PROGRAMS))))
_NAMES_VLLM = re.compile(r"\bvllm\b", re.IGNORECASE)
_SCRIPT = re.compile(r"/(?:bin|etc|lib|opt|root|sbin|usr|var)/[\w./@+-]{1,250}\Z")
"""Where scripts of the system lie."""
_SCRIPT_WORDS = 4


def variable(word: str) -> str:
    """Return an assignment ``NAME=value`` as it is kept, or ''."""
    name, equals, value = word.partition("=")
    if not equals or name not in VARIABLES:
        return ""
    return word if _looks_like(VARIABLES[name], value) else "%s=%s" % (name, REMOVED)


def cmdline(text: str) -> str:
    """Return what is kept of ``/proc/<pid>/cmdline``. Where a process set its title, that is the first word, arguments included."""
    words = text.split("\0")
    found = _PROGRAM.match(words[0])
    program = found.group() if found else ""
    name = program.rpartition("/")[2]
    if name == "irqbalance":
        return "\0".join([program, *irqbalance(words[1:]), *([""] if text.endswith("\0") else [])])
    if name == "kubelet":
        return "\0".join([program, *kubelet(words[1:])])
    return "\0".join([program, *map(_kept_word, words[1:], [words[0], *words[1:]], range(1, len(words)))])


def _kept_word(word: str, before: str, place: int) -> str:
    """Return what is kept of a word: names of scripts and of programs that bind themselves, and what they say of that."""
    name, equals, value = word.partition("=")
    option = name.replace("_", "-")
    if before.replace("_", "-") == _CONFIGURATION:
        return _configuration(word)
    if option == _CONFIGURATION:
        return "%s=%s" % (name, _configuration(value)) if equals else word
    if option == "--config" or option in binders.OPTIONS:
        return name + equals
    if _BINDER.match(word) or place < _SCRIPT_WORDS and _SCRIPT.match(word):
        return word
    return "(vllm)" if _NAMES_VLLM.search(word) else ""


def _configuration(text: str) -> str:
    try:
        found = json.loads(text)
        return json.dumps({name: bool(value) for name, value in found.items() if name == "enable_cpu_binding"})
    except (AttributeError, RecursionError, ValueError):
        return ""


def kubelet(words: Sequence[str]) -> list[str]:
    """Return the words of the kubelet's command line that are read: flags with their values, and references to variables behind them."""
    flags = [word for option in _options(words, _KUBELET_FLAGS) for word in option]
    return flags + [word for word in words if _REFERENCE.match(word)]


def irqbalance(words: Sequence[str]) -> list[str]:
    """Return the words of irqbalance's command line that are its options, their values, and references to variables, in their order."""
    return [word for option in _options(words, _IRQBALANCE_OPTIONS, references=True) for word in option]


def _options(words: Sequence[str], known: Dict[str, str], references: bool = False) -> Iterator[Tuple[str, ...]]:
    """Yield the known options with their values, each as it was written: in one word or in two."""
    for word, following in zip(words, [*words[1:], ""]):
        found = _OPTION.match(word)
        if found and found.group(1) not in known:
            found = _SHORT.match(word)
        name, value = found.groups() if found else ("", None)
        if name in known and value is None:
            has_value = following and not following.startswith("-") and _looks_like(known[name], following)
            yield (word, following) if has_value else (word,)
        elif name in known and _looks_like(known[name], value or "") or references and _REFERENCE.match(word):
            yield (word,)


def _looks_like(pattern: str, value: str) -> bool:
    return re.match(r"(?:%s)\Z" % pattern, value) is not None


def scripts(command: str) -> str:
    """Return the words of a command that are paths of programs, or say that it writes affinities of interrupts."""
    words = (word.lstrip("-@:+!") for word in command.split())
    return " ".join(word if _SCRIPT.match(word) else SIGN for word in words if _SCRIPT.match(word) or SIGN in word)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that were told to bind themselves, against what the plan says. Each is a remark, and explains other findings.

Their environment and arguments at the start show what they do. Sources: :mod:`_base.engines` and
:mod:`threads.torch_npu`; for ``VLLM_CPU_AFFINITY`` the connector of Unified Cache Management, ``split_cores``.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple, Sequence

from ..._base.outside import json_of
from ..._base.cpulist import compress, expand
from ..._base.findings import coded
from ..._kernel.machine import architecture
from ..._state.systemd import UNIT_FOLDER
from ..comparing import Comparing
from ..threads import torch_npu
from ..threads.tasks import started_with

FORCE = "force"
IRQ_TIMER = "npu-affinity-irq.timer"
THREADS_TIMER = "npu-affinity-threads.timer"
_ON = ("1", "true", "yes")


class _Started(NamedTuple):
    """How a process was started, and where: ``granted`` are the CPUs of its ``unit``.

    ``fight`` and ``fight_for_interrupts`` say at the end of sentences what restores the objects that it moves.
    """

    environment: Sequence[str]
    command: Sequence[str]
    unit: str
    granted: set[int]
    online: set[int]
    fight: str
    fight_for_interrupts: str

    @property
    def against(self) -> str:
        return "CPUs %s of %s" % (compress(self.granted), self.unit)

    def value(self, name: str) -> str | None:
        """Return a variable of the environment, the last where there are several."""
        found = [word.partition("=")[2].strip() for word in self.environment if word.startswith(name + "=")]
        return found[-1] if found else None


def check_binders(comparing: Comparing, unit: str, processes: Sequence[str], cpus: str) -> None:
    """Say which of the processes of a unit, given by their folders in /proc, bind themselves. ``cpus`` are those of the unit."""
    host, findings = comparing.host, comparing.findings
    granted, online = set(expand(cpus)), set(comparing.online)
    rules = [_of_sglang, _of_interrupts, _of_ranges, _of_mindie, _of_vllm]
    of_npus = [_of_openmp, _of_store] + ([_of_vllm_ascend] if comparing.host_binds and architecture(host) == "aarch64" else [])
    for_npus = unit == "npu.slice" or unit.startswith("npu-") or getattr(findings.devices.get(unit), "kind", "") == "npu"
    timers = ((THREADS_TIMER, "its threads"), (IRQ_TIMER, "them"))
    fights = ["; until then %s puts %s back" % timer if host.exists("%s/%s" % (UNIT_FOLDER, timer[0])) else "" for timer in timers]
    found: dict[str, list[str]] = {}
    for pid in [process.rpartition("/")[2] for process in processes]:
        command = (host.read("/proc/%s/cmdline" % pid) or "").split("\0")
        started = _Started(started_with(host, pid), command, unit, granted & online or granted, online, *fights)
        has_npus = for_npus or started.value("ASCEND_RT_VISIBLE_DEVICES") is not None
        for sentence in filter(None, [rule(started) for rule in (rules + of_npus if has_npus else rules)]):
            found.setdefault(sentence, []).append(pid)
    for sentence, pids in found.items():
        more = " and %d more" % (len(pids) - 1) if len(pids) > 1 else ""
        who = "process %s (%s) of %s%s" % (pids[0], host.read("/proc/%s/comm" % pids[0]) or "ended", unit, more)
        findings.remarks += coded("NPU_WORKER_BINDS_ITSELF", ["%s started %s" % (who, sentence)])


def _of_sglang(started: _Started) -> str:
    value = started.value("SGLANG_SET_CPU_AFFINITY")
    if value is None or value.lower() not in _ON:
        return ""
    return (
        "with SGLANG_SET_CPU_AFFINITY=%s: SGLang takes cores of the whole host by number, and ends where they are not in its set: start it "
        "with SGLANG_SET_CPU_AFFINITY=0%s" % (value, started.fight)
    )


def _of_openmp(started: _Started) -> str:
    value = started.value("OMP_PROC_BIND")
    if value is None or value.lower() in ("", "false"):
        return ""
    text = "with OMP_PROC_BIND=%s: OpenMP puts the process on one CPU before it looks at its CPUs: start it with OMP_PROC_BIND=false%s"
    return text % (value, started.fight)


def _of_store(started: _Started) -> str:
    if started.value("VLLM_CPU_AFFINITY") != "1":
        return ""
    text = "with VLLM_CPU_AFFINITY=1: UCM divides the CPUs near the device between worker and store, against %s: start it without%s"
    return text % (started.against, started.fight)


def _of_interrupts(started: _Started) -> str:
    found = torch_npu.setting(started.environment)
    if not found or torch_npu.BIND_IRQ not in found[1].switches:
        return ""
    text = "with %s: torch_npu moves the interrupts of its NPUs and stops irqbalance: remove bind_irq%s"
    return text % (found[0], started.fight_for_interrupts)


def _of_ranges(started: _Started) -> str:
    """Return what torch_npu makes of CPUs that the unit does not have, by both readings of the text where they differ."""
    found = torch_npu.setting(started.environment)
    if not found:
        return ""
    ids = torch_npu.visible_ids(started.environment)
    count = len(ids) if ids else len(found[1].ranges)
    outside, texts = set(), []
    for number in range(count) if ids else sorted(found[1].ranges):
        old, new = (torch_npu.cpus_of(found[1], number, count, started.online, release) or set() for release in torch_npu.READINGS)
        if (old | new) - started.granted:
            outside |= (old | new) - started.granted
            differ = "" if old == new else " (before 26.1.0 %s)" % compress(old)
            share = "" if number in found[1].ranges else " (its part of the whole host)"
            texts.append("CPUs %s%s%s for npu%d" % (compress(new), differ, share, number))
    if not outside:
        return ""
    result = "and gets less" if FORCE in found[1].switches else "and then binds nothing"
    return (
        "with %s: torch_npu wants %s, of which %s are not among %s, %s: give it the CPUs of the plan (filter npu.affinity.launch, form "
        "torch_npu), or remove the variable" % (found[0], " and ".join(texts), compress(outside), started.against, result)
    )


def _of_mindie(started: _Started) -> str:
    value = started.value("BIND_CPU")
    if started.value("ATB_SPEED_HOME_PATH") is None or value not in (None, "1"):
        return ""
    said = "without BIND_CPU=0" if value is None else "with BIND_CPU=1"
    text = "%s: MindIE divides the CPUs of its NPU's node itself, against %s: start it with BIND_CPU=0%s"
    return text % (said, started.against, started.fight)


def _serves_by_vllm(command: Sequence[str]) -> bool:
    names = [posixpath.basename(word) for word in command]
    return "vllm" in names and "serve" in names or any(word.startswith("vllm.entrypoints") for word in command)


def _of_vllm(started: _Started) -> str:
    words = [word.partition("=")[0] for word in started.command if word.replace("_", "-").startswith("--numa-bind")]
    if not words or not _serves_by_vllm(started.command):
        return ""
    return "with %s: vLLM binds its processes to nodes itself, against %s: leave it out%s" % (words[0], started.against, started.fight)


def _of_vllm_ascend(started: _Started) -> str:
    if not _serves_by_vllm(started.command):
        return ""
    given = _argument(started.command, "--additional-config")
    if given is None and _argument(started.command, "--config") is not None:
        return ""  # a file says it, or does not
    try:
        asked = json_of(given or "{}").get("enable_cpu_binding", True)
    except (AttributeError, ValueError):
        return ""
    if not asked:
        return ""
    return (
        "without enable_cpu_binding=false: vLLM-Ascend divides %s by all NPUs that it finds, and places threads itself: add "
        "--additional-config '{\"enable_cpu_binding\": false}'%s" % (started.against, started.fight)
    )


def _argument(command: Sequence[str], name: str) -> str | None:
    """Return the value of an argument, given as ``--name value`` or ``--name=value``; None where it is not given."""
    for place, word in enumerate(command):
        found, equals, value = word.partition("=")
        if found.replace("_", "-") == name:
            return value if equals else "".join(command[place + 1 : place + 2])
    return None

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that were told to bind themselves, against what the plan says. Each is a remark, and explains other findings.

Their environment and arguments at the start show what they do: :mod:`_base.binders`, and :mod:`threads.torch_npu` for ranges.
"""

from __future__ import annotations

from typing import Mapping, Sequence

from ..._base.binders import BINDERS, VLLM, VLLM_ASCEND
from ..._base.cpulist import compress, expand
from ..._base.findings import coded
from ..._kernel.machine import architecture
from ..._kernel.processes import command_of, started_with, variables_of
from ..._state.systemd import UNIT_FOLDER
from ..feature import Comparing
from ..threads import torch_npu
from ..threads.feature import SETTINGS as THREADS
from ..watching import WATCH_SERVICE

FORCE = "force"
IRQ_TIMER = "npu-affinity-irq.timer"


def check_binders(comparing: Comparing, unit: str, processes: Sequence[str], cpus: str) -> None:
    """Say which of the processes of a unit, given by their folders in /proc, bind themselves. ``cpus`` are those of the unit."""
    host, findings = comparing.host, comparing.findings
    online = set(comparing.online)
    granted = set(expand(cpus)) & online or set(expand(cpus))
    may_bind = comparing.host_binds and architecture(host) == "aarch64"
    units = ((WATCH_SERVICE, "its threads", THREADS), (IRQ_TIMER, "them", "%s/%s" % (UNIT_FOLDER, IRQ_TIMER)))
    fights = ["; until then %s puts %s back" % (unit, what) if host.exists(path) else "" for unit, what, path in units]
    by_sentence: dict[str, list[str]] = {}
    against = "CPUs %s of %s" % (compress(granted), unit)
    for pid in [process.rpartition("/")[2] for process in processes]:
        environment, command = started_with(host, pid), command_of(host, pid)
        variables = variables_of(environment)
        kind = _kind_of(unit, getattr(findings.devices.get(unit), "kind", ""), variables)
        left_out = [] if may_bind else [VLLM_ASCEND]
        left_out += [VLLM] if _is_given_cpus(command, granted) else []
        binders = [one for one in BINDERS if (len(one.kinds) > 1 or kind in one.kinds) and one not in left_out]
        hows = [(binder, binder.enabled_by(variables, command)) for binder in binders]
        texts = ["%s: %s, against %s: %s%s" % (how, binder.effect, against, binder.remedy, fights[0]) for binder, how in hows if how]
        for text in texts + _of_torch_npu(environment, granted, online, against, fights[1]):
            by_sentence.setdefault(text, []).append(pid)
    for sentence, pids in by_sentence.items():
        more = " and %d more" % (len(pids) - 1) if len(pids) > 1 else ""
        who = "process %s (%s) of %s%s" % (pids[0], host.read("/proc/%s/comm" % pids[0]) or "ended", unit, more)
        findings.remarks += coded("NPU_WORKER_BINDS_ITSELF", ["%s started %s" % (who, sentence)])


def _kind_of(unit: str, of_unit: str, variables: Mapping[str, str]) -> str:
    """Return the kind of the devices of a process, '' where nothing tells it."""
    for kind, variable in (("npu", "ASCEND_RT_VISIBLE_DEVICES"), ("gpu", "CUDA_VISIBLE_DEVICES")):
        if kind == of_unit or unit.startswith((kind + "-", kind + ".slice")) or variable in variables:
            return kind
    return ""


def _is_given_cpus(command: Sequence[str], granted: set[int]) -> bool:
    """Whether vLLM places its workers on CPUs that it was given, all of them those of its unit: filter ``launch`` writes this."""
    lists, is_list = [], False
    for word in command:
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            is_list = name.replace("_", "-") == "--numa-bind-cpus"
        if is_list and (equals or not word.startswith("-")):
            lists.append(value if equals else word)
    try:
        given = {cpu for text in lists for cpu in expand(text)}
    except ValueError:
        return False
    return bool(given) and given <= granted


def _of_torch_npu(environment: Sequence[str], granted: set[int], online: set[int], against: str, fight: str) -> list[str]:
    """Return what torch_npu does with interrupts, which ``fight`` says who restores, and makes of CPUs that the unit does not have, by both
    readings of the text where they differ."""
    switch = torch_npu.setting(environment)
    if not switch:
        return []
    sentences = []
    if torch_npu.BIND_IRQ in switch[1].switches:
        text = "with %s: torch_npu moves the interrupts of its NPUs and stops irqbalance: remove bind_irq%s"
        sentences.append(text % (switch[0], fight))
    ids = torch_npu.visible_ids(environment)
    count = len(ids) if ids else len(switch[1].ranges)
    outside, texts = set(), []
    for number in range(count) if ids else sorted(switch[1].ranges):
        old, new = (torch_npu.cpus_of(switch[1], number, count, online, release) or set() for release in torch_npu.READINGS)
        if (old | new) - granted:
            outside |= (old | new) - granted
            differ = "" if old == new else " (before 26.1.0 %s)" % compress(old)
            share = "" if number in switch[1].ranges else " (its part of the whole host)"
            texts.append("CPUs %s%s%s for npu%d" % (compress(new), differ, share, number))
    if outside:
        result = "and gets less" if FORCE in switch[1].switches else "and then binds nothing"
        sentences.append(
            "with %s: torch_npu wants %s, of which %s are not among %s, %s: give it the CPUs of the plan (filter npu.affinity.launch, form "
            "torch_npu), or remove the variable" % (switch[0], " and ".join(texts), compress(outside), against, result)
        )
    return sentences

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature irq: units and udev rule that bind interrupts at boot and when a driver loads, and the word to irqbalance."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Restarted, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import IRQBALANCE, IRQBALANCE_FILES, IRQ_INSTANCE
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import IRQ_SERVICE, IRQ_TIMER, POLICY, RULES
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.irqbalance import DROP_IN
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN
from ansible_collections.npu.affinity.plugins.module_utils._state.executables import USUAL
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import FIRST_LINE, Feature, managed, no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import oneshot, timer, unit
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.values import INTERVAL

IRQBALANCE_ENVIRONMENT = IRQBALANCE_FILES[0]
IRQBALANCE_DROP_IN = f"{IRQBALANCE}.d/{DROP_IN}"
NOTES_IN_SUMMARY = True
RESTARTED: tuple[Restarted, ...] = ({"unit": IRQBALANCE, "files": IRQBALANCE_FILES},)
_UNASKED = {"policy": "", "policy_place": POLICY, "refusal": ""}
"""What a topology that is written by hand can leave out."""
_ORDER, _BOOT = "After=systemd-modules-load.service systemd-udev-settle.service irqbalance.service\n", "multi-user.target"


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    """Return what keeps the interrupts of a plan.

    The kernel's poll threads of hosts with Ascend 950, whose NPUs have no IRQ CPUs, need the unit and its timer, and nothing else.
    ``left_alone`` of the settings are the PCI functions whose interrupts other features place, each list behind a file of the feature:
    irqbalance leaves them alone, too, as long as that file is there.
    """
    functions = list(dict.fromkeys(entry["pci"] for entry in plan["npus"] if entry["irq"] and entry["pci"]))
    others = [(file, banned) for file, banned in settings.get("left_alone", ()) if banned]
    left_alone = bool(functions or others)
    binds = bool(functions or plan.get("poll"))
    irqbalance = _UNASKED | topology["irqbalance"]
    notes = tuple(_notes(irqbalance, settings["irqbalance"]) if left_alone else ())
    if settings["irqbalance"] == "stop" and plan["npus"] and not left_alone:
        notes = (Sentence("NPU_NO_EFFECT", f"{no_effect('npu_affinity_irqbalance', 'this host')}: no interrupt has CPUs of its own."),)
    if not (left_alone or binds):
        return Feature(released=(IRQBALANCE,), restarted=RESTARTED, notes=notes)
    files, limit = [], int(settings["wait"]) + 240
    if binds:
        service = oneshot("Bind the interrupts of all NPUs to the CPUs of the plan", PLAN, _command(settings), limit, _ORDER, _BOOT)
        check = check_timer("Check that the interrupts of the NPUs are on the planned CPUs", settings)
        files = [unit(IRQ_SERVICE, service), unit(IRQ_TIMER, check)]
    if functions:
        systemctl = (topology.get("programs") or {}).get("systemctl") or USUAL["systemctl"]
        does = "Bind the interrupts of the NPU at PCI function %I to the CPUs of the plan"
        instance = oneshot(does, PLAN, _command(settings, " --pci %i"), limit)
        files += [unit(IRQ_INSTANCE, instance), managed(RULES, _rules(functions, systemctl))]
    can_be_told = irqbalance["installed"] and irqbalance["argument_key"] is not None and not irqbalance["refusal"]
    if left_alone and settings["irqbalance"] == "policy" and can_be_told:
        files += [
            {"path": irqbalance["policy_place"], "content": _policy(functions, irqbalance["policy"], others), "mode": "0755"},
            managed(IRQBALANCE_ENVIRONMENT, _arguments(irqbalance)),
            unit(IRQBALANCE_DROP_IN, f"[Service]\nEnvironmentFile={IRQBALANCE_ENVIRONMENT}\n"),
        ]
    stopped = left_alone and settings["irqbalance"] == "stop"
    return Feature(
        files=tuple(files),
        enabled=(IRQ_SERVICE, IRQ_TIMER) if binds else (),
        started=(IRQ_TIMER,) if binds else (),
        stopped=(IRQBALANCE,) if stopped and irqbalance["installed"] else (),
        released=() if stopped else (IRQBALANCE,),
        restarted=RESTARTED,
        notes=notes,
        python=settings["python"],
        needs_plan=True,
        live=settings["failure"] if binds else None,
    )


@remark("NPU_IRQBALANCE_ACTIVE")
def _notes(irqbalance: Mapping[str, Any], choice: str) -> list[str]:
    if choice == "policy" and irqbalance["refusal"]:
        return [
            f"irqbalance cannot be configured to leave the NPUs' interrupts alone: {irqbalance['refusal']}. It may move them until the "
            "timer restores them; set npu_affinity_irqbalance to stop."
        ]
    if choice == "leave" and irqbalance["active"]:
        return ["irqbalance is active without a policy for the NPUs' interrupts; it may move them until the timer restores them."]
    return []


def _command(settings: OfRole, arguments: str = "") -> str:
    failure = " --failure warn" if settings["failure"] == "warn" else ""
    wait = f"--wait {settings['wait']}{rebind_limit(settings)}"
    return f"{settings['python']} -m npu_affinity irq --plan {PLAN}{arguments} {wait}{failure}"


def rebind_limit(settings: OfRole) -> str:
    """Return the option of programs that restore interrupts, with a blank before it."""
    limit = int(settings["rebind_limit"])
    return f" --rebind-limit {limit}" if limit else ""


def check_timer(does: str, settings: OfRole) -> str:
    return timer(does, "2min", settings["interval"] or INTERVAL, "30s")


def _rules(functions: list[str], systemctl: str) -> str:
    return (
        "# A driver that binds to an NPU requests its interrupts again, and their affinity is lost: bind them. Only the functions of "
        "the plan:\n"
        "# the crypto and compression engines of Kunpeng CPUs are accelerators of the same vendor.\n"
        f'ACTION=="bind", SUBSYSTEM=="pci", KERNEL=="{"|".join(functions)}", '
        f'RUN+="{systemctl} --no-block start npu-affinity-irq@%k.service"\n'
    )


def _policy(functions: list[str], before: str, others: Iterable[tuple[str, list[str]]] = ()) -> str:
    """Return the script that irqbalance asks; ``before``: the one that it was told before, or ''; ``others``: see :func:`wanted`."""
    further = "".join(f"[ -e {file} ] && {_cases(banned)}" for file, banned in others)
    rest = (
        f'# For all others, the script that irqbalance was told before.\n[ -x {(script := shlex.quote(before))} ] && exec {script} "$@"\n'
    )
    return (
        f"#!/bin/sh\n{FIRST_LINE}"
        "# irqbalance asks for every interrupt: $1 is the sysfs path of its device. The NPUs' functions are placed by "
        "npu-affinity-irq.service.\n"
        f"{_cases(functions)}{further}{rest if before else ''}exit 0\n"
    )


def _cases(functions: list[str]) -> str:
    cases = "".join(f'  */{pci}) echo "ban=true"; exit 0 ;;\n' for pci in functions)
    return f'case "$1" in\n{cases}esac\n'


def _arguments(irqbalance: Mapping[str, Any]) -> str:
    words = f"{irqbalance['arguments']} --policyscript={irqbalance['policy_place']}".strip()
    quoted = words.replace("\\", "\\\\").replace('"', '\\"')
    about = "# What this host gives irqbalance anyway, and a policy that leaves the NPUs' interrupts alone.\n"
    return f'{about}{irqbalance["argument_key"]}="{quoted}"\n'

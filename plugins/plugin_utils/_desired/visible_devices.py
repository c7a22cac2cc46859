# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that confine a process to its devices: without them a process on the CPUs of NPU 2 computes on NPU 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._state.unit_environment import DEVICES, VISIBLE, agrees, visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import is_lost, kind_and_number, title

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

Variables = Mapping[str, str]
Found = Mapping[str, Mapping[str, Any]]
"""What other files of a service than our drop-in set: ``{name: {value, file, wins}}``."""
_CUDA = DEVICES["gpu"][0]
NOBODY = -1
"""An id that no device has: a program whose NPUs are all lost then finds none, in place of someone else's."""


def of_entries(topology: Topology, plan: Plan, entries: Sequence[Mapping[str, Any]]) -> list[Variables]:
    """Return the variables for a process of the host that has these entries of a plan: for its NPUs, and for its GPUs.

    The MIG devices of a GPU are named by UUID.
    """
    found: list[Variables] = []
    mig = _mig(topology)
    for kind in DEVICES:
        same = [entry for entry in entries if kind_and_number(entry["slice"])[0] == kind]
        there = sorted((entry for entry in same if not is_lost(plan, entry)), key=lambda entry: int(entry["id"]))
        ids = [part for entry in there for part in mig.get((kind, entry["pci"]), [entry["id"]])]
        found += [visible_devices(kind, ids or [NOBODY])] if same else []
    return found


def _mig(topology: Topology) -> dict[tuple[str, str | None], list[str]]:
    return {(npu["kind"], npu["pci"]): npu["mig"] for npu in topology["npus"] if "mig" in npu}


def mig_refusal(topology: Topology, unit: str, entries: Iterable[Mapping[str, Any]], found: Found) -> Sentence | None:
    """Return a sentence where nothing tells which MIG device a service takes: CUDA gives a process one."""
    mig = _mig(topology)
    of = {title(entry): mig[key] for entry in entries if (key := (kind_and_number(entry["slice"])[0], entry.get("pci"))) in mig}
    parts = [part for devices in of.values() for part in devices]
    if not of or len(parts) == 1 or parts and (told := found.get(_CUDA)) and agrees(_CUDA, told["value"], ",".join(parts)):
        return None
    has = f"{len(parts)} MIG devices" if parts else "no MIG device"
    return Sentence(
        "NPU_SETTING_INVALID",
        f"{unit}: {' and '.join(of)} {'are' if len(of) > 1 else 'is'} in MIG mode with {has}, and a process of CUDA takes exactly one. "
        + (
            f"Set {_CUDA} of the service to one of {', '.join(parts)}."
            if parts
            else "Create one (nvidia-smi mig), or switch MIG mode off (nvidia-smi -mig 0)."
        ),
    )


def not_overriding(wanted: Iterable[Variables], found: Found) -> dict[str, str]:
    """Return what our drop-in is to say: of a kind of device nothing where it would override what another file sets."""
    environment: dict[str, str] = {}
    for variables in wanted:
        own = {name: of["value"] for name, of in found.items() if name in variables and not of["wins"]}
        if not any(name in VISIBLE or value != variables[name] for name, value in own.items()):
            environment |= variables
    return environment


@remark("NPU_VARIABLE_KEPT")
def differing(unit: str, entries: Iterable[Mapping[str, Any]], wanted: Iterable[Variables], found: Found) -> list[str]:
    """Return a sentence for every variable that a file of a service sets, and to devices that are not its own."""
    named = " and ".join(map(title, entries))
    return [
        f"{unit} has the CPUs of {named}, and {of['file']} sets {name}={of['value']} instead of {variables[name]}. It is left so: take it "
        "out there, or name the devices that it uses."
        for variables in wanted
        for name, of in found.items()
        if name in variables and not agrees(name, of["value"], variables[name])
    ]

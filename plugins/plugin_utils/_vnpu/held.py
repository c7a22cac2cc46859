# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NPUs that services of the host hold, and how HAMi's device plugin is kept off them.

Project-HAMi/ascend-device-plugin@ed35e1c4 ``internal/vnpu.go``, ``internal/manager.go`` (``index`` is the NPU ID of npu-smi, so both dies
of a card are hidden) and ``register.go`` (the others are numbered from 0, and a ring is four of these numbers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils import _entries

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Npu, Plan, Topology

RINGS = ("910", "a2")
"""Families whose chips are linked in rings of :data:`RING`."""
RING = 4
PATCH = [
    {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": word} for word in ("--node_config_file", "/node-config.yaml")
]
"""What the DaemonSet of the device plugin lacks to read its ConfigMap of nodes, as a JSON patch."""


def cards(topology: Topology, services: Sequence[Mapping[str, Any]], plan: Plan | None = None) -> list[int]:
    """Return the cards (NPU IDs) of which a service holds an NPU. ``services`` are ``npu_affinity_services``, named as in ``plan``.

    Raises ``ValueError`` for names that stand for no NPU, and NPUs whose card is not known.
    """
    npus = npus_of(topology)
    entries: Any = (plan or topology.get("applied") or {}).get("npus") or [{**npu, "slice": f"npu-{npu['id']}.slice"} for npu in npus]
    by_place = {(npu.get("pci"), npu.get("chip") or 0): npu for npu in npus}
    found = set()
    for service in services:
        if not isinstance(service, Mapping) or "npus" not in service:
            raise ValueError(f"services: expected a list like npu_affinity_services, each with unit and npus; got {service!r}")
        title = service.get("unit") or service.get("name") or "a service"
        members, unknown = _entries.members({"npus": entries}, service["npus"])
        if unknown:
            raise ValueError(f"services: {title} has {', '.join(unknown)}, which the host does not have; name an NPU of its plan")
        for entry in members:
            npu = by_place.get((entry.get("pci"), entry.get("chip") or 0), entry)
            if npu.get("card") is None:
                raise ValueError(f"services: the card of NPU {npu['id']} of {title} is not known; gather the host while npu-smi lists it")
            found.add(int(npu["card"]))
    return sorted(found)


def doubts(topology: Topology, node: str, hidden: Sequence[int]) -> Iterator[str]:
    """Yield what has to be done so that cards are hidden, and what else it changes."""
    if not hidden:
        return
    npus = npus_of(topology)
    yield (
        f"{node}: HAMi's device plugin hides NPU IDs {compress(hidden)} only if it reads node-config.yaml: apply plugin_patch to its "
        "DaemonSet, which has no such argument by default. It reads the file when it starts; restart its pod on the node after each change."
    )
    dies = [npu for npu in npus if npu.get("card") in hidden]
    if any((npu.get("chip") or 0) > 0 for npu in dies):
        yield (
            f"{node}: index hides whole cards, so NPUs {compress(npu['id'] for npu in dies)} are hidden. To hide one die only, replace "
            "index by uuid with its VDIE."
        )
    left = [npu for npu in npus if npu.get("card") not in hidden]
    if left and _moves_rings(left):
        yield (
            f"{node}: HAMi renumbers NPUs {compress(npu['id'] for npu in left)} and takes each four of them for a ring, which is wrong "
            "here. Give services whole rings (NPU 0-3 or 4-7), or use HAMi for pods with one NPU only."
        )
    if any(npu.get("device_share") for npu in dies):
        yield f"{node}: HAMi leaves device share of hidden NPUs as it is; it is on for some of them."


def npus_of(topology: Topology) -> list[Npu]:
    return [npu for npu in topology["npus"] if npu.get("kind", "npu") == "npu"]


def _moves_rings(left: Sequence[Npu]) -> bool:
    """Say whether renumbered NPUs are in other rings than before."""
    numbers = sorted(npu["id"] for npu in left if npu.get("family") in RINGS or str(npu.get("name")).startswith("910"))
    pairs = {(place // RING, number // RING) for place, number in enumerate(numbers)}
    return len(pairs) > len({new for new, _old in pairs}) or len(pairs) > len({old for _new, old in pairs})

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hard vNPUs: fixed parts of an NPU that its driver makes by a template. What each needs, by what npu-smi says of the host's templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.device_files import parts

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

Vnpu = Mapping[str, Any]
_MOST = {"310p": 8}
"""Parts of an NPU by its family, where that is not all for which there are ids."""
_NEVER = {"310": "a 310", "a5": "a 950"}


def is_hard(vnpu: Vnpu) -> bool:
    return bool(vnpu.get("template"))


def templates_of(topology: Topology, npu: Vnpu) -> tuple[dict[str, Vnpu], int]:
    """Return the templates of an NPU by name, and its AI cores, 0 where npu-smi does not tell them."""
    splits, name = topology.get("vnpus") or {}, str(npu.get("name"))
    return {template["name"]: template for template in splits.get("templates", {}).get(name) or ()}, splits.get("ai_cores", {}).get(name, 0)


def hard_refusals(topology: Topology, npu: Vnpu, title: str, wanted: Sequence[Vnpu]) -> Iterator[tuple[str, str]]:
    """Yield ``(code, sentence)`` for what keeps an NPU from being split so."""
    templates, cores = templates_of(topology, npu)
    if not templates or not cores:
        what = f"is {_NEVER[npu['family']]}, which has none" if npu.get("family") in _NEVER else "lists no templates by npu-smi"
        look = f"see npu-smi info -t template-info -i {npu.get('card')} -c {npu.get('chip')}"
        yield "NPU_VNPU_UNSUPPORTED", f"{wanted[0]['name']} is to be a hard vNPU of {title}, which {what}; {look}."
        return
    if unknown := sorted({vnpu["template"] for vnpu in wanted} - templates.keys()):
        yield "NPU_SETTING_INVALID", f"{title} has no template {' and '.join(unknown)}; it has {', '.join(sorted(templates))}."
        return
    sizes = [templates[vnpu["template"]] for vnpu in wanted]
    asked, memory = sum(size["aicore"] for size in sizes), 1024 * sum(size["memory_gib"] or 0 for size in sizes)
    most = _MOST.get(str(npu.get("family")), len(parts(0)))
    if asked > cores or len(wanted) > most or (npu.get("memory_mib") and memory > npu["memory_mib"]):
        yield (
            "NPU_VNPU_TOO_LARGE",
            f"{' and '.join(vnpu['name'] for vnpu in wanted)} want {asked} AI cores and {memory} MiB of {title}, which has {cores} and "
            f"{npu.get('memory_mib')} MiB for up to {most} hard vNPUs; use smaller templates, or another NPU.",
        )


def hard_parts(topology: Topology, npu: Vnpu, device: int, wanted: Sequence[Vnpu]) -> list[dict[str, Any]]:
    """Return what each hard vNPU of an NPU is and what its container gets, in the order in which they are named.

    A vNPU of that template that is there already is taken, the lowest id first; a new one has the lowest id that is free.
    """
    templates, cores = templates_of(topology, npu)
    existing = {part["id"]: part["template"] for part in npu.get("parts") or ()}
    free = [number for number in parts(device) if number not in existing]
    made = []
    for vnpu in wanted:
        alike = [number for number, template in sorted(existing.items()) if template == vnpu["template"]]
        number = (alike or free).pop(0)
        existing.pop(number, None)
        size = templates[vnpu["template"]]
        made.append(
            {
                "vnpu_id": number,
                "template": vnpu["template"],
                "memory_mib": 1024 * (size["memory_gib"] or 0),
                "core": 100 * size["aicore"] // cores,
                "environment": {"ASCEND_VISIBLE_DEVICES": str(number), "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"},
                "devices": [f"/dev/vdavinci{number}:/dev/davinci{number}"],
            }
        )
    return made

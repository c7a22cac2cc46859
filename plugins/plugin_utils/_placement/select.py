# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chips of one host for one task, from its topology or from chip ids. Serves the filter ``select_npus``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import choice as _choice
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import choice
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import Product, product_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

AUTO = "auto"


def select_npus(
    free: Mapping[str, Any] | Iterable[int] | str,
    count: int = 1,
    family: str = AUTO,
    multi: bool = False,
    mode: str = "chip",
    allocatable: int | None = None,
    share: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return ``{family, product, chips, score, reason, assumed}``; the arguments are those of the filter.

    ``ValueError`` with a sentence: the size is not allowed, the free chips do not fit, or the product is not known.
    """
    assumed = ""
    if isinstance(free, Mapping):
        host = cast("Topology", free)
        logic = idle(host)
        if share is not None:
            return _shared(logic.values(), share)
        family, assumed = product_of(host, mode) if family == AUTO else Product(family)
        choice = _choice.choose(list(logic), count, family, multi, allocatable or len(npus_of(host)))
        chips = [logic[chip] for chip in choice.chips]
    elif share is not None:
        return _shared(_choice.chip_ids(free), share)
    elif family == AUTO:
        raise ValueError(f"family: chip ids do not tell the product; name one of {', '.join(RULES)}")
    else:
        choice = _choice.choose(free, count, family, multi, allocatable)
        chips = choice.chips
    return {
        "family": family,
        "product": choice.rule.product,
        "chips": chips,
        "score": choice.score,
        "reason": reason(choice),
        "assumed": assumed,
    }


def npus_of(topology: Topology) -> list[Mapping[str, Any]]:
    return [npu for npu in topology.get("npus") or () if npu.get("kind", "npu") == "npu"]


def idle(topology: Topology) -> dict[int, int]:
    """Return the NPUs on which no process runs: their physical ids with their logic ids."""
    return {_choice.chip_of(npu): int(npu["id"]) for npu in npus_of(topology) if not npu.get("busy")}


def reason(choice: _choice.Choice) -> str:
    """Return in words where the chips are."""
    rule = choice.rule
    chips = compress(choice.chips).replace(",", ", ")
    if rule.group == 1:
        return f"Chips {chips} are the lowest free ids; all chips of {rule.product} are alike."
    groups = sorted({chip // rule.group for chip in choice.chips})
    numbers = compress(groups).replace(",", ", ")
    loose = f" MindCluster guarantees no affinity for {len(choice.chips)} chips." if len(choice.chips) in rule.loose else ""
    return f"Chips {chips} are in {rule.word if len(groups) == 1 else rule.words} {numbers} of {rule.product}.{loose}"


def _shared(unused: Iterable[int], share: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in ("request", "chip_hbm_mb") if name not in share]
    if missing:
        raise ValueError(f"share: {' and '.join(missing)} is missing; expected used, request {{core, hbm_mb, policy}} and chip_hbm_mb")
    chip, score = choice.share(share.get("used") or {}, unused, share["request"], int(share["chip_hbm_mb"]))
    request = share["request"]
    told = f"Chip {chip} has room for {request['core']} percent and {request['hbm_mb']} MB under policy {request['policy']}."
    return {"family": "soft_share", "product": "a shared chip", "chips": [chip], "score": score, "reason": told, "assumed": ""}

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an entry of a plan or a topology is about."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple


class Device(NamedTuple):
    """What an entry of a plan, or of a topology, is about: an NPU or GPU (``kind``) by its logic id and PCI function, '' where unknown."""

    kind: str
    id: int
    pci: str

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Device:
        gpu = entry.get("kind") == "gpu" or str(entry.get("slice")).startswith("gpu-")
        return cls("gpu" if gpu else "npu", entry["id"], entry.get("pci") or "")

    @property
    def title(self) -> str:
        """How sentences call it."""
        return "%s %s" % (self.kind.upper(), self.id)

    @property
    def full_title(self) -> str:
        """The same with its PCI function."""
        return "%s (%s)" % (self.title, self.pci or "no PCI function")


def noun(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return what entries of a plan or a topology are called together: NPU, GPU, or accelerator where both kinds are there, or none."""
    kinds = {Device.of(entry).kind.upper() for entry in entries}
    return kinds.pop() if len(kinds) == 1 else "accelerator"


def with_lost(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a plan's NPUs, and the lost ones whose pools stay reserved, unless another NPU has their ids."""
    taken = {(Device.of(npu).kind, npu["id"]) for npu in plan["npus"]}
    lost = [npu for npu in plan.get("lost") or () if npu["pool"] and (Device.of(npu).kind, npu["id"]) not in taken]
    return [*plan["npus"], *lost]

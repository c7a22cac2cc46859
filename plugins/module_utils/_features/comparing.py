# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is compared with, and what the comparison of a feature is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Collection, Mapping, NamedTuple, Sequence, Set

from .._base.findings import Device
from .._base.findings import Findings
from .._host.host import Host

if TYPE_CHECKING:
    from .._base.documents import FileEntry, Live, Plan, UnitSets


class Wanted(NamedTuple):
    """What a host is compared with: mostly what its state in force has of the same names. By default its plan alone."""

    files: Sequence[FileEntry] = ()
    """All files, ``owned`` as :class:`_transaction.request.Request` has it."""
    owned: Sequence[str] = ()
    enabled: Sequence[str] = ()
    started: Sequence[str] = ()
    stopped: Sequence[str] = ()
    expected: Sequence[UnitSets] = ()
    programs: Sequence[str] = ()
    features: Mapping[str, str] = {"irq": "present"}
    live: Live = {}
    soft_split: str = ""
    pending: Mapping[str, Any] = {}
    npu_smi: str | None = None
    topology: Mapping[str, Any] | None = None
    """What is known of the NPUs that are there."""
    must_be_bound: bool = False
    """Whether a host without a plan is drift."""


class Comparing(NamedTuple):
    """A comparison under way: ``online`` CPUs, empty where nothing tells, and NPUs that are ``there``.

    ``idle`` are units that are known not to run, ``edited`` those whose files are not as expected.
    """

    findings: Findings
    host: Host
    plan: Plan
    wanted: Wanted
    online: Set[int]
    there: Collection[Device]
    idle: Collection[str]
    edited: Collection[str] = ()

    @property
    def tolerant(self) -> bool:
        """Whether interrupts that cannot be bound are no drift."""
        return self.wanted.live.get("irq") == "warn"

    @property
    def slices(self) -> Mapping[str, Any]:
        return self.wanted.live.get("slices") or {}

    @property
    def host_binds(self) -> bool:
        """Whether engines are not meant to bind themselves."""
        return bool(self.slices.get("bound_by", "host") == "host")

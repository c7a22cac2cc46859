# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopted work whose NPUs have all left the plan, or that settings name for others.

It gets back the CPUs that it had, as at unbind, and is forgotten.
"""

from __future__ import annotations

from typing import Any, Container, Mapping

from ..._host.host import Host
from ..._base.findings import Device
from ..._state.release import Options, Outcome
from .places import SECTION
from .record import KINDS, Record
from .release import Release


class Leaving(Release):
    """``used`` are the keys of what holds NPUs of the plan now, whatever it held when it was adopted, and ``moved`` what
    settings name for other CPUs, or do not adopt any more.

    The pools of lost cards stay reserved, and so does what was adopted for these.
    """

    def __init__(self, host: Host, plan: Mapping[str, Any], used: Container[str], moved: Container[str] = ()) -> None:
        Release.__init__(self, host, Outcome({SECTION: {}}), Options())
        self.used = used
        self.moved = moved
        self.planned = [[Device.of(npu).kind, npu["id"]] for npu in [*plan["npus"], *(plan.get("lost") or ())] if npu["pool"]]
        self.keys: dict[str, list[str]] = {}

    def _given_back(self) -> Record:
        record = Record(self.host)
        for kind in KINDS:
            entries = getattr(record, kind)
            self.keys[kind] = [key for key, entry in entries.items() if self._has_left(key, entry)]
            setattr(record, kind, {key: entries[key] for key in self.keys[kind]})
        return record

    def _has_left(self, key: str, entry: Mapping[str, Any]) -> bool:
        gone = bool(entry["npus"]) and not any(npu in self.planned for npu in entry["npus"])
        return key in self.moved or gone and key not in self.used

    @property
    def changed(self) -> bool:
        return any(self.keys.values())

    def sentences(self) -> list[str]:
        return [*self.outcome.warnings, *self.outcome.failed]

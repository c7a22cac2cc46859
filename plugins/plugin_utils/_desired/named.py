# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the settings name for the NPUs of a host, and how it is to be bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus

Entries = Sequence[Mapping[str, Any]]


class Named(NamedTuple):
    """Services (``{unit, npus, engine}``), workloads (``{name, npus, units, share, roles, engine}``) and vNPUs (``{name, npu, memory_mib,
    core, unit}``) of a host.

    ``environment``: which variables drop-ins set besides (setting npu_affinity_environment). ``limiter``: whether vNPUs have one that runs
    on the host. ``device_share``: whether the same bind switches device share on for the NPUs of vNPUs; None where that is not known.
    """

    services: Entries = ()
    workloads: Entries = ()
    vnpus: Entries = ()
    bound_by: str = "host"
    environment: Mapping[str, Any] = {}
    limiter: bool = True
    device_share: bool | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any], device_share: bool | None = None) -> Named:
        """Return what the settings of role slices name."""
        given = {name: settings[name] for name in ("services", "workloads", "vnpus", "bound_by", "environment")}
        given["vnpus"] = _vnpus.named(given["vnpus"])
        return cls(**given, limiter=bool(settings["vnpu_limiter"]), device_share=device_share)

    @property
    def names_devices(self) -> bool:
        """Whether drop-ins set the visible devices of services, which is the default."""
        return self.environment.get("visible_devices") is not False

    def users(self) -> list[tuple[str, Sequence[Any]]]:
        """Return what is named, and the names of the NPUs of each."""
        return [
            *((str(service["unit"]), service["npus"]) for service in self.services),
            *((f"workload {workload['name']}", workload["npus"]) for workload in self.workloads),
            *((f"vNPU {vnpu['name']}", [vnpu["npu"]]) for vnpu in self.vnpus),
        ]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the templates of the forms for Kubernetes can name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import device_number
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ
from ansible_collections.npu.affinity.plugins.module_utils._kernel.devices import SQ
from ansible_collections.npu.affinity.plugins.module_utils._launch.facts import Facts
from ansible_collections.npu.affinity.plugins.module_utils._launch.slurm import whole_cores
from ansible_collections.npu.affinity.plugins.module_utils._launch.workload import Workload
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import drop_in, pods

_LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")


class PodFacts(Facts):
    def __init__(self, workload: Workload, options: Mapping[str, Any], contained: bool) -> None:
        super().__init__(workload, options, contained)
        topology, kubelet, work = workload.topology, workload.topology.get("kubelet") or {}, [{"irq": workload.irq}]
        numbers = sorted(card.file_number for card in workload.cards if card.file_number is not None)
        by_claim = options["devices"] and not options["resource"] and not self["is_gpu"] and len(numbers) == len(workload.cards)
        planned = options["plan"]["npus"] if options["plan"] else []
        hints = pods.hints(topology) if topology else {}
        self.update(
            count=len(workload.cards),
            env=[SimpleNamespace(name=name, value=value) for name, value in self["switches"].items()],
            kubelet=kubelet,
            is_static=kubelet.get("policy") == "static",
            version=kubelet.get("version"),
            forecast=list(map(str, pods.forecast(topology))) if topology else [],
            whole_pool=compress(whole_cores(topology, expand(workload.cpus))),
            near=len(expand(workload.nearest)) == 1,
            interrupts=[f"*{SQ}*", f"*{CQ}*"] if any(entry.get("irq") for entry in [*work, *planned]) else [],
            unhinted=", ".join(str(npu) for npu, node in hints.items() if node is None),
            claimed=numbers if by_claim else [],
            from_plugin=options["devices"] and not (by_claim and numbers),
            of_host=bool(topology and by_claim and numbers),
            unserved=" and ".join(sorted({card.family or "an unknown family" for card in workload.cards} - {"a5"})),
        )

    @property
    def pod_name(self) -> str:
        name: str = self["object_name"]
        if not _LABEL.match(name) or len(name) > 63:
            raise ValueError(f"name: '{name}' cannot be a pod's name; give one of lower-case letters, digits and '-'")
        return name

    @property
    def offered(self) -> str:
        """The name under which the device plugin offers the workload's devices; '' where only the user can know it."""
        return self.options["resource"] or pods.resource_of(card.family for card in self.workload.cards) or ""

    @property
    def resource_or_unknown(self) -> str:
        """The same for texts: without a domain, so that Kubernetes refuses it."""
        return self["offered"] or "RESOURCE"

    @property
    def reserved(self) -> str:
        """The CPUs that no pod may have, as whole cores: for interrupts and housekeeping of the plan, else the workload's own alone."""
        work, plan = self.workload, self.options["plan"]
        if not plan:
            return compress(whole_cores(work.topology, expand(work.irq)))
        if not work.topology:
            raise ValueError(f"{work.title}: whole cores are reserved, which a plan does not have; give topology along with plan")
        return drop_in.reserved_cpus(plan, work.topology)

    @property
    def reserved_size(self) -> int:
        return len(expand(self["reserved"]))

    def _usable(self, name: str, cpus: str) -> SimpleNamespace:
        remaining = set(expand(cpus)) - set(expand(self["reserved"]))
        if not remaining:
            raise ValueError(f"{self.workload.title}: nothing of its CPUs {cpus} is left next to interrupts on {self['reserved']}")
        return SimpleNamespace(name=name, size=len(remaining), cpus=compress(remaining))

    @property
    def size(self) -> int:
        return self._usable("cpus", self.workload.cpus).size  # type: ignore[no-any-return]

    @property
    def requests(self) -> list[SimpleNamespace]:
        """A name and CPUs outside the reserved ones for every NPU with CPUs of its own; one for all where they share them."""
        work = self.workload
        pools = [set(expand(card.pool)) for card in work.cards]
        parted = len(pools) > 1 and sum(map(len, pools)) == len(set().union(*pools)) == len(expand(work.cpus))
        pools_by_name = {f"{work.kind}-{card.number if card.id is None else card.id}": card.pool for card in work.cards} if parted else {}
        return [] if self.options["one_claim"] else [self._usable(*request) for request in (pools_by_name or {"cpus": work.cpus}).items()]

    @property
    def claims(self) -> list[SimpleNamespace]:
        """The claims of a pod of form dra: their names in it, and those of the objects."""
        name = self["pod_name"]
        if self.options["one_claim"]:
            return [SimpleNamespace(name="devices", of=name)]
        npus = [SimpleNamespace(name="npus", of=f"{name}-npus")] if self["claimed"] else []
        return [SimpleNamespace(name="cpus", of=name), *npus]

    @property
    def selected(self) -> SimpleNamespace | None:
        """How a claim of form dra names its NPUs, and how it derives the NUMA node of every NPU of the host from its ``physicId``."""
        attribute = 'device.attributes["npu.huawei.com"].physicId'
        if not self["claimed"]:
            return None
        nodes = self._node_of_each() if self.options["one_claim"] else []
        return SimpleNamespace(by=f"{attribute} in {self['claimed']}", count=len(self["claimed"]), node=f"{nodes}[{attribute}]")

    def _node_of_each(self) -> list[int]:
        """Return the NUMA node of every NPU by the number of its device file, -1 for a number that no NPU has."""
        nodes = {device_number(npu): npu["numa"] for npu in self.workload.topology["npus"] if npu["kind"] == "npu"}
        known_nodes = {number: node for number, node in nodes.items() if number is not None and node is not None}
        if len(known_nodes) < len(nodes):
            raise ValueError("one_claim: the device file or the NUMA node of an NPU of this host is not known; leave out one_claim")
        return [known_nodes.get(number, -1) for number in range(max(known_nodes) + 1)]

    @property
    def options_of_manager(self) -> list[str]:
        wanted = ("full-pcpus-only", "strict-cpu-reservation")
        return [option for option in wanted if drop_in.knows(option, self["kubelet"])]

    @property
    def gates(self) -> list[str]:
        return list(drop_in.gates_of("cpuManagerPolicyOptions", self["options_of_manager"], self["kubelet"]))

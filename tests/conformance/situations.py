# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Situations of GPU hosts and of hosts in general: each is a host in the language of ``tests/simulator``, gathered and planned."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import code_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._features.comparing import Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages.pages import HugePages
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.hugepages import path_of
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import place_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import guests
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.simulator.faults import set_faults
from tests.simulator.generate import generate

Case = Mapping[str, Any]
SIZE = 2048
PAGES_OF_ONE_WRITE = 60
"""Percent of a first write that the kernel of report 30 grants."""


@contextmanager
def host(cards: Iterable[Case], cpus: Case, nodes: Case, **more: Any) -> Iterator[Host]:
    gpus = {"gpus": {"name": "NVIDIA H100", "memory_mib": 81559, "cards": list(cards)}} if cards else {}
    with tempfile.TemporaryDirectory(prefix="situation-") as folder:
        generate({"cpus": cpus, "nodes": nodes, **gpus, **more}, pathlib.Path(folder) / "host")
        yield Host(f"{folder}/host", timeout=60)


def pools(made: Any) -> dict[str, str]:
    return {str(entry["id"]): entry["pool"] for entry in made["npus"]}


def allowed(made: Any) -> list[str]:
    return [entry["memory_nodes"] for entry in made["npus"]]


def addresses(number: int) -> list[str]:
    return [f"0000:{bus:02x}:00.0" for bus in range(0x40, 0x40 + 8 * number, 8)]


def numa_unknown(given: Case, right: Case) -> None:
    cards = [{"bdf": bdf, "node": node} for bdf, node in zip(addresses(given["gpus"]), given["numa_node"], strict=True)]
    size = len(expand(given["nodes"]["0"]))
    with host(cards, {"per_node": size, "packages": 2, "smt": "adjacent"}, {"count": 2}) as found:
        made = plan(gather(found))
    assert (made["quality"]["local"], made["quality"]["own_node"]) == (right["quality_local"], right["quality_own_node"])


def known_by_the_tool(given: Case, right: Case) -> None:
    cards = [{"bdf": bdf, "node": given["sysfs_numa_node"], "closest": given["smi_topo"][gpu][0]} for gpu, bdf in given["gpus"].items()]
    for faults in ({}, {"nvidia_old": True}):
        with host(cards, {"per_node": 32, "packages": 2, "smt": "split"}, {"count": 2}, faults=faults) as found:
            made = plan(gather(found))
        assert pools(made) == right["pools"]
        assert {str(entry["id"]): entry["mems"] for entry in made["npus"]} == right["mems"]


def memory_elsewhere(given: Case, right: Case) -> None:
    nodes = {int(node): told for node, told in given["nodes"].items()}
    described = {
        "ids": list(nodes),
        "without_cpus": [node for node, told in nodes.items() if not told["cpus"]],
        "memory_mib": {node: told["mib"] for node, told in nodes.items()},
        "distances": {"package": 20, "other": 20},
    }
    with host([{"bdf": "0000:41:00.0", "node": given["numa_node"]}], {"per_node": 8}, described) as found:
        made = plan(gather(found))
    assert [entry["mems"] for entry in made["npus"]] == allowed(made) == [right["mems"]]
    assert sum(nodes[node]["mib"] for node in expand(allowed(made)[0])) == right["mib"]


def given_to_guests(given: Case, right: Case) -> None:
    listed = ["0000:01:00.0", "0000:21:00.0", "0000:41:00.0", "0000:61:00.0"]
    cards = [{"bdf": bdf, "node": 0} for bdf in listed] + [{"bdf": bdf, "node": 1, "driver": "vfio-pci"} for bdf in given["vfio_pci"]]
    with host(cards, {"per_node": given["cpus"] // 2, "packages": 2}, {"count": given["nodes"]}) as found:
        topology = gather(found)
        made = plan(topology, min_cpus=1)
    (said,) = guests(topology)
    assert all(word in said for word in ("driver vfio-pci", "guests", *given["vfio_pci"])) and right["said"].startswith("driver vfio-pci")
    assert (len(made["npus"]), topology["problems"]) == (given["listed"], [])


def virtual_online(given: Case, right: Case) -> None:
    with host([{"bdf": "0000:41:00.0", "node": given["gpu_node"]}], {"per_node": 16, "packages": 2}, {"count": 2}) as found:
        root = pathlib.Path(found.root)
        (root / "sys/devices/system/cpu/online").write_text(given["online"])
        (root / "sys/fs/cgroup/cpuset.cpus.effective").write_text(given["root_effective"])
        status = root / "proc/1/status"
        status.write_text(status.read_text().replace("\t0-31", "\t" + given["pid1_allowed"]))
        (said,) = place_refusals(gather(found))
    assert "container" in said and given["root_effective"] in said and right["alternative"].startswith("refused: a container")


def lost_alone(given: Case, right: Case) -> None:
    cards = [{"bdf": bdf, "node": 0} for bdf in addresses(given["gpus"])]
    with host(cards, {"per_node": 32}, {"count": 1}) as found:
        bound = plan(gather(found))
        set_faults(found.root, nvidia_lost=[given["lost"]])
        topology = gather(found)
        _bound, findings = verify(found, Wanted(topology=topology), bound)
        kept = plan({**topology, "applied": bound})
    assert [npu["id"] for npu in topology["npus"]] == given["smi_rows"]
    assert [code_of(entry.kind, entry.cause.word) for entry in findings.drift if entry.kind == "npus"] == ["NPU_CARD_LOST"]
    assert pools(kept) == right["pools"]


def huge_pages_short_once(given: Case, right: Case) -> None:
    class Kernel(Host):
        writes = 0

        def set_attribute(self, path: str, value: str) -> None:
            now, self.writes = self.read_number(path) or 0, self.writes + 1
            granted = PAGES_OF_ONE_WRITE if self.writes == 1 else 100
            super().set_attribute(path, str(now + (int(value) - now) * granted // 100))

    with host([], {"per_node": 8}, {"count": 1, "memory_mib": 131072}) as found:
        assert HugePages().write(Kernel(found.root), path_of(SIZE, 0), str(given["pages"])) == str(right["reached"])


def memory_of_gpus(given: Case, right: Case) -> None:
    told, found = given["p9"]["numa_status"], []
    far = [[10 if a == b else 40 if {a, b} == {0, 8} else given["p9"]["distance"] for b in AC922] for a in AC922]
    cards = [{"bdf": bdf, "node": 0 if bdf < "0035" else 8, "memory_node": node} for bdf, node in told.items()]
    with host(cards, {"per_node": 32, "packages": 2}, {"ids": AC922, "without_cpus": AC922[2:], "distances": far}) as p9:
        found += allowed(plan(gather(p9)))
    cards = [{"bdf": bdf, "node": place // 2, "memory_node": GB200[2 + place]} for place, bdf in enumerate(addresses(4))]
    with host(cards, {"per_node": 16, "packages": 2}, {"ids": GB200, "without_cpus": GB200[2:]}) as gb200:
        found += allowed(plan(gather(gb200)))
    assert all(nodes in right["mems"] for nodes in found) and len(set(found)) == 8


AC922, GB200 = [0, 8, 252, 253, 254, 255], [0, 1, 2, 10, 18, 26]


def _of_playbooks(_given: Case, _right: Case) -> None:
    pytest.skip("a situation of a run of playbooks, which tests/integration has")


SITUATIONS: Mapping[str, Callable[[Case, Case], None]] = {
    "linux-01": numa_unknown,
    "linux-02": known_by_the_tool,
    "linux-04": memory_elsewhere,
    "linux-09": given_to_guests,
    "linux-17": virtual_online,
    "linux-19": lost_alone,
    **dict.fromkeys(("linux-20", "linux-22", "linux-23"), _of_playbooks),
    "linux-30": huge_pages_short_once,
    "linux-33": memory_of_gpus,
}
"""``{number of the folder: check(given, right)}``."""

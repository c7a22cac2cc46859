# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fleet of all hosts of operators' reports: they are bound; then what their report tells happens to them; they are verified, and bound
again. Situations: each as hosts in the language of ``tests/simulator``, and what is right once these are bound."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages.pages import HugePages
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.hugepages import path_of
from tests.fakes.small_host import UNITS, said, write
from tests.integration.conftest import Fleet, Run
from tests.simulator.faults import set_faults

Case = Mapping[str, Any]
Change = Callable[[pathlib.Path], None]
AT_ONCE = {"npu_affinity_batches": ["100%"]}
SHOWN = {"c07", "c07-service", "c37", "l01"}
"""The hosts whose plan is looked at as playbook plan shows it."""
SIZE = 2048
PAGES_OF_ONE_WRITE = 60
"""Percent of a first write that the kernel of report 30 grants."""
AC922, GB200 = [0, 8, 252, 253, 254, 255], [0, 1, 2, 10, 18, 26]


class Described(NamedTuple):
    """A host of a report: ``tweak`` changes its tree before the first bind, and what ``happens`` does so after it."""

    machine: Mapping[str, Any]
    variables: Mapping[str, Any] = {}
    tweak: Change | None = None
    happens: Change | None = None


class Played(NamedTuple):
    fleet: Fleet
    planned: Run
    bound: Run
    verified: Run
    again: Run

    def plan(self, host: str) -> Any:
        return json.loads(self.file(host, "/etc/npu-affinity/plan.json"))

    def pools(self, host: str) -> dict[str, str]:
        return {str(entry["id"]): entry["pool"] for entry in self.plan(host)["npus"]}

    def allowed_memory(self, host: str) -> list[str]:
        return [entry["memory_nodes"] for entry in self.plan(host)["npus"]]

    def file(self, host: str, path: str) -> str:
        return pathlib.Path(f"{self.fleet.tree(host)}{path}").read_text()

    def shown(self, host: str) -> str:
        """The plan of a host as playbook plan shows it; equal ones are shown once."""
        (lines,) = (entry["result"]["lines"] for entry in self.planned.results if entry["result"].get("step") == "show_plans")
        parts = "\n".join(lines).split("\n\n")
        return " ".join(next(part for part in parts if host in part.partition(":")[0].split(", ")).split())

    def found(self, host: str) -> list[str]:
        return said(self.verified, host)


def play(folder: pathlib.Path, hosts: Mapping[str, Described]) -> Played:
    fleet = Fleet(folder, {name: host.machine for name, host in hosts.items()})
    fleet.give({name: dict(host.variables) for name, host in hosts.items() if host.variables})
    for name, host in hosts.items():
        if host.tweak:
            host.tweak(fleet.tree(name))
    planned = fleet.play("plan", "--limit", ",".join(SHOWN & hosts.keys()))
    bound = fleet.play("bind", **AT_ONCE)
    for name, host in hosts.items():
        if host.happens:
            host.happens(fleet.tree(name))
    return Played(fleet, planned, bound, fleet.play("verify"), fleet.play("bind", **AT_ONCE))


def host(cards: Iterable[Case], cpus: Case, nodes: Case, **more: Any) -> dict[str, Any]:
    processes = more.pop("processes", [])
    gpus = {"gpus": {"name": "NVIDIA H100", "memory_mib": 81559, "cards": list(cards), "processes": processes}} if cards else {}
    return {"cpus": cpus, "nodes": nodes, **gpus, **more}


def addresses(number: int) -> list[str]:
    return [f"0000:{bus:02x}:00.0" for bus in range(0x40, 0x40 + 8 * number, 8)]


def numa_unknown(given: Case) -> dict[str, Described]:
    cards = [{"bdf": bdf, "node": node} for bdf, node in zip(addresses(given["gpus"]), given["numa_node"], strict=True)]
    size = len(expand(given["nodes"]["0"]))
    return {"": Described(host(cards, {"per_node": size, "packages": 2, "smt": "adjacent"}, {"count": 2}))}


def is_numa_unknown(played: Played, name: str, given: Case, right: Case) -> None:
    quality = played.plan(name)["quality"]
    assert (quality["local"], quality["own_node"]) == (right["quality_local"], right["quality_own_node"])
    assert "share of local CPUs not known" in played.shown(name)
    nodes = [set(expand("0-63")), set(expand("64-127"))]
    for pool in map(expand, played.pools(name).values()):
        assert any(node >= set(pool) for node in nodes) and all(cpu ^ 1 in pool for cpu in pool), "whole cores, each inside one node"


def known_by_the_tool(given: Case) -> dict[str, Described]:
    cards = [{"bdf": bdf, "node": given["sysfs_numa_node"], "closest": given["smi_topo"][gpu][0]} for gpu, bdf in given["gpus"].items()]
    faults: dict[str, Case] = {"": {}, "old": {"nvidia_old": True}}
    return {
        name: Described(host(cards, {"per_node": 32, "packages": 2, "smt": "split"}, {"count": 2}, faults=fault))
        for name, fault in faults.items()
    }


def is_known_by_the_tool(played: Played, name: str, given: Case, right: Case) -> None:
    for each in (name, f"{name}-old"):
        assert played.pools(each) == right["pools"]
        assert {str(entry["id"]): entry["mems"] for entry in played.plan(each)["npus"]} == right["mems"]


def memory_elsewhere(given: Case) -> dict[str, Described]:
    nodes = {int(node): told for node, told in given["nodes"].items()}
    described = {
        "ids": list(nodes),
        "without_cpus": [node for node, told in nodes.items() if not told["cpus"]],
        "memory_mib": {node: told["mib"] for node, told in nodes.items()},
        "distances": {"package": 20, "other": 20},
    }
    return {"": Described(host([{"bdf": "0000:41:00.0", "node": given["numa_node"]}], {"per_node": 8}, described))}


def is_memory_elsewhere(played: Played, name: str, given: Case, right: Case) -> None:
    assert played.allowed_memory(name) == [right["mems"]]
    assert sum(given["nodes"][str(node)]["mib"] for node in expand(right["mems"])) == right["mib"]


def given_to_guests(given: Case) -> dict[str, Described]:
    listed = ["0000:01:00.0", "0000:21:00.0", "0000:41:00.0", "0000:61:00.0"]
    cards = [{"bdf": bdf, "node": 0} for bdf in listed] + [{"bdf": bdf, "node": 1, "driver": "vfio-pci"} for bdf in given["vfio_pci"]]
    machine = host(cards, {"per_node": given["cpus"] // 2, "packages": 2}, {"count": given["nodes"]})
    return {"": Described(machine, {"npu_affinity_min_cpus": 1})}


def is_given_to_guests(played: Played, name: str, given: Case, right: Case) -> None:
    for run in (played.bound, played.verified, played.again):
        said = "\n".join(run.summary["hosts"][name]["remarks"])
        assert all(word in said for word in ("driver vfio-pci", "guests", *given["vfio_pci"])) and "NPU_FACTS_INCOMPLETE" not in said
    assert right["said"].startswith("driver vfio-pci") and len(played.pools(name)) == given["listed"]


def narrowed_by_the_manager(given: Case) -> dict[str, Described]:
    """A service and a container use GPU 0. They started with the CPUs that systemd and containerd handed down."""
    nodes = [expand(cpus) for cpus in given["gpus"].values()]
    cards = [{"bdf": bdf, "node": node} for node, bdf in enumerate(addresses(len(nodes)))]
    narrow = given["containerd_drop_in"].partition("=")[2]
    processes = [{"gpu": 0, "pid": pid, "comm": comm, "cpus": narrow} for pid, comm in ((7001, "vllm"), (7002, "serve"))]
    machine = host(cards, {"per_node": len(nodes[0]), "packages": 2}, {"count": 2}, kernel="6.18.0-1.x86_64", processes=processes)

    def tweak(tree: pathlib.Path) -> None:
        write(tree, "/etc/systemd/system.conf", f"[Manager]\n{given['system_conf']}\n")
        write(tree, UNITS + "containerd.service.d/10-cpus.conf", f"[Service]\n{given['containerd_drop_in']}\n")
        for unit in ("vllm", "containerd"):
            write(tree, f"/usr/lib/systemd/system/{unit}.service", f"[Service]\nExecStart=/usr/bin/{unit}\n")
        write(tree, "/proc/900/status", f"Name:\tcontainerd\nCpus_allowed_list:\t{narrow}\n")
        write(tree, "/proc/900/comm", "containerd\n")
        write(tree, "/proc/900/cgroup", "0::/system.slice/containerd.service\n")
        write(tree, "/proc/7002/stat", "7002 (serve) S 900 900 900 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 3 0 7002 0\n")

    return {"": Described(machine, {"npu_affinity_services": [{"unit": unit, "npus": [0]} for unit in given["service"]]}, tweak)}


def is_narrowed_by_the_manager(played: Played, name: str, given: Case, right: Case) -> None:
    (unit,) = given["service"]
    lines = played.file(name, f"{UNITS}{unit}.d/50-npu-affinity.conf").splitlines()
    (reset, widened) = (line for line in lines if line.startswith("CPUAffinity="))
    sliced = next(line for line in played.file(name, f"{UNITS}{given['service'][unit]}.slice").splitlines() if "AllowedCPUs=" in line)
    has = set(expand(widened.partition("=")[2])) & set(expand(sliced.partition("=")[2]))
    assert (reset, compress(has)) == (right["drop_in"][0], right["service_cpus"])
    said = " ".join(played.verified.summary["hosts"][name]["reasons"])
    assert "/etc/systemd/system.conf says CPUAffinity=0-3" in said and "containerd.service.d/10-cpus.conf says CPUAffinity=0-3" in said


def virtual_online(given: Case) -> dict[str, Described]:
    def tweak(root: pathlib.Path) -> None:
        (root / "sys/devices/system/cpu/online").write_text(given["online"])
        (root / "sys/fs/cgroup/cpuset.cpus.effective").write_text(given["root_effective"])
        status = root / "proc/1/status"
        status.write_text(status.read_text().replace("\t0-31", "\t" + given["pid1_allowed"]))

    machine = host([{"bdf": "0000:41:00.0", "node": given["gpu_node"]}], {"per_node": 16, "packages": 2}, {"count": 2})
    return {"": Described(machine, {}, tweak)}


def is_virtual_online(played: Played, name: str, given: Case, right: Case) -> None:
    for run in (played.bound, played.again):
        said = " ".join(run.summary["hosts"][name]["reasons"])
        assert "container" in said and given["root_effective"] in said and right["alternative"].startswith("refused: a container")


def lost_alone(given: Case) -> dict[str, Described]:
    cards = [{"bdf": bdf, "node": 0} for bdf in addresses(given["gpus"])]
    machine = host(cards, {"per_node": 32}, {"count": 1})
    return {"": Described(machine, happens=lambda tree: set_faults(tree, nvidia_lost=[given["lost"]]))}


def is_lost_alone(played: Played, name: str, given: Case, right: Case) -> None:
    found = [code for line in played.found(name) for code in ("NPU_CARD_LOST", "NPU_SMI_SILENT", "NPU_CARD_NEW") if code in line]
    assert found == ["NPU_CARD_LOST"] and right["verify"].startswith("fails")
    assert sorted(map(int, played.pools(name))) == given["smi_rows"] and played.pools(name) == right["pools"]


def without_accelerators(_given: Case) -> dict[str, Described]:
    return {"": Described(host([], {"per_node": 8}, {"count": 1, "memory_mib": 131072}))}


def is_granted_in_several_writes(played: Played, name: str, given: Case, right: Case) -> None:
    class Kernel(Host):
        writes = 0

        def set_attribute(self, path: str, value: str) -> None:
            now, self.writes = self.read_number(path) or 0, self.writes + 1
            granted = PAGES_OF_ONE_WRITE if self.writes == 1 else 100
            super().set_attribute(path, str(now + (int(value) - now) * granted // 100))

    tree = str(played.fleet.tree(name))
    assert HugePages().write(Kernel(tree), path_of(SIZE, 0), str(given["pages"])) == str(right["reached"])


def memory_of_gpus(given: Case) -> dict[str, Described]:
    told = given["p9"]["numa_status"]
    far = [[10 if a == b else 40 if {a, b} == {0, 8} else given["p9"]["distance"] for b in AC922] for a in AC922]
    cards = [{"bdf": bdf, "node": 0 if bdf < "0035" else 8, "memory_node": node} for bdf, node in told.items()]
    p9 = host(cards, {"per_node": 32, "packages": 2}, {"ids": AC922, "without_cpus": AC922[2:], "distances": far})
    cards = [{"bdf": bdf, "node": place // 2, "memory_node": GB200[2 + place]} for place, bdf in enumerate(addresses(4))]
    gb200 = host(cards, {"per_node": 16, "packages": 2}, {"ids": GB200, "without_cpus": GB200[2:]})
    return {"p9": Described(p9), "gb200": Described(gb200)}


def is_memory_of_gpus(played: Played, name: str, given: Case, right: Case) -> None:
    found = [*played.allowed_memory(f"{name}-p9"), *played.allowed_memory(f"{name}-gb200")]
    assert all(nodes in right["mems"] for nodes in found) and len(set(found)) == 8


OF_PLAYBOOKS = "a situation of a run of playbooks, which tests/integration has"
SITUATIONS: Mapping[str, str | tuple[Callable[[Case], dict[str, Described]], Callable[[Played, str, Case, Case], None]]] = {
    "01": (numa_unknown, is_numa_unknown),
    "02": (known_by_the_tool, is_known_by_the_tool),
    "04": (memory_elsewhere, is_memory_elsewhere),
    "09": (given_to_guests, is_given_to_guests),
    "15": (narrowed_by_the_manager, is_narrowed_by_the_manager),
    "17": (virtual_online, is_virtual_online),
    "19": (lost_alone, is_lost_alone),
    **dict.fromkeys(("20", "22", "23"), OF_PLAYBOOKS),
    "30": (without_accelerators, is_granted_in_several_writes),
    "33": (memory_of_gpus, is_memory_of_gpus),
}
"""``{number of the case: (its hosts by the end of their names, check(played, name, given, right))}``, or why there is none."""

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of a fleet to look at: simulated hosts that were bound and looked at with the code that playbooks run, and many of their like."""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from pathlib import Path

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import CHANGED_CPUSET, Cause, Device, Findings, Value
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Wanted
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.fakes.kernel import bind
from tests.simulator.faults import lose_card
from tests.simulator.generate import generate

HOSTS = {
    "a2-01": "a2_8x24",
    "a2-02": "a2_4x48",
    "a3-01": "a3_640_split",
    "a3-02": "a3_640_adjacent",
    "duo-01": "duo",
    "gpu-01": "l40s_384",
    "a5-01": "a5",
    "odd-01": "odd_nodes",
}


def interrupts(tree: Path, name: str) -> list[Path]:
    """Return the affinity files of the interrupts of a name, in the order of /proc/interrupts."""
    lines = (tree / "proc/interrupts").read_text().splitlines()
    numbers = [line.split(":")[0].strip() for line in lines if line.endswith(" " + name)]
    return [tree / f"proc/irq/{number}/smp_affinity_list" for number in numbers]


def limp(tree: Path) -> None:
    """Let somebody move interrupts, and a card drop off the bus."""
    for file in interrupts(tree, "cq_update_irq")[:16]:
        file.write_text("7\n")
    interrupts(tree, "sq_send_trigger_irq")[2].write_text("31\n")
    lose_card(tree, 5)


def look(machine: str, name: str, bound: bool = True, change=None) -> dict:
    """Return the record of a simulated host, as playbook verify keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, name)
        generate(machine, tree)
        host = Host(str(tree))
        if bound:
            made = plan(gather(host))
            (tree / "etc/npu-affinity").mkdir(parents=True)
            (tree / "etc/npu-affinity/plan.json").write_text(json.dumps(made))
            bind(host, made)
        if change:
            change(tree)
        topology = gather(host)
        was_bound, findings = verify(host, Wanted(features={"irq": "present" if bound else "absent"}))
        record = {"host": name, "topology": topology, "bound": was_bound, "checked": findings.checked, "remarks": findings.remarks}
        record["drift"] = [result_of(finding) for finding in findings.drift]
        sentences = plan_refusals(topology, now := plan(topology), Work())
        return {**record, "plan": now, **({"refused": " ".join(sentences)} if sentences else {})}


def widened(record: dict, index: int) -> dict:
    """Return a record whose slice of one NPU was found to reach into the next one's pool; trees have no running slices to show that."""
    entry, after = record["topology"]["applied"]["npus"][index : index + 2]
    first = expand(after["pool"])[:8]
    findings = Findings()
    findings.devices[entry["slice"]] = Device.of(entry)
    wanted, found = Value(cpus=entry["pool"]), Value(cpus=f"{entry['pool']},{first[0]}-{first[-1]}")
    cause = Cause(CHANGED_CPUSET, "systemd left an older set behind")
    findings.differs("cpusets", f"{entry['slice']} CPUs", wanted, found, cause, entry["slice"])
    record["drift"].append(result_of(findings.drift[0]))
    record["checked"].setdefault("cpusets", []).append(f"{entry['slice']} CPUs")
    return record


def processes(record: dict) -> list[dict]:
    """Return one worker for every NPU, with its memory where it should be except for two of them."""
    nodes = [str(node["id"]) for node in record["topology"]["numa"]]
    found = []
    there = {npu["pci"]: npu["id"] for npu in record["topology"]["npus"]}
    entries = [entry for entry in record["topology"]["applied"]["npus"] if entry["pci"] in there]
    for number, entry in enumerate(entries):
        home = entry["mems"].split(",")[0]
        away = nodes[(nodes.index(home) + 3) % len(nodes)]
        memory = {home: 48000.0 + 700 * number, away: 21000.0 if number in (1, 6) else 310.0}
        found.append({"pid": 41230 + 7 * number, "name": "VLLM::Worker_TP%d" % number, "npu": there[entry["pci"]], "memory": memory})
    return found


def users(record: dict) -> dict:
    """Return users of two NPUs, of which two run outside their pools, as a record has them."""
    pools = [entry["pool"] for entry in record["topology"]["applied"]["npus"][:2]]
    service = {"kind": "service", "unit": "vllm.service", "engine": "", "container": None, "name": "vllm.service"}
    container = {"kind": "container", "unit": "docker-1.scope", "engine": "docker", "container": "1" * 64, "name": "llm"}

    def user(given: dict, npu: int, pids: list[int], cpus: str) -> dict:
        processes = [{"pid": pid, "command": "python3", "devices": [f"davinci{npu}"], "cpus": cpus, "mems": "0"} for pid in pids]
        return {**given, "npus": [{"kind": "npu", "id": npu}], "processes": processes, "cpus": cpus, "mems": "0", "witness": "open"}

    def away(title: str, pid: int, cpus: str, **what: str) -> dict:
        return {"title": f"{title} (pid {pid}, NPU 0)", "pids": [pid], "cpus": cpus, "pool": pools[0], "command": "", **what}

    update = f"docker update --cpuset-cpus {pools[0]} serve"
    start = "bind with npu_affinity_adopt: now, or add {unit: vllm.service, npus: [0]} to npu_affinity_services, bind and restart it"
    outside = [away("vllm.service", 70, "0-3", next=start), away("container serve", 73, "0-191", next=update, command=update)]
    found = [user(service, 0, [70], "0-3"), user(container, 1, [71, 72], pools[1])]
    return {
        "topology": {**record["topology"], "users": found},
        "outside": outside,
        "outside_sentence": "2 NPU processes run outside their pool",
    }


@functools.cache
def _looked() -> tuple[dict, ...]:
    records = {name: look(machine, name, bound=name != "a5-01") for name, machine in HOSTS.items() if name not in ("a2-01", "a3-01")}
    records["a2-01"] = look("a2_8x24", "a2-01", change=limp)
    records["a2-01"]["processes"] = processes(records["a2-01"])
    records["a3-01"] = widened(
        look("a3_640_split", "a3-01", change=lambda tree: interrupts(tree, "cq_update_irq")[100].write_text("5\n")), 3
    )
    records["a3-01"]["processes"] = processes(records["a3-01"])
    records["a3-03"] = {"host": "a3-03", "unreachable": "Failed to connect to the host via ssh: Connection timed out"}
    records["web-01"] = copy.deepcopy(records["a2-02"]) | {"host": "web-01", "bound": False, "drift": [], "checked": {}, "plan": None}
    records["web-01"]["topology"] |= {"npus": [], "applied": None}
    records["a2-02"]["services"] = [{"unit": "vllm@0.service", "npus": [0]}, {"unit": "tp.service", "npus": [1, 2, 9]}]
    records["a2-02"]["workloads"] = [{"name": "llm-a", "npus": [3], "units": ["llm-a.service"]}]
    for record in records.values():
        record["groups"] = ["training" if record["host"].startswith("a3") else "inference"]
    records["duo-01"] |= users(records["duo-01"])
    broken = look("a2_broken", "a2-03", bound=False)
    return (*sorted(records.values(), key=lambda record: record["host"]), broken)


def demonstration() -> list[dict]:
    """Return a small fleet in which every state occurs."""
    return copy.deepcopy(list(_looked()))


def before() -> list[dict]:
    """Return the same fleet at an earlier time: one drift was not there yet, and another has been repaired since."""
    hosts = {host["host"]: host for host in demonstration()}
    first, *others = hosts["a2-01"]["drift"]
    hosts["a2-01"]["drift"] = others
    hosts["a2-02"]["drift"] = [{**first, "object": "NPU 0 dev0_sq_task"}]
    return list(hosts.values())


def thousand(count: int = 1000) -> list[dict]:
    """Return so many hosts, each with PCI functions and processes of its own kind in turn."""
    kinds = demonstration()
    return [{**kinds[number % len(kinds)], "host": f"node{number + 1}"} for number in range(count)]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards and chips drop off the bus of running hosts and come back: what stays where it is, and what is reported."""

from __future__ import annotations

import json
import re
import shutil

from tests.fakes.small_host import PLAN, UNITS, said, slices
from tests.integration.conftest import touched
from tests.simulator.driver import DESCRIPTION
from tests.simulator.faults import lose_card, lose_chip, set_faults

ABSENT = re.compile("(is|are) not installed: systemd")

MACHINE = {
    "cpus": {"per_node": 16},
    "nodes": {"count": 4},
    "npus": {
        "family": "a2",
        "name": "910B3",
        "memory_mib": 65536,
        "cards": [{"npu": number, "bdf": f"0000:{number + 1:02x}:00.0", "node": number // 2 * 2} for number in range(4)],
    },
    "irqbalance": {"installed": False},
}
DUO = {
    **MACHINE,
    "npus": {
        "family": "310p",
        "name": "310P3",
        "memory_mib": 44280,
        "chips_per_card": 2,
        "cards": [{"npu": number, "bdf": f"0000:{number + 1:02x}:00.0", "node": number * 2} for number in range(2)],
    },
}
GPUS = {
    "cpus": {"per_node": 16},
    "nodes": {"count": 2},
    "gpus": {"name": "NVIDIA L40S", "memory_mib": 46068, "cards": [{"bdf": f"0000:{bus}1:00.0", "node": bus // 8} for bus in (4, 8)]},
}
SERVICES = [
    {"unit": "vllm@0.service", "npus": [0]},
    {"unit": "vllm@1.service", "npus": ["0000:02:00.0"]},
    {"unit": "vllm@2.service", "npus": [{"phy_id": 2}]},
    {"unit": "vllm@3.service", "npus": [3]},
]
VARIABLES = {
    "npu_affinity_services": SERVICES,
    "npu_affinity_workloads": [{"name": "pair", "npus": [0, 1], "units": ["pair.service"], "share": True}],
    "npu_affinity_threads_enabled": True,
}


def homes(tree, key="Slice"):
    """``{service: slice}`` of the drop-ins of a host's tree."""
    found = {}
    for path in sorted((tree / UNITS[1:]).glob("*.service.d/50-npu-affinity.conf")):
        values = dict(line.removeprefix("Environment=").split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        found[path.parent.name.removesuffix(".d")] = values[key]
    return found


def devices(tree):
    return homes(tree, "ASCEND_RT_VISIBLE_DEVICES")


def remarks(run, host):
    (entry,) = (entry for entry in run.of(host, "ok") if entry["task"].endswith("make the desired state of the host"))
    found = [
        sentence for sentence in entry["result"]["state"]["remarks"] if not ABSENT.search(sentence) and "A bind changes: " not in sentence
    ]
    assert set(found) <= set(run.summary["hosts"][host]["remarks"])
    return found


def come_back(tree, before):
    """Give a tree the hardware back that it had in ``before``, a copy of it."""
    for folder in ("sys", "proc", "dev"):
        shutil.rmtree(tree / folder)
        shutil.copytree(before / folder, tree / folder, symlinks=True)
    shutil.copy(str(before) + DESCRIPTION, str(tree) + DESCRIPTION)


def test_services_stay_in_place_while_a_card_is_lost_and_returns(fleet, tmp_path):
    hosts = fleet(a2=MACHINE)
    tree, whole = hosts.tree("a2"), tmp_path / "whole"
    first = hosts.play("bind", **VARIABLES)
    assert (first.status, remarks(first, "a2")) == (0, []), first.output
    bound, where, seen = hosts.snapshot("a2"), homes(tree), devices(tree)
    assert seen == {**{f"vllm@{number}.service": str(number) for number in range(4)}, "pair.service": "0,1"}
    assert where == {**{f"vllm@{number}.service": f"npu-{number}.slice" for number in range(4)}, "pair.service": "npu-pair.slice"}
    shutil.copytree(tree, whole, symlinks=True)

    lose_card(tree, 0)
    gone = "although NPU 0 (PCI 0000:01:00.0) cannot be found; name another NPU to move it. [NPU_CARD_LOST]"
    expected = [
        f"vllm@0.service has the CPUs of npu-0.slice, {gone}",
        f"workload pair has the CPUs of npu-0.slice, {gone}",
    ]
    for arguments in (["--check"], []):
        run = hosts.play("bind", *arguments, **VARIABLES)
        assert (run.status, remarks(run, "a2")) == (0, expected), run.output
    assert homes(tree) == where
    now = {"vllm@0.service": "-1", "vllm@1.service": "0", "vllm@2.service": "1", "vllm@3.service": "2", "pair.service": "0"}
    assert devices(tree) == now, "ids close up, and NPU 0 is another's"
    owned = {path for path in touched(bound, hosts.snapshot("a2")) if path.startswith(("/etc/", "/usr/")) and ".service.d/" not in path}
    kept = {path for path in owned if path.startswith("/etc/npu-affinity/history/")}
    assert len(kept) == 1, "the state that this bind applied"
    assert any("0000:01:00.0" in warning for warning in json.loads((tree / PLAN[1:]).read_text())["warnings"])
    assert owned - kept - {"/etc/udev/rules.d/90-npu-affinity.rules"} == {"/etc/npu-affinity/plan.json", "/etc/npu-affinity/threads.json"}
    placed = json.loads((tree / "etc/npu-affinity/threads.json").read_text())["processes"]
    units = {entry["unit"]: entry["npus"] for entry in placed if "unit" in entry}
    assert units == {"vllm@1.service": [0], "vllm@2.service": [1], "vllm@3.service": [2], "pair.service": [0]}
    assert hosts.play("bind", **VARIABLES).changed("a2") == 0

    come_back(tree, whole)
    run = hosts.play("verify", **VARIABLES)
    assert run.status == 2
    card, *rest = [line for line in said(run, "a2") if line.startswith("NPU 0 (PCI")]
    assert card == (
        "NPU 0 (PCI 0000:01:00.0): expected CPUs of its own, found no entry in the plan in force; "
        "likely new card: it is back; bind again, and it has its CPUs again [NPU_CARD_NEW]"
    )
    assert not rest and "{" not in "".join(said(run, "a2"))
    hosts.succeed("bind", **VARIABLES)
    hosts.succeed("verify", **VARIABLES)
    assert (homes(tree), devices(tree)) == (where, seen)


def test_moves_are_listed_before_and_after_a_host_is_replanned(fleet):
    hosts = fleet(a2=MACHINE)
    variables = {"npu_affinity_services": [SERVICES[0], SERVICES[1]]}
    hosts.succeed("bind", **variables)
    lose_card(hosts.tree("a2"), 0)
    expected = [
        "A bind moves NPU 0 (PCI 0000:02:00.0) from npu-1.slice with CPUs 16-31 to npu-0.slice with CPUs 0-21, "
        "NPU 1 (PCI 0000:03:00.0) from npu-2.slice with CPUs 32-47 to npu-1.slice with CPUs 22-26,32-47, "
        "NPU 2 (PCI 0000:04:00.0) from npu-3.slice with CPUs 48-63 to npu-2.slice with CPUs 27-31,48-63; "
        "takes NPU 0 (PCI 0000:01:00.0, CPUs 0-15) out of the plan. [NPU_BIND_EFFECT]",
        "A bind moves vllm@0.service from NPU 0 (PCI 0000:01:00.0, CPUs 0-15) to NPU 0 (PCI 0000:02:00.0, CPUs 0-21). [NPU_BIND_EFFECT]",
        "vllm@0.service and vllm@1.service all use NPU 0, and share its CPUs. [NPU_CPUS_SHARED]",
    ]
    shown = hosts.play("plan", "-v", **variables, npu_affinity_replan=True).output
    assert [sentence for sentence in expected if sentence not in " ".join(shown.split())] == [], shown
    for arguments in (["--check"], []):
        run = hosts.play("bind", *arguments, **variables, npu_affinity_replan=True)
        assert (run.status, remarks(run, "a2")) == (0, expected), run.output
        assert UNITS + "npu-3.slice" in run.files("a2")[1]
    again = hosts.play("bind", **variables)
    assert (again.changed("a2"), remarks(again, "a2")) == (0, expected[-1:])


def test_a_lost_chip_of_a_card_leaves_the_other_one_its_cpus(fleet):
    hosts = fleet(duo=DUO)
    tree = hosts.tree("duo")
    hosts.succeed("bind")
    pools = slices(tree)
    assert (pools["npu-0.slice"][0], pools["npu-1.slice"][0]) == ("0-15", "16-31")
    lose_chip(tree, 0, 0)
    run = hosts.play("verify")
    assert run.status == 2
    assert any(
        line.startswith("NPU 0: expected chip 0 of PCI function 0000:01:00.0, found chip 1; likely lost card") for line in said(run, "duo")
    )
    run = hosts.succeed("bind")
    assert slices(tree) == pools
    plan = json.loads((tree / "etc/npu-affinity/plan.json").read_text())
    assert [(entry["id"], entry["chip"], entry["slice"]) for entry in plan["npus"]] == [
        (0, 1, "npu-1.slice"), (1, 0, "npu-2.slice"), (2, 1, "npu-3.slice"),
    ]  # fmt: skip


def test_a_card_unlisted_at_first_bind_gets_its_cpus_when_listed(fleet):
    hosts = fleet(a2=MACHINE)
    tree = hosts.tree("a2")
    set_faults(tree, dead=[1])
    hosts.succeed("bind")
    pools = slices(tree)
    assert [pools[f"npu-{number}.slice"][0] for number in range(4)] == ["0-15", "16-31", "32-47", "48-63"]
    plan = json.loads((tree / "etc/npu-affinity/plan.json").read_text())
    assert [entry["id"] for entry in plan["npus"]] == [0, 2, 3]
    assert any(warning.startswith("NPU at 0000:02:00.0 is on the PCI bus and not listed by npu-smi") for warning in plan["warnings"])
    assert hosts.play("bind").changed("a2") == 0
    set_faults(tree)
    hosts.succeed("bind")
    assert slices(tree) == pools


def test_a_lost_card_and_an_offline_pool_cpu_do_not_block_a_bind(fleet):
    hosts = fleet(a2=MACHINE)
    tree = hosts.tree("a2")
    hosts.succeed("bind")
    pools = slices(tree)
    lose_card(tree, 0)
    (tree / "sys/devices/system/cpu/online").write_text("0-3,5-16,18-63\n")
    (tree / "sys/devices/system/cpu/offline").write_text("4,17\n")
    for node, cpus in ((0, "0-3,5-15"), (1, "16,18-31")):
        (tree / f"sys/devices/system/node/node{node}/cpulist").write_text(cpus + "\n")
    run = hosts.succeed("bind")
    found = slices(tree)
    assert (found["npu-0.slice"][0], found["npu-1.slice"][0]) == ("0-3,5-15", "16,18-31")
    assert {name: found[name] for name in ("npu-2.slice", "npu-3.slice")} == {name: pools[name] for name in ("npu-2.slice", "npu-3.slice")}
    plan = json.loads((tree / "etc/npu-affinity/plan.json").read_text())
    assert any(warning.startswith("CPUs 17 of npu-1.slice are offline; it does without them") for warning in plan["warnings"])
    assert hosts.play("bind").changed("a2") == 0
    assert remarks(run, "a2")[0].startswith("A bind moves NPU 1 (PCI 0000:02:00.0) from CPUs 16-31 to CPUs 16,18-31, NPU 0")


def test_workers_get_interrupts_by_published_pools_or_a_warning(fleet):
    hosts = fleet(ring="a2_4x48", x86={**MACHINE, "architecture": "x86_64"}, container=MACHINE)
    hosts.give({"container": {"npu_affinity_visible_npus": [0]}})
    workers = {"npu_affinity_bound_by": "workers", "npu_affinity_batches": ["100%"]}
    run = hosts.succeed("bind", "-v", **workers)
    ring, x86 = (json.loads((hosts.tree(host) / "etc/npu-affinity/plan.json").read_text()) for host in ("ring", "x86"))
    assert ring["repaired"] == [] and not ring["quality"]["disjoint"]
    assert any(warning.startswith("The workers bind themselves, and this is what they do: NPUs") for warning in ring["warnings"])
    output = " ".join(run.output.split())
    assert "vLLM-Ascend divides its CPUs by topo_affinity" in output
    assert "do so on Arm only, and this host is x86_64. npu_affinity_bound_by: host keeps them apart." in output
    assert list(slices(hosts.tree("ring"))) == ["npu.slice"]
    assert x86["quality"]["disjoint"]
    (alone,) = json.loads((hosts.tree("container") / "etc/npu-affinity/plan.json").read_text())["npus"]
    assert alone["pool"] == "0-31", "the CPUs of two nodes, which a worker that sees NPU 1 as well would share with it"
    assert slices(hosts.tree("container")) == {"npu.slice": ("0-63", "0-3")}, "all nodes are in one socket"
    verified = hosts.play("verify", "--limit", "container", **workers)
    assert verified.status == 0, "the NPUs that these workers do not see are no new cards: " + verified.output


def test_an_npu_smi_that_does_not_answer_moves_nothing(fleet):
    hosts = fleet(a2=MACHINE)
    hosts.succeed("bind")
    set_faults(hosts.tree("a2"), answers={"info -t topo": {"sleep": 600}})
    with hosts.untouched():
        run = hosts.play("bind", npu_affinity_timeout=10)
    said = run.failure("a2")
    assert "npu-smi did not answer 'info -t topo' in time" in said and "[NPU_SMI_UNAVAILABLE]" in said


def test_a_gpu_host_says_what_it_lost_and_what_it_is(fleet):
    hosts = fleet(gpus=GPUS)
    bound = hosts.succeed("bind", "-v").output
    assert not re.search(r"\bNPUs?\b", bound.replace("npu_hosts", "").partition("PLAY [Plan")[2]), bound
    set_faults(hosts.tree("gpus"), nvidia_lost=[GPUS["gpus"]["cards"][1]["bdf"]])
    lost = hosts.play("verify")
    assert "[NPU_CARD_LOST]" in lost.failure("gpus") and "NPU_SMI_SILENT" not in lost.output
    set_faults(hosts.tree("gpus"), nvidia_error=True)
    assert "[NPU_SMI_SILENT]" in hosts.play("verify").failure("gpus")
    set_faults(hosts.tree("gpus"))
    (hosts.tree("gpus") / "proc/1/comm").write_text("python3\n")
    with hosts.untouched():
        refused = hosts.play("bind", npu_affinity_smt="threads")
    assert "This is a container: PID 1 is python3, not systemd" in refused.failure("gpus")

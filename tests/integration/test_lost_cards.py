# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards and chips drop off the bus of running hosts and come back: what stays where it is, and what is reported."""

import json
import re
import shutil

from tests.fakes.small_host import PLAN, UNITS, host_with, said, slices
from tests.integration.conftest import touched
from tests.simulator.driver import DESCRIPTION
from tests.simulator.faults import lose_card, lose_chip, set_faults
from tests.simulator.generate import merge

ABSENT = re.compile("(is|are) not installed: systemd")

FOUR_NODES = {"nodes": {"count": 4}, "irqbalance": {"installed": False}}
CARDS = [{"npu": number, "bdf": f"0000:{number + 1:02x}:00.0", "node": number // 2 * 2} for number in range(4)]
MACHINE = merge(host_with(CARDS), FOUR_NODES)
DUO = merge(host_with([CARDS[0], {**CARDS[1], "node": 2}], family="310p", name="310P3", chips_per_card=2), FOUR_NODES)
GPUS = {
    "cpus": {"per_node": 16},
    "nodes": {"count": 2},
    "gpus": {"name": "NVIDIA L40S", "memory_mib": 46068, "cards": [{"bdf": f"0000:{bus}1:00.0", "node": bus // 8} for bus in (4, 8)]},
}
SERVICES = [{"unit": f"vllm@{number}.service", "npus": [npu]} for number, npu in enumerate([0, "0000:02:00.0", {"phy_id": 2}, 3])]
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
    said = entry["result"]["state"]["remarks"]
    found = [sentence for sentence in said if not ABSENT.search(sentence) and "A bind changes: " not in sentence]
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
    expected = [f"vllm@0.service has the CPUs of npu-0.slice, {gone}", f"workload pair has the CPUs of npu-0.slice, {gone}"]
    for arguments in (["--check"], []):
        run = hosts.play("bind", *arguments, **VARIABLES)
        assert (run.status, remarks(run, "a2")) == (0, expected), run.output
    assert homes(tree) == where
    now = {"vllm@0.service": "-1", "vllm@1.service": "0", "vllm@2.service": "1", "vllm@3.service": "2", "pair.service": "0"}
    assert devices(tree) == now, "ids close up, and NPU 0 is another's"
    owned = {path for path in touched(bound, hosts.snapshot("a2")) if path.startswith(("/etc/", "/usr/")) and ".service.d/" not in path}
    written = {f"/etc/npu-affinity/{name}" for name in ("plan.json", "threads.json", "history/2.json")}
    assert owned - {"/etc/udev/rules.d/90-npu-affinity.rules"} == written
    assert any("0000:01:00.0" in warning for warning in json.loads((tree / PLAN[1:]).read_text())["warnings"])
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
    lost = "NPU 0: expected chip 0 of PCI function 0000:01:00.0, found chip 1; likely lost card"
    assert any(line.startswith(lost) for line in said(run, "duo"))
    run = hosts.succeed("bind")
    assert slices(tree) == pools
    plan = json.loads((tree / "etc/npu-affinity/plan.json").read_text())
    assert [(entry["id"], entry["chip"], entry["slice"]) for entry in plan["npus"]] == [
        (0, 1, "npu-1.slice"), (1, 0, "npu-2.slice"), (2, 1, "npu-3.slice"),
    ]  # fmt: skip


def test_npus_that_workers_do_not_see_are_no_new_cards(fleet):
    hosts = fleet(container=MACHINE)
    workers = {"npu_affinity_bound_by": "workers", "npu_affinity_visible_npus": [0]}
    hosts.succeed("bind", **workers)
    (alone,) = json.loads((hosts.tree("container") / PLAN[1:]).read_text())["npus"]
    assert alone["pool"] == "0-31", "the CPUs of two nodes, which a worker that sees NPU 1 as well would share with it"
    assert slices(hosts.tree("container")) == {"npu.slice": ("0-63", "0-3")}, "all nodes are in one socket"
    hosts.succeed("verify", **workers)


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

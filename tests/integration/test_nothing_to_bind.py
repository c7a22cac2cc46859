# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts on which there is nothing, or nothing of a kind, to bind: nothing is written for what is not there."""

import shutil

from ansible_collections.npu.affinity.plugins.module_utils._host.installed import CODE_FOLDER
from tests.fakes.small_host import MACHINE, write
from tests.integration.conftest import touched
from tests.simulator.faults import lose_card

BARE = {"cpus": {"per_node": 16}, "nodes": {"count": 2}, "kubelet": {"policy": "none"}}
GPUS = {
    **BARE,
    "kubelet": None,
    "architecture": "x86_64",
    "gpus": {"name": "NVIDIA L40S", "memory_mib": 46068, "cards": [{"bdf": "0000:41:00.0", "node": 0}, {"bdf": "0000:c1:00.0", "node": 1}]},
}
EVERYTHING = {
    "npu_affinity_batches": ["100%"],
    "npu_affinity_device_share_enabled": True,
    "npu_affinity_threads_enabled": True,
    "npu_affinity_metrics_enabled": True,
    "npu_affinity_tuning": {"swappiness": "10"},
    "npu_affinity_vnpu_enabled": True,
    "npu_affinity_housekeeping": "1",
    "npu_affinity_irqbalance": "stop",
    "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}],
    "npu_affinity_fail_on": ["drift", "unbound"],
}
ROLES = """
- hosts: all
  gather_facts: false
  roles: [plan, vnpu, slices, irq, device_share, threads, tuning, metrics, kubelet]
  collections: [npu.affinity]
"""


def test_a_host_without_accelerators_is_not_changed(fleet, tmp_path):
    hosts = fleet(bare=BARE)
    (tmp_path / "roles.yml").write_text(ROLES)
    everything = {**EVERYTHING, "npu_affinity_kubelet_enabled": True, "npu_affinity_kubelet_restart": True}
    with hosts.untouched():
        bound = hosts.succeed("bind", "-v", **everything)
        hosts.succeed(str(tmp_path / "roles.yml"), **everything)
        hosts.succeed("verify", **EVERYTHING)
        unbound = hosts.succeed("unbind")
    assert bound.modules("bare") == ["npu.affinity.gather"]
    assert "There is no accelerator on this host: nothing is bound, and nothing is written." in bound.output
    assert "Services, workloads and vNPUs of this host have no effect: vllm@0.service." in " ".join(bound.output.split())
    assert unbound.changed("bare") == 0


def test_a_host_with_gpus_alone_gets_nothing_that_is_for_npus(fleet):
    hosts = fleet(gpus=GPUS)
    tree, variables = hosts.tree("gpus"), {"npu_affinity_housekeeping": "1", "npu_affinity_fail_on": ["drift", "unbound"]}
    before = hosts.snapshot("gpus")
    hosts.succeed("bind", **variables)
    written = {path for path in touched(before, hosts.snapshot("gpus")) if path.startswith(("/etc", "/usr"))}
    names = {path.rpartition("/")[2] for path in written if not path.startswith(CODE_FOLDER)}
    slices = {"gpu.slice", "gpu-0.slice", "gpu-1.slice", "50-npu-affinity.conf"}
    assert names == {"plan.json", "previous.json", "1.json", "npu-affinity"} | slices, written
    hosts.succeed("verify", **variables)
    rule = "/etc/udev/rules.d/90-npu-affinity.rules"
    write(tree, rule, "# Managed by npu.affinity: changes are overwritten.\n")
    assert hosts.play("bind", **variables).files("gpus") == (set(), {rule})
    alone = hosts.succeed("bind", npu_affinity_slices_enabled=False)
    assert alone.changed("gpus") == 1, alone.output
    left = {path for path in touched(before, hosts.snapshot("gpus")) if path.startswith(("/etc", "/usr"))}
    assert {path for path in left if "/history/" not in path} == {"/etc/npu-affinity/plan.json", "/etc/npu-affinity/previous.json"}


def test_if_all_accelerators_are_gone_the_binding_stays(fleet):
    hosts = fleet(cards=MACHINE, driver=MACHINE)
    hosts.succeed("bind", "--limit", "cards")
    hosts.copy("cards", "driver")
    for host in hosts.hosts:
        for card in (0, 1):
            lose_card(hosts.tree(host), card)
    shutil.rmtree(hosts.tree("driver") / "usr/local/Ascend")
    with hosts.untouched():
        bound = hosts.play("bind")
    assert "No NPU of this host can be planned" in bound.failure("cards") and "unbind the host" in bound.failure("cards")
    assert not bound.of("driver", "failed"), bound.output
    said = " ".join(bound.output.split())
    assert "None of the 2 accelerators that this host was bound for can be found. Nothing is changed. The last bind stays in force." in said
    verified = hosts.play("verify")
    assert verified.failure("cards") == verified.failure("driver") and "lost card" in verified.output
    hosts.succeed("unbind", npu_affinity_batches=["100%"])
    assert not any((hosts.tree(host) / "etc/npu-affinity").exists() for host in hosts.hosts)

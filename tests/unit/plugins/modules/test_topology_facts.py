# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


import json

import pytest

import yaml

from ansible_collections.npu.affinity.plugins.doc_fragments._attributes import ModuleDocFragment
from ansible_collections.npu.affinity.plugins.module_utils._kernel.hugepages import path_of
from ansible_collections.npu.affinity.plugins.module_utils._topology.arguments import ARGUMENTS
from ansible_collections.npu.affinity.plugins.modules import topology_facts

FILES = {
    "sys/devices/system/cpu/online": "0-3",
    "sys/devices/system/node/online": "0",
    "sys/devices/system/node/node0/cpulist": "0-3",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 4194304 kB",
    "sys/devices/system/node/node0/distance": "10",
    "sys/bus/pci/devices/0000:c1:00.0/class": "0x120000",
    "sys/bus/pci/devices/0000:c1:00.0/vendor": "0x19e5",
    "sys/bus/pci/devices/0000:c1:00.0/device": "0xd802",
    "sys/bus/pci/devices/0000:c1:00.0/numa_node": "0",
    "var/lib/kubelet/config.yaml": "cpuManagerPolicy: static",
    "etc/npu-affinity/plan.json": '{"npus": []}',
}
NPU_SMI = r"""#!/bin/sh
case "$*" in
info) printf '| NPU Name | Health | Power(W) |\n| Chip | Bus-Id | AICore(%%) Memory-Usage(MB) HBM-Usage(MB) |\n'
      printf '| 0 910B3 | OK | 90 |\n| 0 | 0000:C1:00.0 | 0 0 / 0 5 / 65536 |\n' ;;
'info -m') printf 'NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  Ascend 910B3\n' ;;
'info -t topo') printf '   NPU0  CPU Affinity\nNPU0  X  0-3\n' ;;
'info -t device-share -i 0') printf '\tNPU ID : 0\n\n\tDevice-share Status : True\n\tChip ID : 0\n' ;;
esac
"""


@pytest.fixture
def root(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    program = tmp_path / "usr/local/sbin/npu-smi"
    program.parent.mkdir(parents=True)
    program.write_text(NPU_SMI)
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def run(run_module):
    return lambda **arguments: run_module("topology_facts", **arguments)


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_fact_is_the_same_in_check_mode_and_nothing_changes(root, run, check_mode):
    result = run(root=str(root), _ansible_check_mode=check_mode)
    assert result["changed"] is False
    facts = result["ansible_facts"]["npu_affinity_topology"]
    assert facts["problems"] == [] and facts["allocator"] is None
    assert [(npu["id"], npu["family"], npu["numa"], npu["affinity"]) for npu in facts["npus"]] == [(0, "a2", 0, "0-3")]
    assert facts["numa"] == [{"id": 0, "cpus": "0-3", "memory_mib": 4096, "distances": {"0": 10}, "owner": {"socket": 0}}]


def test_device_share_is_asked_for_on_request(root, run):
    def share(**arguments):
        return run(root=str(root), **arguments)["ansible_facts"]["npu_affinity_topology"]["npus"][0]["device_share"]

    assert (share(), share(device_share=True)) == (None, True)


def test_a_named_command_and_a_time_limit(root, run):
    slow = root / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    facts = run(root=str(root), npu_smi="%s slowly" % slow, timeout=1)["ansible_facts"]["npu_affinity_topology"]
    assert "slow slowly info' did not answer within 1 s" in facts["problems"][0]


def test_a_time_limit_must_leave_time(root, run):
    result = run(root=str(root), timeout=0)
    assert (result["failed"], result["msg"]) == (True, "npu_affinity_timeout is 0 s; a command needs at least 1 s to answer")


def test_the_documentation_names_every_option_as_it_is():
    documented = yaml.safe_load(ModuleDocFragment.GATHERING)["options"]
    spec = ARGUMENTS
    assert {name: (option["type"], option.get("default")) for name, option in documented.items()} == {
        name: (option["type"], option.get("default")) for name, option in spec.items()
    }


def test_the_documentation_names_every_returned_field(root, run):
    seldom = {"path", "silent", "guests", "mig", "adopt", "vnpus"}  # npu-smi answers and is where units find it, and the host has none

    def check(value, documented, path):
        if "contains" not in documented:
            return
        for entry in value if isinstance(value, list) else [value]:
            assert set(entry) == set(documented["contains"]) - seldom, path
            for key in entry:
                check(entry[key], documented["contains"][key], path + "." + key)

    for path, text in {
        "sys/bus/pci/devices/0000:7d:00.0/class": "0x020000",
        "sys/bus/pci/devices/0000:7d:00.0/msi_irqs/900": "msix",
        "proc/irq/900/smp_affinity_list": "0-7",
        "proc/interrupts": "CPU0\n900: 0 ITS-MSI hns3-0\n",
        "sys/fs/cgroup/npu.slice/memory.numa_stat": "anon N0=2097152\n",
        "etc/npu-affinity/previous.json": json.dumps({"schema": 1, "hugepages": {path_of(2048, 0): {"original": "7", "given": []}}}),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    assert "others" not in run(root=str(root))["ansible_facts"]["npu_affinity_topology"]
    result = run(root=str(root), units=["vllm@0.service"], others=True)
    assert set(result) <= {"ansible_facts", "changed", "invocation", "warnings"}
    assert result["ansible_facts"]["npu_affinity_topology"]["hugepages_before"] == {"2048": {"0": 7}}
    returned = yaml.safe_load(topology_facts.RETURN)["ansible_facts"]
    check(result["ansible_facts"], returned, "ansible_facts")

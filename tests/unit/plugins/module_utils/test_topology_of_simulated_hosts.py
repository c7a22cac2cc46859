# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of simulated hosts of every kind, against the descriptions that the hosts were made from."""

import json
import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the simulator needs Python 3.11", allow_module_level=True)
from tests.simulator import generate

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather

MACHINES = sorted(path.stem for path in (generate.HERE / "machines").glob("*.yml") if path.stem != "a2_broken")
CALLS = "/var/log/npu-smi-calls.log"


@pytest.fixture
def simulated(tmp_path):
    """Return a function that makes a host from the name of its description, and returns ``(host, machine)``."""

    def make(name):
        description = generate.load(name)
        generate.generate(description, str(tmp_path))
        return Host(str(tmp_path), timeout=30), generate.resolve(description)

    return make


@pytest.mark.parametrize("name", MACHINES)
def test_what_was_described_is_what_is_gathered(simulated, name):
    host, machine = simulated(name)
    facts = gather(host, device_share=True)
    cpus = facts["cpus"]
    cores = sorted(sorted(set(machine.online).intersection(core.threads)) for core in machine.cores)
    assert (cpus["online"], cpus["offline"]) == (machine.online_list, compress(machine.offline))
    assert cpus["siblings"] == [compress(core) for core in cores if len(core) > 1]
    assert sorted(cpu for cache in cpus["caches"] for cpu in expand(cache)) == machine.online
    assert [(node["id"], node["cpus"], node["memory_mib"], list(node["distances"].values())) for node in facts["numa"]] == [
        (node.id, machine.visible(node.cpus), node.memory_mib, list(node.distances)) for node in machine.nodes
    ]
    nodes = {function.bdf: None if function.node == -1 else function.node for function in machine.functions}
    busy = {(process.card, process.chip) for process in machine.processes}
    there = [chip for chip in machine.chips if chip.bdf in nodes]
    rows = [(one.card, one.chip, one.bdf, one.name, one.memory_mib, nodes[one.bdf]) for one in there]
    keys = ("card", "chip", "pci", "name", "memory_mib", "numa", "id", "family", "busy")
    assert [tuple(npu[key] for key in keys) for npu in facts["npus"] if npu["kind"] == "npu"] == [
        (*row, number, machine.family, row[:2] in busy) for number, row in enumerate(rows)
    ]
    shared = [None if machine.family == "910" else chip.device_share for chip in there]  # which that product refuses to tell
    assert [npu["device_share"] for npu in facts["npus"] if npu["kind"] == "npu"] == shared
    assert [(npu["pci"], npu["memory_mib"], npu["numa"]) for npu in facts["npus"] if npu["kind"] == "gpu"] == [
        (gpu.bdf, gpu.memory_mib, nodes[gpu.bdf]) for gpu in machine.gpus
    ]
    described = {"systemd": machine.systemd, "cgroup": machine.cgroup, "architecture": machine.architecture}
    assert {name: facts["machine"][name] for name in described} == described
    assert len(json.dumps(facts)) < 24 * 1024
    expected = ["info", "info -m", "info -t topo", *("info -t device-share -i %d" % card for card in {chip.card for chip in there})]
    assert sorted((host.read(CALLS) or "").splitlines()) == (sorted(expected) if there else [])


def test_network_functions_have_their_distance_to_each_npu(simulated):
    (found,) = gather(simulated("a2_8x24")[0])["nics"]
    assert (found["name"], found["numa"], found["distances"]) == ("eth0", 0, {"10": "4-5", "20": "0-3,6-7"})

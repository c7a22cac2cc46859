# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of simulated hosts of every kind, against the descriptions that the hosts were made from."""

from __future__ import annotations

import json
import os
import sys
import tempfile

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the simulator needs Python 3.11", allow_module_level=True)
from tests.simulator import generate
from tests.simulator import faults

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather

MACHINES = sorted(path.stem for path in (generate.HERE / "machines").glob("*.yml"))
QUESTIONS = ["info", "info -m", "info -t topo"]
CALLS = "/var/log/npu-smi-calls.log"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with tempfile.TemporaryDirectory(dir=str(tmp_path_factory.getbasetemp())) as name:
        yield name


@pytest.fixture
def simulated(folder, request):
    """Return a function that makes a host from the name of its description, and returns ``(host, machine)``.

    A tree holds thousands of files, so tests share it; one that changes it says ``own``. The log of calls begins empty.
    """

    def make(name, own=False):
        description = generate.load(name)
        target = "%s/%s%s" % (folder, name, "-" + request.node.name if own else "")
        generate.generate(description, target)
        host = Host(target, timeout=30)
        if host.exists(CALLS):
            os.unlink(host.path(CALLS))
        return host, generate.resolve(description)

    return make


@pytest.mark.parametrize("name", [name for name in MACHINES if name != "a2_broken"])
def test_what_was_described_is_what_is_gathered(simulated, name):
    host, machine = simulated(name)
    facts = gather(host)
    online = set(machine.online)
    assert facts["cpus"]["online"] == machine.online_list
    assert facts["cpus"]["offline"] == compress(machine.offline)
    cores = [sorted(online.intersection(core.threads)) for core in machine.cores]
    assert facts["cpus"]["siblings"] == [compress(core) for core in sorted(cores) if len(core) > 1]
    covered = [cpu for cache in facts["cpus"]["caches"] for cpu in expand(cache)]
    assert sorted(covered) == machine.online
    assert [(node["id"], node["cpus"], node["memory_mib"], list(node["distances"].values())) for node in facts["numa"]] == [
        (node.id, machine.visible(node.cpus), node.memory_mib, list(node.distances)) for node in machine.nodes
    ]
    nodes = {function.bdf: None if function.node == -1 else function.node for function in machine.functions}
    busy = {(process.card, process.chip) for process in machine.processes}
    npus = [npu for npu in facts["npus"] if npu["kind"] == "npu"]
    assert [tuple(npu[key] for key in ("id", "card", "chip", "pci", "name", "memory_mib", "family", "numa", "busy")) for npu in npus] == [
        (
            number,
            chip.card,
            chip.chip,
            chip.bdf,
            chip.name,
            chip.memory_mib,
            machine.family,
            nodes[chip.bdf],
            (chip.card, chip.chip) in busy,
        )
        for number, chip in enumerate(chip for chip in machine.chips if chip.bdf in nodes)
    ]
    gpus = [npu for npu in facts["npus"] if npu["kind"] == "gpu"]
    assert [(gpu["pci"], gpu["memory_mib"], gpu["numa"]) for gpu in gpus] == [
        (gpu.bdf, gpu.memory_mib, nodes[gpu.bdf]) for gpu in machine.gpus
    ]
    assert (facts["machine"]["systemd"], facts["machine"]["cgroup"]) == (machine.systemd, machine.cgroup)
    assert facts["machine"]["architecture"] == machine.architecture
    assert len(json.dumps(facts)) < 24 * 1024


@pytest.mark.parametrize("name", ["a2_8x24", "a3_640_split", "duo", "a5"])
def test_three_calls_are_enough(simulated, name):
    host, _machine = simulated(name)
    gather(host)
    assert sorted(host.read(CALLS).splitlines()) == sorted(QUESTIONS)


@pytest.mark.parametrize("name", ["a2_8x24", "a3_640_split", "duo", "odd_nodes"])
def test_device_share_is_one_call_for_every_card(simulated, name):
    host, machine = simulated(name)
    facts = gather(host, device_share=True)
    chips = [chip for chip in machine.chips if chip.bdf in {function.bdf for function in machine.functions}]
    assert [npu["device_share"] for npu in facts["npus"]] == [chip.device_share for chip in chips]
    assert len(host.read(CALLS).splitlines()) == len(QUESTIONS) + len({chip.card for chip in chips})


def test_a_container_that_sees_two_dies(simulated):
    host, machine = simulated("a3_640_split", own=True)
    faults.set_faults(host.root, container=[12, 13], log_lines=["DrvMngGetConsoleLogLevel failed. (ret=4)"])
    facts = gather(host)
    assert [(npu["id"], npu["phy_id"], npu["pci"]) for npu in facts["npus"]] == [
        (number, chip.phy, chip.bdf) for number, chip in enumerate(chip for chip in machine.chips if chip.phy in (12, 13))
    ]
    assert len(facts["problems"]) == 1
    assert all((chip.bdf in facts["problems"][0]) == (chip.phy not in (12, 13)) for chip in machine.chips)


def test_network_functions_have_their_distance_to_each_npu(simulated):
    (found,) = gather(simulated("a2_8x24")[0])["nics"]
    assert (found["name"], found["numa"], found["distances"]) == ("eth0", 0, {"10": "4-5", "20": "0-3,6-7"})

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU hosts of published reports, from their files and nvidia-smi to the plan, what a bind says, and what verify finds."""

import re

import pytest
from tests.fakes.bound import SETTINGS
from tests.simulator.faults import set_faults
from tests.simulator.generate import generate

from ansible_collections.npu.affinity.plugins.module_utils._base import table
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import code_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Wanted
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import guests
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.variables import mig_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import launch
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

ADDRESSES = ("0000:40:00.0", "0000:48:00.0", "0000:50:00.0", "0000:58:00.0")


@pytest.fixture
def host(tmp_path):
    """Return a function that makes a host with a GPU for each dict, two NUMA nodes and 64 CPUs, two threads a core."""

    def make(*cards, **faults):
        described = [{"bdf": ADDRESSES[place], "node": place // 2, **card} for place, card in enumerate(cards)]
        gpus = {"name": "NVIDIA H100", "memory_mib": 81559, "cards": described}
        cpus = {"per_node": 32, "packages": 2, "smt": "split"}
        generate({"cpus": cpus, "nodes": {"count": 2}, "gpus": gpus, "faults": faults}, tmp_path / "host")
        return Host(str(tmp_path / "host"), timeout=60)

    return make


CLOSEST = [{"node": -1, "closest": node} for node in (1, 1, 0, 0)]


@pytest.mark.parametrize("faults", [{}, {"nvidia_old": True}], ids=["nodes", "a release that prints CPUs only"])
def test_where_the_kernel_knows_no_node_nvidia_smi_tells_it(host, faults):
    topology = gather(host(*CLOSEST, **faults))
    made = plan(topology)
    assert [entry["pool"] for entry in made["npus"]] == ["16-23,48-55", "24-31,56-63", "0-7,32-39", "8-15,40-47"]
    assert [entry["mems"] for entry in made["npus"]] == ["1", "1", "0", "0"]
    assert topology["problems"] == [] and made["quality"]["local"] == 1.0


def test_what_nobody_tells_is_not_known(host):
    topology = gather(host({"node": -1}, {"node": -1}))
    assert [gpu["numa"] for gpu in topology["npus"]] == [None, None]
    assert topology["problems"] == ["GPU 0-1: neither the kernel (numa_node is -1) nor nvidia-smi has a NUMA node for it."]


def test_gpus_of_guests_are_named_and_get_nothing(host):
    topology = gather(host({}, {"driver": "vfio-pci"}, {}, {"driver": "vfio-pci"}))
    made = plan(topology)
    assert (topology["problems"], [entry["pci"] for entry in made["npus"]]) == ([], [ADDRESSES[0], ADDRESSES[2]])
    assert guests(topology) == [
        "GPUs at 0000:48:00.0, 0000:58:00.0 have driver vfio-pci, which gives them to guests: no pool is planned for them."
    ]


FAULTS = [
    ("no driver", {"nvidia_error": True}, [("nvidia-smi", "NPU_SMI_SILENT")]),
    ("no answer", {"nvidia_hang": 30}, [("nvidia-smi", "NPU_SMI_SILENT")]),
    ("a lost GPU", {"nvidia_lost": [ADDRESSES[1]]}, [("GPU 1", "NPU_CARD_LOST")]),
    ("a lost GPU that hides the others", {"nvidia_lost": [ADDRESSES[1]], "nvidia_stops": True}, [("GPU 1", "NPU_CARD_LOST")]),
    ("all is well", {}, []),
]


@pytest.mark.parametrize("faults, expected", [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_verify_finds_a_silent_tool_and_names_a_lost_gpu_alone(host, faults, expected):
    bound = host({}, {}, {}, {})
    made = plan(gather(bound))
    set_faults(bound.root, **faults)
    bound.timeout = 1 if "nvidia_hang" in faults else 60
    _bound, findings = verify(bound, Wanted(topology=gather(bound)), made)
    drift = [(finding.object, code_of(finding.kind, finding.cause.word)) for finding in findings.drift if finding.kind == "npus"]
    assert drift == expected


def test_a_gpu_that_went_to_a_guest_is_lost_with_its_driver(host):
    made = plan(gather(host({}, {})))
    lent = host({}, {"driver": "vfio-pci"})
    _bound, findings = verify(lent, Wanted(topology=gather(lent)), made)
    (lost,) = [finding for finding in findings.drift if finding.kind == "npus"]
    assert (lost.object, lost.found[0].state) == ("GPU 1", "not listed, with vfio-pci")


def test_tables_name_what_the_host_has(host):
    topology = gather(host({}, {}))
    made = plan(topology)
    assert [line.split()[0] for line in table.rows(made, topology)] == ["GPU", "0", "1"]
    mixed = [{**entry, "kind": kind, "slice": f"{kind}-0.slice"} for kind, entry in zip(("npu", "gpu"), made["npus"], strict=True)]
    assert [line.split()[0] for line in table.rows({**made, "npus": mixed}, topology)] == ["accelerator", "NPU", "GPU"]


KINDS = {
    "two sockets": ([{}, {}, {}], {}),
    "nodes not known": ([{"node": -1}] * 3, {}),
    "three of one node, kept CPUs, few CPUs": ([{"node": 0}] * 3, {"housekeeping": "0-7", "smt": "threads", "repair": False}),
    "a strategy that splits cores": ([{}, {}, {}], {"strategy": "global_slice", "repair": False}),
    "a strategy that takes remote CPUs": ([{"node": 1}] * 3, {"strategy": "global_slice"}),
}
NPU = re.compile(r"\bNPUs?\b(?! ID)")


@pytest.mark.parametrize("cards, options", KINDS.values(), ids=KINDS)
def test_no_text_about_gpus_names_an_npu(host, cards, options):
    topology = gather(host(*cards))
    made = plan(topology, **options)
    notes = of_plan(topology, made, {"slices": {**SETTINGS["slices"], "services": []}})["notes"] if not made.get("violations") else {}
    refused = plan_refusals(topology, made, Work(services=[{"unit": "a.service", "npus": [9]}]))
    texts = [*table.plan_table(made, topology), *refused, *notes.values()]
    assert [text for text in map(str, texts) if NPU.search(text)] == []
    assert any("a.service wants GPU 9, but the plan of this host has GPU 0, 1, 2." in text for text in refused)
    with pytest.raises(ValueError, match="Invalid GPU id 9"):
        plan(topology, npus=[9])


MIG = "MIG-5f0e4c1a-0000-4000-8001-000000000000"
SECOND = "MIG-5f0e4c1a-0000-4000-8001-000000000001"
SPLIT = [
    # MIG devices of GPU 0, what the service's own files set, and what the drop-in sets or why it is refused
    (1, None, MIG),
    (None, None, "0"),
    (2, None, f"with 2 MIG devices, and a process of CUDA takes exactly one. Set CUDA_VISIBLE_DEVICES of the service to one of {MIG}"),
    (2, SECOND, None),
    (0, None, "in MIG mode with no MIG device"),
]


@pytest.mark.parametrize("parts, elsewhere, expected", SPLIT)
def test_a_service_names_the_mig_device_that_it_takes(host, parts, elsewhere, expected):
    topology = gather(host({"mig": parts}, {}))
    variable = {"value": elsewhere, "file": "/etc/systemd/system/a.service", "wins": False}
    topology["unit_environment"] = {"a.service": {"CUDA_VISIBLE_DEVICES": variable}} if elsewhere else {}
    made, settings = plan(topology), Work(services=[{"unit": "a.service", "npus": [0]}])
    if refused := mig_refusals(topology, made, settings):
        assert expected in refused[0]
    else:
        (service,) = binding(topology, made, settings)["services"]
        assert service["environment"].get("CUDA_VISIBLE_DEVICES") == expected


def test_a_container_is_not_given_a_gpu_in_mig_mode(host):
    topology = gather(host({"mig": 2}, {}))
    split, whole = plan(topology)["npus"]
    assert "--gpus=device=1 " in launch(whole, "docker", topology=topology, image="vllm")
    with pytest.raises(ValueError, match=f"GPU 0 is in MIG mode; give devices=false .*: {MIG}, {SECOND}"):
        launch(split, "docker", topology=topology, image="vllm")
    assert "--gpus" not in launch(split, "docker", topology=topology, image="vllm", devices=False)

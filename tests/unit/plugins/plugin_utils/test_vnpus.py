# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vNPUs without Kubernetes: quotas that add up, CPUs in proportion, and what is refused before anything is touched."""

from __future__ import annotations

import copy
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.filter.vnpus import FilterModule
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import slices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import launch
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import vnpus
from tests.fakes.bound import SETTINGS

TOPOLOGY = {
    "machine": {"architecture": "aarch64", "systemd": 252, "cgroup": "v2"},
    "driver": {"version": "25.5.1"},
    "kubelet": None,
    "cpus": {"online": "0-47", "siblings": []},
    "numa": [{"id": 0, "cpus": "0-23"}, {"id": 1, "cpus": "24-47"}],
    "npus": [
        {"kind": "npu", "id": 0, "phy_id": 2, "name": "910B3", "memory_mib": 65536},
        {"kind": "npu", "id": 1, "phy_id": 5, "name": "910X", "memory_mib": 32768},
        {"kind": "gpu", "id": 7, "name": "L40S", "memory_mib": 46068},
    ],
    "problems": [],
}
ALL = {"CPUAffinity": "0-47"}
PLAN = {
    "cpus": "0-47",
    "housekeeping": "",
    "violations": [],
    "npus": [
        {"id": 0, "pci": "0000:c1:00.0", "pool": "0-23", "irq": "0-1", "mems": "0", "slice": "npu-0.slice"},
        {"id": 1, "pci": "0000:01:00.0", "pool": "24-39", "irq": "24-25", "mems": "1", "slice": "npu-1.slice"},
        {"id": 7, "pci": "0000:41:00.0", "pool": "40-47", "irq": "", "mems": "1", "slice": "gpu-7.slice"},
    ],
}
A = {"name": "a", "npu": 0, "memory_mib": 28672, "core": 20, "unit": "infer-a.service"}
B = {"name": "b-2", "npu": 0, "memory_mib": 28672, "core": 40}


def test_two_containers_share_a_card_and_its_cores_in_proportion():
    a, b = vnpus(TOPOLOGY, PLAN, [A, B])
    assert (a["slice"], a["pool"], a["mems"], a["npus"]) == ("npu-0-a.slice", "2-5", "0", [0])
    assert (b["slice"], b["pool"]) == ("npu-0-b_2.slice", "6-14")
    assert a["environment"] == {
        "ASCEND_VISIBLE_DEVICES": "2",
        "NPU_GLOBAL_SHM_PATH": "/hami-shared-region/2_global_registry",
        "NPU_MEM_QUOTA": "28672",
        "NPU_PRIORITY": "20",
        "NPU_LOCAL_SHM_PATH": "/hami-vnpu-shmem/vnpu_local_shmem",
    }
    assert (a["file"], a["limiter"]) == ("/etc/npu-affinity/vnpu/a.env", "npu-affinity-limiter-a.service")
    (alone, _other) = vnpus(TOPOLOGY, PLAN, [A, B], limiter=False)
    assert alone["limiter"] is None and "NPU_LOCAL_SHM_PATH" not in alone["environment"]


def test_the_state_of_a_host_has_what_the_filter_returns():
    """So that npu-affinity launch prints on the host what filter launch returns for it."""
    wanted = FilterModule().filters()["vnpus"](PLAN, [A, B], TOPOLOGY)
    options = {**SETTINGS["slices"], "services": [], "vnpus": [A, B], "vnpu_limiter": "x", "vnpu_folder": "/usr/local/hami-vnpu-core"}
    live = slices.wanted(TOPOLOGY, PLAN, options).live["vnpus"]
    assert [{name: vnpu[name] for name in wanted[0]} for vnpu in live] == wanted


def test_whole_cores_stay_whole_where_cores_have_threads():
    siblings = [f"{cpu},{cpu + 12}" for cpu in range(12)]
    topology = {**TOPOLOGY, "cpus": {"online": "0-47", "siblings": siblings}}
    a, b = vnpus(topology, PLAN, [A, B])
    assert (a["pool"], b["pool"]) == ("2-3,14-15", "4-7,16-19")


def test_one_more_at_the_end_moves_nobody():
    first = vnpus(TOPOLOGY, PLAN, [A, B])
    assert vnpus(TOPOLOGY, PLAN, [A, B, {"name": "c", "npu": 0, "memory_mib": 1024, "core": 40}])[:2] == first


def test_slices_lie_inside_the_npus_and_units_wait_for_limiters():
    result = binding(TOPOLOGY, PLAN, Named(vnpus=[A, B]))
    assert result["summary"].endswith(
        " vNPU a: 28672 MiB and 20 percent of NPU 0, CPUs 2-5. vNPU b-2: 28672 MiB and 40 percent of NPU 0, CPUs 6-14."
    )
    assert {"unit": "npu-0-a.slice", "cpus": "2-5", "mems": "0"} in result["expected"]
    assert "npu-0-b_2.slice" in result["parents"][0]["wants"]
    assert result["enabled"] == [
        "npu.slice",
        "gpu.slice",
        "npu-affinity-limiter-b-2.service",
    ]  # that of a is started by its container's unit
    assert result["services"] == [
        {
            "name": "infer-a.service",
            "description": "vNPU a: 28672 MiB and 20 percent of NPU 0.",
            "settings": {"Slice": "npu-0-a.slice", **ALL},
            "environment": {},
            "devices": {},
            "switches": {},
            "needs": "npu-affinity-limiter-a.service",
        }
    ]
    assert [vnpu["settings"] for vnpu in result["vnpus"]] == [{"Slice": "npu-0-a.slice", **ALL}, {"Slice": "npu-0-b_2.slice", **ALL}]


def test_vnpus_without_slices_get_affinity_except_with_kubelet():
    old = {**TOPOLOGY, "machine": {**TOPOLOGY["machine"], "cgroup": "v1"}}
    result = binding(old, PLAN, Named(vnpus=[A]))
    assert result["services"][0]["settings"] == {"CPUAffinity": "2-5", "NUMAPolicy": "bind", "NUMAMask": "0"}
    assert result["vnpus"][0]["settings"] == result["services"][0]["settings"]
    static = {**TOPOLOGY, "kubelet": {"policy": "static"}}
    result = binding(static, PLAN, Named(vnpus=[A]))
    assert (result["slices"], result["vnpus"][0]["settings"], result["services"][0]["needs"]) == ([], {}, "npu-affinity-limiter-a.service")


def than(**values):
    return {**B, **values}


REFUSED = [
    ([A, than(core=81)], "b-2 wants 28672 MiB and 81 % of NPU 0, which has 65536 MiB and 100 % and serves a 28672 MiB and 20 %"),
    ([A, than(memory_mib=36865)], "b-2 wants 36865 MiB and 40 % of NPU 0, which has 65536 MiB .* (CardInsufficientMemory)"),
    ([than(npu=1, memory_mib=32769)], "which has 32768 MiB and 100 % and serves nobody"),
    ([than(npu=0, core=4)], "4 % of NPU 0 for b-2 is not a whole core of its pool, which has 22 outside interrupts; ask for 5 or more"),
    ([than(npu=3)], "npu_affinity_vnpus: b-2 wants accelerator 3, but the plan of this host has NPU 0, NPU 1, GPU 7."),
    ([than(npu=7)], "b-2 wants a part of GPU 7, and only NPUs can be shared"),
    ([A, than(name="a", npu=1)], "a is named more than once"),
    ([B, than(name="b_2")], "b_2 is named more than once; file names contain it, and '-' and '_' count as the same"),
    ([than(name="b/2")], "'b/2' is not a name"),
    ([than(core=0)], "core of b-2 must be a whole number from 1 to 100; it is 0"),
    ([than(core="40")], "core of b-2 must be a whole number from 1 to 100; it is '40'"),
    ([than(memory_mib=0)], "memory_mib of b-2 must be a whole number from 1 on; it is 0"),
    ([{"name": "c", "npu": 0, "core": 5}], "memory_mib of c must be a whole number from 1 on; it is None"),
    ([than(memory="28Gi")], "b-2 has unknown settings memory; there are name, npu, memory_mib, core, unit"),
    ([than(unit="b")], "'b' is not the name of a systemd service"),
    ([A, than(unit="infer-a.service")], "infer-a.service is named more than once"),
]


@pytest.mark.parametrize("wanted, sentence", REFUSED)
def test_what_does_not_add_up_is_refused_with_numbers(wanted, sentence):
    said = " ".join(plan_refusals(TOPOLOGY, PLAN, Named(vnpus=wanted)))
    assert re.search(re.escape(sentence).replace(re.escape(".*"), ".*"), said), said


def test_shared_npu_needs_its_driver_and_slice_and_no_full_user():
    said = plan_refusals(TOPOLOGY, PLAN, Named([{"unit": "big.service", "npus": [0, 1]}], [{"name": "llm", "npus": [0]}], [A]))
    assert "npu_affinity_vnpus: NPU 0 is shared, and big.service uses all of it; move one of them." in said
    assert "npu_affinity_vnpus: NPU 0 is shared, and llm uses all of it; move one of them." in said
    old = {**TOPOLOGY, "driver": {"version": "25.3.rc1"}}
    assert "is 25.3.rc1, and 25.5 or newer is required" in " ".join(plan_refusals(old, PLAN, Named(vnpus=[A])))
    assert "set npu_affinity_bound_by to host" in " ".join(plan_refusals(TOPOLOGY, PLAN, Named(vnpus=[A], bound_by="workers")))


def sharing(**parts):
    """Return the topology with parts of NPU 0 or of the host changed."""
    npus = [{**TOPOLOGY["npus"][0], **{key: value for key, value in parts.items() if key in ("device_share", "family", "name")}}]
    return {**TOPOLOGY, "npus": npus + TOPOLOGY["npus"][1:], **{key: value for key, value in parts.items() if key in ("machine", "driver")}}


CANNOT_WORK = [
    ("910A", sharing(family="910", name="910A"), True, "NPU 0 is a 910A, whose driver has no device share"),
    ("910 Pro", sharing(family="910", name="910ProB"), True, "NPU 0 is a 910ProB, whose driver has no device share"),
    ("x86_64", sharing(machine={"architecture": "x86_64"}), True, "hami-vnpu-core, which there is for Arm only, and this host is x86_64"),
    ("device share stays off", sharing(device_share=False), False, "device share of NPU 0 is off and stays off"),
]


@pytest.mark.parametrize("topology, share, sentence", [row[1:] for row in CANNOT_WORK], ids=[row[0] for row in CANNOT_WORK])
def test_what_cannot_work_is_refused(topology, share, sentence):
    assert sentence in plan_refusals(topology, PLAN, Named(vnpus=[A, B], device_share=share))[0]


DOUBTS = [
    ("shares", sharing(device_share=True), None, []),
    ("will share", sharing(device_share=False), True, []),
    ("does not share", sharing(device_share=False), None, ["device share of NPU 0 is off"]),
    ("is not known to share", TOPOLOGY, False, ["device share of NPU 0 is not known"]),
    ("unknown driver", sharing(device_share=True, driver={"version": None}), None, ["version of the Ascend driver is not known"]),
]


@pytest.mark.parametrize("topology, share, sentences", [row[1:] for row in DOUBTS], ids=[row[0] for row in DOUBTS])
def test_what_may_not_work_is_said(topology, share, sentences):
    said = remarks(topology, PLAN, Named(vnpus=[A, B], device_share=share))
    assert len(said) == len(sentences) and all(sentence in told for sentence, told in zip(sentences, said, strict=True))


def test_vnpus_of_a_lost_card_stay_as_they_are():
    kept = {**PLAN, "npus": [{**PLAN["npus"][1], "id": 0}], "lost": [{**PLAN["npus"][0], "kind": "npu", "phy_id": 2}]}
    left = {**TOPOLOGY, "npus": [{**TOPOLOGY["npus"][1], "id": 0}]}
    assert plan_refusals(left, kept, Named(vnpus=[A, B])) == []
    before, after = ([{**vnpu, "npus": None} for vnpu in vnpus(*where, [A, B])] for where in ((TOPOLOGY, PLAN), (left, kept)))
    assert after == before
    assert remarks(left, kept, Named(vnpus=[A]))[0].startswith("vNPU a has the CPUs of npu-0.slice, although NPU 0 (PCI 0000:c1:00.0)")
    assert vnpus(left, kept, [{**A, "npu": "c1:00.0"}])[0]["slice"] == "npu-0-a.slice"


quotas = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40000), st.integers(1, 60)), min_size=1, max_size=8)


@settings(deadline=None)
@given(quotas)
def test_accepted_vnpus_never_exceed_an_npu_or_share_a_core(drawn):
    wanted = [{"name": f"v{place}", "npu": npu, "memory_mib": memory, "core": core} for place, (npu, memory, core) in enumerate(drawn)]
    before = copy.deepcopy(wanted)
    said = plan_refusals(TOPOLOGY, PLAN, Named(vnpus=wanted))
    assert wanted == before
    for npu, total in ((0, 65536), (1, 32768)):
        mine = [vnpu for vnpu in wanted if vnpu["npu"] == npu]
        if sum(vnpu["core"] for vnpu in mine) > 100 or sum(vnpu["memory_mib"] for vnpu in mine) > total:
            assert said
    if said:
        return
    shares = [set(expand(vnpu["pool"])) for vnpu in vnpus(TOPOLOGY, PLAN, wanted)]
    assert all(shares) and len(set().union(*shares)) == sum(map(len, shares))
    assert not set().union(*shares) & {0, 1, 24, 25}
    for vnpu, share in zip(wanted, shares, strict=True):
        cores = (22, 14)[vnpu["npu"]]
        assert abs(len(share) - cores * vnpu["core"] / 100) < 1


# How the container is started


def entries(**options):
    return FilterModule().filters()["vnpus"](PLAN, [A, B], TOPOLOGY, **options)


def words(form, **options):
    return launch(entries()[1], form, topology=TOPOLOGY, image="image", notes=False, **options).split()


@pytest.mark.parametrize("form", ["docker", "podman", "nerdctl"])
def test_a_container_gets_its_quotas_mounts_device_and_slice(form):
    found = words(form)
    assert found[:2] == [form, "run"]
    assert {"--cgroup-parent=npu-0-b_2.slice", "--cpuset-cpus=6-14", "--cpuset-mems=0", "--device=/dev/davinci2"} <= set(found)
    assert {"--env=NPU_MEM_QUOTA=28672", "--env=NPU_PRIORITY=40", "--env=NPU_GLOBAL_SHM_PATH=/hami-shared-region/2_global_registry"} <= set(
        found
    )
    assert [word for word in found if word.startswith("--volume=/usr/local/hami") or "vnpu/b-2" in word] == [
        "--volume=/usr/local/hami-vnpu-core:/hami-vnpu-core:ro",
        "--volume=/usr/local/hami-vnpu-core/ld.so.preload:/etc/ld.so.preload:ro",
        "--volume=/usr/local/hami-shared-region:/hami-shared-region",
        "--volume=/run/npu-affinity/vnpu/b-2:/hami-vnpu-shmem",
        "--volume=/run/npu-affinity/vnpu/b-2:/dev/shm",
    ]


def test_the_ascend_runtime_replaces_devices_but_not_quotas():
    found = words("docker", ascend_runtime=True)
    assert "--env=ASCEND_VISIBLE_DEVICES=2" in found and "--env=NPU_PRIORITY=40" in found
    assert not any(word.startswith("--device") for word in found)


def test_files_for_compose_and_quadlet_have_the_same():
    assert "- /usr/local/hami-vnpu-core:/hami-vnpu-core:ro" in launch(entries()[1], "compose", topology=TOPOLOGY)
    text = launch(entries()[1], "quadlet", topology=TOPOLOGY)
    assert "Environment=NPU_MEM_QUOTA=28672\n" in text and "Volume=/usr/local/hami-shared-region:/hami-shared-region\n" in text


def test_notes_say_what_must_run_before():
    text = launch(entries()[1], "docker", topology=TOPOLOGY)
    assert "# The limiter must run before: systemctl start npu-affinity-limiter-b-2.service\n" in text
    assert "# Device share must be on for its card" in text
    assert "limiter" not in launch(entries(limiter=False)[1], "docker", topology=TOPOLOGY)


@pytest.mark.parametrize("form", ["systemd", "kubernetes", "numactl", "slurm"])
def test_a_part_of_an_npu_is_refused_where_no_container_holds_it(form):
    with pytest.raises(ValueError, match="a part of an NPU, .*launch it with compose, ctr, docker, nerdctl, podman, quadlet"):
        launch(entries()[1], form, topology=TOPOLOGY)


def test_a_part_is_not_split_a_second_time():
    with pytest.raises(ValueError, match="would split its NPU a second time"):
        launch(entries()[1], "docker", topology=TOPOLOGY, ascend_runtime=True, vnpu="vir05_1c_16g")

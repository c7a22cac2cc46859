# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vNPUs without Kubernetes, soft and hard: quotas that add up, CPUs in proportion, containers, and what is refused before all else."""

import copy
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.filter.vnpus import FilterModule
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._features.hard_vnpu.splitting import HardVnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import hard_vnpu, slices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import launch
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import vnpus, with_names
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
        {"id": 0, "pci": "0000:c1:00.0", "pool": "0-23", "irq": "0-1", "mems": "0", "memory_nodes": "0", "slice": "npu-0.slice"},
        {"id": 1, "pci": "0000:01:00.0", "pool": "24-39", "irq": "24-25", "mems": "1", "memory_nodes": "1", "slice": "npu-1.slice"},
        {"id": 7, "pci": "0000:41:00.0", "pool": "40-47", "irq": "", "mems": "1", "memory_nodes": "1", "slice": "gpu-7.slice"},
    ],
}
A = {"name": "a", "npu": 0, "memory_mib": 28672, "core": 20, "unit": "infer-a.service"}
B = {"name": "b-2", "npu": 0, "memory_mib": 28672, "core": 40}
filtered = FilterModule().filters()["vnpus"]


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
    assert vnpus(TOPOLOGY, PLAN, [A, B, {**B, "name": "c", "memory_mib": 1024}])[:2] == [a, b], "one more at the end moves nobody"
    threads = {"online": "0-47", "siblings": [f"{cpu},{cpu + 12}" for cpu in range(12)]}
    whole = vnpus({**TOPOLOGY, "cpus": threads}, PLAN, [A, B])
    assert [vnpu["pool"] for vnpu in whole] == ["2-3,14-15", "4-7,16-19"], "cores stay whole where they have threads"


def test_the_state_of_a_host_has_what_the_filter_returns():
    """So that npu-affinity launch prints on the host what filter launch returns for it."""
    wanted = filtered(PLAN, [A, B], TOPOLOGY)
    options = {**SETTINGS["slices"], "services": [], "vnpus": [A, B], "kubelet_becomes": ""}
    live = slices.wanted(TOPOLOGY, PLAN, options).live["vnpus"]
    assert [{name: vnpu[name] for name in wanted[0]} for vnpu in live] == wanted


def test_slices_lie_inside_the_npus_and_units_wait_for_limiters():
    result = binding(TOPOLOGY, PLAN, Work(vnpus=[A, B]))
    assert result["summary"].endswith(
        " vNPU a: 28672 MiB and 20 percent of NPU 0, CPUs 2-5. vNPU b-2: 28672 MiB and 40 percent of NPU 0, CPUs 6-14."
    )
    assert {"unit": "npu-0-a.slice", "cpus": "2-5", "mems": "0"} in result["expected"]
    assert "npu-0-b_2.slice" in result["parents"][0]["wants"]
    limiter = "npu-affinity-limiter-b-2.service"  # that of a is started by its container's unit
    assert result["enabled"] == ["npu.slice", "gpu.slice", limiter]
    assert result["services"] == [
        {
            "name": "infer-a.service",
            "description": "vNPU a: 28672 MiB and 20 percent of NPU 0.",
            "settings": {"Slice": "npu-0-a.slice", **ALL},
            "needs": "npu-affinity-limiter-a.service",
            **dict.fromkeys(("environment", "devices", "switches"), {}),
        }
    ]
    assert [vnpu["settings"] for vnpu in result["vnpus"]] == [{"Slice": "npu-0-a.slice", **ALL}, {"Slice": "npu-0-b_2.slice", **ALL}]


def test_vnpus_without_slices_get_affinity_except_with_kubelet():
    result = binding({**TOPOLOGY, "machine": {**TOPOLOGY["machine"], "cgroup": "v1"}}, PLAN, Work(vnpus=[A]))
    assert result["services"][0]["settings"] == {"CPUAffinity": "2-5", "NUMAPolicy": "bind", "NUMAMask": "0"}
    assert result["vnpus"][0]["settings"] == result["services"][0]["settings"]
    result = binding({**TOPOLOGY, "kubelet": {"policy": "static"}}, PLAN, Work(vnpus=[A]))
    assert (result["slices"], result["vnpus"][0]["settings"], result["services"][0]["needs"]) == ([], {}, "npu-affinity-limiter-a.service")


TEMPLATES = [{"name": "vir05_1c_16g", "aicore": 5, "memory_gib": 16}, {"name": "vir10_3c_32g", "aicore": 10, "memory_gib": 32}]
DEVICE = {"number": 3, "file": "/dev/davinci3", "known_by": "interrupts"}
NPU = {"kind": "npu", "id": 2, "card": 3, "chip": 0, "phy_id": 3, "name": "910B3", "family": "a2", "memory_mib": 65536, "device": DEVICE}
ENTRY = {**PLAN["npus"][0], "id": 2, "card": 3, "chip": 0, "phy_id": 3, "slice": "npu-2.slice"}
OF_NPU_2 = {**PLAN, "npus": [ENTRY]}
SMALL, LARGE = {"npu": 2, "template": "vir05_1c_16g"}, {"npu": 2, "template": "vir10_3c_32g"}
SOFT = {"name": "soft", "npu": 2, "memory_mib": 1024, "core": 20}


def splits(npu=(), **parts):
    """Return a host with one NPU, whose driver makes hard vNPUs."""
    parts = {"vnpus": {"templates": {"910B3": TEMPLATES}, "ai_cores": {"910B3": 20}, "recover": True}, **parts}
    machine, driver = {**TOPOLOGY["machine"], "architecture": "x86_64"}, {"version": "23.0.1"}
    return {**TOPOLOGY, "machine": machine, "driver": driver, "npus": [{**NPU, **dict(npu)}], **parts}


def sharing(**npu):
    """Return the topology with other values of NPU 0."""
    return {**TOPOLOGY, "npus": [{**TOPOLOGY["npus"][0], **npu}, *TOPOLOGY["npus"][1:]]}


X86, OLD = {**TOPOLOGY, "machine": {"architecture": "x86_64"}}, {**TOPOLOGY, "driver": {"version": "25.3.rc1"}}
UNKNOWN, STAYS = {"number": None, "file": None, "known_by": "unknown"}, sharing(device_share=False)
USERS = [{"unit": "big.service", "npus": [0, 1]}], [{"name": "llm", "npus": [0]}]
FORTIETH = {"templates": {"910B3": [{**TEMPLATES[0], "aicore": 1}]}, "ai_cores": {"910B3": 40}}
BOTH = splits(machine={"architecture": "aarch64"}, driver=TOPOLOGY["driver"])
NO_NAME = "is named more than once; file names contain it, and '-' and '_' count as the same"
# The host, its vNPUs, what else is set, and a part of what is said.
REFUSED = [
    (TOPOLOGY, [A, {**B, "core": 81}], {}, "b-2 wants 28672 MiB and 81 % of NPU 0, which has 65536 MiB and 100 % and .* 20 %"),
    (TOPOLOGY, [A, {**B, "memory_mib": 36865}], {}, "b-2 wants 36865 MiB and 40 % of NPU 0, .* (CardInsufficientMemory)"),
    (TOPOLOGY, [{**B, "npu": 1, "memory_mib": 32769}], {}, "which has 32768 MiB and 100 % and serves nobody"),
    (TOPOLOGY, [{**B, "core": 4}], {}, "4 % of NPU 0 for b-2 is not a whole core .* 22 outside interrupts; ask for 5 or"),
    (TOPOLOGY, [{**B, "npu": 3}], {}, "npu_affinity_vnpus: b-2 wants accelerator 3, but the plan of this host has NPU 0, NPU 1, GPU 7."),
    (TOPOLOGY, [{**B, "npu": 7}], {}, "b-2 wants a part of GPU 7, and only NPUs can be shared"),
    (TOPOLOGY, [A, {**B, "name": "a", "npu": 1}], {}, "a is named more than once"),
    (TOPOLOGY, [B, {**B, "name": "b_2"}], {}, f"b_2 {NO_NAME}"),
    (TOPOLOGY, [{**B, "name": "b/2"}], {}, "'b/2' is not a name"),
    (TOPOLOGY, [{**B, "core": 0}], {}, "core of b-2 must be a whole number from 1 to 100; it is 0"),
    (TOPOLOGY, [{**B, "core": "40"}], {}, "core of b-2 must be a whole number from 1 to 100; it is '40'"),
    (TOPOLOGY, [{**B, "memory_mib": 0}], {}, "memory_mib of b-2 must be a whole number from 1 on; it is 0"),
    (TOPOLOGY, [{"name": "c", "npu": 0, "core": 5}], {}, "memory_mib of c must be a whole number from 1 on; it is None"),
    (TOPOLOGY, [{**B, "memory": "28Gi"}], {}, "b-2 has unknown settings memory; there are name, npu, memory_mib, core, unit"),
    (TOPOLOGY, [{**B, "npu": None}], {}, "b-2 names no NPU."),
    (TOPOLOGY, [{**B, "unit": "b"}], {}, "'b' is not the name of a systemd service"),
    (TOPOLOGY, [A, {**B, "unit": "infer-a.service"}], {}, "infer-a.service is named more than once"),
    (TOPOLOGY, [A], {"services": USERS[0]}, "npu_affinity_vnpus: NPU 0 is shared, and big.service uses all of it; move one of them."),
    (TOPOLOGY, [A], {"workloads": USERS[1]}, "npu_affinity_vnpus: NPU 0 is shared, and llm uses all of it; move one of them."),
    (TOPOLOGY, [A], {"bound_by": "workers"}, "set npu_affinity_bound_by to host"),
    (OLD, [A], {}, "is 25.3.rc1, and 25.5 or newer is required"),
    (sharing(family="910", name="910A"), [A, B], {"device_share": True}, "NPU 0 is a 910A, whose driver has no device share"),
    (sharing(family="910", name="910ProB"), [A, B], {"device_share": True}, "NPU 0 is a 910ProB, whose driver has no device share"),
    (X86, [A, B], {"device_share": True}, "hami-vnpu-core, which there is for Arm only, and this host is x86_64"),
    (STAYS, [A, B], {"device_share": False}, "device share of NPU 0 is off and stays off"),
    (splits(), [{"npu": 2, "template": "vir99"}], {}, "NPU 2 has no template vir99; it has vir05_1c_16g, vir10_3c_32g"),
    (splits(), [LARGE, LARGE, SMALL], {}, "want 25 AI cores and 81920 MiB of NPU 2, which has 20 and 65536 MiB"),
    (splits({"memory_mib": 32768}), [LARGE, SMALL], {}, "want 15 AI cores and 49152 MiB of NPU 2, which has 20 and 32768 MiB"),
    (splits({"family": "a5", "name": "950"}), [SMALL], {}, "is to be a hard vNPU of NPU 2, which is a 950, which has none"),
    (
        splits(vnpus=FORTIETH),
        [SMALL],
        {},
        "vir05_1c_16g for vnpu-0 is not a whole core of the pool of NPU 2, which has 22 outside interrupts",
    ),
    (splits(vnpus={}), [SMALL], {}, "which lists no templates by npu-smi; see npu-smi info -t template-info -i 3 -c 0"),
    (BOTH, [SMALL, SOFT], {}, "use one of the two"),
    (splits({"device": UNKNOWN}), [SMALL], {}, "the device file of NPU 2 (NPU ID 3, chip 0) is not known"),
    (splits(), [{**SMALL, "core": 5}], {}, "has a template, which sets memory and compute; leave memory_mib and core out"),
]


@pytest.mark.parametrize("topology, wanted, more, sentence", REFUSED, ids=[row[3][:60] for row in REFUSED])
def test_what_cannot_be_is_refused_with_numbers(topology, wanted, more, sentence):
    device = topology["npus"][0].get("device", DEVICE)
    plan = PLAN if len(topology["npus"]) > 1 else {**PLAN, "npus": [{**ENTRY, "phy_id": device["number"]}]}
    said = " ".join(plan_refusals(topology, plan, Work(vnpus=with_names(wanted), **more)))
    assert re.search(re.escape(sentence).replace(re.escape(".*"), ".*"), said), said


SHARES = sharing(device_share=True)
DOUBTS = [
    ("shares", SHARES, PLAN, [A, B], None, []),
    ("will share", STAYS, PLAN, [A, B], True, []),
    ("does not share", STAYS, PLAN, [A, B], None, ["device share of NPU 0 is off"]),
    ("is not known to share", TOPOLOGY, PLAN, [A, B], False, ["device share of NPU 0 is not known"]),
    ("unknown driver", {**SHARES, "driver": {"version": None}}, PLAN, [A, B], None, ["version of the Ascend driver is not known"]),
    ("hard on an A2", splits(), OF_NPU_2, [SMALL], None, []),
    ("hard on an A3", splits({"family": "a3"}), OF_NPU_2, [SMALL], None, ["whether npu-smi can split an A3 is not confirmed"]),
]


@pytest.mark.parametrize("topology, plan, wanted, share, sentences", [row[1:] for row in DOUBTS], ids=[row[0] for row in DOUBTS])
def test_what_may_not_work_is_said(topology, plan, wanted, share, sentences):
    said = remarks(topology, plan, Work(vnpus=with_names(wanted), device_share=share))
    assert len(said) == len(sentences) and all(map(str.__contains__, said, sentences))


def test_vnpus_of_a_lost_card_stay_as_they_are():
    kept = {**PLAN, "npus": [{**PLAN["npus"][1], "id": 0}], "lost": [{**PLAN["npus"][0], "kind": "npu", "phy_id": 2}]}
    left = {**TOPOLOGY, "npus": [{**TOPOLOGY["npus"][1], "id": 0}]}
    assert plan_refusals(left, kept, Work(vnpus=[A, B])) == []
    before, after = ([{**vnpu, "npus": None} for vnpu in vnpus(*where, [A, B])] for where in ((TOPOLOGY, PLAN), (left, kept)))
    assert after == before
    assert remarks(left, kept, Work(vnpus=[A]))[0].startswith("vNPU a has the CPUs of npu-0.slice, although NPU 0 (PCI 0000:c1:00.0)")
    assert vnpus(left, kept, [{**A, "npu": "c1:00.0"}])[0]["slice"] == "npu-0-a.slice"


quotas = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40000), st.integers(1, 60)), min_size=1, max_size=8)


@settings(deadline=None)
@given(quotas)
def test_accepted_vnpus_never_exceed_an_npu_or_share_a_core(drawn):
    wanted = [{"name": f"v{place}", "npu": npu, "memory_mib": memory, "core": core} for place, (npu, memory, core) in enumerate(drawn)]
    before = copy.deepcopy(wanted)
    said = plan_refusals(TOPOLOGY, PLAN, Work(vnpus=wanted))
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
        assert abs(len(share) - (22, 14)[vnpu["npu"]] * vnpu["core"] / 100) < 1


def words(form, **options):
    return launch(filtered(PLAN, [A, B], TOPOLOGY)[1], form, topology=TOPOLOGY, image="image", notes=False, **options).split()


@pytest.mark.parametrize("form", ["docker", "podman", "nerdctl"])
def test_a_container_gets_its_quotas_mounts_device_and_slice(form):
    found = words(form)
    assert found[:2] == [form, "run"]
    assert {"--cgroup-parent=npu-0-b_2.slice", "--cpuset-cpus=6-14", "--cpuset-mems=0", "--device=/dev/davinci2"} <= set(found)
    shared = "NPU_GLOBAL_SHM_PATH=/hami-shared-region/2_global_registry"
    assert {"--env=NPU_MEM_QUOTA=28672", "--env=NPU_PRIORITY=40", f"--env={shared}"} <= set(found)
    assert [word for word in found if word.startswith("--volume=/usr/local/hami") or "vnpu/b-2" in word] == [
        "--volume=/usr/local/hami-vnpu-core:/hami-vnpu-core:ro",
        "--volume=/usr/local/hami-vnpu-core/ld.so.preload:/etc/ld.so.preload:ro",
        "--volume=/usr/local/hami-shared-region:/hami-shared-region",
        "--volume=/run/npu-affinity/vnpu/b-2:/hami-vnpu-shmem",
        "--volume=/run/npu-affinity/vnpu/b-2:/dev/shm",
    ]
    found = words("docker", ascend_runtime=True)  # which replaces devices, but not quotas
    assert "--env=ASCEND_VISIBLE_DEVICES=2" in found and "--env=NPU_PRIORITY=40" in found
    assert not any(word.startswith("--device") for word in found)


FORMS = [
    ("compose", {}, ["- /usr/local/hami-vnpu-core:/hami-vnpu-core:ro"]),
    ("quadlet", {}, ["Environment=NPU_MEM_QUOTA=28672\n", "Volume=/usr/local/hami-shared-region:/hami-shared-region\n"]),
    ("docker", {}, ["# The limiter must run before: systemctl start npu-affinity-limiter-b-2.", "# Device share must be on"]),
    *((form, {}, "a part of an NPU, .*launch it with compose, ctr, docker, ner") for form in ("systemd", "kubernetes", "numactl", "slurm")),
    ("docker", {"ascend_runtime": True, "vnpu": "vir05_1c_16g"}, "would split its NPU a second time"),
]


@pytest.mark.parametrize("form, options, expected", FORMS)
def test_a_part_of_an_npu_runs_only_where_a_container_holds_it(form, options, expected):
    _a, b = filtered(PLAN, [A, B], TOPOLOGY)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            launch(b, form, topology=TOPOLOGY, **options)
    else:
        text = launch(b, form, topology=TOPOLOGY)
        assert [part for part in expected if part not in text] == []


PARTS = [
    ("none is there", [], [SMALL, LARGE], [148, 149]),
    ("both are there", [(148, "vir05_1c_16g"), (149, "vir10_3c_32g")], [SMALL, LARGE], [148, 149]),
    ("another order than theirs", [(148, "vir10_3c_32g"), (149, "vir05_1c_16g")], [SMALL, LARGE], [149, 148]),
    ("one of them, and a gap", [(150, "vir05_1c_16g")], [SMALL, SMALL], [150, 148]),
    ("an id is taken by what is not wanted", [(148, "vir10_3c_32g")], [SMALL], [149]),
    ("one of which nothing is known", [(148, None)], [SMALL], [149]),
]


@pytest.mark.parametrize("there, wanted, ids", [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
def test_hard_vnpus_that_exist_are_taken_and_new_get_free_ids(there, wanted, ids):
    topology = splits({"parts": [{"id": number, "file": f"/dev/vdavinci{number}", "template": template} for number, template in there]})
    assert [vnpu["vnpu_id"] for vnpu in vnpus(topology, OF_NPU_2, with_names(wanted))] == ids


def test_a_hard_vnpu_gets_cores_and_a_device_but_no_limiter():
    small, large = filtered(OF_NPU_2, [SMALL, {**LARGE, "name": "b", "unit": "b.service"}], splits())
    assert (small["name"], small["slice"], small["pool"]) == ("vnpu-0", "npu-2-vnpu_0.slice", "2-6")
    assert (small["limiter"], small["volumes"]) == (None, [])
    assert (large["pool"], large["core"], large["memory_mib"], large["of"]) == ("7-17", 50, 32768, "NPU 2")
    text = launch(large, "docker", topology=splits(), image="image")
    assert "limiter" not in text and "Device share" not in text
    devices = [word for word in text.split() if word.startswith("--device=") and "davinci_manager" not in word]
    assert devices[0] == "--device=/dev/vdavinci149:/dev/davinci149" and "--device=/dev/davinci3" not in text
    runtime = launch(large, "docker", topology=splits(), image="image", ascend_runtime=True, notes=False).split()
    assert {"--env=ASCEND_VISIBLE_DEVICES=149", "--env=ASCEND_RUNTIME_OPTIONS=VIRTUAL"} <= set(runtime)
    (service,) = binding(splits(), OF_NPU_2, Work(vnpus=[{**LARGE, "name": "b", "unit": "b.service"}]))["services"]
    assert (service["description"], service["needs"]) == ("vNPU b: hard vNPU 148, vir10_3c_32g of NPU 2.", None)


def test_what_is_wanted_of_ids_with_more_digits_can_be_recorded():
    """The vNPUs of the NPU with the physical id 56 have the ids 996 to 1011."""
    one = {"templates": {"910B3": [{**TEMPLATES[0], "aicore": 1, "memory_gib": 1}]}, "ai_cores": {"910B3": 20}, "recover": True}
    topology = splits({"phy_id": 56, "device": {**DEVICE, "number": 56}}, vnpus=one)
    settings = {"enabled": True, "vnpus": [SMALL] * 5, "recover": "leave", "npu_smi": "", "timeout": 30, "python": "/usr/bin/python3"}
    found = hard_vnpu.wanted(topology, {**PLAN, "npus": [{**ENTRY, "phy_id": 56}]}, settings)
    HardVnpus().check({key: {"original": value, "given": []} for key, value in found.live["values"].items()})
    ids = ", ".join(f"{number} vir05_1c_16g" for number in range(996, 1001))
    assert found.live["values"]["3:0"] == ids

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What huge pages a plan asks for by node, what it refuses, and what it says about them."""

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import hugepages
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import feature_of
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features

NODES = range(4)


def topology(memory_gib=96, offered=(2048,), driver="25.5.1", kernel="6.6.0", **others):
    return {
        "machine": {"kernel": kernel},
        "numa": [{"id": node, "memory_mib": memory_gib << 10} for node in NODES],
        "npus": [{"kind": "npu", "id": 0, "family": "a2"}],
        "driver": {"version": driver},
        "hugepages": {str(size): {str(node): 0 for node in NODES} for size in offered},
        **others,
    }


def plan(*mems):
    return {"npus": [{"id": number, "pool": "0-7", "mems": nodes, "memory_nodes": "0-3"} for number, nodes in enumerate(mems)]}


def wanted(asked, mems=("0", "0", "2"), lost=(), **host):
    settings = of_features({"npu_affinity_hugepages": asked})["hugepages"]
    return feature_of("hugepages", topology(**host), {**plan(*mems), "lost": lost}, settings)


# (the setting, memory nodes of the NPUs, pages by node)
COUNTS = [
    ({"per_npu": 100}, ("0", "0", "2"), {"0": 200, "2": 100}),
    ({"per_npu": 101}, ("0-1", "3"), {"0": 51, "1": 50, "3": 101}),
    ({"per_npu": 100}, ("", "1"), {"0": 25, "1": 125, "2": 25, "3": 25}),
    ({"node": {0: 7, "3": "9"}}, ("0",), {"0": 7, "3": 9}),
    ({"node": {0: 45056}}, ("0",), {"0": 45056}),  # as many as fit
]


def test_no_pages_lie_in_the_memory_of_a_gpu():
    numa = [{"id": node, "memory_mib": 98304, "owner": {"gpu": "0009:01:00.0"} if node == 3 else {"socket": 0}} for node in NODES]
    assert wanted({"per_npu": 100}, ("0,3",), numa=numa).live["nodes"] == {"0": 100}


@pytest.mark.parametrize(("asked", "mems", "counts"), COUNTS)
def test_pages_lie_where_the_memory_of_the_pools_is(asked, mems, counts):
    feature = wanted(asked, mems)
    assert feature.live == {"size": 2048, "nodes": counts}
    files = ["/etc/npu-affinity/hugepages.json", "/etc/systemd/system/npu-affinity-hugepages.service"]
    assert [entry["path"] for entry in feature.files] == files


def test_a_lost_npu_keeps_its_pages_as_long_as_its_pool():
    lost = [{"id": 2, "pool": pool, "mems": "2", "memory_nodes": "0-3"} for pool in ("8-15", "")]
    assert wanted({"per_npu": 100}, ("0", "2"), lost).live["nodes"] == {"0": 100, "2": 200}


def test_the_boot_unit_runs_before_services():
    _file, unit = wanted({"per_npu": 8}).files
    lines = unit["content"].splitlines()
    assert "DefaultDependencies=no" in lines and "WantedBy=basic.target" in lines
    assert "basic.target" in next(line for line in lines if line.startswith("Before=")).partition("=")[2].split()


@pytest.mark.parametrize("asked", [{}, {"per_npu": 0}, {"size": "1G", "per_npu": 0}])
def test_it_is_off_without_a_number(asked):
    assert wanted(asked) == hugepages.Feature(owned=hugepages.FEATURE.owned)


@pytest.mark.parametrize("asked", [{"size": "2M"}, {"size": "1G"}, {"node": {}}])
def test_a_setting_without_pages_has_no_effect(asked):
    feature = wanted(asked)
    assert not feature.live and not feature.files and [note.code for note in feature.notes] == ["NPU_NO_EFFECT"]
    assert feature.notes[0].startswith("npu_affinity_hugepages has no effect: it has no pages.")


# (the setting, the host, the sentence of the refusal)
OF_GPU = {"numa": [{"id": 3, "memory_mib": 1024, "owner": {"gpu": "0009:01:00.0"}}]}
TAKEN = "45,057 huge pages of 2 MiB take 88.0 GiB of the 96.0 GiB, and 8.0 GiB must remain for other memory (10 % of the node"
FIT = f"{TAKEN}, at most 8 GiB); at most 45,056 pages fit"
REFUSALS = [
    ({"per_npu": 8, "node": {0: 8}}, {}, "per_npu and node exclude each other"),
    ({"per_npu": 8, "size": "2 MB"}, {}, "'2 MB' is not a size of huge pages, such as 2M or 1G"),
    ({"per_npu": -8}, {}, "per_npu: expected a whole number from 0 on; got -8"),
    ({"node": {"first": 8}}, {}, "node: expected a whole number from 0 on; got 'first'"),
    ({"node": {0: 8, 3: 8}}, OF_GPU, "the memory of node 3 is that of the GPU at 0009:01:00.0; leave it to the GPU"),
    ({"node": {0: "many"}}, {}, "pages of node 0: expected a whole number from 0 on; got 'many'"),
    ({"node": {0: 45057}}, {}, f"node 0: {FIT}."),
    ({"per_npu": 10000}, {"memory_gib": 20}, "node 0: 20,000 huge pages of 2 MiB take 39.1 GiB of the 20.0 GiB, and 2.0 GiB must remain"),
    ({"node": {0: 45057, 1: 45057, 3: 50000}}, {}, f"each of nodes 0-1: {FIT}; node 3: 50,000 huge pages"),
    ({"node": {2: 40000}}, {"hugepages": {"2048": {"2": 0}, "1048576": {"2": 20}}}, "node 2: 40,000 huge pages of 2 MiB take 78.1 GiB"),
]


@pytest.mark.parametrize(("asked", "host", "sentence"), REFUSALS)
def test_a_setting_that_is_wrong_or_too_large_is_refused(asked, host, sentence):
    with pytest.raises(ValueError, match="npu_affinity_hugepages[:,] ") as refusal:
        wanted(asked, **host)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(("size", "count"), [("1G", 60), ("32M", 2000)])
def test_pages_of_a_former_bind_leave_room_for_another_size(size, count):
    now = {number: {"0": 30000 if number == "2048" else 0} for number in ("2048", "32768", "1048576")}
    feature = wanted({"size": size, "node": {0: count}}, hugepages=now, hugepages_before={"2048": {"0": 1000}})
    assert feature.live["nodes"] == {"0": count}
    with pytest.raises(ValueError, match="at most"):
        wanted({"size": size, "node": {0: count}}, hugepages=now)


# (the setting, the host, pages by node, the sentences)
NO_PAGES = "npu_affinity_hugepages has no effect on this host, which has no huge pages of 2 MiB; its kernel offers"
ROOM = "GiB remain for other memory)"
TWO = f"Huge pages of 2 MiB: 40,960 (80.0 GiB, 16.0 {ROOM} on node 0; 20,480 (40.0 GiB, 56.0 {ROOM} on node 2."
EACH = f"Huge pages of 2 MiB: 512 (1.0 GiB, 95.0 {ROOM} on each of nodes 0-1."
NO_NODE = "npu_affinity_hugepages has no effect on nodes 8-9: this host has huge pages on nodes 0-3."
UNKNOWN = {"numa": [{"id": 0, "memory_mib": None}]}
THERE = {**UNKNOWN, "hugepages": {"2048": {"0": 0}, "1048576": {"0": 20}}}
NOTES = [
    ({"per_npu": 20480}, {}, {"0": 40960, "2": 20480}, [TWO]),
    ({"node": {0: 512, 1: 512, 8: 5, 9: 5}}, {}, {"0": 512, "1": 512}, [NO_NODE, EACH]),
    ({"per_npu": 8}, {"offered": (524288, 1 << 24)}, {}, [f"{NO_PAGES} 512 MiB and 16 GiB."]),
    ({"node": {0: 45056}}, UNKNOWN, {"0": 45056}, ["Huge pages of 2 MiB: 45,056 (88.0 GiB, what remains is not known) on node 0."]),
    ({"node": {0: 512}}, THERE, {"0": 512}, ["Huge pages of 2 MiB: 512 (1.0 GiB, what remains is not known) on node 0."]),
    ({"per_npu": 8}, {"offered": ()}, {}, [f"{NO_PAGES} none."]),
]


@pytest.mark.parametrize(("asked", "host", "counts", "notes"), NOTES)
def test_what_remains_and_what_has_no_effect_is_said(asked, host, counts, notes):
    feature = wanted(asked, **host)
    assert (feature.live["nodes"], list(feature.notes), bool(feature.files)) == (counts, notes, bool(counts))


# (version of the driver, family, pages for each of two NPUs, the beginning of the remark)
DRIVERS = [
    ("25.2.0", "a2", 8193, "The Ascend driver is 25.2.0. Mooncake cannot register"),
    ("25.2.0", "a2", 8192, None),
    ("25.5.0", "a2", 20000, None),
    (None, "a2", 20000, "The version of the Ascend driver is not known; run npu-smi info. Mooncake cannot register"),
    (None, "a2", 8192, None),
    (None, "a3", 20000, None),
]


@pytest.mark.parametrize(("driver", "family", "pages", "remark"), DRIVERS)
def test_a_driver_that_is_too_old_for_mooncake_is_said(driver, family, pages, remark):
    notes = wanted({"per_npu": pages}, ("0", "1"), driver=driver, npus=[{"id": 0, "family": family}]).notes
    notes = [note for note in notes if "Mooncake cannot register" in note and "update the driver" in note]
    assert [note.startswith(remark or "-") for note in notes] == [True] * bool(remark)


@pytest.mark.parametrize(("kernel", "words"), [("6.6.0-1.aarch64", "hugepages=0:40,2:20"), ("5.10.0-153", "hugepages=160")])
def test_pages_of_1_gib_are_explained_and_have_no_unit(kernel, words):
    feature = wanted({"size": "1G", "per_npu": 20}, kernel=kernel, offered=(2048, 1 << 20))
    assert not feature.files and not feature.enabled and feature.live == {"size": 1 << 20, "nodes": {"0": 40, "2": 20}}
    assert f"Add hugepagesz=1G {words} there and reboot" in feature.notes[-1]
    assert ("spreads them evenly" in feature.notes[-1]) is kernel.startswith("5.10")
    assert ("40 (40.0 GiB, 56.0 GiB remain for other memory) on each of nodes 0-3" in feature.notes[0]) is kernel.startswith("5.10")


@pytest.mark.parametrize(("pages", "is_advised"), [({"0": 40, "2": 20}, False), ({"0": 40, "2": 19}, True), ({"0": 60}, True)])
def test_pages_of_1_gib_that_are_there_are_not_advised(pages, is_advised):
    notes = wanted({"size": "1G", "per_npu": 20}, hugepages={str(1 << 20): {"0": 0, "2": 0, **pages}}).notes
    assert any(note.code == "NPU_KERNEL_ADVICE" for note in notes) is is_advised


def test_pages_of_1_gib_that_crowd_a_node_are_not_advised():
    numa = [{"id": node, "memory_mib": (96 if node < 3 else 32) << 10} for node in NODES]
    *notes, advice = wanted({"size": "1G", "node": {0: 40}}, kernel="5.10.0-153", offered=(1 << 20,), numa=numa).notes
    assert notes == ["Huge pages of 1 GiB: 40 (40.0 GiB, 56.0 GiB remain for other memory) on node 0."]
    assert advice.startswith(
        "Only the kernel command line reserves huge pages of 1 GiB reliably, and a bind does not write it. This kernel spreads them evenly "
        "over all nodes, so hugepagesz=1G hugepages=160 would take too much memory of node 3: 40 huge pages of 1 GiB take 40.0 GiB of the "
        "32.0 GiB, and 3.2 GiB must remain for other memory (10 % of the node, at most 8 GiB); at most 28 pages fit. Reduce the number, or "
        "boot Linux 5.16 or newer"
    )

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queues of network functions: found by their names, placed, reported, compared, placed again by the units, and restored."""

from __future__ import annotations

import errno
import json
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import REBINDS, UNCHANGEABLE
from ansible_collections.npu.affinity.plugins.module_utils._features.nic.feature import FEATURE, FILE
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology import gather
from ansible_collections.npu.affinity.plugins.module_utils._kernel.nics import RPS, XPS, bridges, nics, queue_of, steered_cpus
from ansible_collections.npu.affinity.plugins.module_utils._state import previous, values
from tests.fakes.kernel import Kernel, compared, originals, restored

BUS = "/sys/bus/pci/devices/"
FIRST, SECOND, DISK = "0000:7d:00.0", "0000:7d:00.1", "0000:35:00.0"
EVERYWHERE = "0-15"


def near(functions):
    return {"mode": "near", "functions": functions}


WANTED = near({FIRST: "4-7"})


def function(tree, pci, first, names, driver="hns3", pci_class="0x020000", interface="net/eth0"):
    """Write a PCI function with an interrupt for each name; the table of interrupts grows."""
    table = Host(tree.root).read("/proc/interrupts") or "      CPU0       CPU1"
    common = {"class": pci_class, "numa_node": "0", "uevent": f"DRIVER={driver}\nPCI_ID=1", f"{interface}/uevent": ""}
    tree.write({f"{BUS}{pci}/{name}": text for name, text in common.items()})
    for irq, name in enumerate(names, first):
        tree.write({f"{BUS}{pci}/msi_irqs/{irq}": "msix", f"/proc/irq/{irq}/smp_affinity_list": EVERYWHERE})
        table += f"\n{irq:5}: 0 0   ITS-MSI {irq} Edge      {name}"
    tree.write({"/proc/interrupts": table})


def queues(pci, count):
    return [f"hns3-{pci}-misc-1", *(f"hns3-{pci}-TxRx-{number}" for number in range(count))]


@pytest.fixture
def kernel(tree):
    """A function with four queues, interrupts 101 to 104, and one for events, 100."""
    tree.write({"/sys/devices/system/cpu/online": EVERYWHERE})
    function(tree, FIRST, 100, queues(FIRST, 4))
    return Kernel(tree.root)


def places(host, *irqs):
    return [host.read(f"/proc/irq/{irq}/smp_affinity_list") for irq in irqs]


def bind(host, wanted=None, check=False, tolerant=False):
    live = {"nic": wanted or WANTED, "irq": "warn" if tolerant else "fail"}
    step = FEATURE.step(host, {"live": live}, Choices())
    step.look(check)
    if not check:
        step.prepare()
        step.complete()
    return step


QUEUES = {
    # queue: names of interrupts
    0: ["enp125s0-TxRx-0", "virtio0-input.0", "virtio0-virtqueues"],
    2: ["eth1_rxq2", "eth1_txq2"],
    3: ["hns3-0000:7d:00.0-Rx-3"],
    5: ["mlx5_comp5@pci:0000:33:00.0"],
    7: ["eth1_qp7"],
    11: ["virtio3-output.11"],
    12: ["hns3-0000:7d:00.0-TxRx-12"],
    63: ["ice-ens1f0-TxRx-63"],
    None: ["mlx5_async0@pci:0000:33:00.0", "hclge-misc-0000:7d:00.0", "hinic3_aeq0@pci:0000:33:00.0", "ice-0000:33:00.0:misc"]
    + ["virtio0-config", "nvme0q5", "cq_update_irq"],
}


@pytest.mark.parametrize(("name", "queue"), [(name, queue) for queue, names in QUEUES.items() for name in names])
def test_queues_are_told_by_the_names_of_their_interrupts(name, queue):
    assert queue_of(name) == queue


def test_network_functions_with_a_driver_are_found(kernel, tree):
    function(tree, SECOND, 200, [], driver="vfio-pci")
    function(tree, "0000:7d:01.0", 210, [])
    tree.write({BUS + "0000:7d:01.0/physfn/class": "0x020000"})
    function(tree, DISK, 220, ["nvme0q0"], "nvme", "0x010802", "nvme/nvme0")
    function(tree, "0000:80:00.0", 230, [], "mlx5_core", "0x020700", "net/ib0")
    assert nics(kernel) == [
        {"pci": FIRST, "name": "eth0", "driver": "hns3", "numa": 0, "distances": {}, "rdma": [], "near": []},
        {"pci": "0000:80:00.0", "name": "ib0", "driver": "mlx5_core", "numa": 0, "distances": {}, "rdma": [], "near": []},
    ]


NEAREST = {
    # RDMA devices by function, the node of an NPU at 80:02.0/0000:83:00.0, and what is nearest to it
    "the same switch": ({"80:01.0/0000:81:00.0": ["mlx5_0"], "80:02.0/0000:82:00.0": ["mlx5_1"]}, 1, {"0000:82:00.0"}),
    "the same root": ({"80:01.0/0000:81:00.0": ["mlx5_0"], "c0:01.0/0000:c1:00.0": ["mlx5_1"]}, 1, {"0000:81:00.0"}),
    "only those with RDMA": ({"80:02.0/0000:82:00.0": [], "80:01.0/0000:81:00.0": ["mlx5_1"]}, 1, {"0000:81:00.0"}),
    "two that are as near": ({"80:01.0/0000:81:00.0": [], "80:01.0/0000:81:00.1": []}, 1, {"0000:81:00.0", "0000:81:00.1"}),
    "a node that is not known": ({"80:01.0/0000:81:00.0": ["mlx5_0"]}, None, None),
}


@pytest.mark.parametrize(("functions", "node", "near"), list(NEAREST.values()), ids=list(NEAREST))
def test_the_nearest_network_function_of_an_npu(tree, functions, node, near):
    tree.write({BUS: None})
    for place in [*functions, "80:02.0/0000:83:00.0"]:
        folder = "/sys/devices/pci0000:%s/0000:%s" % (place[:2], place)
        tree.write({folder: None})
        os.symlink(tree.root + folder, tree.root + BUS + os.path.basename(folder))
    found = [{"pci": place.rpartition("/")[2], "numa": 1, "rdma": rdma} for place, rdma in functions.items()]
    paths = {pci: bridges(tree.host, pci) for pci in ["0000:83:00.0", *(nic["pci"] for nic in found)]}
    nearest = gather._nearest(paths["0000:83:00.0"], found, paths, {1: {1: 10}}.get(node, {}))
    assert {nic["pci"] for nic in nearest} == (near or set())


def test_queues_are_placed_recorded_and_restored(kernel):
    predicted = bind(kernel, check=True)
    assert places(kernel, 101) == [EVERYWHERE] and not kernel.exists(previous.PATH)
    step = bind(kernel)
    assert places(kernel, 100, 101, 102, 103, 104) == [EVERYWHERE, "4", "5", "6", "7"]
    assert step.lines() == predicted.lines() == {"interrupts": [f"~ {FIRST}: 4 queue interrupts 0-15 -> spread over 4-7"]}
    assert originals(kernel, FEATURE) == {f"{FIRST} {number + 1} TxRx-{number}": EVERYWHERE for number in range(4)}
    written = len(kernel.writes)
    assert not bind(kernel).changed and len(kernel.writes) == written
    assert restored(FEATURE.restore, kernel, check=True)[1].changed and places(kernel, 101) == ["4"]
    outcome, undone = restored(FEATURE.restore, kernel)
    assert not outcome.failed and places(kernel, 101, 102, 103, 104) == [EVERYWHERE] * 4
    undone.undo()
    assert places(kernel, 101, 102) == ["4", "5"]


def renamed(tree, before, after):
    """Give interrupts other names, as a driver does that is loaded after its interface was renamed."""
    table = Host(tree.root).read("/proc/interrupts")
    tree.write({"/proc/interrupts": table.replace(before, after)})


@pytest.mark.parametrize("is_off", [True, False])
def test_queues_of_a_renamed_interface_are_restored(kernel, tree, is_off):
    function(tree, SECOND, 200, [f"eth1-TxRx-{number}" for number in range(2)], "bnxt_en", interface="net/eth1")
    bind(kernel, near({FIRST: "4-7", SECOND: "4-7"}))
    renamed(tree, "eth1-TxRx", "kv0-TxRx")
    assert not bind(kernel, near({FIRST: "4-7", SECOND: "4-7"})).changed
    undone = bind(kernel) if is_off else restored(FEATURE.restore, kernel)[1]
    assert undone.changed and places(kernel, 200, 201) == [EVERYWHERE] * 2


@pytest.mark.parametrize("is_off", [True, False])
def test_recorded_queues_that_are_gone_are_told(kernel, tree, is_off):
    bind(kernel)
    renamed(tree, "TxRx-3", "TxRx-misc")
    function(tree, SECOND, 200, [], interface="net/eth1")
    said = (bind(kernel, near({SECOND: "4"})) if is_off else restored(FEATURE.restore, kernel)[1]).warnings
    assert places(kernel, 101, 104) == [EVERYWHERE, "7"]
    lost = "1 of 4 recorded queue interrupts cannot be restored, because its driver no longer has them (queues 3)"
    assert said == [f"eth0 ({FIRST}): {lost}"]


def test_more_queues_than_cpus_begin_again_and_are_told(kernel, tree):
    step = bind(kernel, near({FIRST: "4-6"}))
    assert places(kernel, 101, 102, 103, 104) == ["4", "5", "6", "4"]
    assert step.remarks == [f"eth0 ({FIRST}): 4 queues share 3 CPUs (4-6); 3 queues would do [NPU_NIC_UNPLACED]"]
    function(tree, SECOND, 200, queues(SECOND, 60), interface="net/eth1")
    step = bind(kernel, near({FIRST: "4", SECOND: "4"}))
    advice = "keep more CPUs of the node with npu_affinity_housekeeping, or reduce the queues with ethtool -L"
    assert step.remarks == [
        f"eth0 ({FIRST}): 4 queues on 1 CPU (4), which 64 queues can overload; {advice} [NPU_NIC_UNPLACED]",
        f"eth1 ({SECOND}): 60 queues on 1 CPU (4), which 64 queues can overload; {advice} [NPU_NIC_UNPLACED]",
    ]


def test_queues_of_every_kind_of_function_are_spread(kernel, tree):
    """Functions with the same CPUs begin at different ones, queues in both directions share one, and one vector can serve all queues."""
    function(tree, SECOND, 200, queues(SECOND, 2), interface="net/eth1")
    directions = ["virtio1-config", *(f"virtio1-{way}.{queue}" for queue in range(2) for way in ("input", "output"))]
    function(tree, "0000:00:03.0", 300, directions, "virtio-pci", interface="virtio1/net/eth2")
    function(tree, "0000:00:04.0", 400, ["virtio2-config", "virtio2-virtqueues"], "virtio-pci", interface="virtio2/net/eth3")
    functions = {FIRST: "4-7", SECOND: "4-7", "0000:00:03.0": "8-11", "0000:00:04.0": "12-15"}
    assert not bind(kernel, near(functions)).remarks
    assert places(kernel, 101, 102, 103, 104, 200, 201, 202) == ["4", "5", "6", "7", EVERYWHERE, "6", "7"]
    assert places(kernel, 300, 301, 302, 303, 304) == [EVERYWHERE, "8", "8", "9", "9"]
    assert places(kernel, 400, 401) == [EVERYWHERE, "12"]
    assert originals(kernel, FEATURE)["0000:00:04.0 1 virtqueues"] == EVERYWHERE
    assert not restored(FEATURE.restore, kernel)[0].failed and places(kernel, 201, 301, 401) == [EVERYWHERE] * 3


def test_cpus_that_are_offline_get_no_queue(kernel, tree):
    tree.write({"/sys/devices/system/cpu/online": "0-4,6-15"})
    bind(kernel)
    assert places(kernel, 101, 102, 103, 104) == ["4", "6", "7", "4"]
    tree.write({"/sys/devices/system/cpu/online": "0-3"})
    with pytest.raises(ValueError, match="eth0 .*: no CPU of 4-7 is online"):
        bind(kernel)


def test_kernel_managed_interrupts_are_remarks_and_no_drift(kernel):
    os.chmod(kernel.path("/proc/irq/101/smp_affinity_list"), 0o444)
    kernel.refused = {"102": errno.EIO}
    step = bind(kernel)
    assert places(kernel, 101, 102, 103, 104) == [EVERYWHERE, EVERYWHERE, "6", "7"]
    remark = f"eth0 ({FIRST}): IRQ 101-102 (queue interrupts): is placed by the kernel itself and stays on CPUs 0-15 [NPU_NIC_UNPLACED]"
    assert step.remarks == [remark]
    assert not bind(kernel).changed
    assert not findings_of(kernel).drift and remark in findings_of(kernel).remarks


@pytest.mark.parametrize("tolerant", [False, True])
def test_what_cannot_be_placed_or_restored_fails_or_warns(kernel, tolerant):
    def fail(cpus, wanted=None):
        if tolerant:
            return f"could not be moved to CPUs {cpus}" in bind(kernel, wanted, tolerant=True).warnings[0]
        with pytest.raises(ValueError, match=rf"IRQ 103 \(queue interrupts\): could not be moved to CPUs {cpus} .*run as root"):
            bind(kernel, wanted)
        return True

    kernel.refused = {"103": errno.EACCES}
    assert fail("6") and places(kernel, 101, 103, 104) == ["4", EVERYWHERE, "7"]
    kernel.refused = {}
    bind(kernel)
    kernel.refused = {"103": errno.EACCES}
    report = {**WANTED, "mode": "report"}
    assert fail("0-15", report)
    kernel.refused = {}
    assert originals(kernel, FEATURE) and places(kernel, 101, 103) == [EVERYWHERE, "6"]
    assert bind(kernel, report).changed and places(kernel, 103) == [EVERYWHERE] and not previous.recorded(kernel)


def test_a_function_that_is_not_wanted_any_more_gets_what_it_had(kernel, tree):
    function(tree, SECOND, 200, queues(SECOND, 1), interface="net/eth1")
    bind(kernel, near({FIRST: "4-7", SECOND: "4-7"}))
    assert bind(kernel, check=True).changed and places(kernel, 201) == ["6"]
    assert bind(kernel).changed and places(kernel, 101, 201) == ["4", EVERYWHERE]
    assert {key.split()[0] for key in originals(kernel, FEATURE)} == {FIRST}
    tree.write({"/proc/irq/201/smp_affinity_list": "9"})
    assert not bind(kernel).changed and places(kernel, 201) == ["9"]


def test_a_report_says_what_there_is_and_writes_nothing(kernel, tree):
    function(tree, DISK, 220, ["nvme0q0", "nvme0q1"], "nvme", "0x010802", "nvme/nvme0")
    function(tree, SECOND, 200, queues(SECOND, 0), interface="net/eth1")
    tree.write({f"{BUS}{FIRST}/net/rep0/phys_port_name": "pf0vf0", f"{BUS}{FIRST}/net/rep0/queues/rx-0/rps_cpus": "ff00"})
    steering_files = {"rx-0/rps_cpus": "00ff", "rx-1/rps_cpus": "0000", "tx-0/xps_cpus": "00f0"}
    tree.write({f"{BUS}{FIRST}/net/eth0/queues/{name}": mask for name, mask in steering_files.items()})
    assert [steered_cpus(kernel, FIRST, kind) for kind in (RPS, XPS)] == [set(range(8)), set(range(4, 8))]
    step = bind(kernel, {"mode": "report", "functions": {FIRST: "4-6", SECOND: "4-6"}})
    assert step.remarks == [
        f"eth0 ({FIRST}): 4 queues share 3 CPUs (4-6); 3 queues would do [NPU_NIC_UNPLACED]",
        f"eth0 ({FIRST}): RPS also uses CPUs 0-7, and is not changed [NPU_NIC_UNPLACED]",
        f"eth0 ({FIRST}): XPS also uses CPUs 4-7, and is not changed [NPU_NIC_UNPLACED]",
        f"eth1 ({SECOND}): its driver has requested no queue interrupts, as while the interface is down [NPU_NIC_UNPLACED]",
        f"nvme0 ({DISK}): the kernel places their interrupts itself [NPU_NIC_UNPLACED]",
    ]
    assert not step.changed and not kernel.writes and not kernel.exists(previous.PATH)


NO_FUNCTIONS = [[], {FIRST: ""}, {FIRST: "4-x"}, {FIRST: 4}, {"../7d": "4"}, {"0000:7d:00.0\n": "4"}]


@pytest.mark.parametrize("wanted", [{}, *({"functions": functions} for functions in NO_FUNCTIONS)])
def test_what_is_no_network_function_is_refused(kernel, wanted):
    with pytest.raises(ValueError, match="network function|functions|CPUs of"):
        bind(kernel, {"mode": "near", **wanted})


def findings_of(host, wanted=WANTED):
    return compared(FEATURE, host, wanted, range(16))


def test_queues_that_were_moved_are_drift_of_their_function(kernel, tree):
    bind(kernel)
    title = f"queue interrupts of eth0 ({FIRST})"
    assert findings_of(kernel).checked == {"interrupts": [title]} and not findings_of(kernel).drift
    tree.write({"/proc/irq/102/smp_affinity_list": "0-3", "/proc/irq/104/smp_affinity_list": "1"})
    (finding,) = findings_of(kernel).drift
    assert (finding.object, finding.expected.cpus, finding.cause.word) == (title, "5,7", "manual change")
    assert [(value.cpus, value.irqs) for value in finding.found] == [("0-3", "102"), ("1", "104")]
    tree.write({f"/proc/irq/{irq}/smp_affinity_list": "0-3" for irq in (101, 102, 103, 104)})
    assert findings_of(kernel).drift[0].cause.word == "driver reload"
    assert not findings_of(kernel, {**WANTED, "mode": "report"}).drift


def test_the_unit_places_again_what_a_driver_or_program_moved(kernel, tree, capsys, monkeypatch):
    monkeypatch.setattr(values, "Host", Kernel)
    main = FEATURE.program
    assert main(["--root", tree.root]) == 0 and places(kernel, 101) == [EVERYWHERE]
    tree.write({FILE: json.dumps({"functions": WANTED["functions"]})})
    assert main(["--root", tree.root, "--pci", SECOND]) == 0 and places(kernel, 101) == [EVERYWHERE]
    assert main(["--root", tree.root, "--pci", FIRST, "--wait", "5"]) == 0
    assert places(kernel, 101, 104) == ["4", "7"] and "4 queue interrupts 0-15 -> spread over 4-7" in capsys.readouterr().out
    for _time in range(3):
        tree.write({"/proc/irq/101/smp_affinity_list": "0"})
        main(["--root", tree.root, "--rebind-limit", "2"])
    assert places(kernel, 101) == ["0"] and "was bound 2 times within an hour" in capsys.readouterr().out
    assert findings_of(kernel).drift[0].cause.word == "fought over"
    assert main(["--root", tree.root, "--pci", FIRST]) == 0 and places(kernel, 101) == ["4"]
    restored(FEATURE.restore, kernel)
    assert not kernel.exists(REBINDS)
    tree.write({FILE: "[]"})
    assert main(["--root", tree.root]) == 1 and "is not what role nic writes" in capsys.readouterr().out


def test_a_kernel_refusal_is_remembered_next_to_other_features(kernel, tree):
    other = {"0000:c1:00.0": {"1 sq": {"wanted": "1", "count": 3}}}
    tree.write({UNCHANGEABLE: json.dumps(other)})
    kernel.refused = {"101": errno.EIO}
    bind(kernel)
    note = json.loads(kernel.read(UNCHANGEABLE))
    assert note.keys() == {*other, FIRST} and note.items() >= other.items()

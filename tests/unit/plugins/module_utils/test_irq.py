# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories of a small host: 48 CPUs, NPUs with a mailbox, one SQ and CQ interrupts, a workqueue and a task thread each."""

from __future__ import annotations

import errno
import functools
import json
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import affinities
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ, PLAN, SQ, choices, share_out
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import FEATURE, UNCHANGEABLE
from ansible_collections.npu.affinity.plugins.module_utils._kernel.interrupts import Vector
from ansible_collections.npu.affinity.plugins.module_utils._state import previous as _previous
from tests.fakes.kernel import EVERYWHERE, EVERYWHERE_MASK, FIRST, PLAN_OF_TWO, SECOND, Kernel
from tests.fakes.kernel import add_function, affinity, bind, contents, names_of, npu, restored, texts, two_functions

ONLINE = "/sys/devices/system/cpu/online"


@pytest.fixture
def kernel(tmp_path):
    return two_functions(tmp_path)


restore = functools.partial(restored, FEATURE.restore)


def states(entries):
    return {entry["state"] for entry in entries}


def test_sq_uses_the_first_irq_cpu_and_cq_the_second(kernel):
    before, predicted = texts(kernel), bind(kernel, PLAN_OF_TWO, check=True)
    assert texts(kernel) == before, "a check writes nothing"
    report = bind(kernel, PLAN_OF_TWO)
    assert contents(predicted) == contents(report)
    assert [affinity(kernel, irq) for irq in (2753, 2754, 2769)] == ["24", "25", "25"]
    assert [affinity(kernel, irq) for irq in (3009, 3010, 3025)] == ["0", "1", "1"]
    assert affinity(kernel, 2752) == EVERYWHERE, "the mailbox interrupt is left alone"
    assert kernel.read("/sys/devices/virtual/workqueue/dev0_sq_send_wq/cpumask") == "0000,01000000"
    assert "Cpus_allowed_list:\t24" in kernel.read("/proc/900/status")
    assert report.changed and report.failed == report.unchangeable == report.warnings == []
    first = report.npus[0]
    assert (first["id"], first["pci"], first["device"], len(first["interrupts"])) == (0, FIRST, 0, 17)
    sq = {"irq": 2753, "name": SQ, "before": EVERYWHERE, "wanted": "24", "after": "24", "state": "changed", "text": ""}
    assert first["interrupts"][0] == sq


@pytest.mark.parametrize("first, second", [(0, 1), (1, 0)], ids=["interrupts", "devices"])
def test_functions_that_swapped_numbers_are_bound_by_function(tmp_path, first, second):
    swapped = two_functions(tmp_path / "again", (SECOND, FIRST), (second, first))
    report = bind(swapped, PLAN_OF_TWO)
    assert (affinity(swapped, 3009), affinity(swapped, 2753)) == ("24", "0")
    assert [entry["device"] for entry in report.npus] == [first, second]
    for device, cpu, mask in ((first, "24", "0000,01000000"), (second, "0", "0000,00000001")):
        assert swapped.read("/sys/devices/virtual/workqueue/dev%d_sq_send_wq/cpumask" % device) == mask
        assert "Cpus_allowed_list:\t%s\n" % cpu in swapped.read("/proc/%d/status" % (900 + device)) + "\n"


ORDERS = [
    # CPUs online, IRQ role, order of the SQ, order of the first CQ, first CPUs of seven CQs; the pool is 4-9
    ("0-9", "4", [4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9], [4] * 7),
    ("0-9", "4-5", [4, 5, 6, 7, 8, 9], [5, 4, 6, 7, 8, 9], [5] * 7),
    ("0-9", "8,4", [8, 4, 5, 6, 7, 9], [4, 8, 5, 6, 7, 9], [4] * 7),
    ("0-9", "4-6", [4, 5, 6, 7, 8, 9], [5, 6, 4, 7, 8, 9], [5, 6, 5, 6, 5, 6, 5]),
    ("0-9", "4,6,8-9", [4, 6, 8, 9, 5, 7], [6, 8, 9, 4, 5, 7], [6, 8, 9, 6, 8, 9, 6]),
    ("0-5,7-9", "4-7", [4, 5, 7, 8, 9], [5, 7, 4, 8, 9], [5, 7, 7, 5, 7, 7, 5]),
    ("0-3,5-9", "4-5", [5, 6, 7, 8, 9], [5, 6, 7, 8, 9], [5] * 7),
    ("0-3,7-8", "4-5", [7, 8], [7, 8], [7] * 7),
    ("0-3", "4-5", [], [], []),
]


@pytest.mark.parametrize("online, role, sq, cq, turns", ORDERS)
def test_irq_cpus_come_first_and_the_pool_stands_in(online, role, sq, cq, turns):
    vectors = [Vector(irq, name, irq) for irq, name in enumerate(["trs-mbox-0-0", SQ] + [CQ] * 7 + ["func_cq_irq"])]
    orders = choices(expand(role), expand("4-9"), vectors, set(expand(online)))
    assert (sorted(orders), orders[1], orders[2]) == (list(range(1, 9)), sq, cq)
    assert [orders[irq][0] for irq in range(2, 9) if turns] == turns
    assert {frozenset(order) for order in orders.values()} == {frozenset(sq)}


def test_an_offline_irq_cpu_is_said_and_another_one_stands_in(kernel):
    bind(kernel, PLAN_OF_TWO)
    kernel.put("/proc/irq/2753/smp_affinity_list", "24,47")
    kernel.put(ONLINE, "0-46")
    assert not bind(kernel, PLAN_OF_TWO, check=True).changed, "an offline CPU makes no difference"
    kernel.put(ONLINE, "0-23,25-47")
    report = bind(kernel, PLAN_OF_TWO)
    assert (affinity(kernel, 2753), affinity(kernel, 2754)) == ("25", "25")
    warning = "NPU 0 (%s): IRQ CPU 24 is offline; another CPU of its pool is used" % FIRST
    assert (report.warnings, report.failed) == ([warning], [])


NOTHING_TO_BIND = [
    # an NPU, and whether it is reported as nothing, a warning or a failure
    (npu(irq=""), "the plan has no IRQ CPUs for it", "text"),
    (npu(pci=None), "the plan has no PCI function for it", "warning"),
    (npu(pci="0000:99:00.0"), "it is not on the PCI bus", "warning"),
    (npu(pool="48-49", irq="48"), "no CPU of its pool 48-49 is online; bring one online or plan again", "failure"),
]


@pytest.mark.parametrize("entry, text, kind", NOTHING_TO_BIND)
def test_an_npu_with_nothing_to_bind_is_skipped_with_a_message(kernel, entry, text, kind):
    report = bind(kernel, {"npus": [entry]})
    assert report.npus[0]["text"].startswith(text) or report.failed == ["NPU 0 (%s): %s" % (FIRST, text)]
    assert (len(report.warnings), len(report.failed), kernel.writes) == (kind == "warning", kind == "failure", [])


def refuse_cq(number, only=None):
    paths = {"/proc/irq/%d/smp_affinity_list" % irq for irq in range(2754, 2770)}
    return lambda path, value: number if path in paths and only in (None, value) else None


@pytest.mark.parametrize("sign", ["refused", "read-only file"])
def test_managed_interrupts_are_reported_once_without_failure(kernel, sign):
    if sign == "refused":
        kernel.refuse = refuse_cq(errno.EIO)
    else:
        for irq in range(2754, 2770):
            os.chmod(kernel.path("/proc/irq/%d/smp_affinity_list" % irq), 0o444)
    for check in (False, True):
        report = bind(kernel, PLAN_OF_TWO, check=check)
        sentence = "NPU 0 (%s): IRQ 2754-2769 cq_update_irq is placed by the kernel itself and stays on CPUs 0-47" % FIRST
        assert (report.unchangeable, report.failed, report.changed) == ([sentence], [], not check)
        assert states(report.npus[0]["interrupts"]) == {"bound" if check else "changed", "managed"}


def test_a_full_irq_cpu_yields_to_the_other_and_stays_there(kernel):
    kernel.refuse = refuse_cq(errno.ENOSPC, only="25")
    report = bind(kernel, PLAN_OF_TWO)
    sentence = "NPU 0 (%s): IRQ 2754-2769 cq_update_irq is on CPU 24, because no interrupt vectors are left on CPU 25" % FIRST
    assert (affinity(kernel, 2754), report.failed, report.unchangeable) == ("24", [], [sentence])
    assert not bind(kernel, PLAN_OF_TWO, check=True).changed
    kernel.writes = []
    assert not bind(kernel, PLAN_OF_TWO).changed and kernel.writes == []
    kernel.refuse = lambda path, value: None
    assert bind(kernel, PLAN_OF_TWO).changed, "there is room again"
    assert affinity(kernel, 2754) == "25" and not kernel.exists(UNCHANGEABLE)


def test_full_irq_cpus_fall_back_to_the_pool_and_else_fail(kernel):
    kernel.refuse = lambda path, value: errno.ENOSPC if "/2754/" in path and value in ("24", "25") else None
    bind(kernel, PLAN_OF_TWO)
    assert affinity(kernel, 2754) == "26"
    kernel.refuse = lambda path, value: errno.ENOSPC if "/2755/" in path else None
    kernel.put("/proc/irq/2755/smp_affinity_list", "40")
    (failure,) = bind(kernel, PLAN_OF_TWO).failed
    assert affinity(kernel, 2755) == "40" and "none of the CPUs 25, 24, 26, 27" in failure


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EAGAIN, errno.ERANGE, errno.ENOMEM])
def test_a_busy_kernel_is_asked_again(kernel, monkeypatch, number):
    monkeypatch.setattr(affinities, "_PAUSES", (0, 0, 0))
    answers = [number, number, None]
    kernel.refuse = lambda path, value: answers.pop(0) if "/2753/" in path and answers else None
    report = bind(kernel, PLAN_OF_TWO)
    assert (affinity(kernel, 2753), report.failed, report.npus[0]["interrupts"][0]["state"]) == ("24", [], "changed")


class Clock:
    """The time, which passes only while somebody sleeps. In each pause, one of the functions ``happens`` is called."""

    def __init__(self, *happens):
        self.pauses, self.happens = [], list(happens)

    def monotonic(self):
        return 1000 + sum(self.pauses)

    def sleep(self, seconds):
        self.pauses.append(seconds)
        if self.happens:
            self.happens.pop(0)()


def test_a_kernel_that_stays_busy_ends_the_run_in_time(kernel, monkeypatch):
    monkeypatch.setattr(affinities, "time", Clock())
    kernel.refuse = lambda path, value: errno.EBUSY if "smp_affinity_list" in path else None
    report = bind(kernel, PLAN_OF_TWO)
    assert sum(affinities.time.pauses) < 4, "the pauses are for all interrupts together"
    assert states(report.npus[0]["interrupts"]) == {"busy"}
    assert "IRQ 2754-2769 cq_update_irq could not be moved to CPUs 25" in report.failed[1]


AS_ROOT = "run as root on the machine itself"
REFUSALS = [
    # what refuses to be written, the error, the kind of objects, their state, what a failure advises
    ("/cpumask", errno.EIO, "workqueues", "managed", ""),
    ("/900/status", errno.EINVAL, "threads", "managed", ""),
    ("/2753/smp_affinity_list", errno.EACCES, "interrupts", "failed", AS_ROOT),
    ("/2753/smp_affinity_list", errno.EPERM, "interrupts", "failed", AS_ROOT),
    ("/2753/smp_affinity_list", errno.ENOENT, "interrupts", "failed", "its driver was unloaded meanwhile"),
    ("/2753/smp_affinity_list", errno.EINVAL, "interrupts", "failed", "see the kernel log"),
]


@pytest.mark.parametrize("path, number, kind, state, advice", REFUSALS)
def test_a_refusal_is_no_failure_where_the_kernel_places_itself(kernel, path, number, kind, state, advice):
    kernel.refuse = lambda written, value: number if written.endswith(path) else None
    report = bind(kernel, PLAN_OF_TWO)
    assert report.npus[0][kind][0]["state"] == state
    words = ["NPU 0 (%s): IRQ 2753 sq_send_trigger_irq could not be moved to CPUs 24" % FIRST, os.strerror(number), advice]
    assert [all(word in sentence for word in words) for sentence in report.failed] == [True] * bool(advice)
    assert bind(kernel, PLAN_OF_TWO, check=True).changed is bool(advice)


class Lazy(Kernel):
    """Its interrupts move when they next arrive."""

    def set_attribute(self, path, value):
        if "/effective" not in path:
            super().set_attribute(path, value)


FIRED = [
    # how often it came, where it is then, and what becomes of it in a check
    (0, "0", "pending"),
    (3, "0", "stuck"),
    (3, "24", "bound"),
]


@pytest.mark.parametrize("times, place, state", FIRED)
def test_an_interrupt_is_pending_and_stuck_if_it_fires_elsewhere(kernel, times, place, state):
    lazy = Lazy(kernel.root)
    report = bind(lazy, {"npus": [npu()]})
    entry = report.npus[0]["interrupts"][0]
    assert (entry["after"], entry["state"], report.changed, report.failed) == ("24", "pending", True, [])
    assert entry["text"] == "follows at its next interrupt; until then it is on CPUs 0"
    assert "NPU 0 (%s): IRQ 2753 %s %s" % (FIRST, SQ, entry["text"]) in report.unchangeable
    noted = lazy.read(UNCHANGEABLE)
    lazy.put("/proc/interrupts", lazy.read("/proc/interrupts").replace(" 2753: 0 0 ", " 2753: 0 %d " % times))
    lazy.put("/proc/irq/2753/effective_affinity_list", place)
    for check in (True, False):
        report = bind(lazy, {"npus": [npu()]}, check=check)
        assert (report.npus[0]["interrupts"][0]["state"], report.changed, report.failed) == (state, False, [])
        warned = ["NPU 0 (%s): IRQ 2753 %s arrived since it was moved to CPUs 24, and still arrives on CPUs 0" % (FIRST, SQ)]
        assert report.warnings == (warned if state == "stuck" else [])
    assert (lazy.read(UNCHANGEABLE) == noted) is (state != "bound"), "the first count stays until the interrupt has followed"


def test_a_workqueue_with_isolated_cpus_is_reported_as_elsewhere(kernel):
    kernel.put("/sys/devices/virtual/workqueue/cpumask", "00ffffff")
    text = "NPU 0 (%s): workqueue dev0_sq_send_wq runs on CPUs 0-23 all the same: the kernel keeps" % FIRST
    for check in (False, True):
        report = bind(kernel, {"npus": [npu()]}, check=check)
        (entry,), (sentence,) = report.npus[0]["workqueues"], report.unchangeable
        assert (entry["after"], entry["state"], report.failed) == ("24", "replaced", [])
        assert sentence.startswith(text) and "npu_affinity_isolation: exclude" in sentence


def test_an_interrupt_that_is_moved_back_at_once_is_a_failure(kernel, monkeypatch):
    moved = Kernel.set_attribute
    monkeypatch.setattr(Kernel, "set_attribute", lambda self, path, value: moved(self, path, "7" if "/2753/" in path else value))
    (sentence,) = bind(kernel, {"npus": [npu()]}).failed
    assert "was moved to CPUs 24 and is on 7: something else moves it, perhaps irqbalance" in sentence


CHIPS, MOVED = [npu(0, chip=0), npu(1, chip=1)], [npu(2, chip=0), npu(3, chip=1)]
BOTH = ["trs-mbox-0-0", SQ, CQ, "trs-mbox-1-0", SQ, CQ]
# NPUs of one function, its vectors' names, then per NPU: device number, indexes of its vectors
SHARES = {
    "one NPU has everything": ([npu(0)], names_of(0, 2), [(0, [0, 1, 2, 3])]),
    "the driver's number wins over the id": ([npu(3)], names_of(6, 1), [(6, [0, 1, 2])]),
    "without a mailbox the physical id stands in": ([npu(3, phy_id=6)], [SQ, CQ], [(6, [0, 1])]),
    "without it and without physical id, nothing": ([npu(3)], [SQ, CQ], [(None, [0, 1])]),
    "the second chip of a card alone, by its physical id": ([npu(0, chip=1, phy_id=5)], names_of(4, 1), [(5, [0, 1, 2])]),
    "a die with a function of its own": ([npu(0, chip=1, phy_id=5)], names_of(5, 1), [(5, [0, 1, 2])]),
    "several schedulers are one device": ([npu(0)], ["trs-mbox-0-0", SQ, CQ, "trs-mbox-0-1", SQ, CQ], [(0, [0, 1, 2, 3, 4, 5])]),
    "no driver": ([npu(0)], [], [(None, [])]),
    "one NPU has what comes before its mailbox, too": ([npu(0)], ["mailbox", "trs-mbox-0-0", SQ, CQ], [(0, [0, 1, 2, 3])]),
    "one NPU has a CQ that comes before its SQ": ([npu(0)], [CQ, SQ], [(None, [0, 1])]),
    "of two chips neither has what comes before": (CHIPS, ["mailbox", "trs-mbox-0-0", SQ, CQ], [(0, [1, 2, 3]), (1, [])]),
    "two chips, matched by number": (CHIPS[::-1], [*BOTH, CQ], [(1, [3, 4, 5, 6]), (0, [0, 1, 2])]),
    "two moved chips, by order": (MOVED, ["trs-mbox-4-0", SQ, CQ, "trs-mbox-5-0", SQ, CQ], [(4, [0, 1, 2]), (5, [3, 4, 5])]),
    "two chips, no mailboxes: an SQ starts a device": (CHIPS, [SQ, CQ, CQ, SQ, CQ], [(None, [0, 1, 2]), (None, [3, 4])]),
    "two chips, interrupts of one": (CHIPS, names_of(0, 1), [(0, [0, 1, 2]), (1, [])]),
    "the same after the ids moved up": (MOVED, names_of(4, 1), [(4, [0, 1, 2]), (5, [])]),
    "the second chip alone": ([npu(1, chip=1)], BOTH, [(1, [3, 4, 5])]),
}


@pytest.mark.parametrize("npus, names, expected", SHARES.values(), ids=SHARES)
def test_the_vectors_of_a_function_are_shared_out_among_its_npus(npus, names, expected):
    found = [Vector(100 + index, name, index) for index, name in enumerate(names) if name]
    shares = share_out(npus, found)
    assert [share[0]["id"] for share in shares] == [entry["id"] for entry in npus]
    assert [(number, [vector.ordinal for vector in own]) for _npu, number, own in shares] == expected


def test_the_second_chip_of_a_function_keeps_queue_and_thread(kernel):
    plan = {"npus": [npu(chip=0), npu(1, FIRST, "36-47", "36-37", chip=1)]}
    report = bind(kernel, plan)
    assert kernel.read("/sys/devices/virtual/workqueue/dev1_sq_send_wq/cpumask") == "0010,00000000"
    assert "Cpus_allowed_list:\t36" in kernel.read("/proc/901/status")
    assert report.npus[1]["text"] == "the interrupts of its PCI function are those of another NPU"
    assert report.failed == report.warnings == []


def add_poll_thread(kernel, pid, flags=0x00208040):
    status = "Name:\tuvb_poll_window\nCpus_allowed:\t%s\nCpus_allowed_list:\t%s" % (EVERYWHERE_MASK, EVERYWHERE)
    stat = "%d (uvb_poll_window) S 2 0 0 0 -1 %d" % (pid, flags)
    for name, text in (("comm", "uvb_poll_window"), ("status", status), ("stat", stat)):
        kernel.put("/proc/%d/%s" % (pid, name), text)


OF_AN_A5 = {"poll": "1-23", "npus": [npu(irq="", acl="", release="", main="24-31")]}
"""The published CPUs are those of node 0 but CPU 0; an A5's NPUs have no IRQ CPUs."""


def test_the_poll_threads_of_the_host_are_placed_and_put_back(kernel):
    for pid, flags in ((95, 0x00208040), (810, 0x00208040), (4000, 0x00400000)):
        add_poll_thread(kernel, pid, flags)
    before = texts(kernel)
    report = bind(kernel, OF_AN_A5)
    placed = {pid: kernel.read("/proc/%d/status" % pid).rpartition("\t")[2] for pid in (95, 810, 4000)}
    assert placed == {95: "1-23", 810: "1-23", 4000: EVERYWHERE}, "a program of that name is no thread of the kernel"
    entry, of_host = report.npus
    assert (entry["threads"], of_host["id"], of_host["pci"], report.failed) == ([], None, "host", [])
    assert [thread["name"] for thread in of_host["threads"]] == ["uvb_poll_window", "uvb_poll_window #2"]
    assert not bind(kernel, OF_AN_A5).changed
    assert bind(kernel, OF_AN_A5, pci=FIRST).npus[0]["threads"] == [], "they are no thread of that function"
    restore(kernel)
    os.unlink(kernel.path(_previous.PATH))
    assert texts(kernel) == before


def test_poll_threads_that_cannot_be_placed_are_reported(kernel):
    report = bind(kernel, {"poll": "1-23", "npus": []})
    assert report.npus[0]["text"] == "it runs no kernel thread uvb_poll_window, which would be placed on CPUs 1-23"
    assert not (report.changed or report.warnings or report.failed)
    add_poll_thread(kernel, 95)
    kernel.put(ONLINE, "24-47")
    assert bind(kernel, OF_AN_A5).warnings == ["host: no CPU of 1-23 for its threads uvb_poll_window is online; they are left alone"]
    assert kernel.read("/proc/95/status").endswith(EVERYWHERE)


def test_undo_puts_every_file_back_byte_by_byte(kernel):
    before = texts(kernel)
    bind(kernel, PLAN_OF_TWO)
    assert texts(kernel) != before
    predicted, done = restore(kernel, check=True)[1], restore(kernel)[1]
    assert (done.changes, done.result()) == (predicted.changes, predicted.result())
    kernel.writes = []
    assert not restore(kernel)[1].changed and kernel.writes == []
    os.unlink(kernel.path(_previous.PATH))
    assert texts(kernel) == before


def test_undo_finds_renumbered_vectors_by_place_and_skips_lost(kernel, tmp_path):
    kernel.put("/proc/irq/2755/smp_affinity_list", "5")
    bind(kernel, PLAN_OF_TWO)
    later = Kernel(tmp_path / "later")
    later.put(ONLINE, EVERYWHERE)
    add_function(later, FIRST, 70, names_of(0))
    _previous.replace(later, "irq", _previous.recorded(kernel)["irq"])
    bind(later, {"npus": [npu()]})
    assert restore(later)[0].failed == []
    assert [affinity(later, irq) for irq in (71, 72, 73)] == [EVERYWHERE, EVERYWHERE, "5"]


def test_undo_forgets_refusals_and_asks_for_online_cpus(kernel):
    kernel.refuse = refuse_cq(errno.EIO)
    kernel.put("/proc/irq/2753/smp_affinity_list", "47")
    bind(kernel, PLAN_OF_TWO)
    assert kernel.exists(UNCHANGEABLE)
    kernel.put(ONLINE, "0-46")
    restore(kernel)
    assert affinity(kernel, 2753) == "0-46" and not kernel.exists(UNCHANGEABLE)


NO_PLAN = r"the plan has no list 'npus' of NPUs with 'id' and 'pool'; give the fact npu_affinity_plan$"
NO_PLANS = [(plan, NO_PLAN) for plan in (None, [], {}, {"npus": {}}, {"npus": [{"pool": "0-3"}]})]


@pytest.mark.parametrize("plan, sentence", [*NO_PLANS, ({"npus": [npu(irq="x")]}, "irq of NPU 0: 'x' in 'x' is not a CPU number or range")])
def test_something_that_is_no_plan_is_refused_with_a_sentence(kernel, plan, sentence):
    with pytest.raises(ValueError, match="^" + sentence):
        bind(kernel, plan)


# How the units run it


def run(kernel, capsys, *arguments):
    status = FEATURE.program(["--root", kernel.root] + list(arguments))
    return status, capsys.readouterr().out.splitlines()


def test_the_unit_prints_a_line_per_move_and_then_nothing(kernel, capsys):
    kernel.put(PLAN, json.dumps(PLAN_OF_TWO))
    status, lines = run(kernel, capsys)
    moved = "NPU %d %s: sq_send_trigger_irq 0-47 -> %d; 16 cq_update_irq 0-47 -> %d; dev%d_sq_send_wq 0-47 -> %d; dev%d_sq_task 0-47 -> %d"
    assert (status, lines) == (0, [moved % (0, FIRST, 24, 25, 0, 24, 0, 24), moved % (1, SECOND, 0, 1, 1, 0, 1, 0)])
    assert run(kernel, capsys) == (0, [])


def test_a_tolerated_refusal_is_expected_the_next_time(kernel):
    kernel.refuse = lambda path, value: errno.EPERM if "/2753/" in path else None
    assert bind(kernel, PLAN_OF_TWO, tolerant=True).changed
    again = bind(kernel, PLAN_OF_TWO, check=True)
    (failure,) = again.failed
    assert "IRQ 2753 sq_send_trigger_irq could not be moved to CPUs 24" in failure and not again.changed
    kernel.refuse = lambda path, value: None
    assert bind(kernel, PLAN_OF_TWO).failed == [], "it is tried again each time"


def test_the_unit_of_one_function_leaves_the_others_alone(kernel, capsys):
    kernel.put("/etc/other.json", json.dumps(PLAN_OF_TWO))
    assert run(kernel, capsys, "--plan", "/etc/other.json", "--pci", FIRST.upper())[0] == 0
    assert (affinity(kernel, 2753), affinity(kernel, 3009)) == ("24", EVERYWHERE)


NOT_REQUESTED = "NPU 0 (0000:30:00.0): its driver has not requested"
ENDINGS = [
    (None, [], 0, ""),
    ("{", [], 1, "/etc/npu-affinity/plan.json is not valid JSON (Expecting"),
    ("[]", [], 1, "/etc/npu-affinity/plan.json is not a plan (the plan has no list 'npus'"),
    (json.dumps(PLAN_OF_TWO), ["--pci", "0000:7d:00.0"], 0, ""),
    (json.dumps({"npus": []}), [], 0, ""),
    (json.dumps({"npus": [npu(pci="0000:30:00.0")]}), [], 1, NOT_REQUESTED),
    (json.dumps({"npus": [npu(pci="0000:30:00.0")]}), ["--failure", "warn"], 0, NOT_REQUESTED),
    (json.dumps({"npus": [], "poll": "1-x"}), [], 1, "/etc/npu-affinity/plan.json is not a plan (poll: '1-x' in '1-x'"),
    (json.dumps({"npus": [npu(irq="")]}), [], 0, ""),
]


@pytest.mark.parametrize("text, arguments, status, line", ENDINGS)
def test_how_the_unit_ends_without_anything_to_bind(kernel, capsys, text, arguments, status, line):
    kernel.put("/sys/bus/pci/devices/0000:30:00.0/numa_node", "0")
    if text is not None:
        kernel.put(PLAN, text)
    ended, lines = run(kernel, capsys, *arguments)
    assert (ended, [text[: len(line)] for text in lines]) == (status, [line] * bool(line))


def test_the_unit_fails_when_an_interrupt_could_not_be_moved(kernel, capsys, monkeypatch):
    kernel.put(PLAN, json.dumps(PLAN_OF_TWO))

    def denied(self, path, value):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Host, "set_attribute", denied)
    status, lines = run(kernel, capsys)
    assert status == 1 and any("IRQ 2753 sq_send_trigger_irq could not be moved to CPUs 24" in line for line in lines)
    with pytest.raises(SystemExit):
        run(kernel, capsys, "--failure", "ignore")


LATE = "0000:8a:00.0"
SOME, ALL = ["trs-mbox-2-0", SQ], ["trs-mbox-2-0", SQ, CQ, CQ]
LATER = [(4000, SOME), (4002, [CQ] * 16)]
"""What the driver of the late function requests in pauses."""
WAITS = [
    # NPUs of the plan, the late function's vectors at first and later, arguments, the pauses, how the unit ends
    ([npu()], SOME, [], ["--wait", "30"], [], 0),
    ([npu(), npu(2, LATE)], SOME, [], ["--wait", "30", "--pci", FIRST], [], 0),
    ([npu(2, LATE)], SOME, [], ["--wait", "0.3", "--pci", LATE], [0.2, 0.1], 1),
    ([npu(), npu(2, LATE)], SOME, [], ["--wait", "8"], [0.2, 0.4, 0.8, 1.6, 2, 2, 1], 1),
    ([npu(2, LATE.upper())], [], LATER, ["--wait", "20", "--pci", LATE], [0.2, 0.4], 0),
    ([npu(2, LATE.upper())], ALL, [], ["--wait", "30"], [0.2], 0),  # a virtual function is complete when no more appear
]


@pytest.mark.parametrize("npus, names, later, arguments, pauses, status", WAITS)
def test_the_unit_waits_for_functions_of_its_plan_for_a_time(kernel, monkeypatch, capsys, npus, names, later, arguments, pauses, status):
    """Pauses grow up to two seconds."""
    monkeypatch.setattr(affinities, "time", Clock(*(functools.partial(add_function, kernel, LATE, *more) for more in later)))
    kernel.put("/sys/bus/pci/devices/%s/numa_node" % LATE, "4")
    add_function(kernel, LATE, 4000, names)
    kernel.put("/etc/other.json", json.dumps({"npus": npus}))
    ended, lines = run(kernel, capsys, "--plan", "/etc/other.json", *arguments)
    assert (ended, affinities.time.pauses) == (status, pytest.approx(pauses))
    assert status or len(lines) == 1 and "cq_update_irq" in lines[0]

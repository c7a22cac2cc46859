# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever numbers interrupts have and whatever a kernel refuses: they are found by function and name, and a report says where they are."""

import errno
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ, SQ
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from tests.fakes.kernel import EVERYWHERE, FIRST, SECOND, Kernel, add_device, affinity, bind, contents, npu, restored, texts

cpus = st.sets(st.integers(0, 15), min_size=2)
MAILBOXES = {FIRST: "trs-mbox-7-0", SECOND: "trs-mbox-8-0"}


@st.composite
def entries(draw, number, pci):
    pool = sorted(draw(cpus))
    role = draw(st.lists(st.sampled_from(pool), unique=True, max_size=4))
    return npu(number, pci, compress(pool), ",".join(map(str, role)))


@st.composite
def names_of(draw, pci):
    """Draw the names of a function's vectors, in any order; None for one that the driver has not requested."""
    more = draw(st.lists(st.sampled_from([MAILBOXES[pci], "func_cq_irq", None, CQ]), max_size=6))
    return draw(st.permutations(more + [SQ, CQ]))


@st.composite
def machines(draw):
    """Draw the vectors of two functions in one another's way, twice with other numbers: ``([(pci, name)], [(pci, name)])``."""
    names = {FIRST: draw(names_of(FIRST)), SECOND: draw(names_of(SECOND))}
    owners = [pci for pci, own in names.items() for _name in own]

    def numbered(order):
        left = {pci: list(own) for pci, own in names.items()}
        return [(pci, left[pci].pop(0)) for pci in order]

    return numbered(draw(st.permutations(owners))), numbered(draw(st.permutations(owners)))


def kernel_with(folder, vectors, online):
    kernel = Kernel(folder)
    kernel.put("/sys/devices/system/cpu/online", compress(online))
    kernel.put("/proc/interrupts", "      CPU0\n    3: 0  GICv3 27 Level  arch_timer")
    add_device(kernel, 7)
    for irq, (pci, name) in enumerate(vectors, 100):
        add_vector(kernel, pci, irq, name)
    return kernel


def add_vector(kernel, pci, irq, name):
    kernel.put("/sys/bus/pci/devices/%s/msi_irqs/%d" % (pci, irq), "msix")
    if name:
        kernel.put("/proc/interrupts", kernel.read("/proc/interrupts") + "\n%5d: 0  ITS-MSI %d Edge      %s" % (irq, irq, name))
        kernel.put("/proc/irq/%d/smp_affinity_list" % irq, EVERYWHERE)


refusals = st.dictionaries(st.integers(100, 115), st.sampled_from([errno.EIO, errno.ENOSPC, errno.EACCES]), max_size=3)


@settings(max_examples=20, deadline=None)
@given(npus=st.tuples(entries(0, FIRST), entries(1, SECOND)), drawn=machines(), online=cpus, refused=refusals)
def test_interrupts_are_found_by_function_and_name_and_reported(tmp_path_factory, npus, drawn, online, refused):
    vectors, later = drawn
    plan = {"npus": list(npus)}
    with tempfile.TemporaryDirectory(dir=str(tmp_path_factory.getbasetemp())) as folder:
        kernel = kernel_with(folder + "/now", vectors, online)
        untouched = texts(kernel)
        predicted = bind(kernel, plan, check=True)
        assert texts(kernel) == untouched
        kernel.refuse = lambda path, value: refused.get(int(path.split("/")[3])) if path.startswith("/proc/irq/") else None
        report = bind(kernel, plan)
        entries = {entry["irq"]: (place, entry) for place, row in enumerate(report.npus) for entry in row["interrupts"]}
        for irq, (pci, name) in enumerate(vectors, 100):
            if name is None:
                continue
            if irq not in entries:
                row = npus[pci == SECOND]
                assert name not in (SQ, CQ) or not row["irq"] or not online & set(expand(row["pool"]))
                assert affinity(kernel, irq) == EVERYWHERE
                continue
            place, entry = entries[irq]
            assert npus[place]["pci"] == pci
            the_entry_is_true(kernel, npus[place], entry, name, online, refused.get(irq))
        if not refused:
            assert contents(predicted) == contents(report)
        else:
            kernel.refuse = lambda path, value: None
            bind(kernel, plan)
        kernel.writes = []
        assert not bind(kernel, plan).changed and kernel.writes == []
        back_with_other_numbers = kernel_with(folder + "/later", later, online)
        previous.replace(back_with_other_numbers, "irq", previous.recorded(kernel).get("irq"))
        bind(back_with_other_numbers, plan)
        for host in (kernel, back_with_other_numbers):
            assert restored(FEATURE.restore, host)[0].failed == []
            assert {affinity(host, irq) for irq in range(100, 100 + len(vectors))} <= {EVERYWHERE, None}


def the_entry_is_true(kernel, planned, entry, name, online, refusal):
    role, pool = expand(planned["irq"]), expand(planned["pool"])
    near = [cpu for cpu in role if cpu in online] or [cpu for cpu in pool if cpu in online]
    assert entry["after"] == affinity(kernel, entry["irq"])
    wanted = int(entry["wanted"])
    if name == SQ:
        assert wanted == near[0]
    else:
        assert wanted in near
        assert wanted != role[0] or not online & set(role[1:])
    states = {None: "changed", errno.EIO: "managed", errno.ENOSPC: "failed", errno.EACCES: "failed"}
    assert entry["state"] == states[refusal]
    assert entry["after"] == (EVERYWHERE if refusal else entry["wanted"])
    assert bool(entry["text"]) is bool(refusal)

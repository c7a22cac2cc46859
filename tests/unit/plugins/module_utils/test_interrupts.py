# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import subprocess
import sys

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.interrupts import Interrupt, Thread, Vector, Workqueue, kernel_threads
from ansible_collections.npu.affinity.plugins.module_utils._kernel.interrupts import interrupt_counts, interrupt_names, requested

PCI = "0000:c1:00.0"
FOLDER = "/proc/irq/99/"
CHIPS = ["ITS-MSI 101187585 Edge", "ITS-PCI-MSIX-0000:c1:00.0   1 Edge", "IR-PCI-MSI 26214401-edge", "PCI-MSIX-0000:c1:00.0   1-edge"]
"""What the kernels print between the counts and the name; the name is always last."""


@pytest.mark.parametrize("words", CHIPS)
@pytest.mark.parametrize("cpus", [1, 8, 640])
def test_an_interrupts_name_is_found_behind_any_number_of_counts(tree, words, cpus):
    header = "           " + "".join("%-11s" % ("CPU%d" % cpu) for cpu in range(cpus))
    line = "%4d:" % 2753 + "%11d" % 4294967295 * cpus + "  " + words + "      sq_send_trigger_irq"
    summary = "IPI0:" + "%11d" % 3 * cpus + "       Rescheduling interrupts"
    tree.write({"/proc/interrupts": "\n".join([header, line, summary, "ERR:          0"])})
    assert interrupt_names(tree.host) == {2753: "sq_send_trigger_irq"}


def test_a_host_without_interrupts_has_none(tree):
    assert (interrupt_names(tree.host), interrupt_counts(tree.host, {1}), requested(tree.host, PCI, {})) == ({}, {}, [])


def test_interrupts_are_those_of_online_cpus_by_their_numbers(tree):
    tree.write({"/proc/interrupts": "     CPU0  CPU3\n  7:  1  2  PCI-MSI  a 9\n 70:  5  5  PCI-MSI b\n 8:  10  0  PCI-MSI  c"})
    assert interrupt_counts(tree.host, {7, 8}) == {7: {0: 1, 3: 2}, 8: {0: 10, 3: 0}}


@pytest.mark.parametrize("vector", ["", "/mode"], ids=["files", "folders"])
def test_the_vectors_of_a_function_are_its_own_and_requested(tree, vector):
    tree.write({"/sys/bus/pci/devices/%s/msi_irqs/%d%s" % (PCI, irq, vector): "msix" for irq in (98, 99, 100, 101)})
    rows = [(99, "sq_send_trigger_irq"), (100, "cq_update_irq"), (500, "sq_send_trigger_irq")]
    table = ["  CPU0  CPU1"] + ["%d: 0 0  ITS-MSI %d Edge  %s" % (irq, irq, name) for irq, name in rows]
    host = tree.write({"/proc/interrupts": "\n".join(table)})
    vectors = requested(host, PCI, interrupt_names(host))
    assert vectors == [Vector(99, "sq_send_trigger_irq", 1), Vector(100, "cq_update_irq", 2)]


def test_setting_an_interrupt_in_a_tree_updates_derived_files(tree):
    lists = {"smp_affinity_list": "0-39", "effective_affinity_list": "0"}
    masks = {"smp_affinity": "ff,ffffffff", "effective_affinity": "00,00000001"}
    host = tree.write({FOLDER + name: text for name, text in {**lists, **masks}.items()})
    Interrupt(99, "cq_update_irq").write(host, "35")
    after = {name: host.read(FOLDER + name) for name in os.listdir(host.path(FOLDER))}
    assert after == {**dict.fromkeys(lists, "35"), **dict.fromkeys(masks, "08,00000000")}


def test_an_effective_list_linked_to_the_wanted_one_stays_whole(tree):
    host = tree.write({FOLDER + "smp_affinity_list": "3"})
    os.symlink("smp_affinity_list", host.path(FOLDER + "effective_affinity_list"))
    Interrupt(99, "cq_update_irq").write(host, "0-39")
    assert host.read(FOLDER + "smp_affinity_list") == "0-39"


def test_an_interrupt_without_write_bit_is_managed_by_the_kernel(tree):
    host, interrupt = tree.write({FOLDER + "smp_affinity_list": "0-39"}), Interrupt(99, "cq_update_irq")
    assert not interrupt.fixed(host)
    os.chmod(host.path(FOLDER + "smp_affinity_list"), 0o444)
    assert interrupt.fixed(host)
    assert not Interrupt(100, "cq_update_irq").fixed(host)


MASKS = [
    # before, cpus, after: as wide as what the kernel printed, wider only when it must be
    ("ff", "2", "04"),
    ("ff,ffffffff", "35", "08,00000000"),
    ("ffffffff,ffffffff,ffffffff,ffffffff,ffffffff,ffffffff", "0", "00000000,00000000,00000000,00000000,00000000,00000001"),
    ("3", "35", "00000008,00000000"),
]


@pytest.mark.parametrize("before, cpus, after", MASKS)
def test_a_workqueue_mask_keeps_the_width_the_kernel_gave_it(tree, before, cpus, after):
    queue = Workqueue("dev0_sq_send_wq")
    host = tree.write({queue.path: before})
    queue.write(host, cpus)
    assert (host.read(queue.path), queue.read(host)) == (after, cpus)
    assert Workqueue("dev0_sq_fair_wq").read(host) is None, "it is not in sysfs"


def test_only_kernel_threads_count_and_long_names_are_cut(tree):
    names = ["dev0_sq_task", "dev123456_sq_task", "dev1_sq_task", "dev2_sq_task", "dev3_sq_task"]
    processes = [("41", names[0], 0x208040), ("42", names[1], 0x200040), ("43", names[2], 0x400000), ("self", names[3], 0x208040)]
    for pid, name, flags in processes:
        stat = "%s (%s) S 2 0 0 0 -1 %d 0 0" % (pid, name[:15], flags)
        tree.write({"/proc/%s/comm" % pid: name[:15], "/proc/%s/stat" % pid: stat, "/proc/44/comm": names[4]})
    assert kernel_threads(tree.host, names) == {"dev0_sq_task": 41, "dev123456_sq_task": 42}


def test_a_process_that_poses_as_a_kernel_thread_is_none(tmp_path):
    """It has the name of the driver's thread and an empty argument: whoever could pose so would be pinned by root."""
    (tmp_path / "dev0_sq_task").symlink_to("/bin/cat")
    command = ["bash", "-c", "exec -a '' ./dev0_sq_task"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0, cwd=str(tmp_path)) as poser:
        poser.stdin.write("x\n")
        poser.stdout.readline()
        shown = [Host().read("/proc/%d/%s" % (poser.pid, name)) for name in ("comm", "cmdline")]
        threads = kernel_threads(Host(), ["dev0_sq_task"])
        poser.stdin.close()
    assert shown == ["dev0_sq_task", ""]
    assert threads.get("dev0_sq_task") != poser.pid


def test_setting_a_thread_in_a_tree_only_rewrites_its_status(tree):
    before = os.sched_getaffinity(0)
    thread = Thread("dev0_sq_task", os.getpid())
    status = "Name:\tdev0_sq_task\nCpus_allowed:\t%s\nCpus_allowed_list:\t%s\nMems_allowed_list:\t0"
    host = tree.write({thread.path: status % ("ff", "0-7")})
    assert thread.read(host) == "0-7"
    thread.write(host, "5")
    assert host.read(thread.path) == status % ("20", "5")
    assert os.sched_getaffinity(0) == before


def test_the_real_kernel_moves_a_process_and_its_status_shows_it():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        host, thread = Host("/"), Thread("child", child.pid)
        last = str(max(expand(thread.read(host))))
        thread.write(host, last)
        assert thread.read(host) == last
        assert os.sched_getaffinity(child.pid) == {int(last)}
    finally:
        child.communicate(b"\n")


def test_the_real_kernels_interrupts_can_be_read():
    host = Host("/")
    names = interrupt_names(host)
    if not names or not host.exists("/proc/irq/default_smp_affinity"):
        pytest.skip("this machine shows no interrupts")
    lists = list(filter(None, (Interrupt(irq, name).read(host) for irq, name in names.items())))
    assert lists and all(map(expand, lists))

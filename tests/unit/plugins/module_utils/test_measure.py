# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What disturbs workloads: in a made-up host that lives for ten seconds, and of a real worker with a noisy neighbour."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from tests.fakes.workers import npu, process

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils import _measure
from ansible_collections.npu.affinity.plugins.module_utils._measure import UNITS, busy, grown, measure, perf_migrations, runs

PLAN = {"npus": [npu(0, 0), npu(1, 8), npu(2, 16)]}
SECOND = 1000000000
STAT = "%d (a) odd) name) R" + " 0" * 18 + " %d" + " 0" * 16 + " %d 0 0"
TICKS = os.sysconf("SC_CLK_TCK")


class Life:
    """A made-up host, second by second: two threads of a worker, and tasks of others on its CPUs."""

    def __init__(self, tree, schedstat=True, sched=True):
        self.tree, self.now, self.schedstat, self.sched = tree, 0, schedstat, sched
        tree.write({"/sys/bus/pci/devices/%s/msi_irqs/%d" % (PLAN["npus"][0]["pci"], irq): "msix" for irq in (50, 51)})
        tree.write({"/sys/devices/system/cpu/online": "0-15"})
        process(tree, 100, "/npu.slice/npu-0.slice", ["worker", "acl_thread"])
        self.write()

    def write(self):
        now = self.now
        files = {"/proc/100/numa_maps": "7f00 default anon=256 N0=%d N1=512 kernelpagesize_kB=4" % (256 + 256 * now)}
        for number in range(2):
            folder = "/proc/100/task/%d/" % (100 + number)
            files[folder + "stat"] = STAT % (100 + number, 777, 2 + 10 * number * (now % 2))
            files[folder + "status"] = "Name:\tx\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t%d" % (1000 + 30 * now)
            if self.schedstat:
                files[folder + "schedstat"] = "%d %d 5" % (9 * SECOND + now * SECOND // 2, now * SECOND // 100)
            if self.sched:
                files[folder + "sched"] = "worker (100, #threads: 2)\nse.nr_migrations                :      %d" % (50 + 2 * now)
        cpus = ["cpu  1 2 3 4"] + ["cpu%d %d 0 %d 9 9 77 77 0 0 0" % (cpu, TICKS * now // 2, TICKS * now // 10) for cpu in range(16)]
        files["/proc/stat"] = "\n".join(cpus + ["intr 5"])
        numbers = [0] * 16
        numbers[0], numbers[6] = 100 * now, 10 * now
        row = "  %d:" + "".join(" %d" % count for count in numbers) + "  ITS-MSI  name"
        header = "        " + "".join(" CPU%d" % cpu for cpu in range(16))
        files["/proc/interrupts"] = "\n".join([header, row % 50, row % 51, row % 99, "NMI: 1 2"])
        self.tree.write(files)

    def sleep(self, seconds):
        self.now += 1
        self.write()

    def monotonic(self):
        return float(self.now)

    def measure(self, wanted=(), seconds=10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_measure, "time", self)
            return measure(self.tree.host, PLAN, wanted, seconds)


def metrics(result, title):
    (row,) = [row for row in result["workloads"] if row["title"] == title]
    return {name: metric["missing"] or metric["value"] for name, metric in row["metrics"].items()}


RATES = {"involuntary_switches": 60.0, "cpu_migrations": 4.0, "waiting": 20.0, "interrupts": 220.0, "interrupts_on_workers": 20.0}
OTHERS = 100 * (8 * 0.6 - 0.75) / 8
"""Eight CPUs run tasks for 0.6 s each second; the worker's are 0.5 s of its first thread, and of the second every other second."""


def test_ten_seconds_of_a_worker_in_figures(tree):
    result = Life(tree).measure()
    assert (result["seconds"], result["remarks"]) == (10.0, [])
    assert [row["title"] for row in result["workloads"]] == ["NPU 0", "NPU 1", "NPU 2"]
    row = result["workloads"][0]
    assert (row["npus"], row["pool"], row["threads"]) == ([0], "0-7", 2)
    assert row["processes"] == [{"pid": 100, "name": "worker", "found_by": "npu-0.slice"}]
    assert row["interrupts"] == {"0": 200.0, "6": 20.0}
    assert row["memory"][0]["mib"] == {"0": 11.0, "1": 2.0}
    assert metrics(result, "NPU 0") == {**RATES, "remote_memory": 2.0, "others_share": round(OTHERS, 1)}
    assert [metric["unit"] for metric in row["metrics"].values()] == list(UNITS.values())


def test_each_window_has_a_value_of_its_own(tree):
    life = Life(tree)
    (row, *_others) = life.measure(seconds=20)["workloads"]
    windows = {name: metric["windows"] for name, metric in row["metrics"].items()}
    expected = {name: [value] * 10 for name, value in {**RATES, "others_share": round(OTHERS, 3)}.items()}
    assert windows == {**expected, "remote_memory": []}
    assert {len(metric["windows"]) for metric in life.measure(seconds=5)["workloads"][0]["metrics"].values()} == {0, 5}


def test_what_cannot_be_measured_says_why(tree):
    result = Life(tree, schedstat=False, sched=False).measure()
    found, no_process, no_interrupts = metrics(result, "NPU 0"), "no process of it was found", "its driver has requested no interrupts"
    assert found["waiting"] == "this kernel has no schedstat"
    assert found["others_share"] == "this kernel has no schedstat, so its own time cannot be separated from that of others"
    not_installed = "this kernel has no /proc/<pid>/sched, and perf is not installed; at least 1.0 per s were seen by sampling"
    assert found["cpu_migrations"] == not_installed
    of_processes = dict.fromkeys(("involuntary_switches", "cpu_migrations", "waiting", "remote_memory"), no_process)
    of_interrupts = dict.fromkeys(("interrupts", "interrupts_on_workers"), no_interrupts)
    assert metrics(result, "NPU 1") == {**of_processes, **of_interrupts, "others_share": 60.0}
    assert metrics(result, "NPU 2")["others_share"] == "no CPU of its pool is online"


def test_perf_counts_moves_where_the_kernel_does_not_tell_them(tree):
    words = "stat -x , -e cpu-migrations -p 100 sleep 10"
    tree.tool("/usr/bin/perf", {words: "70,,cpu-migrations,10000000,100.00,,\n"})
    row = Life(tree, sched=False).measure()["workloads"][0]
    assert row["metrics"]["cpu_migrations"] == {"value": 7.0, "unit": "per s", "source": "perf", "missing": None, "windows": []}
    assert tree.calls("/usr/bin/perf") == [words]


PERF = {
    "perf does not count cpu-migrations: No permission": {"rc": 255, "text": "Error:\nNo permission\n"},
    "perf does not count cpu-migrations: <not supported>,,cpu-migrations,0,100.00,,": "<not supported>,,cpu-migrations,0,100.00,,\n",
}


@pytest.mark.parametrize("why, answer", PERF.items())
def test_a_perf_that_cannot_count_is_quoted(tree, why, answer):
    tree.tool("/usr/bin/perf", {"stat -x , -e cpu-migrations -p 7,8 sleep 1": answer})
    assert perf_migrations(tree.host, {8, 7}, 1) == (None, why)


def test_a_process_that_ends_meanwhile_is_said(tree):
    life = Life(tree)
    sleep = life.sleep

    def die(seconds):
        sleep(seconds)
        if life.now >= 5:
            shutil.rmtree(tree.root + "/proc/100")

    life.sleep = die
    result = life.measure(seconds=5)
    assert result["remarks"] == ["NPU 0: 1 of 1 processes ended meanwhile; their counts are lost [NPU_MEASURE_INCOMPLETE]"]
    assert metrics(result, "NPU 0")["involuntary_switches"] == "all of its processes ended"


def test_processes_of_several_npus_are_one_workload_with_pools(tree):
    life = Life(tree)
    result = life.measure([{"npus": [0, 1], "slice": "npu-0.slice"}])
    assert [(row["title"], row["pool"]) for row in result["workloads"]] == [("NPU 0 and NPU 1", "0-15"), ("NPU 2", "16-23")]
    assert metrics(result, "NPU 0 and NPU 1")["remote_memory"] == 0.0


def test_new_counters_count_from_zero_vanished_ones_are_ignored():
    assert grown({"a": 5, "b": 7}, {"a": 9, "c": 2}) == 6


@pytest.mark.parametrize("text", [None, "cpu  1 2 3", "cpux 1 2 3 4"])
def test_a_host_without_counters_of_cpus_tells_none(tree, text):
    if text:
        tree.write({"/proc/stat": text})
    assert busy(tree.host) == {}


BURN = "import os, time\nos.sched_setaffinity(0, {%d})\nprint('ready', flush=True)\nwhile True: pass"


@pytest.fixture
def on_one_cpu():
    """Two real processes that both want the last CPU of this machine: a worker and its noisy neighbour."""
    cpu = max(os.sched_getaffinity(0))
    processes = [subprocess.Popen([sys.executable, "-c", BURN % cpu], stdout=subprocess.PIPE) for _each in range(2)]
    for each in processes:
        each.stdout.readline()
    yield cpu, processes[0].pid
    for each in processes:
        each.kill()
        each.communicate()


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel has no schedstat")
def test_a_noisy_neighbour_on_the_cpu_of_a_real_worker_is_seen(on_one_cpu):
    cpu, pid = on_one_cpu
    plan = {"npus": [npu(0, 0, pool=str(cpu), irq="", main=str(cpu), acl="", release="", mems="0")]}
    values = metrics(measure(Host(), plan, [{"npus": [0], "pids": [pid]}], seconds=3, interval=0.5), "NPU 0")
    assert values["involuntary_switches"] > 0 and values["waiting"] > 100 and 20 < values["others_share"] <= 100
    assert values["cpu_migrations"] == 0 or "per s were seen" in str(values["cpu_migrations"])
    assert (values["remote_memory"], values["interrupts"]) == (0, "its driver has requested no interrupts")


def test_a_real_thread_has_run_as_long_as_psutil_says():
    import psutil

    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    ours = runs(Host(), [os.getpid()])[(os.getpid(), os.getpid())]
    theirs = next(thread for thread in psutil.Process().threads() if thread.id == os.getpid())
    assert abs(ours.runtime / 1e9 - theirs.user_time - theirs.system_time) < 1
    assert ours.cpu < psutil.cpu_count()
    switched = _measure.counts(Host(), [os.getpid()], *_measure.SWITCHES)[(os.getpid(), os.getpid())]
    assert 0 <= psutil.Process().num_ctx_switches().involuntary - switched < 100

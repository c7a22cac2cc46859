# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads without a mask of their own follow their cpuset again after they were placed, on kernels that keep masks, too."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import FEATURE
from tests.fakes.kernel import bind, restored
from ansible_collections.npu.affinity.plugins.module_utils._kernel.masks import asked_for, cpuset
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import place
from tests.fakes.work import CGROUPS, working
from tests.fakes.workers import allowed, npu

SLICE = "/npu.slice/npu-0.slice"
ROLES = {"worker": "2-5", "acl_thread": "6"}


@pytest.mark.parametrize(
    "cgroup, files, cpus",
    [
        ("0::/npu.slice/a.scope", {"/sys/fs/cgroup/npu.slice/a.scope/cpuset.cpus.effective": "2-3"}, {2, 3}),
        ("0::/npu.slice/a.scope/b", {"/sys/fs/cgroup/npu.slice/cpuset.cpus.effective": "4"}, {4}),
        ("5:cpuset,cpu:/docker/3f\n0::/x", {"/sys/fs/cgroup/cpuset/docker/3f/cpuset.effective_cpus": "1"}, {1}),
        ("5:cpuset:/\n1:memory:/x", {"/sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-1"}, {0, 1}),
        ("5:memory:/x", {}, None),
        ("0::" + "/damaged" * 100_000, {"/sys/fs/cgroup/cpuset.cpus.effective": "4"}, None),
    ],
)
def test_a_process_has_the_cpuset_of_its_group_or_an_ancestor(tree, cgroup, files, cpus):
    tree.write(dict(files, **{"/proc/7/cgroup": cgroup}))
    assert cpuset(tree.host, 7) == cpus


MASKS = {
    "all of the cpuset is no mask": ("possible", {2, 3}, {2, 3}, set(range(8))),
    "more than the cpuset is none either": ("possible", {1, 2, 3}, {2, 3}, set(range(8))),
    "a part is one": ("possible", {2}, {2, 3}, {2}),
    "nothing is known of the cpuset": ("possible", {2}, set(), {2}),
    "a machine without possible CPUs has its online ones": ("online", {2}, {2}, set(range(8))),
}


@pytest.mark.parametrize("file, cpus, granted, wanted", MASKS.values(), ids=MASKS)
def test_what_the_kernel_is_asked_for(tree, file, cpus, granted, wanted):
    assert asked_for(tree.write({f"/sys/devices/system/cpu/{file}": "0-7"}), cpus, granted) == wanted


@pytest.fixture(params=[True, False], ids=["Linux 6.2 and newer", "Linux 6.1 and older"])
def kernel(request, tmp_path, monkeypatch):
    kernel = working(tmp_path, monkeypatch, request.param)
    online(kernel, "0-15")
    kernel.confine(SLICE, "0-7")
    kernel.process(100, SLICE, (None, None))
    kernel.put("/proc/100/task/101/comm", "acl_thread")
    return kernel


def online(kernel, cpus):
    kernel.lay({"/sys/devices/system/cpu/online": cpus, "/sys/devices/system/cpu/possible": "0-15"})
    kernel.put(CGROUPS + "/cpuset.cpus.effective", cpus)
    kernel.confine("", cpus)


def test_threads_that_are_let_go_follow_a_wider_cpuset(kernel):
    plan = {"npus": [npu(0, 0)]}
    place(kernel, plan)
    assert allowed(kernel, 100) == ROLES
    done = place(kernel, plan, widen=True)
    assert (done.changed, done.failed) == (True, [])
    assert allowed(kernel, 100) == {"worker": "0-7", "acl_thread": "0-7"}
    kernel.confine(SLICE, "0-15")
    assert allowed(kernel, 100) == {"worker": "0-15", "acl_thread": "0-15"}


def test_threads_on_the_whole_cpuset_of_an_old_version_are_freed(kernel):
    """It asked for the CPUs of the slice, which shows nowhere."""
    for tid in (100, 101):
        kernel.set_affinity(tid, range(8))
    done = place(kernel, {"npus": [npu(0, 0)]}, widen=True)
    assert (done.changed, done.failed) == (False, [])
    assert {entry["state"] for entry in done.processes[0]["threads"]} == {"placed"}
    kernel.confine(SLICE, "0-15")
    assert allowed(kernel, 100) == {"worker": "0-15", "acl_thread": "0-15"}


def test_threads_of_a_role_with_the_whole_pool_follow_a_new_plan(kernel):
    plan = {"npus": [npu(0, 0, main="0-7", acl="", release="")]}
    kernel.set_affinity(101, [3])
    assert place(kernel, plan).changed
    kernel.confine(SLICE, "4-11")
    assert allowed(kernel, 100) == {"worker": "4-11", "acl_thread": "4-11"}


THREAD = {"/proc/900/comm": "dev0_sq_task", "/proc/900/cgroup": "0::/", "/proc/900/stat": "900 (dev0_sq_task) S 2 0 0 0 -1 2129984"}
MASKS_BEFORE = {"of its own": ("0-3", "0-3"), "none": ("0-13", "0-15"), "none, with the CPUs that are offline": ("0-15", "0-15")}


@pytest.mark.parametrize("before, after", MASKS_BEFORE.values(), ids=MASKS_BEFORE)
def test_a_kernel_thread_goes_back_to_the_mask_that_it_had(kernel, before, after):
    """CPUs 14 and 15 are offline at the first bind, and online again after unbind."""
    kernel.process(900, "/")
    online(kernel, "0-13")
    kernel.lay({**THREAD, "/proc/900/status": "Name:\tdev0_sq_task\nCpus_allowed:\tffff\nCpus_allowed_list:\t%s" % before})
    plan = {"npus": [npu(0, 0)]}
    assert not [sentence for sentence in bind(kernel, plan).failed if "dev0_sq_task" in sentence]
    assert kernel.cpus(900) == "0"
    assert not restored(FEATURE.restore, kernel)[0].failed
    assert kernel.cpus(900) == ("0-3" if before == "0-3" else "0-13")
    online(kernel, "0-15")
    assert not kernel.keeps or kernel.cpus(900) == after

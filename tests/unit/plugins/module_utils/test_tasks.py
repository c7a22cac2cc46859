# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes belong to which NPUs, and where torch_npu places the threads of one."""

import os
import re

import pytest
from tests.fakes.workers import RealWorker, npu, process

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.threads import tasks
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.torch_npu import cpus_of, setting

PLAN = {"npus": [npu(0, 0), npu(1, 8), npu(2, 16), npu(3, 24)]}
CGROUPS = [
    ("0::/npu.slice/npu-0.slice/docker-3f.scope", "npu-0.slice", 1),
    ("0::/npu.slice/npu-0.slice", "npu.slice", 0),
    ("0::/system.slice/system-vllm.slice/vllm@0.service/worker", "vllm@0.service", 2),
    ("4:memory:/\n1:name=systemd:/system.slice/vllm@0.service\n0::/", "vllm@0.service", 1),
    ("0::/npu.slice/npu-01.slice", "npu-0.slice", None),
    ("0::/user.slice/user-7.slice/user@7.service/app.slice/vllm.service", "vllm.service", None),
    ("0::/system.slice/docker-3f.scope/system.slice/vllm.service", "vllm.service", None),
    ("0::/", "npu.slice", None),
]


@pytest.mark.parametrize("cgroup, unit, depth", CGROUPS)
def test_a_unit_is_found_in_a_cgroup_unless_of_another_systemd(tree, cgroup, unit, depth):
    host = tree.write({"/proc/7/cgroup": cgroup})
    assert tasks.Group([], unit).rank(7, tasks.cgroups(host, 7)) == depth


def find(host, wanted=(), plan=PLAN, **options):
    processes, warnings = tasks.find(host, plan, tasks.groups_of(plan, wanted), **options)
    return {each.pid: ([entry["id"] for entry in each.npus], each.found_by) for each in processes}, warnings


def populate(tree):
    process(tree, 1, "/init.scope", ["systemd"])
    process(tree, 100, "/npu.slice/npu-0.slice/vllm@0.service", ["VLLM::Worker"], devices=["/dev/davinci_manager", "/dev/davinci0"])
    process(tree, 200, "/npu.slice/npu-llm.slice/docker-3f.scope", ["VLLM::Worker"], devices=["/dev/davinci2", "/dev/shm/x"])
    process(tree, 300, "/npu.slice/npu-llm.slice/docker-3f.scope", ["VLLM::EngineCor"])
    process(tree, 400, "/system.slice/sshd.service", ["python3"], devices=["/dev/davinci3"])
    process(tree, 500, "/kubepods.slice/kubepods-burstable.slice/cri-5.scope", ["python3"], devices=["/dev/davinci3"])
    process(tree, 600, "/system.slice/cron.service", ["cron"])
    process(tree, 700, "/machine.slice/libpod-7.scope", ["python3"], devices=["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"])
    process(tree, 800, "/system.slice/docker-8.scope", ["python3"], devices=["/dev/nvidia0", "/dev/nvidia1"])
    return tree.host


TEAM = {"npus": [1, 2], "slice": "npu-llm.slice"}
OF_TEAM = {200: ([2], "npu-llm.slice"), 300: ([1, 2], "npu-llm.slice")}
BY_SLICE, BY_DEVICE = ([0], "npu-0.slice"), ([3], "an open device")
KUBERNETES = "process 500 (python3) of NPU 3 runs in a pod of Kubernetes, where the kubelet places threads, and is left alone"
FOREIGN = "process 100 (VLLM::Worker) of NPU 1 was found by npu-0.slice and has the device of NPU 0 open; start it in the slice of that NPU"
ALL_DEVICES = [{"npus": []}, {"npus": [], "devices": True}]


def gpu(number, first):
    return npu(number, first, slice="gpu-%d.slice" % number, irq="", acl="", release="", main="%d-%d" % (first, first + 7))


GPUS = {"npus": [gpu(0, 32), gpu(1, 40)]}
MIXED = {"npus": [npu(0, 0), gpu(1, 40)]}
FOUND = [
    (PLAN, [], {100: BY_SLICE}, []),
    (PLAN, ALL_DEVICES, {100: BY_SLICE, 200: ([2], "an open device"), 400: BY_DEVICE}, [KUBERNETES]),
    (PLAN, [{"npus": [0, 3]}], {100: BY_SLICE}, []),
    (PLAN, [TEAM], OF_TEAM, []),
    (PLAN, [{"npus": [0], "slice": "npu.slice"}, TEAM], {100: ([0], "npu.slice"), **OF_TEAM}, []),
    (PLAN, [{"npus": [0], "unit": "vllm@0.service"}], {100: ([0], "vllm@0.service")}, []),
    (PLAN, [{"npus": [3], "devices": True}], {400: BY_DEVICE}, [KUBERNETES]),
    (PLAN, [{"npus": [1], "pids": [600]}], {600: ([1], "its number")}, []),
    (PLAN, [TEAM, {"npus": [1], "pids": [300]}], {**OF_TEAM, 300: ([1], "its number")}, []),
    (PLAN, [{"npus": [1], "pids": [601]}], {}, ["there is no process 601 of NPU 1 (any more)"]),
    (PLAN, [{"npus": [3], "pids": [500]}], {}, [KUBERNETES]),
    (PLAN, [{"npus": [1], "slice": "npu-0.slice"}], {100: ([1], "npu-0.slice")}, [FOREIGN]),
    (GPUS, ALL_DEVICES, {700: ([0], "an open device"), 800: ([0, 1], "an open device")}, []),
    (GPUS, [{"npus": [1], "devices": True}], {800: ([1], "an open device")}, []),
    (GPUS, [{"npus": [0, 1], "slice": "machine.slice"}], {700: ([0], "machine.slice")}, []),
    (MIXED, [{"npus": [], "devices": True}], {100: ([0], "an open device"), 800: ([1], "an open device")}, []),
]


@pytest.mark.parametrize("plan, wanted, processes, warnings", FOUND)
def test_processes_are_found_by_slice_unit_pid_and_open_device(tree, plan, wanted, processes, warnings):
    assert find(populate(tree), wanted, plan) == (processes, warnings)


def test_who_only_measures_sees_pods_and_needs_no_cgroup(tree):
    host = populate(tree)
    os.unlink(tree.root + "/proc/400/cgroup")
    assert find(host, [{"npus": [3], "devices": True}], pods=True)[0] == {400: BY_DEVICE, 500: BY_DEVICE}


SETTING = "npu_affinity_threads_processes: "
OUTSIDE = "role %s of NPU 0 has CPUs 9, which are not all in its pool 0-7; plan and bind again"
REFUSED = [
    ({}, [], "the plan has no list 'npus' of NPUs with 'id' and 'pool'; give the fact npu_affinity_plan"),
    (PLAN, [{"npus": [0, 9]}], SETTING + "NPU 9 is not in the plan, which has 0, 1, 2, 3"),
    (PLAN, [{"npus": [], "unit": "vllm.service"}], SETTING + "vllm.service names no NPU or GPU; give the logic ids of npus"),
    (PLAN, [{"npus": [], "pids": [7, 8]}], SETTING + "process 7, 8 names no NPU or GPU; give the logic ids of npus"),
    ({"npus": [npu(0, 0, kv="9")]}, [], OUTSIDE % "kv"),
    ({"npus": [npu(0, 0, acl="9")]}, [], OUTSIDE % "acl"),
    ({"npus": [npu(0, 0, main="a")]}, [], "main of NPU 0: 'a' in 'a' is not a CPU number or range; expected e.g. 0-3,8"),
]


@pytest.mark.parametrize("plan, wanted, sentence", REFUSED)
def test_what_is_no_plan_or_not_in_it_is_refused(plan, wanted, sentence):
    with pytest.raises(ValueError, match="^%s$" % re.escape(sentence)):
        tasks.groups_of(plan, wanted)


@pytest.mark.parametrize("files, sentence", [({}, "never bound"), ({"/etc/npu-affinity/plan.json": "{"}, "is not valid JSON")])
def test_a_host_without_a_readable_plan_says_so(tree, files, sentence):
    with pytest.raises(ValueError, match=sentence):
        tasks.plan_in_force(tree.write(files))


def test_a_real_process_has_the_threads_kernel_and_psutil_list():
    import psutil

    with RealWorker("acl_thread", "release_thread") as worker:
        names = dict(tasks.threads(Host(), worker.pid))
        assert set(names) == {thread.id for thread in psutil.Process(worker.pid).threads()}
        assert {"acl_thread", "release_thread"} < set(names.values())
        assert find(Host(), [{"npus": [1], "pids": [worker.pid]}]) == ({worker.pid: ([1], "its number")}, [])


OLD, NEW = (7, 3), (26, 1, 0)
HOST = range(48)
SEVERAL = "1,npu_affine:1,npu0:0-5,npu1:6-7,npu2:8-8,npu2:10-11,npu0:12-19"
CPUS = [
    # the setting, a visible device, its CPUs before 26.1.0 and from it on; the first three are the vectors of upstream's PR 34407
    ("1,npu_affine:1,npu0:0-5", 0, "0-5", "0-5"),
    (SEVERAL, 0, "12-19", "0-5,12-19"),
    ("1,npu_affine:1,npu0:0-5,npu1:10-13,npu0:4-7", 0, "4-7", "0-7"),
    (SEVERAL, 1, "6-7", "6-7"),
    (SEVERAL, 2, "10-11", "8,10-11"),
    (SEVERAL, 3, None, None),  # the driver tells
    ("2,npu0:3", 0, "3", "3"),
    ("mode:2, npu1:4-6", 1, "4-6", "4-6"),
    ("mode:2,npu1:4-6", 0, "0-11", "0-11"),  # its part of the host, by four visible devices
    ("1", 3, "36-47", "36-47"),
    ("1,npu0:8-x,npu100:1-2,other", 0, "0-11", "0-11"),
    ("1,npu0:65530-99999999999", 0, "65530-65535", "65530-65535"),
]


@pytest.mark.parametrize("text, number, before, since", CPUS)
def test_a_visible_device_has_the_cpus_that_its_release_gives_it(text, number, before, since):
    word, parsed = setting(["LANG=C", "CPU_AFFINITY_CONF=" + text])
    assert word == "CPU_AFFINITY_CONF=" + text
    sets = [cpus_of(parsed, number, 4, HOST, version) for version in (OLD, NEW)]
    assert [cpus if cpus is None else compress(cpus) for cpus in sets] == [before, since]


OFF = [[], ["CPU_AFFINITY_CONF=0,npu0:0-5"], ["CPU_AFFINITY_CONF=on"], ["CPU_AFFINITY_CONFIG=2"], ["MY_CPU_AFFINITY_CONF=1"]]


@pytest.mark.parametrize("words", OFF)
def test_what_switches_nothing_on_is_no_setting(words):
    assert setting(words) is None
    assert setting(["CPU_AFFINITY_CONF=2,force:1,bind_irq:1,lazy_bind:0", *words])[1].switches == {"force", "bind_irq"}

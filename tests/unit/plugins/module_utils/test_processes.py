# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads on the CPUs of their roles: in made-up trees, and of real processes on this machine."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
from tests.fakes.workers import RealWorker, allowed, npu, process

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.threads import placing
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import cpus_of_roles, lines, place, put_back, role_of
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.watching import Threads

PLAN = {"npus": [npu(0, 0), npu(1, 8), npu(2, 16)]}
WORKER = ["VLLM::Worker", "acl_thread", "release_thread", "pt_data_pin"]


def states(report):
    return {entry["name"]: entry["state"] for row in report.processes for entry in row["threads"]}


@pytest.mark.parametrize(
    "name, patterns, role",
    [
        ("acl_thread", {}, "acl"),
        ("acl_thread_2", {}, "acl"),
        ("release_thread", {}, "release"),
        ("VLLM::Worker", {}, "main"),
        ("my_acl_thread", {}, "main"),
        ("uvb_poll_window", {}, "leave"),
        ("KVCacheSendingT", {}, "kv"),  # of KVCacheSendingThread, by the kernel
        ("KVCacheRecvingT", {}, "kv"),
        ("ascend-wk-15", {}, "kv"),
        ("vllm-mooncake-s", {}, "kv"),  # of vllm-mooncake-sender_0
        ("mooncake_client", {}, "kv"),
        ("AccWrk:3", {}, "kv"),
        ("lmc-staging-cop", {}, "kv"),
        ("ucm_worker", {"kv": ["ucm*"]}, "kv"),
        ("KVCacheSendingT", {"kv": []}, "main"),
        ("my_acl_thread", {"acl": ["*acl_thread"]}, "acl"),
        ("acl_thread", {"acl": ["*acl_thread"], "leave": ["acl*"]}, "leave"),
        ("release_thread", {"release": []}, "main"),
    ],
)
def test_the_role_of_a_thread_is_in_its_name(name, patterns, role):
    assert role_of(name, dict(placing.PATTERNS, **patterns)) == role


@pytest.mark.parametrize(
    "npus, online, granted, roles, sentences",
    [
        ([npu(0, 0)], "0-31", None, ("2-5", "6", "7"), []),
        ([npu(0, 0)], "0-31", "0-7", ("2-5", "6", "7"), []),
        ([npu(0, 0), npu(1, 8)], "0-31", None, ("2-5,10-13", "6,14", "7,15"), []),
        ([npu(0, 0, irq="", main="0-7", acl="", release="")], "0-31", None, ("0-7", "0-7", "0-7"), []),
        ([{"id": 0, "pool": "0-7"}], "0-31", None, ("0-7", "0-7", "0-7"), []),
        ([npu(0, 0)], "0-5,7", None, ("2-5", "2-5", "7"), ["CPU 6 of role acl is offline; its threads get CPUs 2-5"]),
        ([npu(0, 0)], "0-4,6-7", None, ("2-4", "6", "7"), ["CPU 5 of role main is offline; its threads get CPUs 2-4"]),
        (
            [npu(0, 0)],
            "0-1,7",
            None,
            ("0-1,7", "0-1,7", "7"),
            [
                "CPU 2-5 of role main is offline; its threads get CPUs 0-1,7",
                "CPU 6 of role acl is offline; its threads get CPUs 0-1,7",
            ],
        ),
        (
            [npu(0, 0)],
            "0-5,7",
            "4-6",
            ("4-5", "4-5", "4-5"),
            [
                "CPU 2-3 of role main is not granted by the cgroup; its threads get CPUs 4-5",
                "CPU 6 of role acl is offline; its threads get CPUs 4-5",
                "CPU 7 of role release is not granted by the cgroup; its threads get CPUs 4-5",
            ],
        ),
        ([npu(0, 0)], "9", None, ("", "", ""), []),
        ([npu(0, 0)], "0-31", "9", ("", "", ""), []),
    ],
)
def test_roles_have_cpus_of_the_pool_that_may_be_used(npus, online, granted, roles, sentences):
    found, said = cpus_of_roles(npus, set(expand(online)), granted and set(expand(granted)))
    assert tuple(compress(found[role]) for role in ("main", "acl", "release")) == roles
    assert [text for _role, text in said] == sentences


@pytest.fixture
def host(tree):
    tree.write({"/sys/devices/system/cpu/online": "0-31"})
    process(tree, 100, "/npu.slice/npu-0.slice/vllm.scope", WORKER, "0-7", granted="0-7")
    process(tree, 200, "/npu.slice/npu-1.slice/vllm.scope", WORKER, "8-15", granted="8-15")
    process(tree, 900, "/system.slice/cron.service", ["cron", "acl_thread"])
    process(tree, 950, "/kubepods.slice/npu-0.slice", ["acl_thread"])
    return tree.host


def test_threads_move_to_the_cpus_of_their_role_and_others_stay(tree, host):
    report = place(host, PLAN)
    assert report.changed and not report.failed
    assert allowed(tree, 100) == {"VLLM::Worker": "2-5", "acl_thread": "6", "release_thread": "7", "pt_data_pin": "2-5"}
    assert allowed(tree, 200) == {"VLLM::Worker": "10-13", "acl_thread": "14", "release_thread": "15", "pt_data_pin": "10-13"}
    assert allowed(tree, 900) == {"cron": "0-31", "acl_thread": "0-31"}
    assert allowed(tree, 950) == {"acl_thread": "0-31"}
    assert list(lines(report))[:2] == [
        "process 100 (VLLM::Worker) of NPU 0: each of 2 threads (VLLM::Worker, pt_data_pin) moved from CPUs 0-7 to 2-5",
        "process 100 (VLLM::Worker) of NPU 0: thread 101 (acl_thread) moved from CPUs 0-7 to 6",
    ]


def test_a_second_run_changes_nothing_and_a_check_never_does(tree, host):
    predicted = place(host, PLAN, check=True)
    assert allowed(tree, 100)["acl_thread"] == "0-7"
    done = place(host, PLAN)
    for name in ("changed", "processes", "warnings", "failed"):
        assert getattr(predicted, name) == getattr(done, name)
    again = place(host, PLAN)
    assert not again.changed and set(states(again).values()) == {"placed"}


def test_only_the_asked_processes_are_touched(tree, host):
    report = place(host, PLAN, [{"npus": [1]}])
    assert [row["pid"] for row in report.processes] == [200]
    assert allowed(tree, 100)["acl_thread"] == "0-7"


@pytest.mark.parametrize(
    "kv, role, placed",
    [
        (None, "main", "2-5"),
        ("", "main", "2-5"),
        ("4-5", "kv", "4-5"),
    ],
)
def test_kv_transfer_threads_have_a_role_if_the_plan_has_cpus(tree, host, kv, role, placed):
    process(tree, 300, "/npu.slice/npu-0.slice/decode.service", ["VLLM::Worker", "acl_thread", "KVCacheSendingT", "ascend-wk-0"], "0-7")
    entry = npu(0, 0, **({} if kv is None else {"kv": kv, "main": "2-3" if kv else "2-5"}))
    report = place(host, {"npus": [entry]})
    found = {row["name"]: row["role"] for row in report.processes[-1]["threads"]}
    assert found == {"VLLM::Worker": "main", "acl_thread": "acl", "KVCacheSendingT": role, "ascend-wk-0": role}
    assert allowed(tree, 300) == {"VLLM::Worker": entry["main"], "acl_thread": "6", "KVCacheSendingT": placed, "ascend-wk-0": placed}
    assert not place(host, {"npus": [entry]}).changed


def test_patterns_leave_threads_alone(tree, host):
    report = place(host, PLAN, [{"npus": [0]}], {"leave": ["pt_*"], "acl": None})
    assert states(report) == {"VLLM::Worker": "moved", "acl_thread": "moved", "release_thread": "moved", "pt_data_pin": "left"}
    assert allowed(tree, 100)["pt_data_pin"] == "0-7"


@pytest.mark.parametrize(
    "setting, left",
    [
        ("CPU_AFFINITY_CONF=2,npu0:0-5", True),
        ("CPU_AFFINITY_CONF=mode:1,npu_affine:1", True),
        ("CPU_AFFINITY_CONF=0", False),
        ("CPU_AFFINITY_CONFIG=2", False),
        ("MY_CPU_AFFINITY_CONF=1", False),
    ],
)
def test_threads_that_torch_npu_places_are_left_alone(tree, host, setting, left):
    tree.write({"/proc/100/environ": "LANG=C\0%s\0PATH=/bin" % setting})
    report = place(host, PLAN)
    assert allowed(tree, 100)["acl_thread"] == ("0-7" if left else "6") and allowed(tree, 200)["acl_thread"] == "14"
    sentence = "process 100 (VLLM::Worker) of NPU 0 has %s: torch_npu places its threads, and they are left alone; " % setting
    assert sum(text.startswith(sentence) for text in report.warnings) == left
    assert [row["threads"] for row in report.processes].count([]) == left


def test_released_threads_run_on_all_that_their_cgroup_grants(tree, host):
    place(host, PLAN)
    tree.write({"/sys/fs/cgroup/npu.slice/npu-1.slice/vllm.scope/cpuset.cpus.effective": "0-31"})
    report = place(host, PLAN, release=True)
    assert report.changed and not report.failed
    assert (set(allowed(tree, 100).values()), set(allowed(tree, 200).values())) == ({"0-7"}, {"0-31"})
    assert not place(host, PLAN, release=True).changed


def test_undoing_a_release_returns_threads_to_where_they_were(tree, host):
    place(host, PLAN)
    before = allowed(tree, 100), allowed(tree, 200)
    report = place(host, PLAN, release=True)
    assert (allowed(tree, 100), allowed(tree, 200)) != before
    put_back(host, report)
    assert (allowed(tree, 100), allowed(tree, 200)) == before


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("granted, online", [("16-22", "0-15"), ("0-1", "0-31")])
def test_a_process_without_pool_cpus_fails_and_the_others_move(tree, host, check, granted, online):
    tree.write({"/sys/devices/system/cpu/online": online})
    process(tree, 300, "/npu.slice/npu-2.slice", WORKER, "16-22", granted=granted)
    report = place(host, PLAN, check=check)
    assert report.failed[1] == (
        "process 300 (VLLM::Worker) of NPU 2: thread 301 (acl_thread) is refused the CPUs 22 of role acl: it may use CPUs %s, and none of "
        "the pool; start it in the slice of its device, or widen its cpuset" % ("(none)" if online == "0-15" else "0-1")
    )
    assert set(allowed(tree, 300).values()) == {"16-22"}
    assert allowed(tree, 100)["acl_thread"] == ("0-7" if check else "6")


def test_an_inner_slice_gives_its_own_share_of_each_role(tree, host):
    process(tree, 300, "/npu.slice/npu-2.slice/npu-2-half.slice", WORKER, "16-22", granted="16,18-19,22")
    report = place(host, PLAN)
    assert allowed(tree, 300) == {"VLLM::Worker": "18-19", "pt_data_pin": "18-19", "acl_thread": "22", "release_thread": "18-19"}
    assert report.warnings[1:] == [
        "process 300 (VLLM::Worker) of NPU 2: CPU 20-21 of role main is not granted by the cgroup; its threads get CPUs 18-19",
        "process 300 (VLLM::Worker) of NPU 2: CPU 23 of role release is not granted by the cgroup; its threads get CPUs 18-19",
    ]
    again = place(host, PLAN)
    assert (again.changed, again.failed, list(lines(again))) == (False, [], [])


def test_a_thread_that_ends_before_it_is_read_is_no_failure(tree, host):
    os.unlink(tree.root + "/proc/100/task/101/status")
    report = place(host, PLAN)
    assert (states(report)["VLLM::Worker"], report.processes[0]["threads"][1]["state"], report.failed) == ("moved", "gone", [])


@pytest.mark.parametrize(
    "error, state, text",
    [
        (errno.ESRCH, "gone", ""),
        (errno.EINVAL, "refused", "is refused the CPUs 6 of role acl: the kernel answers Invalid argument"),
        (errno.EPERM, "failed", "could not be moved to CPUs 6 (Operation not permitted); run as root on the machine itself"),
    ],
)
def test_what_the_kernel_answers_is_told_per_thread(tree, host, monkeypatch, error, state, text):
    write = placing.Thread.write

    def refusing(self, host, cpus):
        if self.name == "acl_thread":
            raise OSError(error, os.strerror(error))
        write(self, host, cpus)

    monkeypatch.setattr(placing.Thread, "write", refusing)
    report = place(host, PLAN, [{"npus": [0]}])
    assert states(report) == {"VLLM::Worker": "moved", "acl_thread": state, "release_thread": "moved", "pt_data_pin": "moved"}
    assert text in "".join(report.failed) and bool(report.failed) == bool(text)


def test_a_thread_that_something_else_moves_back_is_named(tree, host, monkeypatch):
    monkeypatch.setattr(placing.Thread, "write", lambda self, host, cpus: None)
    report = place(host, PLAN, [{"npus": [0]}])
    assert report.failed[1] == (
        "process 100 (VLLM::Worker) of NPU 0: thread 101 (acl_thread) was moved to CPUs 6 and is on 0-7: something else moves it"
    )


def test_the_watcher_does_the_same_by_its_settings(tree, host, capsys):
    watcher = Threads(tree.host)
    assert not watcher.look()
    settings = {"about": "Managed by npu.affinity", "processes": [{"npus": [1], "unit": "vllm.service"}], "patterns": {"leave": ["pt_*"]}}
    tree.write({"/etc/npu-affinity/plan.json": json.dumps(PLAN), "/etc/npu-affinity/threads.json": json.dumps(settings)})
    process(tree, 400, "/system.slice/vllm.service", WORKER)
    assert watcher.look()
    assert "process 400 (VLLM::Worker) of NPU 1: thread 401 (acl_thread) moved from CPUs 0-31 to 14\n" in capsys.readouterr().out
    assert allowed(tree, 100)["acl_thread"] == "0-7"
    assert allowed(tree, 400)["pt_data_pin"] == "0-31"
    assert (watcher.look(), capsys.readouterr().out) == (True, "")
    assert watcher.concerns("0::/system.slice/vllm.service/inner\n") and not watcher.concerns("0::/system.slice/vllm@1.service\n")
    assert watcher.knows(400) and not watcher.knows(100)


@pytest.mark.parametrize("plan, answer", [("{", "is not valid JSON"), ("{}", "no list 'npus'")])
def test_the_watcher_says_once_what_is_wrong_with_the_plan(tree, capsys, plan, answer):
    tree.write({"/etc/npu-affinity/plan.json": plan, "/etc/npu-affinity/threads.json": "{}"})
    watcher = Threads(tree.host)
    assert watcher.look() and watcher.look()
    assert capsys.readouterr().out.count(answer) == 1


CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs to tell roles apart")


def real_plan():
    """A plan whose NPU 0 has the first two CPUs of this machine."""
    pool = compress(CPUS[:2])
    return {"npus": [npu(0, 0, pool=pool, irq="", main=str(CPUS[0]), acl=str(CPUS[1]), release=str(CPUS[1]), slice="npu-0.slice")]}


@two_cpus
def test_the_threads_of_a_real_process_are_placed_and_released():
    with RealWorker("acl_thread", "release_thread", "uvb_poll_window") as worker, RealWorker("acl_thread") as neighbour:
        wanted = [{"npus": [0], "pids": [worker.pid]}]
        before, other = worker.affinities(), neighbour.affinities()
        predicted = place(Host(), real_plan(), wanted, check=True)
        assert worker.affinities() == before
        done = place(Host(), real_plan(), wanted)
        assert (predicted.changed, done.changed, done.failed) == (True, True, [])
        after = worker.affinities()
        main = next(name for name in after if name not in ("acl_thread", "release_thread", "uvb_poll_window"))
        assert {name: after[name] for name in ("acl_thread", "release_thread", main)} == {
            "acl_thread": {CPUS[1]},
            "release_thread": {CPUS[1]},
            main: {CPUS[0]},
        }
        assert after["uvb_poll_window"] == before["uvb_poll_window"]
        assert neighbour.affinities() == other
        assert not place(Host(), real_plan(), wanted).changed
        worker.start_thread("acl_thread_late")
        assert worker.affinities()["acl_thread_late"] == {CPUS[0]}
        assert place(Host(), real_plan(), wanted).changed
        assert worker.affinities()["acl_thread_late"] == {CPUS[1]}
        place(Host(), real_plan(), wanted, release=True)
        assert worker.affinities()["acl_thread"] >= set(CPUS)


@two_cpus
def test_what_is_reported_is_what_psutil_sees():
    import psutil

    with RealWorker("acl_thread", "release_thread") as worker:
        report = place(Host(), real_plan(), [{"npus": [0], "pids": [worker.pid]}])
        for entry in report.processes[0]["threads"]:
            assert set(psutil.Process(entry["tid"]).cpu_affinity()) == set(expand(entry["after"])) <= set(CPUS[:2])


@two_cpus
def test_a_process_that_ends_meanwhile_is_no_failure(monkeypatch):
    with RealWorker("acl_thread") as worker:
        write = placing.Thread.write

        def last_words(self, host, cpus):
            worker.process.kill()
            worker.process.wait()
            write(self, host, cpus)

        monkeypatch.setattr(placing.Thread, "write", last_words)
        report = place(Host(), real_plan(), [{"npus": [0], "pids": [worker.pid]}])
        assert set(states(report).values()) == {"gone"} and report.failed == []


HIERARCHIES = ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/systemd")


@pytest.fixture
def real_slice():
    """A slice of this machine's cgroups whose cpuset has the first CPU only: its name, and a function that moves a process there."""
    name = "npu_test%d.slice" % os.getpid()
    folders = ["%s/%s" % (top, name) for top in HIERARCHIES]
    try:
        for folder in folders:
            os.mkdir(folder)
        for key, value in (("cpus", str(CPUS[0])), ("mems", "0")):
            with open("%s/cpuset.%s" % (folders[0], key), "w") as file:
                file.write(value)
    except OSError as error:
        for folder in folders:
            if os.path.isdir(folder):
                os.rmdir(folder)
        pytest.skip("needs cgroups that can be written: %s" % error)

    def enter(pid):
        for folder in folders:
            with open(folder + "/cgroup.procs", "w") as file:
                file.write(str(pid))

    yield name, enter
    for folder in folders:
        os.rmdir(folder)


@two_cpus
def test_a_real_cpuset_lacking_a_roles_cpus_uses_those_of_main(real_slice):
    name, enter = real_slice
    with RealWorker("acl_thread") as worker:
        enter(worker.pid)
        report = place(Host(), real_plan(), [{"npus": [0], "slice": name}])
        assert [(row["pid"], row["found_by"]) for row in report.processes] == [(worker.pid, name)]
        role = "CPU %d of role acl is not granted by the cgroup; its threads get CPUs %d" % (CPUS[1], CPUS[0])
        assert (report.failed, report.warnings) == ([], ["%s: %s" % (report.processes[0]["title"], role)])
        assert set(map(frozenset, worker.affinities().values())) == {frozenset(CPUS[:1])}


@two_cpus
@pytest.mark.parametrize("told", [True, False], ids=["by the cgroup", "by the kernel"])
def test_a_real_cpuset_refuses_in_words(real_slice, monkeypatch, told):
    name, enter = real_slice
    if not told:
        monkeypatch.setattr(placing, "cpuset", lambda host, pid: None)
    elsewhere = {"npus": [npu(0, 0, pool=str(CPUS[1]), irq="", main=str(CPUS[1]), acl="", release="")]}
    with RealWorker("acl_thread") as worker:
        enter(worker.pid)
        report = place(Host(), elsewhere, [{"npus": [0], "slice": name}])
        assert "(acl_thread) is refused the CPUs %d of role acl" % CPUS[1] in report.failed[-1]
        reason = "it may use CPUs %d, and none of the pool" % CPUS[0] if told else "the kernel answers Invalid argument"
        assert all(reason in sentence for sentence in report.failed)
        assert set(map(frozenset, worker.affinities().values())) == {frozenset(CPUS[:1])}


AS_NOBODY = """
import json, os, sys
from %s import Host, place
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(json.dumps(place(Host(), *map(json.loads, sys.argv[1:])).failed))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to become another user")
def test_without_rights_the_sentence_says_so():
    with RealWorker("acl_thread") as worker:
        wanted = [{"npus": [0], "pids": [worker.pid]}]
        command = [sys.executable, "-c", AS_NOBODY % placing.__name__, json.dumps(real_plan()), json.dumps(wanted)]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        answer = subprocess.check_output(command, env=environment, universal_newlines=True)
        assert "could not be moved to CPUs" in answer and "run as root on the machine itself" in answer

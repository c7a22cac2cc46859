# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads on the CPUs of their roles, in made-up trees and of real processes: placed, compared with their roles, and let go."""

import errno
import json
import os
import subprocess
import sys
import tempfile

import hypothesis
import pytest
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Findings
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Comparing, Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.threads import placing
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.memory import PROGRESS
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import SETTINGS, cpus_of_roles, moves, place, restore
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import role_of
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.watching import Threads
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import Killed, Steps
from tests.fakes.workers import RealWorker, Tree, allowed, npu, process

PLAN = {"npus": [npu(0, 0), npu(1, 8), npu(2, 16)]}
WORKER = ["VLLM::Worker", "acl_thread", "release_thread", "pt_data_pin"]


def states(report):
    return {entry["name"]: entry["state"] for row in report.processes for entry in row["threads"]}


ROLES = [
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
    ("acl_thread", {"acl": ["*acl_thread"], "leave": ["acl*"]}, "leave"),
]


@pytest.mark.parametrize("name, patterns, role", ROLES)
def test_the_role_of_a_thread_is_in_its_name(name, patterns, role):
    assert role_of(name, dict(placing.PATTERNS, **patterns)) == role


OFFLINE = "CPU %s of role %s is offline; its threads get CPUs %s"
DENIED = "CPU %s of role %s is not granted by the cgroup; its threads get CPUs %s"
WITHOUT_MAIN = [OFFLINE % ("2-5", "main", "0-1,7"), OFFLINE % ("6", "acl", "0-1,7")]
NARROW = [DENIED % ("2-3", "main", "4-5"), OFFLINE % ("6", "acl", "4-5"), DENIED % ("7", "release", "4-5")]
MAY_USE = [
    # NPUs, CPUs that are online and that the cgroup grants, CPUs of main, acl and release, and what is said
    ([npu(0, 0)], "0-31", None, ("2-5", "6", "7"), []),
    ([npu(0, 0)], "0-31", "0-7", ("2-5", "6", "7"), []),
    ([npu(0, 0), npu(1, 8)], "0-31", None, ("2-5,10-13", "6,14", "7,15"), []),
    ([npu(0, 0, irq="", main="0-7", acl="", release="")], "0-31", None, ("0-7", "0-7", "0-7"), []),
    ([{"id": 0, "pool": "0-7"}], "0-31", None, ("0-7", "0-7", "0-7"), []),
    ([npu(0, 0)], "0-5,7", None, ("2-5", "2-5", "7"), [OFFLINE % ("6", "acl", "2-5")]),
    ([npu(0, 0)], "0-4,6-7", None, ("2-4", "6", "7"), [OFFLINE % ("5", "main", "2-4")]),
    ([npu(0, 0)], "0-1,7", None, ("0-1,7", "0-1,7", "7"), WITHOUT_MAIN),
    ([npu(0, 0)], "0-5,7", "4-6", ("4-5", "4-5", "4-5"), NARROW),
    ([npu(0, 0)], "9", None, ("", "", ""), []),
    ([npu(0, 0)], "0-31", "9", ("", "", ""), []),
]


@pytest.mark.parametrize("npus, online, granted, roles, sentences", MAY_USE)
def test_roles_have_cpus_of_the_pool_that_may_be_used(npus, online, granted, roles, sentences):
    cpus, texts = cpus_of_roles(npus, set(expand(online)), granted and set(expand(granted)))
    assert tuple(compress(cpus[role]) for role in ("main", "acl", "release")) == roles
    assert [text for _role, text in texts] == sentences


@pytest.fixture
def host(tree):
    tree.write({"/sys/devices/system/cpu/online": "0-31"})
    process(tree, 100, "/npu.slice/npu-0.slice/vllm.scope", WORKER, "0-7", granted="0-7")
    process(tree, 200, "/npu.slice/npu-1.slice/vllm.scope", WORKER, "8-15", granted="8-15")
    process(tree, 900, "/system.slice/cron.service", ["cron", "acl_thread"])
    process(tree, 950, "/kubepods.slice/npu-0.slice", ["acl_thread"])
    return tree.host


def test_threads_move_to_the_cpus_of_their_role_and_others_stay(tree, host):
    predicted = place(host, PLAN, check=True)
    assert allowed(tree, 100)["acl_thread"] == "0-7"
    report = place(host, PLAN)
    assert vars(predicted) == vars(report) and report.changed and not report.failed
    assert allowed(tree, 100) == {"VLLM::Worker": "2-5", "acl_thread": "6", "release_thread": "7", "pt_data_pin": "2-5"}
    assert allowed(tree, 200) == {"VLLM::Worker": "10-13", "acl_thread": "14", "release_thread": "15", "pt_data_pin": "10-13"}
    assert (allowed(tree, 900), allowed(tree, 950)) == ({"cron": "0-31", "acl_thread": "0-31"}, {"acl_thread": "0-31"})
    assert moves(report.processes)[:2] == [
        "process 100 (VLLM::Worker) of NPU 0: each of 2 threads (VLLM::Worker, pt_data_pin) moved from CPUs 0-7 to 2-5",
        "process 100 (VLLM::Worker) of NPU 0: thread 101 (acl_thread) moved from CPUs 0-7 to 6",
    ]
    again = place(host, PLAN)
    assert not again.changed and set(states(again).values()) == {"placed"}


@pytest.mark.parametrize("kv, role, placed", [(None, "main", "2-5"), ("", "main", "2-5"), ("4-5", "kv", "4-5")])
def test_kv_transfer_threads_have_a_role_if_the_plan_has_cpus(tree, host, kv, role, placed):
    process(tree, 300, "/npu.slice/npu-0.slice/decode.service", ["VLLM::Worker", "acl_thread", "KVCacheSendingT", "ascend-wk-0"], "0-7")
    entry = npu(0, 0, **({} if kv is None else {"kv": kv, "main": "2-3" if kv else "2-5"}))
    report = place(host, {"npus": [entry]})
    roles = {row["name"]: row["role"] for row in report.processes[-1]["threads"]}
    assert roles == {"VLLM::Worker": "main", "acl_thread": "acl", "KVCacheSendingT": role, "ascend-wk-0": role}
    assert allowed(tree, 300) == {"VLLM::Worker": entry["main"], "acl_thread": "6", "KVCacheSendingT": placed, "ascend-wk-0": placed}
    assert not place(host, {"npus": [entry]}).changed


@pytest.mark.parametrize("setting, stays", [("CPU_AFFINITY_CONF=mode:1,npu_affine:1", True), ("CPU_AFFINITY_CONF=0", False)])
def test_threads_that_torch_npu_places_are_left_alone(tree, host, setting, stays):
    tree.write({"/proc/100/environ": "LANG=C\0%s\0PATH=/bin" % setting})
    report = place(host, PLAN)
    assert allowed(tree, 100)["acl_thread"] == ("0-7" if stays else "6") and allowed(tree, 200)["acl_thread"] == "14"
    sentence = "process 100 (VLLM::Worker) of NPU 0 has %s: torch_npu places its threads, and they are left alone; " % setting
    assert sum(text.startswith(sentence) for text in report.warnings) == stays
    assert [row["threads"] for row in report.processes].count([]) == stays


def test_released_threads_run_on_all_that_their_cgroup_grants(tree, host):
    place(host, PLAN)
    before = allowed(tree, 100), allowed(tree, 200)
    tree.write({"/sys/fs/cgroup/npu.slice/npu-1.slice/vllm.scope/cpuset.cpus.effective": "0-31"})
    report = place(host, PLAN, widen=True)
    assert report.changed and not report.failed
    assert (set(allowed(tree, 100).values()), set(allowed(tree, 200).values())) == ({"0-7"}, {"0-31"})
    assert not place(host, PLAN, widen=True).changed
    restore(host, report)
    assert (allowed(tree, 100), allowed(tree, 200)) == before, "an undone release"


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("granted, online, may_use", [("16-22", "0-15", "(none)"), ("0-1", "0-31", "0-1")])
def test_a_process_without_pool_cpus_fails_and_the_others_move(tree, host, check, granted, online, may_use):
    tree.write({"/sys/devices/system/cpu/online": online})
    process(tree, 300, "/npu.slice/npu-2.slice", WORKER, "16-22", granted=granted)
    report = place(host, PLAN, check=check)
    assert report.failed[1] == (
        "process 300 (VLLM::Worker) of NPU 2: thread 301 (acl_thread) is refused the CPUs 22 of role acl: it may use CPUs %s, and none of "
        "the pool; start it in the slice of its device, or widen its cpuset" % may_use
    )
    assert set(allowed(tree, 300).values()) == {"16-22"}
    assert allowed(tree, 100)["acl_thread"] == ("0-7" if check else "6")


def test_an_inner_slice_gives_its_own_share_of_each_role(tree, host):
    process(tree, 300, "/npu.slice/npu-2.slice/npu-2-half.slice", WORKER, "16-22", granted="16,18-19,22")
    report = place(host, PLAN)
    assert allowed(tree, 300) == {"VLLM::Worker": "18-19", "pt_data_pin": "18-19", "acl_thread": "22", "release_thread": "18-19"}
    texts = [DENIED % ("20-21", "main", "18-19"), DENIED % ("23", "release", "18-19")]
    assert report.warnings[1:] == ["process 300 (VLLM::Worker) of NPU 2: " + text for text in texts]
    again = place(host, PLAN)
    assert (again.changed, again.failed, moves(again.processes)) == (False, [], [])


def test_threads_that_patterns_name_or_that_have_ended_stay(tree, host):
    report = place(host, PLAN, [{"npus": [0]}], {"leave": ["pt_*"], "acl": None})
    assert states(report) == {"VLLM::Worker": "moved", "acl_thread": "moved", "release_thread": "moved", "pt_data_pin": "left"}
    assert allowed(tree, 100)["pt_data_pin"] == "0-7"
    os.unlink(tree.root + "/proc/100/task/101/status")
    report = place(host, PLAN)
    assert (report.processes[0]["threads"][1]["state"], report.failed) == ("gone", [])


MOVED_BACK = "process 100 (VLLM::Worker) of NPU 0: thread 101 (acl_thread) was moved to CPUs 6 and is on 0-7: something else moves it"
ANSWERS = [
    (errno.ESRCH, "gone", ""),
    (errno.EINVAL, "refused", "is refused the CPUs 6 of role acl: the kernel answers Invalid argument"),
    (errno.EPERM, "failed", "could not be moved to CPUs 6 (Operation not permitted); run as root on the machine itself"),
    (None, "failed", MOVED_BACK),
]


@pytest.mark.parametrize("error, state, text", ANSWERS)
def test_what_the_kernel_answers_is_told_per_thread(tree, host, monkeypatch, error, state, text):
    write = placing.Thread.write

    def answering(self, host, cpus):
        if self.name != "acl_thread":
            write(self, host, cpus)
        elif error:
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(placing.Thread, "write", answering)
    report = place(host, PLAN, [{"npus": [0]}])
    assert states(report) == {"VLLM::Worker": "moved", "acl_thread": state, "release_thread": "moved", "pt_data_pin": "moved"}
    assert text in "".join(report.failed) and bool(report.failed) == bool(text)


def test_the_watcher_does_the_same_by_its_settings(tree, host, capsys):
    watcher = Threads(tree.host)
    assert not watcher.look()
    settings = {"about": "Managed by npu.affinity", "processes": [{"npus": [1], "unit": "vllm.service"}], "patterns": {"leave": ["pt_*"]}}
    tree.write({"/etc/npu-affinity/plan.json": json.dumps(PLAN), "/etc/npu-affinity/threads.json": json.dumps(settings)})
    process(tree, 400, "/system.slice/vllm.service", WORKER)
    assert watcher.look()
    assert "process 400 (VLLM::Worker) of NPU 1: thread 401 (acl_thread) moved from CPUs 0-31 to 14\n" in capsys.readouterr().out
    assert (allowed(tree, 100)["acl_thread"], allowed(tree, 400)["pt_data_pin"]) == ("0-7", "0-31")
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
    import psutil

    with RealWorker("acl_thread", "release_thread", "uvb_poll_window") as worker, RealWorker("acl_thread") as neighbour:
        wanted = [{"npus": [0], "pids": [worker.pid]}]
        before, other = worker.affinities(), neighbour.affinities()
        predicted = place(Host(), real_plan(), wanted, check=True)
        assert worker.affinities() == before
        done = place(Host(), real_plan(), wanted)
        assert (predicted.changed, done.changed, done.failed) == (True, True, [])
        for entry in done.processes[0]["threads"]:
            assert set(psutil.Process(entry["tid"]).cpu_affinity()) == set(expand(entry["after"]))
        after = worker.affinities()
        (main,) = set(after) - {"acl_thread", "release_thread", "uvb_poll_window"}
        placed = {"acl_thread": {CPUS[1]}, "release_thread": {CPUS[1]}, main: {CPUS[0]}, "uvb_poll_window": before["uvb_poll_window"]}
        assert after == placed and neighbour.affinities() == other
        assert not place(Host(), real_plan(), wanted).changed
        worker.start_thread("acl_thread_late")
        assert worker.affinities()["acl_thread_late"] == {CPUS[0]}
        assert place(Host(), real_plan(), wanted).changed
        assert worker.affinities()["acl_thread_late"] == {CPUS[1]}
        place(Host(), real_plan(), wanted, widen=True)
        assert worker.affinities()["acl_thread"] >= set(CPUS)


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

    def write(folder, file, value):
        with open("%s/%s" % (folder, file), "w") as opened:
            opened.write(str(value))

    try:
        for folder in folders:
            os.mkdir(folder)
        write(folders[0], "cpuset.cpus", CPUS[0])
        write(folders[0], "cpuset.mems", 0)
        yield name, lambda pid: [write(folder, "cgroup.procs", pid) for folder in folders]
    except OSError as error:
        pytest.skip("needs cgroups that can be written: %s" % error)
    finally:
        for folder in filter(os.path.isdir, folders):
            os.rmdir(folder)


@two_cpus
def test_a_real_cpuset_refuses_in_words(real_slice, monkeypatch):
    name, enter = real_slice
    elsewhere = {"npus": [npu(0, 0, pool=str(CPUS[1]), irq="", main=str(CPUS[1]), acl="", release="")]}
    with RealWorker("acl_thread") as worker:
        enter(worker.pid)
        for reason in ("it may use CPUs %d, and none of the pool" % CPUS[0], "the kernel answers Invalid argument"):
            report = place(Host(), elsewhere, [{"npus": [0], "slice": name}])
            assert "(acl_thread) is refused the CPUs %d of role acl" % CPUS[1] in report.failed[-1]
            assert all(reason in sentence for sentence in report.failed)
            assert set(map(frozenset, worker.affinities().values())) == {frozenset(CPUS[:1])}
            monkeypatch.setattr(placing, "cpuset", lambda host, pid: None)


AS_NOBODY = """
import json, os, sys
from %s import Host, place
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(json.dumps(place(Host(), *map(json.loads, sys.argv[1:])).failed))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to become another user")
def test_without_rights_the_sentence_says_so():
    with RealWorker("acl_thread") as worker:
        arguments = [json.dumps(real_plan()), json.dumps([{"npus": [0], "pids": [worker.pid]}])]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        command = [sys.executable, "-c", AS_NOBODY % placing.__name__, *arguments]
        answer = subprocess.check_output(command, env=environment, universal_newlines=True)
        assert "could not be moved to CPUs" in answer and "run as root on the machine itself" in answer


NAMES = ["worker", "acl_thread", "release_thread", "uvb_poll_window", "pt_data"]
SETS = st.sets(st.integers(0, 15), min_size=1).map(frozenset)


@st.composite
def entries(draw, number):
    pool = draw(SETS)
    role = st.sets(st.sampled_from(sorted(pool))).map(compress)
    return npu(number, 0, pool=compress(pool), irq=draw(role), main=draw(role), acl=draw(role), release=draw(role), kv=draw(role))


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(st.tuples(entries(0), entries(1)), SETS, st.none() | SETS, st.booleans(), st.sets(st.sampled_from(NAMES), min_size=1))
def test_threads_reach_their_pool_or_stay_and_reruns_do_nothing(npus, online, granted, both, names):
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        tree.write({"/sys/devices/system/cpu/online": compress(online)})
        process(tree, 10, "/npu.slice/npu-0.slice/a.scope", sorted(names), "0-15", granted and compress(granted))
        process(tree, 20, "/npu.slice/npu-9.slice", sorted(names), "0-15")
        wanted = [{"npus": [0, 1] if both else [0], "slice": "npu-0.slice"}]
        pool = {cpu for entry in npus[: 1 + both] for cpu in expand(entry["pool"])}
        report = place(tree.host, {"npus": list(npus)}, wanted)
        usable = pool & online & (granted or online)
        (row,) = report.processes
        for entry in row["threads"]:
            after = set(expand(entry["after"]))
            if entry["role"] == "leave":
                assert entry["state"] == "left" and entry["before"] == entry["after"]
            elif usable:
                assert entry["state"] in ("moved", "placed") and after & online and after & online <= usable
            else:
                assert entry["state"] == "refused" and entry["before"] == entry["after"] and report.failed
        assert not place(tree.host, {"npus": list(npus)}, wanted).changed


PLACED = {"about": "Managed by npu.affinity", "npus": [npu(0, 0)]}
OURS = {"about": "Managed by npu.affinity: changes are overwritten.", "patterns": {}, "processes": []}


def bound(tree):
    """A host whose threads were placed, which an unbind lets go."""
    tree.write({"/sys/devices/system/cpu/online": "0-15", "/etc/npu-affinity/plan.json": json.dumps(PLACED), SETTINGS: json.dumps(OURS)})
    tree.write({PROGRESS: "{}", "/etc/npu-affinity/previous.json": json.dumps({"about": "Managed by npu.affinity", "folders": []})})
    process(tree, 100, "/npu.slice/npu-0.slice", ["worker", "acl_thread"], "0-7", granted="0-7")
    place(tree.host, PLACED)
    return tree.host


def test_unbound_threads_get_all_their_cgroup_grants(tree):
    host = bound(tree)
    predicted = unbind(host, check=True)
    assert predicted.restored["threads"].report.changed and allowed(tree, 100) == {"worker": "2-5", "acl_thread": "6"}
    done = unbind(host)
    assert done.changed and not done.failed and not done.warnings
    assert allowed(tree, 100) == {"worker": "0-7", "acl_thread": "0-7"}
    assert not host.exists(SETTINGS) and not host.exists(PROGRESS)
    again = unbind(host)
    assert (again.bound, again.changed, again.restored["threads"].report) == (False, False, None)


def test_a_killed_unbind_releases_threads_when_repeated(tmp_path, monkeypatch):
    steps = Steps(monkeypatch)

    def twin(number):
        (tmp_path / str(number)).mkdir()
        host = bound(Tree(tmp_path / str(number)))

        def set_attribute(path, value):
            if steps.root:
                steps.step()
            Host.set_attribute(host, path, value)

        host.set_attribute = set_attribute
        return host

    for last, host in steps.endings(twin, Killed(), unbind):
        assert not unbind(host).failed
        assert allowed(host, 100) == {"worker": "0-7", "acl_thread": "0-7"}, last
        assert not host.exists("/etc/npu-affinity"), last


@pytest.mark.parametrize("text", ["[]", "{", json.dumps({**OURS, "processes": [{"npus": [9]}]})])
def test_useless_settings_are_a_warning_and_the_rest_is_undone(tree, text):
    host = bound(tree)
    tree.write({SETTINGS: text})
    assert "threads stay where they were placed until their processes end: " in unbind(host).warnings[0]
    assert not host.exists("/etc/npu-affinity/plan.json")


def compared(tree, processes=()):
    tree.write({"/sys/devices/system/cpu/online": "0-31"})
    findings = Findings()
    wanted = Wanted(live={"threads": {"processes": processes, "patterns": None}})
    FEATURE.compare(Comparing(findings, tree.host, {"npus": PLAN["npus"][:2]}, wanted, set(), set(), set()))
    return findings, [result_of(finding) for finding in findings.drift]


def test_placed_threads_are_no_drift_others_one_line_per_role(tree):
    process(tree, 100, "/npu.slice/npu-0.slice", ["worker", "acl_thread", "uvb_poll_window"], "0-7")
    process(tree, 200, "/npu.slice/npu-0.slice", ["server", "pool"], "0-7")
    place(tree.host, PLAN)
    clean, rows = compared(tree)
    assert (rows, clean.checked) == ([], {"threads": ["main threads of NPU 0", "acl threads of NPU 0"]})
    process(tree, 300, "/npu.slice/npu-0.slice", ["late", "pool", "acl_thread"], "0-7")
    _findings, rows = compared(tree)
    assert [(row["object"], row["expected"], row["found"], row["npu"]) for row in rows] == [
        ("main threads of NPU 0", "CPUs 2-5", "CPUs 0-7 of thread 300 (late) of process 300 (late) and 1 more", 0),
        ("acl threads of NPU 0", "CPUs 6", "CPUs 0-7 of thread 302 (acl_thread) of process 300 (late)", 0),
    ]
    assert rows[0]["remark"].startswith("started since the timer last looked") and set(allowed(tree, 300).values()) == {"0-7"}


def test_a_cpuset_refusal_is_drift_and_a_narrow_cpuset_a_remark(tree):
    process(tree, 100, "/npu.slice/npu-llm.slice", ["worker", "acl_thread"], "2", granted="2")
    process(tree, 200, "/npu.slice/npu-llm.slice/a.scope", ["worker", "acl_thread"], "20", granted="20")
    findings, rows = compared(tree, [{"npus": [0, 1], "slice": "npu-llm.slice"}])
    assert [(row["object"], row["npu"], row["expected"]) for row in rows] == [
        ("main threads of NPU 0 and NPU 1", None, "CPUs 2-5,10-13"),
        ("acl threads of NPU 0 and NPU 1", None, "CPUs 6,14"),
    ]
    word, remark = findings.drift[1].cause[:2]
    assert word == "changed cpuset" and remark.startswith("is refused the CPUs 6,14 of role acl: it may use CPUs 20, and none of the pool")
    texts = [DENIED % ("3-5,10-13", "main", "2"), DENIED % ("6,14", "acl", "2")]
    assert findings.remarks == ["process 100 (worker) of NPU 0 and NPU 1: %s [NPU_THREAD_UNPLACED]" % text for text in texts]

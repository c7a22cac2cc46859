# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watcher: what wakes it up, on the kernel that runs, and what it places then."""

import contextlib
import os
import select
import subprocess
import sys
import time
from unittest import mock

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._command import watch as program
from ansible_collections.npu.affinity.plugins.module_utils._command.watch import Budget, Groups, Schedule, Watch
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import device_opens
from ansible_collections.npu.affinity.plugins.module_utils._kernel.process_events import COMM, EXEC, Lost, ProcessEvents
from tests.fakes.watched import CPUS, Watched, one_at_a_time
from tests.fakes.workers import RealWorker

PATIENCE = 10.0


@pytest.fixture
def machine(tmp_path):
    yield from one_at_a_time(Watched, tmp_path)


@pytest.fixture
def start():
    """Start a worker by a command around it, and return it."""
    with contextlib.ExitStack() as started:
        yield lambda *around: started.enter_context(RealWorker(around=around))


def looked(machine):
    """Return a watcher that has looked at all processes, and will not for a while."""
    watch = Watch(machine)
    assert watch.look()
    watch.schedule.looked(time.monotonic(), 0)
    assert watch.schedule.pause(time.monotonic()) > 50
    return watch


def placed(watch, tid, cpus):
    """Watch until a thread has CPUs, and return whether it got them."""
    deadline = time.monotonic() + PATIENCE
    while os.sched_getaffinity(tid) != set(cpus) and time.monotonic() < deadline:
        watch.wait(0.1)
        if watch.schedule.pause(time.monotonic()) == 0:
            watch.look()
    return os.sched_getaffinity(tid) == set(cpus)


two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU has no other")


@two_cpus
def test_workers_are_placed_at_an_open_and_threads_at_a_name(machine, start, capsys):
    watch, worker = looked(machine), start()
    assert placed(watch, worker.open(machine.path("/dev/davinci0")), CPUS[:1])
    assert "of NPU 0: " in capsys.readouterr().out
    if watch.processes.descriptor < 0:
        pytest.skip(watch.processes.why)
    assert placed(watch, worker.start_thread("acl_thread"), CPUS[-1:])


@two_cpus
def test_a_container_opens_device_files_of_its_own(machine, start):
    watch = Watch(machine)
    if watch.processes.descriptor < 0:
        pytest.skip(watch.processes.why)
    script = 'mount -t tmpfs none /dev && mknod /dev/davinci0 c 1 5 && mknod /dev/null c 1 3 && exec "$@"'
    container = ["unshare", "--mount", "sh", "-c", script, "sh"]
    if subprocess.call([*container, "true"], stderr=subprocess.DEVNULL):
        pytest.skip("mounts are not allowed here")
    watch.look()
    worker = start(*container)
    watch.wait(1)
    assert placed(watch, worker.open("/dev/davinci0"), CPUS[:1])


@two_cpus
def test_without_fanotify_an_open_leads_to_a_look(machine, start, monkeypatch):
    monkeypatch.setattr(device_opens.Opens, "_mark_by_fanotify", lambda self, path: False)
    assert placed(looked(machine), start().open(machine.path("/dev/davinci0")), CPUS[:1])


def test_ranks_start_without_a_pause_and_storms_wait():
    budget, now, cost = Budget(0.0), 0.0, 0.0
    for _rank in range(16):
        assert budget.pause(now) == 0
        now, cost = now + 0.02, cost + 0.3
        budget.spent(now, 0.3)
    while now < 600:
        now, cost = now + max(budget.pause(now), 0.02) + 0.3, cost + 0.3
        budget.spent(now, 0.3)
    assert 0.1 < cost / now < 0.12


def test_lost_events_lead_to_one_look(machine, monkeypatch):
    watch = looked(machine)
    monkeypatch.setattr(watch.processes, "read", mock.Mock(side_effect=Lost))
    monkeypatch.setattr(watch.opens, "read", lambda: (set(), False))
    monkeypatch.setattr(program.select, "select", lambda fds, *_rest: (fds[:1], [], []))
    watch.wait(1)
    assert watch.schedule.pause(time.monotonic()) == 0
    assert watch.look() and watch.schedule.pause(time.monotonic() + 1) > 50


def test_the_kernel_tells_programs_and_names_only():
    events = ProcessEvents(Host())
    if events.descriptor < 0:
        pytest.skip(events.why)
    child = subprocess.Popen([sys.executable, "-c", "open('/proc/self/comm', 'w').write('acl_thread')"])
    child.wait()
    select.select([events.descriptor], [], [], PATIENCE)
    seen = events.read()
    assert {event.what for event in seen} <= {EXEC, COMM}
    assert {(event.what, event.thread) for event in seen if event.process == child.pid} == {(EXEC, child.pid), (COMM, child.pid)}


def test_another_root_has_no_events(tmp_path):
    watch = Watch(Host(str(tmp_path)))
    assert (watch.processes.descriptor, watch.opens.descriptors) == (-1, [])
    assert not watch.look(), "no feature is on"


ROOT, TMPFS = ("/", "overlay"), ("/dev", "tmpfs")
MOUNTS = [
    ([("/", "ext4"), ("/dev", "devtmpfs"), ("/dev/pts", "devpts")], "/proc/1/root/dev"),
    ([ROOT, TMPFS, ("/dev/davinci0", "devtmpfs")], "/proc/1/root/dev"),
    ([ROOT, TMPFS, ("/dev", "fuse")], ""),
    ([ROOT, TMPFS, ("/dev/davinci0", "fuse.x")], ""),
    ([ROOT], ""),
]


@pytest.mark.parametrize(("mounts", "folder"), MOUNTS)
def test_a_file_system_that_might_not_answer_is_left_alone(tree, mounts, folder):
    host = tree.write({"/proc/1/mountinfo": "\n".join("36 35 0:5 / %s rw,relatime shared:2 - %s none rw" % mount for mount in mounts)})
    assert device_opens.device_folder(host, 1) == folder


def test_looks_follow_a_new_group_and_then_the_clock():
    schedule = Schedule(100.0)
    assert schedule.pause(100.0) == 0
    schedule.looked(100.0, 0.01)
    assert schedule.pause(100.0) == 60
    schedule.wake(110.0)
    now = 110.0
    for pause in (1, 4, 25, 20):
        assert schedule.pause(now) == pause
        now += pause
        schedule.looked(now, 0.0)


def test_looks_take_a_bounded_share_of_a_cpu():
    schedule, now, cost = Schedule(0.0), 0.0, 0.0
    while now < 600:
        schedule.wake(now)
        now += max(schedule.pause(now), 0.1)
        if schedule.pause(now) == 0:
            now, cost = now + 0.5, cost + 0.5
            schedule.looked(now, 0.5)
    assert 0.03 < cost / now <= 0.051


def test_a_new_group_wakes_and_so_does_one_in_a_new_slice(tree, tmp_path):
    folder = tmp_path / "sys/fs/cgroup"
    tree.write({"/sys/fs/cgroup/system.slice": None, "/sys/fs/cgroup/kubepods.slice": None, "/sys/fs/cgroup/cgroup.procs": ""})
    groups = Groups(tree.host)
    assert not groups.read()
    for name in ("system.slice/docker-1.scope", "machine.slice", "machine.slice/libpod-1.scope"):
        (folder / name).mkdir()
        assert (groups.read(), groups.read()) == (True, False), name
    (folder / "kubepods.slice/pod").mkdir()
    assert not groups.read()
    groups.pods = True
    groups.watch()
    (folder / "kubepods.slice/other").mkdir()
    assert groups.read()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Housekeeping that follows the workloads: what the system has at any time, and who takes it away and gives it."""

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._command import watch as program
from ansible_collections.npu.affinity.plugins.module_utils._features.slices import lending
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.lending import PER_MINUTE, Lending, has_to_wait
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.feature import HOUSEKEEPING
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.lending import Housekeeping
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Result
from ansible_collections.npu.affinity.plugins.module_utils._state import lock
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import settings
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import CGROUPS, Killed, Machine, Steps
from tests.fakes.systemd import a_request, MARK, UNITS, a_file
from tests.fakes.watched import Watched, one_at_a_time
from tests.fakes.workers import RealWorker

FLOOR, POOLS = "0,4", ("1-3", "5-7")
SYSTEM, USER = "system.slice", "user.slice"
NPUS = [{"id": n, "phy_id": n, "kind": "npu", "pci": "", "pool": pool, "slice": "npu-%d.slice" % n} for n, pool in enumerate(POOLS)]
WIDE, LENDING = "0-7", Lending(set(expand(FLOOR)), set(expand("1-3,5-7")), {"npus": NPUS})
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["start", "end"]), st.integers(0, 1)),
    st.tuples(st.just("look"), st.floats(0.1, 30)),
    st.tuples(st.sampled_from(["reload", "widened by others"]), st.sampled_from([SYSTEM, USER])),
)


@given(st.lists(EVENTS, max_size=60))
def test_the_system_never_shares_a_held_pool_and_keeps_its_floor(events):
    has = {SYSTEM: set(expand(FLOOR)), USER: set(expand(FLOOR))}
    pools = [set(expand(pool)) for pool in POOLS]
    workers, given_at, now = [0, 0], [], 0.0
    for what, of in events:
        if what in ("start", "end"):
            workers[of] = max(0, workers[of] + (1 if what == "start" else -1))
        elif what == "look":
            now += of
        else:
            has[of] = set(expand(FLOOR if what == "reload" else "1-9"))
        held = LENDING.held({number: {min(pools[number])} for number, count in enumerate(workers) if count})
        may_give = what == "look" and not has_to_wait(given_at[-PER_MINUTE:], now)
        wanted = LENDING.changes(has, held, may_give)
        losing = [not has[unit] <= cpus for unit, cpus in wanted.items()]
        assert losing == sorted(losing, reverse=True), "those that lose CPUs come first"
        assert may_give or all(cpus <= has[unit] | LENDING.floor for unit, cpus in wanted.items())
        if any(cpus - has[unit] - LENDING.floor for unit, cpus in wanted.items()):
            given_at.append(now)
        has.update(wanted)
        for cpus in has.values():
            assert LENDING.floor <= cpus <= LENDING.floor | LENDING.most and not cpus & held - LENDING.floor
        assert sum(at > now - 60 for at in given_at) <= PER_MINUTE
        if what == "look" and not has_to_wait(given_at[-PER_MINUTE:], now):
            assert set(map(frozenset, has.values())) == {frozenset(LENDING.available(held))}


def follows(machine):
    """Make housekeeping follow two NPUs."""
    write(machine, PLAN, json.dumps({"npus": NPUS}))
    write(machine, HOUSEKEEPING, json.dumps({"floor": FLOOR, "most": "1-3,5-7"}))


def write(machine, path, text):
    os.makedirs(os.path.dirname(machine.path(path)), exist_ok=True)
    with open(machine.path(path), "w") as file:
        file.write(text)


class Following(Watched):
    """The running kernel with two devices, and a systemd that writes its settings into the tree."""

    fails = False

    def __init__(self, root):
        Watched.__init__(self, root)
        self.settings.unlink()
        follows(self)
        self.narrow()
        write(self, "/sys/devices/system/cpu/online", WIDE)

    def path(self, path):
        return self.root + path if path.startswith(("/etc", "/dev", "/run", "/sys")) else path

    def put(self, unit, cpus):
        write(self, "%s/%s/cpuset.cpus" % (CGROUPS, unit), cpus)

    def narrow(self):
        for unit in (SYSTEM, USER):
            self.put(unit, FLOOR)

    def run(self, argv, stdin="", timeout=None):
        if self.fails:
            raise CommandError("systemctl did not end within 60 s")
        assert argv[1:3] == ["set-property", "--runtime"]
        self.put(argv[3], settings(argv[4])["AllowedCPUs"])
        return Result(argv, 0, "")

    @property
    def has(self):
        """The sets that the units of the system have."""
        return {self.read("%s/%s/cpuset.cpus" % (CGROUPS, unit)) for unit in (SYSTEM, USER)}

    def worker(self, number):
        """Start a worker, and let it open the device of an NPU."""
        worker = RealWorker()
        worker.pid = worker.open(self.path("/dev/davinci%d" % number))
        return worker


@pytest.fixture
def following(tmp_path):
    yield from one_at_a_time(Following, tmp_path)


def until(watch, machine, cpus, seconds=10):
    """Watch until all units have CPUs, and return whether they got them."""
    deadline = time.monotonic() + seconds
    while machine.has != {cpus} and time.monotonic() < deadline:
        pause = watch.schedule.pause(time.monotonic())
        if pause == 0:
            watch.look()
        else:
            watch.wait(min(pause, 0.1))
    return machine.has == {cpus}


def idle(watch):
    """Let the next look be a minute away, and no pause be left of the last one."""
    watch.schedule.looked(time.monotonic(), 0)


def test_an_open_takes_cpus_and_the_last_end_returns_them(following, capsys):
    watch = program.Watch(following)
    assert watch.look() and following.has == {WIDE}
    idle(watch)
    first = following.worker(0)
    assert until(watch, following, "0,4-7")
    second, other = following.worker(0), following.worker(1)
    assert until(watch, following, FLOOR)
    assert "%s: CPUs 0-7 -> 0,4-7 (for process %d)" % (SYSTEM, first.pid) in capsys.readouterr().out
    watch.look()
    idle(watch)
    first.end()
    watch.wait(5)
    watch.look()
    assert following.has == {FLOOR}, "another process holds the pool"
    second.end()
    if watch.parts[0].descriptor >= 0:
        watch.wait(5)
        assert watch.schedule.pause(time.monotonic()) < 2
    assert until(watch, following, "0-4")
    other.end()
    assert until(watch, following, WIDE)


def test_without_events_a_look_takes_cpus_back(following, monkeypatch):
    monkeypatch.setattr(program.Opens, "watch", lambda self: None)
    watch = program.Watch(following)
    watch.look()
    with following.worker(1):
        assert following.has == {WIDE}
        watch.look()
    assert following.has == {"0-4"}


def test_a_storm_does_not_delay_taking_cpus_back(following):
    watch = program.Watch(following)
    watch.look()
    idle(watch)
    if not watch.opens.descriptors:
        pytest.skip(watch.opens.why)
    watch.budget.spent(time.monotonic(), 100.0)
    with following.worker(0):
        started = time.monotonic()
        assert until(watch, following, "0,4-7", 20) and time.monotonic() - started < 15


@pytest.fixture
def part(following):
    return Housekeeping(following)


@pytest.mark.parametrize(("granted", "left"), [("1-3", "0,4-7"), ("1", "0,4-7"), ("2,6", FLOOR)])
def test_work_in_a_slice_holds_pools_without_a_device(following, part, granted, left):
    folder = CGROUPS + "/npu.slice/npu-0.slice"
    write(following, folder + "/cpuset.cpus.effective", granted)
    write(following, folder + "/worker.service/cgroup.procs", "4\n")  # its cpuset is that around it, as it has no setting
    for place in (folder, os.path.dirname(folder)):
        write(following, place + "/cgroup.procs", "")
    part.look()
    assert following.has == {left}


def test_a_monitor_holds_nothing(following, part, monkeypatch):
    monkeypatch.setattr(lending, "is_monitor", lambda _host, _pid: True)
    with following.worker(0):
        part.look()
    assert following.has == {WIDE}


def test_cpus_are_given_at_most_four_times_a_minute(following, part, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    seen = []
    for _round in range(6):
        part.look()
        seen += following.has
        following.narrow()
    assert seen == [WIDE] * 4 + [FLOOR] * 2
    now[0] += 61
    part.look()
    assert following.has == {WIDE}


def test_nothing_is_given_while_another_program_changes_the_host(following, part):
    with lock.changing(following, "bind"):
        part.look()
        assert following.has == {FLOOR}
    with lending.locked(following) as is_locked:
        assert is_locked and part.look() and part.again
    part.look()
    assert following.has == {WIDE} and not part.again


def test_the_end_of_the_service_takes_everything_back(following, part, monkeypatch):
    part.look()
    monkeypatch.setattr(program, "Host", lambda _root: following)
    assert program.main(["--end"]) == 0 and following.has == {FLOOR}
    os.unlink(following.path(HOUSEKEEPING))
    following.put(SYSTEM, WIDE)
    assert program.main(["--end"]) == 0
    assert following.has == {WIDE, FLOOR} and not part.look(), "housekeeping does not follow any more"


def test_a_change_that_fails_is_said_and_tried_again_soon(following, part, capsys):
    part.look()
    with following.worker(0) as worker:
        following.fails = True
        assert part.born({worker.pid: None})
        assert "did not end within 60 s" in capsys.readouterr().out
        following.fails = False
        assert not part.born({worker.pid: None})
    assert following.has == {"0,4-7"}


DROP_IN = UNITS + "/system.slice.d/50-npu-affinity.conf"


def files_of(floor, follow=True):
    files = [a_file(DROP_IN, MARK + "[Slice]\nAllowedCPUs=\nAllowedCPUs=%s\n" % floor)]
    if follow:
        files.append(a_file(HOUSEKEEPING, '{"about": %s, "floor": "%s", "most": "1-3,5-7"}' % (json.dumps(MARK.strip("# \n")), floor)))
    more = {"more": "1-3,5-7"} if follow else {}
    return a_request(files=files, owned=[HOUSEKEEPING, DROP_IN], expected=[dict(unit=SYSTEM, cpus=floor, mems="", **more)])


@pytest.fixture(params=[True, False])
def lent(request, tmp_path):
    """A machine whose system has all CPUs beyond its floor; with and without a systemd that applies sets at a reload."""

    def made(number=0):
        machine = Machine(str(tmp_path / str(number)))
        machine.reapplies = request.param
        follows(machine)
        os.unlink(machine.path(HOUSEKEEPING))
        apply(machine, files_of(FLOOR))
        lending.give(machine, {SYSTEM: set(expand(WIDE))})
        assert machine.effective(SYSTEM)[0] == WIDE
        return machine

    return made


def overrides(machine):
    return machine.names("/run/systemd/system.control/system.slice.d")


def test_a_bind_that_has_nothing_to_change_leaves_what_is_lent(lent):
    machine = lent()
    machine.calls.clear()
    assert not apply(machine, files_of(FLOOR)).changed and machine.effective(SYSTEM)[0] == WIDE
    assert not any(call.startswith(("set-property", "daemon-reload")) for call in machine.calls)
    lending.give(machine, {SYSTEM: set(expand("1-7"))})
    assert apply(machine, files_of(FLOOR), check=True).changed, "the floor is not there"


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("floor", [FLOOR, "0"])
def test_a_change_leaves_the_floor_of_its_files(lent, floor, follow):
    machine = lent()
    if (floor, follow) == (FLOOR, True):
        machine.put(DROP_IN, MARK + "[Slice]\nAllowedCPUs=1\n")
    apply(machine, files_of(floor, follow))
    assert machine.effective(SYSTEM)[0] == floor and overrides(machine) == []


def test_unbind_restores_the_system_after_lending(lent):
    machine = lent()
    assert not unbind(machine).failed
    assert machine.effective(SYSTEM)[0] == WIDE and overrides(machine) == []
    assert not machine.exists(HOUSEKEEPING) and not machine.exists(DROP_IN)


@pytest.mark.parametrize("function", [lambda machine: apply(machine, files_of("0")), unbind], ids=["bind", "unbind"])
def test_a_killed_run_leaves_nothing_lent(lent, monkeypatch, function):
    for step, machine in Steps(monkeypatch).endings(lent, Killed(), function, least=2):
        lends = set(expand(machine.effective(SYSTEM)[0])) - set(expand(FLOOR))
        assert not lends or machine.exists(HOUSEKEEPING) or function is unbind, step
        function(machine)
        assert machine.effective(SYSTEM)[0] == (WIDE if function is unbind else "0"), step
        assert overrides(machine) == [], step

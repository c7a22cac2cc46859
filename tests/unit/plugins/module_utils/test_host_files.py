# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host, Result
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import unit_of
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import slice_path
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.feature import FEATURE as TUNING
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import Transaction, apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from tests.fakes.systemd import MARK, SLICE, UNITS, ModelledSystemd, a_file, live_request, slice_text, texts

PARENT = UNITS + "/npu.slice"
GROUP = "/sys/fs/cgroup/npu.slice/npu-0.slice"
IRQBALANCE = "/usr/lib/systemd/system/irqbalance.service"
INSTALLED = "[Service]\nExecStart=/usr/sbin/irqbalance\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture
def host(tmp_path):
    """A tree."""
    return Host(str(tmp_path))


@pytest.fixture
def live(tmp_path):
    """A running machine."""
    return ModelledSystemd(str(tmp_path))


@pytest.fixture
def bound(live):
    """A running machine whose slice has CPUs 0-3."""
    apply(live, live_request("0-3"))
    return live


def test_a_first_run_writes_and_a_second_touches_nothing(tmp_path, host):
    request = Request(files=[a_file(SLICE, slice_text("0-3"))], owned=[UNITS + "/npu-*.slice"])
    assert apply(host, request).changed
    before = os.stat(str(tmp_path) + SLICE)
    assert not apply(host, request).changed
    after = os.stat(str(tmp_path) + SLICE)
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert after.st_mode & 0o7777 == 0o644


def test_check_mode_predicts_what_the_run_then_does(tmp_path, host):
    request = Request(files=[a_file(SLICE, slice_text("0-3"))])
    predicted = apply(host, request, check=True)
    assert texts(tmp_path) == {}
    done = apply(host, request)
    assert list(predicted.changes) == list(done.changes) == [SLICE]
    assert (done.actions, done.restart_needed, done.slices_left, done.unfinished) == ([], [], [], [])
    assert not apply(host, request, check=True).changed


def test_only_our_own_stale_files_go(tmp_path, host):
    apply(host, Request(files=[a_file(SLICE, slice_text("0-3")), a_file(UNITS + "/npu-1.slice", slice_text("4-7"))]))
    foreign = UNITS + "/npu-mine.slice"
    (tmp_path / foreign[1:]).write_text("[Slice]\n")
    drop_in = UNITS + "/old.service.d/50-npu-affinity.conf"
    apply(host, Request(files=[a_file(drop_in, MARK + "[Service]\nSlice=npu-1.slice\n")]))
    owned = [UNITS + "/npu-*.slice", UNITS + "/*.service.d/50-npu-affinity.conf"]
    report = apply(host, Request(files=[a_file(SLICE, slice_text("0-3"))], owned=owned))
    assert sorted(report.changes) == [UNITS + "/npu-1.slice", drop_in]
    assert sorted(texts(tmp_path)) == sorted([SLICE, foreign])
    assert not (tmp_path / drop_in[1:]).parent.exists()


def test_the_next_run_removes_temporary_files_of_a_killed_run(tmp_path, host):
    request = Request(files=[a_file(SLICE, slice_text("0-3"))])
    apply(host, request)
    (tmp_path / UNITS[1:] / ".npu-affinity-x1").write_text("half a fi")
    assert list(apply(host, request).changes) == [UNITS + "/.npu-affinity-x1"]
    assert texts(tmp_path) == {SLICE: slice_text("0-3")}


def test_a_failed_write_puts_every_file_back(tmp_path, host):
    apply(host, Request(files=[a_file(SLICE, slice_text("0-3"))]))
    rules = a_file("/etc/udev/rules.d/90.rules", MARK + "no text at all: \ud800")
    request = Request(files=[a_file(SLICE, slice_text("4-7")), a_file(UNITS + "/new.slice", MARK), rules])
    with pytest.raises(ValueError, match="All files were restored"):
        apply(host, request)
    assert texts(tmp_path) == {SLICE: slice_text("0-3")}


def test_settings_after_the_failing_one_are_not_written(tmp_path):
    class Counted(Host):
        writes = ()

        def set_attribute(self, path, value):
            self.writes += ((path, value),)

    host = Counted(str(tmp_path))
    for path, text in (("proc/sys/vm/swappiness", "60\n"), ("etc/npu-affinity", "where the record should be\n")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with pytest.raises(ValueError, match="No file was changed"):
        apply(
            host,
            Request(files=[a_file(SLICE, slice_text("0-3"))]),
            before=[TUNING.step(host, {"live": {"tuning": {"swappiness": 10}}}, Choices())],
        )
    assert host.writes == ()


def test_a_foreign_file_in_the_way_is_kept_for_unbind(tmp_path, host):
    theirs = tmp_path / PARENT[1:]
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Slice]\nAllowedCPUs=0\n")
    theirs.chmod(0o600)
    apply(host, Request(files=[a_file(PARENT, slice_text("0-3"))]))
    apply(host, Request(files=[a_file(PARENT, slice_text("0-4"))]))
    assert previous.recorded(host) == {"files": {PARENT: {"content": "[Slice]\nAllowedCPUs=0\n", "mode": "0600"}}}


def test_units_of_a_tree_are_enabled_there(tmp_path, host):
    unit = UNITS + "/npu-affinity-irq.timer"
    request = Request(files=[a_file(unit, MARK + "[Timer]\n[Install]\nWantedBy=timers.target\n")], enabled=["npu-affinity-irq.timer"])
    assert apply(host, request, check=True).actions == ["enable npu-affinity-irq.timer"]
    apply(host, request)
    assert (tmp_path / UNITS[1:] / "timers.target.wants" / "npu-affinity-irq.timer").is_symlink()
    assert not apply(host, request).changed
    apply(host, Request(owned=[unit]))
    assert not (tmp_path / UNITS[1:] / "timers.target.wants" / "npu-affinity-irq.timer").is_symlink()


class BareTree(Host):
    """A tree on a controller without systemctl."""

    def run(self, argv, stdin="", timeout=None):
        raise CommandError("%s was not found" % argv[0])


def test_a_trees_units_are_enabled_and_again_on_failed_removal(tmp_path):
    host, unit, name = BareTree(str(tmp_path)), UNITS + "/npu-affinity-irq.timer", "npu-affinity-irq.timer"
    link = tmp_path / UNITS[1:] / "timers.target.wants" / name
    apply(host, Request(files=[a_file(unit, MARK + "[Install]\nWantedBy=timers.target\n")], enabled=[name]))
    assert os.readlink(str(link)) == unit
    (tmp_path / UNITS[1:] / "blocked.target.wants").write_text("no folder")
    other = a_file(UNITS + "/other.timer", MARK + "[Install]\nWantedBy=blocked.target\n")
    with pytest.raises(ValueError, match="All files were restored"):
        apply(host, Request(files=[other], enabled=["other.timer"], owned=[unit]))
    assert os.readlink(str(link)) == unit
    apply(host, Request(owned=[unit]))
    assert not link.is_symlink()


REFUSED = {
    "relative": "must be absolute and without",
    "/etc/../passwd": "must be absolute and without",
    UNITS + "/kubepods.slice": "nothing may be set on kubepods",
    UNITS + "/kubepods-burstable.slice.d/50-npu-affinity.conf": "nothing may be set on kubepods",
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_that_no_bind_writes_is_refused(host, path):
    with pytest.raises(ValueError, match=REFUSED[path]):
        apply(host, Request(files=[a_file(path, MARK)]))


PATHS = [
    (SLICE, "npu-0.slice"),
    (UNITS + "/vllm@0.service.d/50-npu-affinity.conf", "vllm@0.service"),
    (UNITS + "/init.scope.d/50-npu-affinity.conf", "init.scope"),
    ("/etc/udev/rules.d/90-npu-affinity.rules", None),
    ("/usr/local/lib/npu-affinity/npu_affinity.zip", None),
]


@pytest.mark.parametrize("path, unit", PATHS)
def test_the_unit_that_a_file_configures(path, unit):
    assert unit_of(path) == unit


def test_slices_nest_by_their_names():
    assert slice_path("npu.slice") == "/npu.slice"
    assert slice_path("npu-0.slice") == "/npu.slice/npu-0.slice"
    assert slice_path("a-b-c.slice") == "/a.slice/a-b.slice/a-b-c.slice"


def test_units_are_enabled_before_the_one_reload_that_reads_them(live):
    host, units = live, ["npu-affinity-irq.service", "npu-affinity-irq.timer"]
    text = "[Timer]\nOnActiveSec=2min\n[Install]\nWantedBy=multi-user.target\n"
    apply(host, Request(files=[a_file(f"{UNITS}/{unit}", text) for unit in units], owned=[UNITS + "/npu-*"], enabled=units))
    assert host.calls[1:] == [f"enable --no-reload {unit}" for unit in units] + ["daemon-reload"]


def test_a_live_host_is_reloaded_once_and_read_back(live):
    report = apply(live, live_request("0-3"))
    assert report.actions == ["start npu-0.slice"]
    assert live.calls.count("daemon-reload") == 1
    live.calls.clear()
    assert not apply(live, live_request("0-3")).changed
    assert live.calls == ["is-active npu-0.slice"]


def test_cpus_that_the_kernel_does_not_grant_undo_the_change(bound):
    with pytest.raises(ValueError, match="npu-0.slice should have CPUs 90-91 and has 0-7. All files were restored"):
        apply(bound, live_request("90-91"))
    assert bound.read(SLICE) + "\n" == slice_text("0-3")
    assert bound.read(GROUP + "/cpuset.cpus.effective") == "0-3"


def test_drift_of_a_live_set_is_mended_by_a_reload(bound):
    bound.put(GROUP + "/cpuset.cpus.effective", "0-7")
    drift = "reload: npu-0.slice should have CPUs 0-3 and has 0-7"
    assert apply(bound, live_request("0-3"), check=True).actions == [drift]
    by_hand = "/run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf"
    bound.put(by_hand, "[Slice]\nAllowedCPUs=0-7\n")
    advice = " (overridden by %s; remove the file, run 'systemctl daemon-reload', and bind)" % by_hand
    assert apply(bound, live_request("0-3"), check=True).actions == [drift + advice]
    os.unlink(bound.path(by_hand))
    assert apply(bound, live_request("0-3")).changed
    assert not apply(bound, live_request("0-3")).changed


def test_memory_nodes_are_read_back_like_cpus(bound):
    bound.put(GROUP + "/cpuset.mems.effective", "0-1")
    predicted = apply(bound, live_request("0-3"), check=True)
    assert predicted.actions == ["reload: npu-0.slice should have memory nodes 0 and has 0-1"]
    assert apply(bound, live_request("0-3")).changed
    assert not apply(bound, live_request("0-3")).changed


def test_a_slice_that_has_not_started_gets_its_cpus_when_it_does(live):
    drop_in = a_file(UNITS + "/user.slice.d/50-npu-affinity.conf", MARK + "[Slice]\nAllowedCPUs=6-7\n")
    request = Request(files=[drop_in], expected=[{"unit": "user.slice", "cpus": "6-7"}])
    assert list(apply(live, request).changes) == [drop_in["path"]]
    assert not apply(live, request, check=True).changed
    live.put("/sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0-7")
    assert apply(live, request, check=True).actions == ["reload: user.slice should have CPUs 6-7 and has 0-7"]


def test_memory_of_running_processes_moves_only_on_request(live):
    apply(live, live_request("0-3", "0"))
    live.put(GROUP + "/cgroup.events", "populated 1\nfrozen 0")
    with pytest.raises(ValueError, match="npu-0.slice has running processes: changing its memory nodes from 0 to 1 would move"):
        apply(live, live_request("0-3", "1"))
    with pytest.raises(ValueError, match="has running processes"):
        apply(live, live_request("0-3", "1"), check=True)
    assert apply(live, live_request("4-5", "0")).changed
    assert apply(live, live_request("4-5", "1", move_memory=True)).changed


GIB = 1 << 30
MEMINFO = "Node 1 MemTotal: 8388608 kB\nNode 1 MemFree: %d kB\nNode 1 Inactive(file): 1048576 kB\n"
WOULD_KILL = "from 0 to 1 would move 3.0 GiB, and memory nodes 1 have room for %s GiB: the kernel would kill"
ROOM = [
    # GiB free on node 1, which keeps one and has one of inactive cache; whether moving is allowed; the refusal
    (3, True, None),
    (3, False, r"would move their pages \(3.0 GiB\), at hundreds"),
    (2, True, WOULD_KILL % "2.0"),
    (2, False, WOULD_KILL % "2.0"),
    (0, True, WOULD_KILL % "0.0"),
]


@pytest.mark.parametrize("free, wanted, refusal", ROOM)
def test_memory_that_does_not_fit_is_never_moved(live, free, wanted, refusal):
    apply(live, live_request("0-3", "0"))
    live.put(GROUP + "/cgroup.events", "populated 1\nfrozen 0")
    live.put(
        GROUP + "/memory.numa_stat",
        "anon N0=%d N1=%d\nfile N0=%d N1=0\nshmem N0=%d N1=0" % (2 * GIB, 5 * GIB, GIB, GIB),
    )
    live.put("/sys/devices/system/node/node1/meminfo", MEMINFO % (free << 20))
    live.put("/proc/sys/vm/min_free_kbytes", str(1 << 20))
    if refusal is None:
        assert apply(live, live_request("0-3", "1", move_memory=wanted)).changed
        return
    for check in (True, False):
        with pytest.raises(ValueError, match=refusal):
            apply(live, live_request("0-3", "1", move_memory=wanted), check=check)
    assert apply(live, live_request("0-3", "0-1", move_memory=wanted)).changed, "more nodes move nothing"


def test_units_that_move_to_one_node_have_to_fit_there_together(live):

    def both(mems):
        units = ("npu-0.slice", "npu-1.slice")
        files = [a_file("%s/%s" % (UNITS, unit), slice_text("0-3", mems)) for unit in units]
        return Request(files=files, started=list(units), move_memory=True)

    apply(live, both("0"))
    for unit in ("npu-0.slice", "npu-1.slice"):
        live.put("/sys/fs/cgroup/npu.slice/%s/cgroup.events" % unit, "populated 1\nfrozen 0")
        live.put("/sys/fs/cgroup/npu.slice/%s/memory.numa_stat" % unit, "anon N0=%d\nfile N0=0" % (2 * GIB))
    live.put("/sys/devices/system/node/node1/meminfo", MEMINFO % (2 << 20))
    with pytest.raises(ValueError, match="npu-1.slice has .* would move 2.0 GiB, and memory nodes 1 have room for 1.0 GiB"):
        apply(live, both("1"))
    live.put("/sys/devices/system/node/node1/meminfo", MEMINFO % (3 << 20))
    assert apply(live, both("1")).changed


def test_a_used_slice_is_widened_before_removal_idle_ones_stop(tmp_path, bound):
    bound.put(GROUP + "/cgroup.events", "populated 1")
    apply(bound, Request(owned=[UNITS + "/npu-*.slice"]))
    assert "set-property --runtime npu-0.slice AllowedCPUs=0-7 AllowedMemoryNodes=0-1" in bound.calls
    assert "stop npu-0.slice" not in bound.calls
    assert bound.read(GROUP + "/cpuset.cpus.effective") == "0-7"
    idle = ModelledSystemd(str(tmp_path / "idle"))
    apply(idle, live_request("0-3"))
    apply(idle, Request(owned=[UNITS + "/npu-*.slice"]))
    assert "stop npu-0.slice" in idle.calls


class BrokenService(ModelledSystemd):
    """A machine with a service that cannot be started."""

    def run(self, argv, stdin="", timeout=None):
        result = super().run(argv, stdin, timeout)
        if argv[1] == "start" and "broken.service" in argv:
            raise CommandError("broken.service failed")
        return result


TIMER = "npu-affinity-irq.timer"
TIMER_FILE = a_file("%s/%s" % (UNITS, TIMER), MARK + "[Install]\nWantedBy=timers.target\n")
RELOADED = [
    ("the file of a unit", live_request("4-5"), 1),
    ("a link of a unit", Request(files=[TIMER_FILE], enabled=[TIMER]), 1),
    ("no unit", Request(files=[TIMER_FILE, a_file("/etc/udev/rules.d/90-npu-affinity.rules", MARK)]), 0),
]


@pytest.mark.parametrize("request_, reloads", [row[1:] for row in RELOADED], ids=[row[0] for row in RELOADED])
def test_a_failed_bind_reloads_systemd_if_units_were_restored(tmp_path, request_, reloads):
    host = BrokenService(str(tmp_path))
    apply(host, live_request("0-3"))
    apply(host, Request(files=[TIMER_FILE]))
    with pytest.raises(ValueError, match="broken.service failed"):
        apply(host, request_._replace(started=[*request_.started, "broken.service"]))
    undone = host.calls[host.calls.index("start broken.service") + 1 :]
    assert undone.count("daemon-reload") == reloads
    assert host.read("/sys/fs/cgroup/npu.slice/npu-0.slice/cpuset.cpus.effective") == "0-3"


def test_a_timer_that_goes_stops(live):
    timer = UNITS + "/npu-affinity-irq.timer"
    apply(live, Request(files=[a_file(timer, MARK)], started=["npu-affinity-irq.timer"]))
    assert live.running == {"npu-affinity-irq.timer"}
    predicted = apply(live, Request(owned=[timer]), check=True).actions
    assert "stop npu-affinity-irq.timer" in predicted and live.running
    assert apply(live, Request(owned=[timer])).actions == predicted
    assert not live.running


def test_running_services_are_named_not_restarted(live):
    live.running = {"vllm.service", "irqbalance.service"}
    drop_in = UNITS + "/vllm.service.d/50-npu-affinity.conf"
    policy = UNITS + "/irqbalance.service.d/50-npu-affinity-irq.conf"
    request = Request(
        files=[a_file(drop_in, MARK + "[Service]\nSlice=npu-0.slice\n"), a_file(policy, MARK + "[Service]\n")],
        restarted=[{"unit": "irqbalance.service", "files": [policy]}],
    )
    assert apply(live, request).restart_needed == ["vllm.service"]
    assert "restart irqbalance.service" in live.calls and "restart vllm.service" not in live.calls
    live.calls.clear()
    assert apply(live, request).restart_needed == []
    assert live.calls == []


def test_a_started_service_with_older_settings_is_reported(live):
    limiter = UNITS + "/npu-affinity-limiter-a.service"

    def quota(number):
        text = MARK + "[Service]\nEnvironment=NPU_MEM_QUOTA=%d\n" % number
        return Request(files=[a_file(limiter, text)], started=["npu-affinity-limiter-a.service"])

    assert apply(live, quota(1024)).restart_needed == []
    live.running = {"npu-affinity-limiter-a.service"}
    assert apply(live, quota(2048)).restart_needed == ["npu-affinity-limiter-a.service"]
    assert not any(call.startswith("restart") for call in live.calls)


def test_a_stopped_unit_is_remembered(live):
    live.running = {"irqbalance.service"}
    request = Request(stopped=["irqbalance.service"])
    assert apply(live, request, check=True).actions == ["stop irqbalance.service"]
    assert apply(live, request).changed
    assert previous.recorded(live) == {"irqbalance.service": {"running": True}}
    assert "daemon-reload" not in live.calls, "no link went"
    assert not apply(live, request).changed


def test_a_unit_of_a_tree_is_stopped_and_put_back_by_its_links(tmp_path):
    host, link = Host(str(tmp_path)), UNITS + "/multi-user.target.wants/irqbalance.service"
    for path in (IRQBALANCE, link):
        (tmp_path / path[1:]).parent.mkdir(parents=True)
    (tmp_path / IRQBALANCE[1:]).write_text(INSTALLED)
    (tmp_path / link[1:]).symlink_to(IRQBALANCE)
    request = Request(stopped=["irqbalance.service"])
    assert apply(host, request).changed
    assert not (tmp_path / link[1:]).is_symlink()
    assert previous.recorded(host)["irqbalance.service"] == {"running": True}
    assert not apply(host, request).changed
    assert apply(host, Request(released=["irqbalance.service"])).changed
    assert os.readlink(str(tmp_path / link[1:])) == IRQBALANCE


def test_a_run_that_fails_restarts_the_unit_it_stopped(tmp_path):
    class Stubborn(ModelledSystemd):
        def run(self, argv, stdin="", timeout=None):
            if argv[1] == "disable":
                return Result(argv, 1, "Failed to disable unit: Read-only file system")
            return ModelledSystemd.run(self, argv, stdin, timeout)

    host = Stubborn(str(tmp_path))
    host.put(IRQBALANCE, INSTALLED)
    host.running = {"irqbalance.service"}
    with pytest.raises(ValueError, match="Failed to disable unit: Read-only file system"):
        apply(host, Request(stopped=["irqbalance.service"]))
    assert host.running == {"irqbalance.service"}


def test_a_unit_of_an_earlier_stop_restarts_once_no_foreign_one(live):
    live.put(IRQBALANCE, INSTALLED)
    released = Request(released=["irqbalance.service"])
    assert not apply(live, released).changed
    live.running = {"irqbalance.service"}
    live.put(UNITS + "/multi-user.target.wants/irqbalance.service", "")
    apply(live, Request(stopped=["irqbalance.service"]))
    assert live.running == set()
    assert apply(live, released, check=True).actions == ["put irqbalance.service back to what it was"]
    assert live.running == set()
    assert apply(live, released).changed
    assert live.running == {"irqbalance.service"} and "enable --no-reload irqbalance.service" in live.calls
    assert previous.recorded(live) == {}
    assert not apply(live, released).changed


def test_a_program_stops_with_its_unit_and_restarts_on_failure(live):
    host, path = live, UNITS + "/npu-affinity-watch.service"
    request = {"owned": [UNITS + "/npu-affinity-*.service"]}
    unit = a_file(path, MARK + "[Service]\nType=exec\nExecStart=/bin/sh\n")
    host.put("/bin/sh", "")
    os.chmod(host.path("/bin/sh"), 0o755)
    apply(host, Request(files=[unit], started=["npu-affinity-watch.service"], **request))
    assert host.running == {"npu-affinity-watch.service"}
    predicted = apply(host, Request(**request), check=True)
    assert (predicted.actions, predicted.restart_needed) == (["stop npu-affinity-watch.service"], [])
    transaction = Transaction(host, Request(**request))
    transaction.look()
    transaction.run()
    assert host.running == set() and not host.exists(path)
    transaction.undo()
    assert host.running == {"npu-affinity-watch.service"} and host.exists(path)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host, Result
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import unit_of
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import slice_path
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.feature import FEATURE as TUNING
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import Transaction, apply
from tests.fakes.kernel import Kernel
from tests.fakes.systemd import a_request, MARK, SLICE, UNITS, ModelledSystemd, a_file, live_request, slice_text, texts

PARENT = UNITS + "/npu.slice"
GROUP = "/sys/fs/cgroup/npu.slice/npu-0.slice"
POPULATED = "/sys/fs/cgroup/npu.slice/%s/cgroup.events"
TIMER = "npu-affinity-irq.timer"
TIMER_FILE = a_file("%s/%s" % (UNITS, TIMER), MARK + "[Install]\nWantedBy=timers.target\n")
LINK = UNITS + "/timers.target.wants/" + TIMER
WANTED_BY_ALL = UNITS + "/multi-user.target.wants/"
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


def test_a_first_run_is_predicted_and_a_second_changes_nothing(tmp_path, host):
    request = a_request(files=[a_file(SLICE, slice_text("0-3"))], owned=[UNITS + "/npu-*.slice"])
    predicted = apply(host, request, check=True)
    assert texts(tmp_path) == {}
    done = apply(host, request)
    assert list(predicted.changes) == list(done.changes) == [SLICE]
    assert (done.actions, done.restart_needed, done.slices_left, done.unfinished) == ([], [], [], [])
    before = os.stat(str(tmp_path) + SLICE)
    assert not apply(host, request, check=True).changed and not apply(host, request).changed
    after = os.stat(str(tmp_path) + SLICE)
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino) and after.st_mode & 0o7777 == 0o644


def test_only_our_own_stale_files_go(tmp_path, host):
    apply(host, a_request(files=[a_file(SLICE, slice_text("0-3")), a_file(UNITS + "/npu-1.slice", slice_text("4-7"))]))
    foreign = UNITS + "/npu-mine.slice"
    (tmp_path / foreign[1:]).write_text("[Slice]\n")
    drop_in = UNITS + "/old.service.d/50-npu-affinity.conf"
    apply(host, a_request(files=[a_file(drop_in, MARK + "[Service]\nSlice=npu-1.slice\n")]))
    owned = [UNITS + "/npu-*.slice", UNITS + "/*.service.d/50-npu-affinity.conf"]
    report = apply(host, a_request(files=[a_file(SLICE, slice_text("0-3"))], owned=owned))
    assert sorted(report.changes) == [UNITS + "/npu-1.slice", drop_in]
    assert sorted(texts(tmp_path)) == sorted([SLICE, foreign])
    assert not (tmp_path / drop_in[1:]).parent.exists()


def test_settings_after_the_failing_one_are_not_written(tmp_path):
    host = Kernel(tmp_path)
    host.put("/proc/sys/vm/swappiness", "60")
    host.put("/etc/npu-affinity", "where the record should be")
    tuning = TUNING.step(host, {"live": {"tuning": {"swappiness": 10}}}, Choices())
    with pytest.raises(ValueError, match="No file was changed"):
        apply(host, a_request(files=[a_file(SLICE, slice_text("0-3"))]), before=[tuning])
    assert host.writes == []


def test_a_foreign_file_in_the_way_is_kept_for_unbind(tmp_path, host):
    theirs = tmp_path / PARENT[1:]
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Slice]\nAllowedCPUs=0\n")
    theirs.chmod(0o600)
    apply(host, a_request(files=[a_file(PARENT, slice_text("0-3"))]))
    apply(host, a_request(files=[a_file(PARENT, slice_text("0-4"))]))
    assert previous.recorded(host) == {"files": {PARENT: {"content": "[Slice]\nAllowedCPUs=0\n", "mode": "0600"}}}


class BareTree(Host):
    """A tree on a controller without systemctl."""

    def run(self, argv, stdin="", timeout=None):
        raise CommandError("%s was not found" % argv[0])


@pytest.mark.parametrize("kind", [Host, BareTree])
def test_a_trees_units_are_enabled_and_again_on_failed_removal(tmp_path, kind):
    host, request = kind(str(tmp_path)), a_request(files=[TIMER_FILE], enabled=[TIMER])
    assert apply(host, request, check=True).actions == ["enable " + TIMER]
    apply(host, request)
    assert os.readlink(host.path(LINK)) == TIMER_FILE["path"] and not apply(host, request).changed
    (tmp_path / UNITS[1:] / "blocked.target.wants").write_text("no folder")
    other = a_file(UNITS + "/other.timer", MARK + "[Install]\nWantedBy=blocked.target\n")
    with pytest.raises(ValueError, match="All files were restored"):
        apply(host, a_request(files=[other], enabled=["other.timer"], owned=[TIMER_FILE["path"]]))
    assert os.readlink(host.path(LINK)) == TIMER_FILE["path"]
    apply(host, a_request(owned=[TIMER_FILE["path"]]))
    assert not os.path.islink(host.path(LINK))


REFUSED = [
    ("relative", "must be absolute and without"),
    ("/etc/../passwd", "must be absolute and without"),
    (UNITS + "/kubepods.slice", "nothing may be set on kubepods"),
    (UNITS + "/kubepods-burstable.slice.d/50-npu-affinity.conf", "nothing may be set on kubepods"),
]


@pytest.mark.parametrize("path, sentence", REFUSED)
def test_a_path_that_no_bind_writes_is_refused(host, path, sentence):
    with pytest.raises(ValueError, match=sentence):
        apply(host, a_request(files=[a_file(path, MARK)]))


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


@pytest.mark.parametrize("unit, path", [("npu.slice", "/npu.slice"), ("a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice")])
def test_slices_nest_by_their_names(unit, path):
    assert slice_path(unit) == path


def test_units_are_enabled_before_the_one_reload_that_reads_them(live):
    units = ["npu-affinity-irq.service", TIMER]
    files = [a_file("%s/%s" % (UNITS, unit), "[Timer]\n[Install]\nWantedBy=multi-user.target\n") for unit in units]
    apply(live, a_request(files=files, owned=[UNITS + "/npu-*"], enabled=units))
    assert live.calls[1:] == ["enable --no-reload " + unit for unit in units] + ["daemon-reload"]


def test_a_live_host_is_reloaded_once_and_read_back(live):
    report = apply(live, live_request("0-3"))
    assert report.actions == ["start npu-0.slice"]
    assert live.calls.count("daemon-reload") == 1
    live.calls.clear()
    assert not apply(live, live_request("0-3")).changed
    assert live.calls == ["is-active npu-0.slice"]
    apply(live, live_request("4-5"))
    assert [call for call in live.calls if not call.startswith("is-active")] == ["daemon-reload"], "it applies the set"


@pytest.mark.parametrize("kind, found, words", [("cpus", "0-7", "CPUs 0-3"), ("mems", "0-1", "memory nodes 0")])
def test_drift_of_a_live_set_is_mended_by_a_reload(bound, kind, found, words):
    bound.put("%s/cpuset.%s.effective" % (GROUP, kind), found)
    drift = "reload: npu-0.slice should have %s and has %s" % (words, found)
    assert apply(bound, live_request("0-3"), check=True).actions == [drift]
    assert apply(bound, live_request("0-3")).changed
    assert not apply(bound, live_request("0-3")).changed


def test_drift_that_is_set_by_hand_is_named_with_its_file(bound):
    bound.put(GROUP + "/cpuset.cpus.effective", "0-7")
    by_hand = "/run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf"
    bound.put(by_hand, "[Slice]\nAllowedCPUs=0-7\n")
    (said,) = apply(bound, live_request("0-3"), check=True).actions
    assert said.endswith("has 0-7 (overridden by %s; remove the file, run 'systemctl daemon-reload', and bind)" % by_hand)


def test_a_slice_that_has_not_started_gets_its_cpus_when_it_does(live):
    drop_in = a_file(UNITS + "/user.slice.d/50-npu-affinity.conf", MARK + "[Slice]\nAllowedCPUs=6-7\n")
    request = a_request(files=[drop_in], expected=[{"unit": "user.slice", "cpus": "6-7"}])
    assert list(apply(live, request).changes) == [drop_in["path"]]
    assert not apply(live, request, check=True).changed
    live.put("/sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0-7")
    assert apply(live, request, check=True).actions == ["reload: user.slice should have CPUs 6-7 and has 0-7"]


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
    live.put(POPULATED % "npu-0.slice", "populated 1\nfrozen 0")
    used = "anon N0=%d N1=%d\nfile N0=%d N1=0\nshmem N0=%d N1=0" % (2 * GIB, 5 * GIB, GIB, GIB)
    live.put(GROUP + "/memory.numa_stat", used)
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
    units = ["npu-0.slice", "npu-1.slice"]

    def both(mems):
        files = [a_file("%s/%s" % (UNITS, unit), slice_text("0-3", mems)) for unit in units]
        return a_request(files=files, started=units, move_memory=True)

    apply(live, both("0"))
    for unit in units:
        live.put(POPULATED % unit, "populated 1\nfrozen 0")
        live.put("/sys/fs/cgroup/npu.slice/%s/memory.numa_stat" % unit, "anon N0=%d\nfile N0=0" % (2 * GIB))
    live.put("/sys/devices/system/node/node1/meminfo", MEMINFO % (2 << 20))
    with pytest.raises(ValueError, match="npu-1.slice has .* would move 2.0 GiB, and memory nodes 1 have room for 1.0 GiB"):
        apply(live, both("1"))
    live.put("/sys/devices/system/node/node1/meminfo", MEMINFO % (3 << 20))
    assert apply(live, both("1")).changed


@pytest.mark.parametrize("used", [True, False])
def test_a_used_slice_is_widened_before_removal_idle_ones_stop(bound, used):
    bound.put(POPULATED % "npu-0.slice", "populated %d" % used)
    apply(bound, a_request(owned=[UNITS + "/npu-*.slice"]))
    assert ("set-property --runtime npu-0.slice AllowedCPUs=0-7 AllowedMemoryNodes=0-1" in bound.calls) is used
    assert ("stop npu-0.slice" in bound.calls) is not used
    assert bound.read(GROUP + "/cpuset.cpus.effective") == "0-7" or not used


class Failing(ModelledSystemd):
    """A machine on which commands of systemctl that begin with some words fail."""

    words = ()

    def run(self, argv, stdin="", timeout=None):
        result = ModelledSystemd.run(self, argv, stdin, timeout)
        return Result(argv, 1, "it failed") if self.words and tuple(argv[1:])[: len(self.words)] == self.words else result


@pytest.fixture
def failing(tmp_path):
    return Failing(str(tmp_path))


RELOADED = {
    "the file of a unit": (live_request("4-5"), 1),
    "a link of a unit": (a_request(files=[TIMER_FILE], enabled=[TIMER]), 1),
    "no unit": (a_request(files=[TIMER_FILE, a_file("/etc/udev/rules.d/90-npu-affinity.rules", MARK)]), 0),
}


@pytest.mark.parametrize("request_, reloads", RELOADED.values(), ids=RELOADED)
def test_a_failed_bind_reloads_systemd_if_units_were_restored(failing, request_, reloads):
    failing.words = ("start", "broken.service")
    apply(failing, live_request("0-3"))
    apply(failing, a_request(files=[TIMER_FILE]))
    with pytest.raises(ValueError, match="it failed"):
        apply(failing, request_._replace(started=[*request_.started, "broken.service"]))
    undone = failing.calls[failing.calls.index("start broken.service") + 1 :]
    assert undone.count("daemon-reload") == reloads
    assert failing.read(GROUP + "/cpuset.cpus.effective") == "0-3"


def test_a_timer_that_goes_stops(live):
    apply(live, a_request(files=[TIMER_FILE], started=[TIMER]))
    assert live.running == {TIMER}
    predicted = apply(live, a_request(owned=[TIMER_FILE["path"]]), check=True).actions
    assert "stop " + TIMER in predicted and live.running
    assert apply(live, a_request(owned=[TIMER_FILE["path"]])).actions == predicted
    assert not live.running


def test_running_services_are_named_not_restarted(live):
    live.running = {"vllm.service", "irqbalance.service"}
    drop_in = UNITS + "/vllm.service.d/50-npu-affinity.conf"
    policy = UNITS + "/irqbalance.service.d/50-npu-affinity-irq.conf"
    request = a_request(
        files=[a_file(drop_in, MARK + "[Service]\nSlice=npu-0.slice\n"), a_file(policy, MARK + "[Service]\n")],
        restarted=[{"unit": "irqbalance.service", "files": [policy]}],
    )
    assert apply(live, request).restart_needed == ["vllm.service"]
    assert "restart irqbalance.service" in live.calls and "restart vllm.service" not in live.calls
    live.calls.clear()
    assert apply(live, request).restart_needed == []
    assert live.calls == []


def test_a_started_service_with_older_settings_is_reported(live):
    unit = "npu-affinity-limiter-a.service"
    requests = [
        a_request(files=[a_file("%s/%s" % (UNITS, unit), MARK + "[Service]\nEnvironment=NPU_MEM_QUOTA=%d\n" % quota)], started=[unit])
        for quota in (1024, 2048)
    ]
    assert apply(live, requests[0]).restart_needed == []
    live.running = {unit}
    assert apply(live, requests[1]).restart_needed == [unit]
    assert not any(call.startswith("restart") for call in live.calls)


def test_a_unit_of_a_tree_is_stopped_and_put_back_by_its_links(tmp_path):
    host, link = Kernel(tmp_path), WANTED_BY_ALL + "irqbalance.service"
    host.put(IRQBALANCE, INSTALLED)
    os.makedirs(host.path(WANTED_BY_ALL))
    os.symlink(IRQBALANCE, host.path(link))
    request = a_request(stopped=["irqbalance.service"])
    assert apply(host, request).changed
    assert not os.path.islink(host.path(link))
    assert previous.recorded(host)["irqbalance.service"] == {"running": True}
    assert not apply(host, request).changed
    assert apply(host, a_request(released=["irqbalance.service"])).changed
    assert os.readlink(host.path(link)) == IRQBALANCE


def test_a_run_that_fails_restarts_the_unit_it_stopped(failing):
    failing.words, failing.running = ("disable",), {"irqbalance.service"}
    failing.put(IRQBALANCE, INSTALLED)
    with pytest.raises(ValueError, match="it failed"):
        apply(failing, a_request(stopped=["irqbalance.service"]))
    assert failing.running == {"irqbalance.service"}


def test_a_stopped_unit_is_remembered_and_restarts_once(live):
    live.put(IRQBALANCE, INSTALLED)
    stopped, released = a_request(stopped=["irqbalance.service"]), a_request(released=["irqbalance.service"])
    assert not apply(live, released).changed, "nobody stopped it"
    live.running = {"irqbalance.service"}
    live.put(WANTED_BY_ALL + "irqbalance.service", "")
    assert apply(live, stopped, check=True).actions == ["stop irqbalance.service"]
    assert apply(live, stopped).changed and live.running == set()
    assert previous.recorded(live) == {"irqbalance.service": {"running": True}}
    assert "daemon-reload" not in live.calls, "no link went"
    assert not apply(live, stopped).changed
    assert apply(live, released, check=True).actions == ["restore irqbalance.service"]
    assert live.running == set()
    assert apply(live, released).changed
    assert live.running == {"irqbalance.service"} and "enable --no-reload irqbalance.service" in live.calls
    assert previous.recorded(live) == {}
    assert not apply(live, released).changed


def test_a_program_stops_with_its_unit_and_restarts_on_failure(live):
    host, name = live, "npu-affinity-watch.service"
    request, path = {"owned": [UNITS + "/npu-affinity-*.service"]}, "%s/%s" % (UNITS, name)
    host.put("/bin/sh", "")
    os.chmod(host.path("/bin/sh"), 0o755)
    apply(host, a_request(files=[a_file(path, MARK + "[Service]\nType=exec\nExecStart=/bin/sh\n")], started=[name], **request))
    assert host.running == {name}
    predicted = apply(host, a_request(**request), check=True)
    assert (predicted.actions, predicted.restart_needed) == (["stop " + name], [])
    transaction = Transaction(host, a_request(**request))
    transaction.look()
    transaction.run()
    assert host.running == set() and not host.exists(path)
    transaction.undo()
    assert host.running == {name} and host.exists(path)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's drop-in: what is pending, in which order it is changed, and that the kubelet runs again whatever happens to a change."""

from __future__ import annotations

import json
import posixpath
import time

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import drop_in as _drop_in
from ansible_collections.npu.affinity.plugins.module_utils._state import journal, previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction import unbind
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply as apply_files
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from tests.fakes.machine import Killed, Steps
from tests.fakes.systemd import ModelledSystemd
from tests.fakes.workers import LiveHost

FOLDER = "/etc/kubernetes/kubelet.conf.d"
PATH = FOLDER + "/50-npu-affinity.conf"
STATE = "/var/lib/kubelet/cpu_manager_state"
MEMORY_STATE = "/var/lib/kubelet/memory_manager_state"
TEXT = "# Managed by npu.affinity: changes are overwritten.\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"
NONE = json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 0})
HOST = {
    "/var/lib/kubelet/config.yaml": "cpuManagerPolicy: none\ntopologyManagerPolicy: none",
    "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=" + FOLDER,
    STATE: NONE,
    MEMORY_STATE: "{}",
}
STATIC = json.dumps({"policyName": "static", "defaultCpuSet": "0-7", "checksum": 0})


class Service:
    """A kubelet as systemd sees it; ``starts`` are the policies that it takes up, one for each start, None when it fails."""

    def __init__(self, host, starts):
        self.host = host
        self.starts = list(starts)
        self.running = True
        self.log = []

    def active(self, units):
        return list(units) if self.running else []

    def stop(self, units):
        self.log.append("stop")
        self.running = False

    def start(self, units):
        drop_in = "static" in (self.host.read(PATH) or "")
        state = "state" if self.host.exists(STATE) else "no state"
        self.log.append("start with %s, %s" % ("drop-in" if drop_in else "no drop-in", state))
        policy = self.starts.pop(0)
        self.running = policy is not None
        if policy:
            with open(self.host.path(STATE), "w") as file:
                file.write(json.dumps({"policyName": policy, "defaultCpuSet": "0-7", "checksum": 0}))


@pytest.fixture
def live(tree, monkeypatch):
    """Return a function that gives a live host, and its service with the policies that it starts with."""

    def make(*starts):
        tree.write(HOST)
        host = LiveHost(tree.root)
        service = Service(host, starts)
        monkeypatch.setattr(_drop_in, "Systemd", lambda host: service)
        monkeypatch.setattr(_drop_in.time, "sleep", lambda seconds: None)
        return host, service

    return make


def change(host, text=TEXT, path=PATH, **options):
    """Apply what the drop-in needs, and return it."""
    found = _drop_in.look(host, path, text)
    if found.needed:
        _drop_in.apply(host, found, **options)
    return found


def test_what_is_pending_is_told_setting_by_setting(tree):
    found = _drop_in.look(tree.write(HOST), PATH, TEXT)
    assert found.differences == ["cpuManagerPolicy: none -> static", "reservedSystemCPUs: not set -> 0-1"]
    assert found.removed == [STATE, MEMORY_STATE]
    assert not tree.host.exists(PATH), "looking writes nothing"
    found = _drop_in.look(tree.host, PATH, TEXT.split("\n", maxsplit=1)[0] + "\ntopologyManagerPolicy: restricted\n")
    assert (found.differences, found.removed) == (["topologyManagerPolicy: none -> restricted"], [])
    found = _drop_in.look(tree.write({PATH: TEXT.rstrip("\n")}), PATH, TEXT)
    assert found.differences == ["cpuManagerPolicy: kubelet last ran with none -> static"]
    assert found.needed and found.removed == [STATE, MEMORY_STATE]
    assert not _drop_in.look(tree.write({STATE: STATIC}), PATH, TEXT).needed


@pytest.mark.parametrize(
    "files, words",
    [
        ({"/etc/default/kubelet": ""}, "its folder of drop-ins is not set. Start it with --config-dir=/etc/kubernetes/kubelet.conf.d"),
        ({"/etc/default/kubelet": "A=--config-dir=/etc/other.d"}, "its folder of drop-ins is /etc/other.d"),
        (
            {"/etc/default/kubelet": "KUBELET_EXTRA_ARGS='--config-dir=%s --cpu-manager-policy=none'" % FOLDER},
            "cpuManagerPolicy of %s would not count: a flag of the kubelet or a later drop-in says none" % PATH,
        ),
        ({FOLDER + "/90-last.conf": "reservedSystemCPUs: '7'"}, "reservedSystemCPUs of %s would not count" % PATH),
        ({PATH: "cpuManagerPolicy: none"}, "is not managed by npu.affinity"),
    ],
)
def test_a_drop_in_that_would_not_count_is_refused(tree, files, words):
    with pytest.raises(ValueError) as refused:
        _drop_in.look(tree.write(dict(HOST, **files)), PATH, TEXT)
    assert words in str(refused.value)


def test_kubelet_is_stopped_changed_and_started_and_so_undone(live):
    host, service = live("static", "none")
    change(host)
    assert service.log == ["stop", "start with drop-in, no state"]
    assert host.read(PATH) == TEXT.rstrip("\n") and not host.exists(MEMORY_STATE)
    assert _drop_in.installed(host) == [PATH]
    assert not _drop_in.look(host, PATH, TEXT).needed
    assert change(host, None).differences == ["cpuManagerPolicy: static -> none", "reservedSystemCPUs: 0-1 -> not set"]
    assert service.log[2:] == ["stop", "start with no drop-in, no state"]
    assert _drop_in.installed(host) == [] and not host.exists(FOLDER)


def test_a_kubelet_that_fails_to_start_keeps_its_old_settings(live):
    host, service = live(None, "none")
    with pytest.raises(ValueError, match="does not run with CPU manager policy static after 0 s.*The drop-in is as it was before"):
        change(host, wait=0)
    assert service.log == ["stop", "start with drop-in, no state", "stop", "start with no drop-in, no state"]
    assert not host.exists(PATH) and not host.exists(FOLDER) and not host.exists(previous.PATH)


def test_a_clock_that_is_set_forward_ends_no_wait(live, monkeypatch):
    host, service = live("static")
    day = time.time() + 24 * 3600
    monkeypatch.setattr(service, "active", lambda units: list(units) if not service.log or time.time() > day else [])
    monkeypatch.setattr(_drop_in.time, "sleep", lambda seconds: monkeypatch.setattr(time, "time", lambda: day + 1))
    change(host)
    assert service.log == ["stop", "start with drop-in, no state"]


OTHER = FOLDER + "/60-numa.conf"


def test_a_renamed_drop_in_does_not_stay_under_its_old_name(live):
    host, _service = live("static", "static", "none")
    change(host)
    renamed = change(host, TEXT, OTHER)
    assert renamed.differences == ["drop-in: %s -> %s" % (PATH, OTHER)] and renamed.removed == []
    assert (host.names(FOLDER), _drop_in.installed(host)) == (["60-numa.conf"], [OTHER])
    assert not _drop_in.look(host, OTHER, TEXT).needed
    change(host, None, OTHER)
    assert not host.exists(FOLDER) and not host.exists(previous.PATH)


def test_the_old_drop_in_stays_if_kubelet_rejects_the_new_one(live):
    host, _service = live("static", None, "static")
    change(host)
    recorded = previous.recorded(host)
    with pytest.raises(ValueError, match="The drop-in is as it was before"):
        change(host, TEXT.replace("0-1", "0-3"), OTHER, wait=0)
    assert host.names(FOLDER) == ["50-npu-affinity.conf"] and previous.recorded(host) == recorded


def test_a_kubelet_that_does_not_run_is_not_started(live):
    host, service = live()
    service.running = False
    change(host)
    assert service.log == [] and host.exists(PATH) and not host.exists(STATE)


def test_unbind_keeps_and_reports_a_drop_in_that_kubelet_uses(tree):
    host = tree.write(HOST)
    change(host)
    report = unbind.unbind(host)
    assert report.kept == {"kubelet"} and host.exists(PATH)
    assert "unbind with npu_affinity_kubelet_restart: true" in report.pending["kubelet"]
    change(host, None)
    assert not unbind.unbind(host).bound


KUBELET = "kubelet.service"


class Node(ModelledSystemd):
    """A running machine whose kubelet refuses to start with the state of another policy, as the real one does."""

    def __init__(self, root):
        ModelledSystemd.__init__(self, root)
        self.interrupt = lambda: None
        for path, text in HOST.items():
            self.put(path, text)
        self.running = {KUBELET}

    def run(self, argv, stdin="", timeout=None):
        if argv[1] in ("start", "stop"):
            self.interrupt()
        result = ModelledSystemd.run(self, argv, stdin, timeout)
        if argv[1] == "start" and KUBELET in argv:
            policy = "static" if self.names(posixpath.dirname(PATH)) else "none"
            if json.loads(self.read(STATE) or "{}").get("policyName", policy) == policy:
                self.put(STATE, json.dumps(dict(json.loads(NONE), policyName=policy)))
            else:
                self.running.discard(KUBELET)
        return result


NEXT = [
    ("the same again", change),
    ("back to none", lambda node: change(node, None)),
    ("a bind that leaves the kubelet alone", lambda node: apply_files(node, Request())),
    ("unbind", unbind.unbind),
]


@pytest.mark.parametrize("following", [way[1] for way in NEXT], ids=[way[0] for way in NEXT])
def test_the_next_run_starts_a_kubelet_that_a_killed_run_stopped(tmp_path, monkeypatch, following):
    monkeypatch.setattr(_drop_in.time, "sleep", lambda seconds: None)
    stayed_down = 0
    for last, node in Steps(monkeypatch).endings(lambda number: Node(str(tmp_path / str(number))), Killed(), change):
        stayed_down += KUBELET not in node.running
        following(node)
        assert KUBELET in node.running, last
        assert not journal.stopped(node), last
        assert _drop_in.look(node, PATH, TEXT if node.exists(PATH) else None).needed is False, last
    assert stayed_down > 2


def test_a_run_killed_during_a_rename_leaves_one_drop_in_at_last(tmp_path, monkeypatch):
    monkeypatch.setattr(_drop_in.time, "sleep", lambda seconds: None)

    def twin(number):
        node = Node(str(tmp_path / str(number)))
        change(node)
        return node

    for last, node in Steps(monkeypatch).endings(twin, Killed(), change, TEXT, PATH.replace("50-", "60-")):
        _drop_in.apply(node, _drop_in.look(node, next(iter(_drop_in.installed(node))), None))
        assert node.names(FOLDER) == [] and KUBELET in node.running, last
        assert not node.exists(previous.PATH), last


def test_a_kubelet_that_does_not_start_is_reported_and_noted(tmp_path):
    node = Node(str(tmp_path))
    previous.record(node, journal.SECTION, [KUBELET])
    node.running = set()

    def fail():
        raise OSError(5, "Input/output error")

    start, node.interrupt = node.interrupt, fail
    report = apply_files(node, Request())
    assert "kubelet.service was stopped by a run that ended too early, and does not start" in report.not_started[0]
    undone = unbind.unbind(node)
    assert "does not start" in undone.failed[0] and undone.kept == {journal.SECTION}
    node.interrupt = start
    assert apply_files(node, Request(), check=True).actions == ["start kubelet.service again"] and node.running == set()
    assert not unbind.unbind(node).failed and node.running == {KUBELET}
    assert not node.exists(previous.PATH)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's drop-in: what is pending, in which order it is changed, and that the kubelet runs again whatever happens to a change."""

import json
import re
import time

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import drop_in as _drop_in
from ansible_collections.npu.affinity.plugins.module_utils._state import journal, previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction import unbind
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply as apply_files
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from tests.fakes.machine import Killed, Steps
from tests.fakes.systemd import ModelledSystemd

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
KUBELET = "kubelet.service"


class Node(ModelledSystemd):
    """A running machine whose kubelet refuses to start with the state of another policy, as the real one does; it logs what it finds.

    ``broken``: whether the next start fails whatever there is.
    """

    def __init__(self, root):
        ModelledSystemd.__init__(self, root)
        self.interrupt, self.running, self.broken, self.log = lambda: None, {KUBELET}, False, []
        for path, text in HOST.items():
            self.put(path, text)

    def run(self, argv, stdin="", timeout=None):
        verb = argv[1]
        if verb in ("start", "stop"):
            self.interrupt()
        result = ModelledSystemd.run(self, argv, stdin, timeout)
        if KUBELET in argv and verb == "stop":
            self.log.append(verb)
        if KUBELET in argv and verb == "start":
            policy = "static" if self.names(FOLDER) else "none"
            self.log.append("start with %s, %s" % (policy, "state" if self.exists(STATE) else "no state"))
            if not self.broken and json.loads(self.read(STATE) or "{}").get("policyName", policy) == policy:
                self.put(STATE, json.dumps(dict(json.loads(NONE), policyName=policy)))
            else:
                self.running.discard(KUBELET)
            self.broken = False
        return result


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(_drop_in.time, "sleep", lambda seconds: None)
    return Node(str(tmp_path / "node"))


def change(host, text=TEXT, path=PATH, **options):
    """Apply what the drop-in needs, and return it."""
    needed = _drop_in.look(host, path, text)
    if needed.needed:
        _drop_in.apply(host, needed, **options)
    return needed


def test_what_is_pending_is_told_setting_by_setting(tree):
    pending = _drop_in.look(tree.write(HOST), PATH, TEXT)
    assert pending.differences == ["cpuManagerPolicy: none -> static", "reservedSystemCPUs: not set -> 0-1"]
    assert pending.removed == [STATE, MEMORY_STATE]
    assert not tree.host.exists(PATH), "looking writes nothing"
    pending = _drop_in.look(tree.host, PATH, TEXT.split("\n", maxsplit=1)[0] + "\ntopologyManagerPolicy: restricted\n")
    assert (pending.differences, pending.removed) == (["topologyManagerPolicy: none -> restricted"], [])
    pending = _drop_in.look(tree.write({PATH: TEXT.rstrip("\n")}), PATH, TEXT)
    assert pending.differences == ["cpuManagerPolicy: kubelet last ran with none -> static"]
    assert pending.needed and pending.removed == [STATE, MEMORY_STATE]
    assert not _drop_in.look(tree.write({STATE: NONE.replace("none", "static")}), PATH, TEXT).needed


FLAG = "KUBELET_EXTRA_ARGS='--config-dir=%s --cpu-manager-policy=none'" % FOLDER
REFUSED = {
    "its folder of drop-ins is not set. Start it with --config-dir=/etc/kubernetes/kubelet.conf.d": {"/etc/default/kubelet": ""},
    "its folder of drop-ins is /etc/other.d": {"/etc/default/kubelet": "A=--config-dir=/etc/other.d"},
    "Policy of %s would not count: a flag of the kubelet or a later drop-in says none" % PATH: {"/etc/default/kubelet": FLAG},
    "reservedSystemCPUs of %s would not count" % PATH: {FOLDER + "/90-last.conf": "reservedSystemCPUs: '7'"},
    "is not managed by npu.affinity": {PATH: "cpuManagerPolicy: none"},
}


@pytest.mark.parametrize("words, files", REFUSED.items())
def test_a_drop_in_that_would_not_count_is_refused(tree, words, files):
    with pytest.raises(ValueError, match=re.escape(words)):
        _drop_in.look(tree.write(dict(HOST, **files)), PATH, TEXT)


def test_kubelet_is_stopped_changed_and_started_and_so_undone(node):
    change(node)
    assert node.log == ["stop", "start with static, no state"]
    assert node.read(PATH) == TEXT.rstrip("\n") and not node.exists(MEMORY_STATE)
    assert _drop_in.installed(node) == [PATH]
    assert not _drop_in.look(node, PATH, TEXT).needed
    assert change(node, None).differences == ["cpuManagerPolicy: static -> none", "reservedSystemCPUs: 0-1 -> not set"]
    assert node.log[2:] == ["stop", "start with none, no state"]
    assert _drop_in.installed(node) == [] and not node.exists(FOLDER)


def test_a_kubelet_that_fails_to_start_keeps_its_old_settings(node):
    node.broken = True
    with pytest.raises(ValueError, match="does not run with CPU manager policy static after 0 s.*The drop-in is as it was before"):
        change(node, wait=0)
    assert node.log == ["stop", "start with static, no state", "stop", "start with none, no state"]
    assert not node.exists(PATH) and not node.exists(FOLDER) and not node.exists(previous.PATH)


OTHER = FOLDER + "/60-numa.conf"


def test_a_clock_that_is_set_forward_ends_no_wait(node, monkeypatch):
    day = time.time() + 24 * 3600
    monkeypatch.setattr(_drop_in.Systemd, "active", lambda self, units: list(units) if not node.log or time.time() > day else [])
    monkeypatch.setattr(_drop_in.time, "sleep", lambda seconds: monkeypatch.setattr(time, "time", lambda: day + 1))
    change(node)
    assert node.log == ["stop", "start with static, no state"]


def test_a_renamed_drop_in_does_not_stay_under_its_old_name(node):
    change(node)
    renamed = change(node, TEXT, OTHER)
    assert renamed.differences == ["drop-in: %s -> %s" % (PATH, OTHER)] and renamed.removed == []
    assert (node.names(FOLDER), _drop_in.installed(node)) == (["60-numa.conf"], [OTHER])
    assert not _drop_in.look(node, OTHER, TEXT).needed
    change(node, None, OTHER)
    assert not node.exists(FOLDER) and not node.exists(previous.PATH)


def test_the_old_drop_in_stays_if_kubelet_rejects_the_new_one(node):
    change(node)
    recorded, node.broken = previous.recorded(node), True
    with pytest.raises(ValueError, match="The drop-in is as it was before"):
        change(node, TEXT.replace("0-1", "0-3"), OTHER, wait=0)
    assert node.names(FOLDER) == ["50-npu-affinity.conf"] and previous.recorded(node) == recorded


def test_a_kubelet_that_does_not_run_is_not_started(node):
    node.running = set()
    change(node)
    assert node.log == [] and node.exists(PATH) and not node.exists(STATE)


def test_unbind_keeps_and_reports_a_drop_in_that_kubelet_uses(tree):
    host = tree.write(HOST)
    change(host)
    report = unbind.unbind(host)
    assert report.kept == {"kubelet"} and host.exists(PATH)
    assert "unbind with npu_affinity_kubelet_restart: true" in report.pending["kubelet"]
    change(host, None)
    assert not unbind.unbind(host).bound


NEXT = {
    "the same again": change,
    "back to none": lambda node: change(node, None),
    "a bind that leaves the kubelet alone": lambda node: apply_files(node, Request()),
    "unbind": unbind.unbind,
}


@pytest.mark.parametrize("following", NEXT.values(), ids=NEXT)
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

    for last, node in Steps(monkeypatch).endings(twin, Killed(), change, TEXT, OTHER):
        _drop_in.apply(node, _drop_in.look(node, next(iter(_drop_in.installed(node))), None))
        assert node.names(FOLDER) == [] and KUBELET in node.running, last
        assert not node.exists(previous.PATH), last


def test_a_kubelet_that_does_not_start_is_reported_and_noted(node):
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

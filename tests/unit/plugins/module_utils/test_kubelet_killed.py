# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that changes the kubelet is killed at every step: whatever runs next, the kubelet runs again, with files that it takes."""

from __future__ import annotations

import json
import posixpath

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._transaction import unbind
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import drop_in
from ansible_collections.npu.affinity.plugins.module_utils._state import journal, previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply as apply_files
from tests.fakes.kubelet import HOST, NONE, PATH, STATE, TEXT
from tests.fakes.machine import Killed, Steps
from tests.fakes.systemd import ModelledSystemd

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


def change(node, content=TEXT, path=PATH):
    found = drop_in.look(node, path, content)
    if found.needed:
        drop_in.apply(node, found)


NEXT = [
    ("the same again", change),
    ("back to none", lambda node: change(node, None)),
    ("a bind that leaves the kubelet alone", lambda node: apply_files(node, Request())),
    ("unbind", unbind.unbind),
]


@pytest.mark.parametrize("following", [way[1] for way in NEXT], ids=[way[0] for way in NEXT])
def test_the_next_run_starts_a_kubelet_that_a_killed_run_stopped(tmp_path, monkeypatch, following):
    monkeypatch.setattr(drop_in.time, "sleep", lambda seconds: None)
    stayed_down = 0
    for last, node in Steps(monkeypatch).endings(lambda number: Node(str(tmp_path / str(number))), Killed(), change):
        stayed_down += KUBELET not in node.running
        following(node)
        assert KUBELET in node.running, last
        assert not journal.stopped(node), last
        assert drop_in.look(node, PATH, TEXT if node.exists(PATH) else None).needed is False, last
    assert stayed_down > 2


def test_a_run_killed_during_a_rename_leaves_one_drop_in_at_last(tmp_path, monkeypatch):
    monkeypatch.setattr(drop_in.time, "sleep", lambda seconds: None)

    def twin(number):
        node = Node(str(tmp_path / str(number)))
        change(node)
        return node

    for last, node in Steps(monkeypatch).endings(twin, Killed(), change, TEXT, PATH.replace("50-", "60-")):
        drop_in.apply(node, drop_in.look(node, next(iter(drop_in.installed(node))), None))
        assert node.names("/etc/kubernetes/kubelet.conf.d") == [] and KUBELET in node.running, last
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

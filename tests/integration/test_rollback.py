# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that go back to a state that was applied before, with the playbooks that an operator types."""

from __future__ import annotations

import hashlib

import pytest

from tests.fakes.changes import SHARED, VENDOR, shared, state
from tests.fakes.node import DROP_IN, STATE, commands, node
from tests.fakes.split_host import MACHINE, ours
from tests.integration.conftest import touched
from tests.simulator.faults import lose_card

ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
LIBRARY = "usr/local/hami-vnpu-core/libvnpu.so"
OWN = ("/etc/npu-affinity/history", "/etc/npu-affinity/previous.json")


def differing(before, after):
    paths = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return {path for path in paths if not path.startswith((*OWN, *VENDOR))}


@pytest.mark.long
def test_a_fleet_rolls_back_and_forth_except_on_other_hardware(fleet):
    hosts = fleet(first="a2_4x48", second="a2_4x48", unbound="a2_4x48")
    bind = {"npu_affinity_hosts": "all:!unbound", **ALL_AT_ONCE}
    assert hosts.play("bind", npu_affinity_author="alice", **SHARED, **bind).status == 0
    before, cards = state(hosts.tree("first")), shared(hosts.tree("first"))
    assert cards
    changes = {"npu_affinity_housekeeping": "1", "npu_affinity_irq_enabled": False, "npu_affinity_reason": "one core for the system"}
    assert hosts.play("bind", npu_affinity_author="bob", **changes, **bind).status == 0
    changed = state(hosts.tree("first"))
    assert differing(before, changed) and not shared(hosts.tree("first"))
    lose_card(hosts.tree("second"), 3)

    shown = hosts.play("history", "--limit", "first,unbound")
    assert shown.status == 0 and "bind by bob" in shown.output and ": one core for the system" in shown.output, shown.output
    assert "feature irq: present -> absent" in shown.output and "This host is not bound." in shown.output

    nowhere = hosts.play("rollback", "--limit", "first")
    assert nowhere.status != 0 and "Name the state to restore" in nowhere.failure("first")

    looked = hosts.snapshot("first")
    check = hosts.play("rollback", "--check", "--limit", "first", npu_affinity_to="-1", **ALL_AT_ONCE)
    assert "first: would go back to entry 1 of" in check.output
    assert check.status == 0 and touched(looked, hosts.snapshot("first")) == set(), check.output

    run = hosts.play("rollback", npu_affinity_to="-1", **ALL_AT_ONCE)
    assert "Entry 1 of " in run.failure("second") and "the NPU at 0000:82:00.0 is missing" in run.failure("second"), run.output
    assert differing(before, state(hosts.tree("first"))) == set()
    assert shared(hosts.tree("first")) == cards
    assert "1 changed: first\n" in run.output and "1 never bound: unbound\n" in run.output and "1 refused" in run.output, run.output
    assert "first: rolled back to entry 1 of" in run.output and "npu.affinity.binding_info" in run.modules("first")
    assert run.files("first") == check.files("first")
    assert [entry for entry in run.of("unbound", "ok") if entry["result"].get("changed")] == []

    forth = hosts.play("rollback", "--limit", "first", npu_affinity_to="-1", **ALL_AT_ONCE)
    assert forth.status == 0 and differing(changed, state(hosts.tree("first"))) == set(), forth.output


def test_soft_split_goes_and_comes_back_with_the_states(fleet, tmp_path):
    hosts = fleet(host=MACHINE)
    tree = hosts.tree("host")
    library = tmp_path / "libvnpu.so"
    library.write_bytes(b"\x7fELF\0library")
    files = [{"name": library.name, "src": str(library), "sha256": hashlib.sha256(library.read_bytes()).hexdigest()}]
    without = ours(hosts.snapshot("host"))
    assert hosts.play("bind").status == 0
    off = content(hosts)
    assert hosts.play("bind", npu_affinity_vnpu_enabled=True, npu_affinity_vnpu_files=files).status == 0
    on = content(hosts)
    assert (tree / LIBRARY).read_bytes() == library.read_bytes()

    back = hosts.play("rollback", npu_affinity_to="-1")
    assert back.status == 0 and content(hosts) == off, back.output
    nowhere = hosts.play("rollback", npu_affinity_to="-1")
    assert "libvnpu.so with SHA-256 " in nowhere.failure("host") and "name its source in npu_affinity_vnpu_files" in nowhere.failure("host")
    forth = hosts.play("rollback", npu_affinity_to="-1", npu_affinity_vnpu_files=files)
    assert forth.status == 0 and content(hosts) == on, forth.output
    assert hosts.play("unbind").status == 0 and ours(hosts.snapshot("host")) == without


def test_soft_split_and_kubelet_go_and_come_back_together(fleet, tmp_path):
    hosts, library, log = node(fleet), tmp_path / "libvnpu.so", tmp_path / "kubectl.log"
    library.write_text("library")
    files = [{"name": library.name, "src": str(library), "sha256": hashlib.sha256(library.read_bytes()).hexdigest()}]
    restarting = {"npu_affinity_kubelet_restart": True, "npu_affinity_vnpu_files": files, **commands(log)}
    assert hosts.play("bind", **restarting).status == 0
    off = state(hosts.tree("node"))
    run = hosts.play("bind", npu_affinity_vnpu_enabled=True, npu_affinity_kubelet_enabled=True, **restarting)
    assert run.status == 0, run.output
    on = state(hosts.tree("node"))
    assert {"/" + LIBRARY, "/" + DROP_IN} <= on.keys() - off.keys()
    for wanted in (off, on):
        back = hosts.play("rollback", npu_affinity_to="-1", **restarting)
        assert back.status == 0 and differing(wanted, state(hosts.tree("node"))) <= {"/" + STATE}, back.output
        verified = hosts.play("verify", **restarting)
        assert verified.status == 0, verified.output
    assert log.read_text().split() == ["drain", "uncordon"] * 3


def content(hosts):
    return {path: text for path, text in ours(hosts.snapshot("host")).items() if not path.startswith(OWN)}

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that go back to a state that was applied before, with the playbooks that an operator types."""

from __future__ import annotations


import pytest

from tests.fakes.changes import SHARED, VENDOR, shared, state
from tests.fakes.node import DROP_IN, STATE, commands, node
from tests.fakes.split_host import MACHINE, ours, soft_split
from tests.integration.conftest import touched
from tests.simulator.faults import lose_card

ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
LIBRARY = "usr/local/hami-vnpu-core/libvnpu.so"
OWN = ("/etc/npu-affinity/history", "/etc/npu-affinity/previous.json")


def differing(before, after):
    return {path for path in touched(before, after) if not path.startswith((*OWN, *VENDOR))}


@pytest.mark.long
def test_a_fleet_rolls_back_and_forth_except_on_other_hardware(fleet):
    hosts = fleet(first="a2_4x48", second="a2_4x48", unbound="a2_4x48")
    bind = {"npu_affinity_hosts": "all:!unbound", **ALL_AT_ONCE}
    hosts.succeed("bind", npu_affinity_author="alice", **SHARED, **bind)
    before, cards = state(hosts.tree("first")), shared(hosts.tree("first"))
    assert cards
    changes = {"npu_affinity_housekeeping": "1", "npu_affinity_irq_enabled": False, "npu_affinity_reason": "one core for the system"}
    hosts.succeed("bind", npu_affinity_author="bob", **changes, **bind)
    changed = state(hosts.tree("first"))
    assert differing(before, changed) and not shared(hosts.tree("first"))
    lose_card(hosts.tree("second"), 3)

    shown = hosts.succeed("history", "--limit", "first,unbound")
    assert "bind by bob" in shown.output and ": one core for the system" in shown.output, shown.output
    assert "feature irq: present -> absent" in shown.output and "This host is not bound." in shown.output

    nowhere = hosts.play("rollback", "--limit", "first")
    assert nowhere.status != 0 and "Name the state to restore" in nowhere.failure("first")

    with hosts.untouched():
        check = hosts.succeed("rollback", "--check", "--limit", "first", npu_affinity_to="-1", **ALL_AT_ONCE)
    assert "first: would go back to entry 1 of" in check.output

    run = hosts.play("rollback", npu_affinity_to="-1", **ALL_AT_ONCE)
    assert "Entry 1 of " in run.failure("second") and "the accelerator at 0000:82:00.0 is missing" in run.failure("second"), run.output
    assert differing(before, state(hosts.tree("first"))) == set()
    assert shared(hosts.tree("first")) == cards
    assert "1 changed: first\n" in run.output and "1 never bound: unbound\n" in run.output and "1 refused" in run.output, run.output
    assert "first: rolled back to entry 1 of" in run.output and "npu.affinity.binding_info" in run.modules("first")
    assert run.files("first") == check.files("first")
    assert [entry for entry in run.of("unbound", "ok") if entry["result"].get("changed")] == []

    forth = hosts.succeed("rollback", "--limit", "first", npu_affinity_to="-1", **ALL_AT_ONCE)
    assert differing(changed, state(hosts.tree("first"))) == set(), forth.output


def test_soft_split_goes_and_comes_back_with_the_states(fleet, tmp_path):
    hosts = fleet(host=MACHINE)
    tree = hosts.tree("host")
    library = tmp_path / "libvnpu.so"
    library.write_bytes(b"\x7fELF\0library")
    split = soft_split(library)
    without = ours(hosts.snapshot("host"))
    hosts.succeed("bind")
    off = content(hosts)
    hosts.succeed("bind", **split)
    on = content(hosts)
    assert (tree / LIBRARY).read_bytes() == library.read_bytes()

    back = hosts.succeed("rollback", npu_affinity_to="-1")
    assert content(hosts) == off, back.output
    nowhere = hosts.play("rollback", npu_affinity_to="-1")
    assert "libvnpu.so with SHA-256 " in nowhere.failure("host") and "name its source in npu_affinity_vnpu_files" in nowhere.failure("host")
    forth = hosts.succeed("rollback", npu_affinity_to="-1", npu_affinity_vnpu_files=split["npu_affinity_vnpu_files"])
    assert content(hosts) == on, forth.output
    assert hosts.play("unbind").status == 0 and ours(hosts.snapshot("host")) == without


def test_soft_split_and_kubelet_go_and_come_back_together(fleet, tmp_path):
    hosts, library, log = node(fleet), tmp_path / "libvnpu.so", tmp_path / "kubectl.log"
    library.write_text("library")
    restarting = {**soft_split(library), "npu_affinity_vnpu_enabled": False, "npu_affinity_kubelet_restart": True, **commands(log)}
    hosts.succeed("bind", **restarting)
    off = state(hosts.tree("node"))
    hosts.succeed("bind", **{**restarting, "npu_affinity_vnpu_enabled": True}, npu_affinity_kubelet_enabled=True)
    on = state(hosts.tree("node"))
    assert {"/" + LIBRARY, "/" + DROP_IN} <= on.keys() - off.keys()
    for wanted in (off, on):
        back = hosts.succeed("rollback", npu_affinity_to="-1", **restarting)
        assert differing(wanted, state(hosts.tree("node"))) <= {"/" + STATE}, back.output
        hosts.succeed("verify", **restarting)
    assert log.read_text().split() == ["drain", "uncordon"] * 3


def content(hosts):
    return {path: text for path, text in ours(hosts.snapshot("host")).items() if not path.startswith(OWN)}

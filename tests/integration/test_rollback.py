# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that go back to a state that was applied before, with the playbooks that an operator types."""

import json
import re

import pytest

from tests.fakes.changes import SHARED, VENDOR, shared, state
from tests.fakes.small_host import MACHINE, soft_split
from tests.integration.conftest import touched
from tests.simulator.faults import lose_card

ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
PLAN = "etc/npu-affinity/plan.json"
SLICE = "etc/systemd/system/npu-0.slice"
LIBRARY = "usr/local/hami-vnpu-core/libvnpu.so"
OWN = ("/etc/npu-affinity/history", "/etc/npu-affinity/previous.json")


def differing(before, after):
    return {path for path in touched(before, after) if not path.startswith((*OWN, *VENDOR))}


def history(hosts, host):
    """The entries of a host, oldest first."""
    paths = sorted((hosts.tree(host) / OWN[0].lstrip("/")).iterdir(), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def rollbacks(run):
    """What the rollbacks go back to that a summary offers next."""
    commands = [step["command"] for step in run.summary["next"] if "/rollback.yml" in step["command"]]
    return [re.search("npu_affinity_to=(.*)", command)[1] for command in commands]


def housekeeping(hosts):
    return {host: json.loads((hosts.tree(host) / PLAN).read_text())["housekeeping"] for host in hosts.hosts}


@pytest.mark.headline
def test_a_run_is_resolved_once_for_all_hosts(fleet):
    hosts = fleet(a="i310_pro", b="i310_pro")
    hosts.succeed("bind", "--limit", "a", npu_affinity_author="alice")
    hosts.copy("a", "b")
    (first,) = (entry["run"]["id"] for entry in history(hosts, "a"))
    wanted = {"npu_affinity_housekeeping": "0"}
    canary = hosts.succeed("bind", "--limit", "a", **wanted).summary["next"]
    assert not [step for step in canary if "npu_affinity_to" in step["command"]]
    second = history(hosts, "a")[-1]["run"]
    assert second["inventory"] == str(hosts.inventory)

    with hosts.untouched():
        check = hosts.succeed("rollback", "--check", npu_affinity_to="-1")
    assert check.summary["states"] == {"would change": ["a"], "unchanged": ["b"]}
    meant = f"before:{second['id']}"
    assert f"npu_affinity_to=-1 is the state before run {second['id']}: bind by " in check.output
    assert rollbacks(check) == [meant]
    with hosts.untouched("b"):
        back = hosts.succeed("rollback", npu_affinity_to="-1")
    assert back.summary["states"] == {"changed": ["a"], "unchanged": ["b"]}
    for to in ("-1", meant, first):
        with hosts.untouched():
            assert hosts.succeed("rollback", npu_affinity_to=to).summary["states"] == {"unchanged": ["a", "b"]}


def test_a_rollback_that_failed_half_way_is_typed_again(fleet):
    hosts = fleet(a="i310_pro", b="i310_pro", c="i310_pro")
    hosts.succeed("bind", "--limit", "a")
    hosts.succeed("bind", "--limit", "a", npu_affinity_housekeeping="0", npu_affinity_reason="a core for the system")
    hosts.copy("a", "b", "c")
    first, second = (entry["run"] for entry in history(hosts, "a"))
    slice = hosts.tree("b") / SLICE
    text = slice.read_text()
    slice.unlink()
    slice.mkdir()
    half = hosts.play("rollback", npu_affinity_to="-1")
    assert half.status != 0 and half.summary["states"] == {"changed": ["a"], "failed": ["b"], "untouched": ["c"]}, half.output
    meant = f"before:{second['id']}"
    assert rollbacks(half) == [meant]
    slice.rmdir()
    slice.write_text(text)
    with hosts.untouched("a"):
        rest = hosts.succeed("rollback", npu_affinity_to="-1")
    assert rest.summary["states"] == {"changed": ["b", "c"], "unchanged": ["a"]}
    assert set(housekeeping(hosts).values()) == {""}

    hosts.give({"c": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}})
    with hosts.untouched():
        unsure = hosts.play("rollback", npu_affinity_to="-1")
    assert unsure.summary["states"] == {"refused": ["a", "b"], "unreachable": ["c"]}
    assert f"the history of c could not be read. If it is the one named above, use -e npu_affinity_to={meant}" in unsure.output
    hosts.give({"c": {}})
    at = hosts.succeed("rollback", "--check", npu_affinity_to=first["time"].rstrip("Z"))
    assert at.summary["states"] == {"unchanged": ["a", "b", "c"]} and f"is the state after run {first['id']}" in at.output
    forth = hosts.succeed("rollback", npu_affinity_to=second["id"], **ALL_AT_ONCE)
    assert forth.summary["states"] == {"changed": ["a", "b", "c"]} and set(housekeeping(hosts).values()) == {"0,32"}
    shown = hosts.succeed("history").output
    assert f"{second['id']}  bind by " in shown and " on a, b, c: a core for the system\n" in shown
    assert len({history(hosts, host)[-1]["run"]["id"] for host in hosts.hosts}) == 1, "one run on all hosts"


@pytest.mark.long
def test_a_fleet_rolls_back_and_forth_except_on_other_hardware(fleet):
    hosts = fleet(first="a2_4x48", second="a2_4x48", unbound="a2_4x48")
    bind = {"npu_affinity_hosts": "all:!unbound", **ALL_AT_ONCE}
    hosts.succeed("bind", "--limit", "first", **SHARED, **bind)
    hosts.copy("first", "second")
    before, cards = state(hosts.tree("first")), shared(hosts.tree("first"))
    assert cards
    hosts.succeed("bind", npu_affinity_housekeeping="1", npu_affinity_irq_enabled=False, **bind)
    changed = state(hosts.tree("first"))
    assert differing(before, changed) and not shared(hosts.tree("first"))
    lose_card(hosts.tree("second"), 3)

    nowhere = hosts.play("rollback", "--limit", "first")
    assert nowhere.status != 0 and "Name the state to restore" in nowhere.failure("first")
    with hosts.untouched():
        check = hosts.succeed("rollback", "--check", "--limit", "first", npu_affinity_to="-1", **ALL_AT_ONCE)
    first, second = (entry["run"]["id"] for entry in history(hosts, "first"))
    assert f"would be at the state of run {first}: first" in check.output

    run = hosts.play("rollback", npu_affinity_to="-1", **ALL_AT_ONCE)
    why = run.failure("second")
    assert f"Entry 1 (run {first}) was made for other hardware" in why and "the accelerator at 0000:82:00.0 is missing" in why, run.output
    assert differing(before, state(hosts.tree("first"))) == set()
    assert shared(hosts.tree("first")) == cards
    assert "1 changed: first\n" in run.output and "1 never bound: unbound\n" in run.output and "1 refused" in run.output, run.output
    assert f"\nat the state of run {first}: first\n" in run.output and "npu.affinity.binding_info" in run.modules("first")
    assert run.files("first") == check.files("first")
    assert [entry for entry in run.of("unbound", "ok") if entry["result"].get("changed")] == []

    forth = hosts.succeed("rollback", "--limit", "first", npu_affinity_to=second, **ALL_AT_ONCE)
    assert differing(changed, state(hosts.tree("first"))) == set(), forth.output


def test_soft_split_comes_back_from_its_source(fleet, tmp_path):
    hosts, library = fleet(a=MACHINE), tmp_path / "libvnpu.so"
    library.write_bytes(b"\x7fELF\0library")
    tree, split = hosts.tree("a"), soft_split(library)
    without = state(tree)
    hosts.succeed("bind")
    off = state(tree)
    hosts.succeed("bind", **split)
    on, forth = state(tree), history(hosts, "a")[-1]["run"]["id"]
    assert "/" + LIBRARY in on.keys() - off.keys() and (tree / LIBRARY).read_bytes() == library.read_bytes()
    sources = {**split, "npu_affinity_vnpu_enabled": False}
    hosts.succeed("rollback", npu_affinity_to="-1", **sources)
    assert differing(off, state(tree)) == set()
    nowhere = hosts.play("rollback", npu_affinity_to=forth).failure("a")
    assert "libvnpu.so with SHA-256 " in nowhere and "name its source in npu_affinity_vnpu_files" in nowhere
    hosts.succeed("rollback", npu_affinity_to=forth, **sources)
    assert differing(on, state(tree)) == set()
    hosts.succeed("unbind")
    assert differing(without, state(tree)) == set()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets that were bound and are to be what they were before, with the playbooks that an operator types."""

from __future__ import annotations


import pytest

from tests.fakes.changes import SHARED, shared, state
from tests.integration.conftest import touched
from tests.simulator.faults import lose_card, set_faults
from tests.simulator.generate import load
from tests.simulator.reboot import reboot

ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
VARIABLES = {
    "a2": {
        "npu_affinity_housekeeping": "1",
        "npu_affinity_housekeeping_confine_holders": True,
        "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}, {"unit": "tp2.service", "npus": [2, 3]}],
        **SHARED,
    },
    "split": {"npu_affinity_workloads": [{"name": "prefill", "npus": [0, 1], "units": ["prefill.service"]}], **SHARED},
    "hybrid": {"npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}], **SHARED, "npu_affinity_device_share_recover": "on"},
    "gpu": {"npu_affinity_bound_by": "workers"},
    "stopped": {"npu_affinity_irqbalance": "stop", "npu_affinity_housekeeping": "1"},
}


def result_of(run, host):
    (entry,) = (entry for entry in run.of(host) if entry["action"].endswith("unbind"))
    return entry["result"]


def test_every_kind_of_host_is_what_it_was_before_the_first_bind(fleet):
    hosts = fleet(
        a2="a2_8x24",
        split="a3_640_split",
        hybrid={**load("duo"), "cgroup": "hybrid"},
        gpu="l40s_384",
        stopped="a2_4x48",
        untouched="a2_4x48",
    )
    hosts.give(VARIABLES)
    before = {host: state(hosts.tree(host)) for host in hosts.hosts}
    bound = hosts.play("bind", "--limit", "!untouched", **ALL_AT_ONCE)
    assert bound.status == 0, bound.output
    assert len(shared(hosts.tree("a2"))) == 8 and len(shared(hosts.tree("hybrid"))) == 8
    at_work = {host: hosts.snapshot(host) for host in hosts.hosts}
    predicted = hosts.play("unbind", "--check", "--diff", **ALL_AT_ONCE)
    assert predicted.status == 0, predicted.output
    for host in hosts.hosts:
        assert touched(at_work[host], hosts.snapshot(host)) == set(), host
    assert 0 < len(predicted.diff("a2")) <= 60, predicted.output
    done = hosts.play("unbind", **ALL_AT_ONCE)
    assert done.status == 0, done.output
    for host in VARIABLES:
        after = state(hosts.tree(host))
        assert {path for path in before[host].keys() | after.keys() if before[host].get(path) != after.get(path)} == set(), host
        assert shared(hosts.tree(host)) == [], host
        assert result_of(done, host)["changed"] and result_of(done, host)["message"] == "This host is as it was before the first bind."
        apart = {"diff": 0, "message": ""}
        assert {**result_of(predicted, host), **apart} == {**result_of(done, host), **apart}
    assert "/etc/systemd/system/multi-user.target.wants/irqbalance.service" in result_of(done, "stopped")["files"]
    assert not result_of(done, "untouched")["changed"] and not result_of(done, "untouched")["bound"]
    assert touched(at_work["untouched"], hosts.snapshot("untouched")) == set()
    unbound = {host: hosts.snapshot(host) for host in hosts.hosts}
    again = hosts.play("unbind", **ALL_AT_ONCE)
    assert again.status == 0, again.output
    for host in hosts.hosts:
        assert again.changed(host) == 0 and again.modules(host) == ["npu.affinity.unbind"], host
        assert touched(unbound[host], hosts.snapshot(host)) == set(), host


@pytest.mark.long
def test_binds_a_lost_card_and_a_reboot_are_undone_in_one_run(fleet):
    hosts = fleet(a2={**load("a2_8x24"), "irqbalance": {"installed": True, "active": True, "unit": "debian", "options": "--debug"}})
    tree = hosts.tree("a2")
    foreign = tree / "etc/systemd/system/npu-5.slice"
    foreign.write_text("[Slice]\nCPUWeight=50\n")
    foreign.chmod(0o640)
    (tree / "etc/systemd/system/npu.slice").symlink_to("/dev/null")
    before = state(tree)
    confined = {"npu_affinity_housekeeping": "1", "npu_affinity_housekeeping_confine_holders": True}
    assert hosts.play("bind", npu_affinity_npus=[0, 1], **confined).status == 0
    assert hosts.play("bind", npu_affinity_irqbalance="stop", **SHARED).status == 0
    irqbalance = tree / "etc/systemd/system/multi-user.target.wants/irqbalance.service"
    assert not irqbalance.is_symlink()
    reboot(tree)
    assert hosts.play("bind", npu_affinity_interval="1h", **SHARED).status == 0
    assert irqbalance.is_symlink(), "without stop it is what it was"
    lose_card(tree, 3)
    lost = state(tree)
    run = hosts.play("unbind")
    assert run.status == 0, run.output
    after = state(tree)
    gone = before.keys() - lost.keys()
    differing = {path for path in before.keys() - gone if before[path] != after.get(path)}
    assert differing == {"/proc/interrupts"}
    assert after.keys() <= before.keys()
    assert shared(tree) == ["3:0"], "only the card that is not there keeps it"


def test_a_busy_card_stops_at_the_canary_and_a_rerun_finishes(fleet):
    hosts = fleet(canary="duo", other="duo")
    before = {host: state(hosts.tree(host)) for host in hosts.hosts}
    assert hosts.play("bind", "--limit", "canary", **SHARED).status == 0
    hosts.copy("canary", "other")
    at_work = state(hosts.tree("other"))
    set_faults(hosts.tree("canary"), busy=["2:1"])
    unconfirmed = hosts.play("unbind", npu_affinity_confirm=False)
    assert unconfirmed.status != 0 and "Nothing was unbound. To unbind 2 hosts, answer yes at a terminal" in unconfirmed.failure("canary")
    misspelled = hosts.play("unbind", npu_affinity_featurs=["irq"])
    assert misspelled.status != 0 and "did you mean npu_affinity_features?" in misspelled.output
    run = hosts.play("unbind")
    assert run.status != 0
    assert "chip 1 is not off, because a container holds the card" in run.failure("canary")
    assert run.modules("other") == [] and state(hosts.tree("other")) == at_work
    left = state(hosts.tree("canary")).keys() - before["canary"].keys()
    assert left == {"/etc/npu-affinity", "/etc/npu-affinity/previous.json", "/etc/device_share.cfg"}
    set_faults(hosts.tree("canary"))
    assert hosts.play("unbind").status == 0
    for host in hosts.hosts:
        assert state(hosts.tree(host)) == before[host], host

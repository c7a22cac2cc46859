# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that were bound, by this version or another one, and are to be what they were before."""

import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.version import SCHEMA, VERSION
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from tests import upgrade
from tests.fakes.changes import SHARED, shared, state, touched
from tests.fakes.small_host import KUBELET_STATE, commands, node, write
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
    "hybrid": {"npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}], **SHARED},
    "gpu": {"npu_affinity_bound_by": "workers"},
    "stopped": {"npu_affinity_irqbalance": "stop", "npu_affinity_housekeeping": "1", "npu_affinity_library": "/var/lib/npu-affinity"},
    "tuned": {
        "npu_affinity_adopt": "always",
        "npu_affinity_hugepages": {"node": {0: 100}},
        "npu_affinity_metrics_enabled": True,
        "npu_affinity_nic": "near",
        "npu_affinity_threads_enabled": True,
        "npu_affinity_tuning": {"swappiness": 0},
        "npu_affinity_vnpu_enabled": True,
    },
    "hard": {"npu_affinity_vnpus": [{"npu": 0, "template": "vir04"}]},
    "node": {"npu_affinity_kubelet_enabled": True, "npu_affinity_kubelet_restart": True, **commands("/dev/null")},
}


def result_of(run, host):
    *_waiting, entry = (entry for entry in run.of(host) if entry["action"].endswith("unbind") and entry["outcome"] == "ok")
    return entry["result"]


def test_every_kind_of_host_is_bound_once_and_is_what_it_was(fleet):
    """Every feature is on one of the hosts: a second bind finds nothing to do, and an unbind restores every byte."""
    hosts = node(
        fleet,
        a2="a2_8x24",
        split="a3_640_split",
        hybrid={**load("duo"), "cgroup": "hybrid"},
        gpu="l40s_384",
        stopped="a2_4x48",
        tuned="i310_pro",
        hard="i310_pro",
        untouched="a2_4x48",
    )
    write(hosts.tree("tuned"), "/proc/sys/vm/swappiness", "60\n")
    write(hosts.tree("tuned"), "/var/lib/prometheus/node-exporter/other.prom", "")
    hosts.give(VARIABLES)
    before = {host: state(hosts.tree(host)) for host in hosts.hosts}
    hosts.succeed("bind", "--limit", "!untouched", **ALL_AT_ONCE)
    assert len(shared(hosts.tree("a2"))) == 8 and len(shared(hosts.tree("hybrid"))) == 8
    entries = [json.loads((hosts.tree(host) / "etc/npu-affinity/history/1.json").read_text()) for host in VARIABLES]
    assert {name for entry in entries for name, found in entry["state"]["features"].items() if found == "present"} == FEATURES.keys()
    assert [(hosts.tree("stopped") / path).exists() for path in ("var/lib/npu-affinity", "usr/local/lib/npu-affinity")] == [True, False]
    with hosts.untouched():
        again = hosts.succeed("bind", "--limit", "!untouched", **ALL_AT_ONCE)
    assert {host: again.changed(host) for host in VARIABLES} == dict.fromkeys(VARIABLES, 0)
    assert {host: again.modules(host) for host in VARIABLES} == dict.fromkeys(VARIABLES, ["npu.affinity.gather"])
    with hosts.untouched():
        predicted = hosts.succeed("unbind", "--check", "--diff", **ALL_AT_ONCE)
    assert 0 < len(predicted.diff("a2")) <= 60, predicted.output
    with hosts.untouched("untouched"):
        done = hosts.succeed("unbind", **ALL_AT_ONCE)
    for host in VARIABLES:
        kept = {f"/{KUBELET_STATE}", "/etc/vnpu.cfg"}  # the driver keeps its file, empty
        assert touched(before[host], state(hosts.tree(host))) <= kept, host
        assert shared(hosts.tree(host)) == [], host
        assert result_of(done, host)["changed"] and result_of(done, host)["message"] == "This host is as it was before the first bind."
        apart = {"diff": 0, "differences": 0, "message": ""}
        assert {**result_of(predicted, host), **apart} == {**result_of(done, host), **apart}
    assert "/etc/systemd/system/multi-user.target.wants/irqbalance.service" in result_of(done, "stopped")["files"]
    assert not result_of(done, "untouched")["changed"] and not result_of(done, "untouched")["bound"]
    with hosts.untouched():
        again = hosts.succeed("unbind", **ALL_AT_ONCE)
    for host in hosts.hosts:
        assert again.changed(host) == 0 and again.modules(host) == ["npu.affinity.unbind"], host


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
    hosts.succeed("bind", npu_affinity_npus=[0, 1], **confined)
    hosts.succeed("bind", npu_affinity_irqbalance="stop", **SHARED)
    irqbalance = tree / "etc/systemd/system/multi-user.target.wants/irqbalance.service"
    assert not irqbalance.is_symlink()
    reboot(tree)
    hosts.succeed("bind", npu_affinity_interval="1h", **SHARED)
    assert irqbalance.is_symlink(), "without stop it is what it was"
    lose_card(tree, 3)
    lost = state(tree)
    hosts.succeed("unbind")
    after = state(tree)
    gone = before.keys() - lost.keys()
    differing = {path for path in before.keys() - gone if before[path] != after.get(path)}
    assert differing == {"/proc/interrupts"}
    assert after.keys() <= before.keys()
    assert shared(tree) == ["3:0"], "only the card that is not there keeps it"


@pytest.mark.headline
def test_a_busy_card_stops_at_the_canary_and_a_rerun_finishes(fleet):
    hosts = fleet(canary="duo", other="duo")
    before = {host: state(hosts.tree(host)) for host in hosts.hosts}
    hosts.succeed("bind", "--limit", "canary", **SHARED)
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
    hosts.succeed("unbind")
    for host in hosts.hosts:
        assert state(hosts.tree(host)) == before[host], host


def test_bind_after_unbind_in_one_run_takes_bindable_hosts(fleet):
    hosts, arguments = fleet(refused="a2_broken", good="i310_pro"), ["-e", json.dumps({"npu_affinity_confirm": True})]
    alone = hosts.play("bind", "--check")
    run = hosts.run(["-i", str(hosts.inventory), "playbooks/unbind.yml", "playbooks/bind.yml", *arguments])
    actions = [[entry["action"] for entry in done.of("refused")] for done in (alone, run)]
    assert actions[1][-len(actions[0]) :] == actions[0] and run.changed("good") and not run.changed("refused")


VERSIONS = [path for path in sorted(upgrade.RECORDED.glob("*.txz")) if path.stem != VERSION]
KEPT = {"/etc/vnpu.cfg"}
"""What the driver keeps, empty."""


@pytest.mark.parametrize("recorded", VERSIONS, ids=lambda path: path.stem)
def test_a_host_of_each_version_goes_on_with_this_one(recorded, tmp_path):
    hosts, before = upgrade.restored(recorded, tmp_path)
    hosts.succeed("verify")
    bound = hosts.succeed("bind", npu_affinity_housekeeping="2", **ALL_AT_ONCE)
    assert all(map(bound.changed, hosts.hosts)), bound.output
    hosts.succeed("rollback", npu_affinity_to="-1", **ALL_AT_ONCE)
    hosts.succeed("verify")
    hosts.succeed("unbind", **ALL_AT_ONCE)
    for host in hosts.hosts:
        assert touched(before[host], state(hosts.tree(host))) <= KEPT, host


def test_a_host_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path):
    hosts, _before = upgrade.restored(VERSIONS[-1], tmp_path)
    names = dict(zip(sorted(hosts.hosts), ("plan.json", "previous.json"), strict=True))
    for host, name in names.items():
        path = hosts.tree(host) / "etc/npu-affinity" / name
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": SCHEMA + 1}))
    for playbook, more in [("bind", ALL_AT_ONCE), ("rollback", {"npu_affinity_to": "2099-01-01", **ALL_AT_ONCE}), ("unbind", ALL_AT_ONCE)]:
        with hosts.untouched():
            run = hosts.play(playbook, **more)
        assert run.status != 0, run.output
        for host, name in names.items():
            assert f"/etc/npu-affinity/{name} was written by a newer version of npu.affinity: it has schema {SCHEMA + 1}" in run.failure(
                host
            )
            assert "Nothing was changed. Use that version or a newer one" in run.failure(host)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that are refused: once for a whole fleet, before any connection to a host, and without lines of the playbooks."""

from __future__ import annotations

import pytest
import yaml

EXCERPT = ("[ERROR]", "Origin: ", "^ column")
PLAYBOOKS = ["plan", "bind", "verify", "report", "measure", "collect", "history", "rollback", "unbind"]


@pytest.fixture
def large(fleet):
    """200 hosts of an inventory; no connection is made to any."""
    hosts = fleet()
    names = {f"a{number:03}": None for number in range(1, 201)}
    hosts.inventory.write_text(yaml.safe_dump({"npu_hosts": {"hosts": names, "vars": {"ansible_connection": "local"}}}))
    return hosts


def test_a_misspelled_variable_of_a_fleet_is_said_in_a_few_lines(large):
    run = large.play("plan", npu_affinity_strateg="even_split")
    lines = run.output.splitlines()
    assert run.status != 0
    assert " ".join(run.output.split()).count("did you mean npu_affinity_strategy?") == 1
    assert "All 200 hosts: the variable npu_affinity_strateg is not a setting of npu.affinity" in run.output
    assert len(lines) < 20 and not any(mark in run.output for mark in EXCERPT), run.output
    assert {entry["host"] for entry in run.results} == {"a001"}, "one task for all of them"


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_looks_at_the_settings_first(large, playbook):
    run = large.play(playbook, "--limit", "a001", npu_affinity_batches="0")
    assert "Host a001: npu_affinity_batches: expected numbers of hosts from 1 on" in " ".join(run.output.split())
    assert run.modules("a001") == [] and not any(mark in run.output for mark in EXCERPT)


def test_hosts_with_refused_settings_are_skipped_others_continue(fleet):
    hosts = fleet(good="i310_pro", typo="i310_pro", slip="i310_pro")
    hosts.give({name: {"npu_affinity_houskeeping": 1} for name in ("typo", "slip")})
    run = hosts.play("plan")
    assert run.summary["states"] == {"planned": ["good"], "refused": ["slip", "typo"]}
    assert run.output.count("did you mean npu_affinity_housekeeping?") == 1
    assert not any(mark in run.output for mark in EXCERPT)
    verified = hosts.play("verify")
    assert verified.summary["states"] == {"never bound": ["good"], "refused": ["slip", "typo"]}
    assert run.modules("typo") == verified.modules("typo") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tags", "x"], "--tags x: the playbooks"),
        (["--limit", "nobody"], None),
        (["-e", "npu_affinity_hosts=nobody"], "nobody matches no host of the inventory, which has 1 host: "),
    ],
)
def test_a_run_without_a_host_says_why_in_one_line(fleet, arguments, said):
    run = fleet(a="i310_pro").play("bind", *arguments)
    assert run.status != 0 and "Origin: " not in run.output
    assert said is None or any(line.startswith(f"[ERROR]: {said}") for line in run.output.splitlines()), run.output


def test_what_a_module_refuses_has_no_lines_of_the_playbook(fleet):
    hosts = fleet(a="i310_pro")
    (hosts.tree("a") / "etc/systemd/system/npu-0.slice").mkdir(parents=True)
    failed = hosts.play("bind")
    assert failed.summary["states"] == {"failed": ["a"]}
    (hosts.tree("a") / "etc/systemd/system/npu-0.slice").rmdir()
    hosts.succeed("bind")
    refused = hosts.play("rollback", npu_affinity_to=77)
    assert refused.summary["states"] == {"refused": ["a"]}
    assert refused.output.count("'77' is not a state to restore") == 1
    assert not any(mark in run.output for mark in EXCERPT for run in (failed, refused))

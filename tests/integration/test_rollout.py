# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bind walks through the fleet in batches: what a failure stops, what is reported, and how a second run goes on."""

from __future__ import annotations

import yaml

from tests.integration.conftest import touched
from tests.simulator.generate import load

HOST_CODE = "usr/local/lib/npu-affinity/npu_affinity.zip"
SLICE = "etc/systemd/system/npu-0.slice"


def places(run, action):
    """Where in a run an action took place: ``{host: place}``."""
    return {entry["host"]: place for place, entry in enumerate(run.results) if entry["action"].endswith(action)}


def test_a_failing_canary_spares_other_hosts_and_a_rerun_resumes(fleet):
    hosts = fleet(canary="i310_pro", second="i310_pro", third="i310_pro")
    (hosts.tree("canary") / SLICE).mkdir(parents=True)
    before = {host: hosts.snapshot(host) for host in hosts.hosts}
    stopped = hosts.play("bind")
    assert stopped.status != 0
    for host in hosts.hosts:
        assert {path for path in touched(before[host], hosts.snapshot(host)) if "npu" in path} == set(), host
    assert stopped.summary["states"] == {"failed": ["canary"], "untouched": ["second", "third"]}
    assert SLICE in stopped.failure("canary")
    assert "1 failed: canary\n2 untouched: second, third\nerror on canary: failed: Apply the plan" in stopped.output
    assert "batch 1 of 3, 1 of 3 hosts: 1 failed, " not in stopped.output and "batch 1 of 3, 1 of 3 hosts: 1 failed\n" in stopped.output

    (hosts.tree("canary") / SLICE).rmdir()
    resumed = hosts.succeed("bind")
    assert resumed.summary["states"] == {"changed": ["canary", "second", "third"]}
    assert "batch 3 of 3, 3 of 3 hosts: 3 changed" in resumed.output
    compared, begun = places(resumed, "binding_info"), places(resumed, "host_files")
    assert list(compared) == ["canary", "second", "third"]
    assert compared["canary"] < begun["second"] and compared["second"] < begun["third"], "each batch is compared before the next"
    again = hosts.play("bind")
    assert again.summary["states"] == {"unchanged": ["canary", "second", "third"]}
    assert not places(again, "binding_info")


def test_a_failing_later_batch_names_bound_and_refused_hosts(fleet):
    hosts = fleet(a0="a2_broken", a1="i310_pro", a2="i310_pro", a3="i310_pro", a4="i310_pro")
    (hosts.tree("a3") / SLICE).mkdir(parents=True)
    run = hosts.play("bind", npu_affinity_batches=[1])
    assert run.status != 0
    assert run.summary["states"] == {"changed": ["a1", "a2"], "refused": ["a0"], "failed": ["a3"], "untouched": ["a4"]}
    (hosts.tree("a3") / SLICE).rmdir()
    resumed = hosts.play("bind", npu_affinity_batches=[1])
    assert resumed.summary["states"] == {"changed": ["a3", "a4"], "unchanged": ["a1", "a2"], "refused": ["a0"]}
    assert "batch 2 of 2, 2 of 2 hosts: 2 changed\n" in resumed.output, "batches are of hosts that change"


def test_hosts_in_use_can_be_left_for_later(fleet):
    machine = load("i310_pro")
    worker = {"npu": 5, "pid": 900, "comm": "VLLMWorker_TP", "memory_mib": 1024}
    hosts = fleet(idle=machine, busy={**machine, "npus": {**machine["npus"], "processes": [worker]}})
    before = hosts.snapshot("busy")
    run = hosts.succeed("bind", npu_affinity_skip_busy=True)
    assert run.summary["states"] == {"changed": ["idle"], "skipped": ["busy"]}
    assert "to do on busy: skipped: processes use NPU 1" in run.output
    assert {path for path in touched(before, hosts.snapshot("busy")) if path.startswith("/etc")} == set()
    assert hosts.play("bind", "--limit", "busy").changed("busy") > 0


def test_hosts_are_drained_only_when_something_will_change(fleet, tmp_path):
    hosts = fleet(a="i310_pro", b="i310_pro")
    hooks = {}
    for moment in ("before", "after"):
        hooks[f"npu_affinity_{moment}_host"] = str(tmp_path / f"{moment}.yml")
        (tmp_path / f"{moment}.yml").write_text(
            f'- name: Hook {moment}\n  ansible.builtin.debug:\n    msg: "{moment} {{{{ inventory_hostname }}}}"\n'
        )

    def drained(run):
        return [entry["result"]["msg"] for entry in run.results if entry["task"].startswith("Hook ")]

    assert drained(hosts.play("bind", "--check", "--limit", "a", **hooks)) == []
    first = hosts.succeed("bind", **hooks)
    assert drained(first) == ["before a", "after a", "before b", "after b"]
    (hosts.tree("b") / SLICE).unlink()
    assert drained(hosts.play("bind", **hooks)) == ["before b", "after b"]
    with (hosts.tree("a") / HOST_CODE).open("ab") as archive:
        archive.write(b"of another version")
    upgraded = hosts.play("bind", **hooks)
    assert upgraded.summary["states"] == {"changed": ["a"], "unchanged": ["b"]}
    assert drained(upgraded) == [], "an upgrade of the host code disturbs no workload"
    (hosts.tree("a") / SLICE).unlink()
    (hosts.tree("a") / SLICE).mkdir()
    broken = hosts.play("bind", "--limit", "a", **hooks)
    assert broken.status != 0 and drained(broken) == []


def test_what_is_waited_for_between_batches(fleet):
    hosts = fleet(a="i310_pro", b="i310_pro")
    unapproved = hosts.play("bind", npu_affinity_approve=True, npu_affinity_soak=1)
    assert unapproved.status != 0 and "Pausing for 1 seconds" in unapproved.output
    assert unapproved.summary["states"] == {"changed": ["a"], "untouched": ["b"]}
    assert (
        unapproved.summary["stopped"].startswith("Batch 1 of 2 was not approved")
        and unapproved.failure("a") == unapproved.summary["stopped"]
    )
    sick = hosts.play("bind", npu_affinity_health=["sh", "-c", "echo the model does not answer >&2; exit 3"])
    assert sick.status != 0 and sick.summary["states"] == {"failed": ["a"], "untouched": ["b"]}
    assert sick.failure("a") == (
        "npu_affinity_health exited with status 3: sh -c 'echo the model does not answer >&2; exit 3' "
        "Last lines of stderr: the model does not answer"
    )
    well = hosts.succeed("bind", npu_affinity_health="true", npu_affinity_approve="no")
    assert well.summary["states"] == {"changed": ["b"], "unchanged": ["a"]}, well.output


def test_a_silent_host_is_listed_and_others_are_bound(fleet):
    hosts = fleet(gone="i310_pro", there="i310_pro")
    hosts.give({"gone": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}})
    for playbook, state in (("bind", "changed"), ("verify", "as bound")):
        run = hosts.play(playbook)
        assert run.status != 0 and run.summary["states"] == {state: ["there"], "unreachable": ["gone"]}, run.output
        assert run.summary["hosts"]["gone"]["reasons"] == [run.failure("gone")]
    back = hosts.play("rollback", npu_affinity_to="2099-01-01")
    assert back.status != 0 and back.summary["states"] == {"unchanged": ["there"], "unreachable": ["gone"]}, back.output
    alone = hosts.play("bind", "--limit", "gone")
    assert "1 unreachable: gone" in alone.output, "also where nobody is left"


def test_one_host_by_name_is_never_a_group(fleet):
    hosts = fleet(node1="i310_pro", node2="i310_pro")
    inventory = yaml.safe_load(hosts.inventory.read_text())
    inventory["all"]["children"] = {"npu_hosts": {"hosts": dict.fromkeys(hosts.hosts, {})}}
    hosts.inventory.write_text(yaml.safe_dump(inventory))
    reasons = {"npu_hosts": "it is a group of 2 hosts", "node*": "it is not a name", "node3": "the inventory has no host of that name"}
    for name, why in reasons.items():
        with hosts.untouched():
            refused = hosts.play("bind", npu_affinity_host=name)
        assert refused.status != 0 and why in " ".join(refused.output.split()), refused.output
    bound = hosts.succeed("bind", npu_affinity_host="node1")
    assert bound.summary["states"] == {"changed": ["node1"]}, bound.output

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bind walks through the fleet in batches: what a failure stops, what is reported, and how a second run goes on."""

import pytest
import yaml

from tests.integration.conftest import touched
from tests.simulator.faults import lose_card
from tests.simulator.generate import load

HOST_CODE = "usr/local/lib/npu-affinity/npu_affinity.zip"
SLICE = "etc/systemd/system/npu-0.slice"


def places(run, action):
    """Where in a run an action took place: ``{host: place}``."""
    return {entry["host"]: place for place, entry in enumerate(run.results) if entry["action"].endswith(action)}


@pytest.mark.headline
def test_a_failing_batch_spares_later_hosts_and_a_rerun_resumes(fleet):
    names = ["n1", "n2", "n3", "n4"]
    hosts = fleet(**dict.fromkeys(names, "i310_pro"), broken="a2_broken")
    (hosts.tree("n1") / SLICE).mkdir(parents=True)
    before = {host: hosts.snapshot(host) for host in hosts.hosts}
    stopped = hosts.play("bind")
    assert stopped.status != 0
    assert [path for host in hosts.hosts for path in touched(before[host], hosts.snapshot(host)) if "npu" in path] == []
    assert stopped.summary["states"] == {"refused": ["broken"], "failed": ["n1"], "untouched": ["n2", "n3", "n4"]}
    assert SLICE in stopped.failure("n1") and "error on n1: failed: Apply the plan" in stopped.output
    assert "batch 1 of 4, 1 of 4 hosts: 1 failed\n" in stopped.output, "batches are of hosts that change"

    (hosts.tree("n1") / SLICE).rmdir()
    (hosts.tree("n3") / SLICE).mkdir(parents=True)
    later = hosts.play("bind", npu_affinity_batches=[1])
    assert later.status != 0
    assert later.summary["states"] == {"changed": ["n1", "n2"], "refused": ["broken"], "failed": ["n3"], "untouched": ["n4"]}
    compared, begun = places(later, "binding_info"), places(later, "host_files")
    assert list(compared) == ["n1", "n2"]
    assert compared["n1"] < begun["n2"] and compared["n2"] < begun["n3"], "each batch is compared before the next"

    (hosts.tree("n3") / SLICE).rmdir()
    resumed = hosts.play("bind")
    assert resumed.summary["states"] == {"changed": ["n3", "n4"], "unchanged": ["n1", "n2"], "refused": ["broken"]}
    assert "batch 2 of 2, 2 of 2 hosts: 2 changed\n" in resumed.output
    again = hosts.play("bind")
    assert again.summary["states"] == {"unchanged": names, "refused": ["broken"]} and not places(again, "binding_info")


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
    stopped = unapproved.summary["stopped"]
    assert stopped.startswith("Batch 1 of 2 was not approved") and unapproved.failure("a") == stopped
    sick = hosts.play("bind", npu_affinity_health=["sh", "-c", "echo the model does not answer >&2; exit 3"])
    assert sick.status != 0 and sick.summary["states"] == {"failed": ["a"], "untouched": ["b"]}
    assert sick.failure("a").endswith("exit 3' Last lines of stderr: the model does not answer")
    well = hosts.succeed("bind", npu_affinity_health="true", npu_affinity_approve="no")
    assert well.summary["states"] == {"changed": ["b"], "unchanged": ["a"]}, well.output


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


FEATURES = {"npu_affinity_threads_enabled": True, "npu_affinity_batches": ["100%"]}


@pytest.mark.long
def test_reviewed_changes_are_bound_and_later_moves_are_refused(fleet, tmp_path, monkeypatch):
    """In check mode as well, from a path that is relative to the working directory; a bind that is resumed finds what it wants."""
    hosts = fleet(steady="i310_pro", moved="i310_pro", forgotten="i310_pro", broken="a2_broken")
    monkeypatch.setenv("PWD", str(tmp_path))
    texts = []
    for arguments in ([], ["--check"]):
        planned = hosts.play("plan", *arguments, "--limit", "!forgotten", npu_affinity_plan_file="fleet.json", **FEATURES)
        assert planned.summary["states"] == {"planned": ["moved", "steady"], "refused": ["broken"]}, planned.output
        texts.append([(tmp_path / name).read_text() for name in ("fleet.json", "fleet.md")])
    assert texts[0] == texts[1] and "### moved, steady\n" in texts[0][1]
    lose_card(hosts.tree("moved"), 5)
    reviewed = {"npu_affinity_reviewed": "fleet.json", **FEATURES}
    for arguments, state in ((["--check"], "would change"), ([], "changed"), ([], "unchanged")):
        with hosts.untouched("moved"):
            run = hosts.play("bind", *arguments, **reviewed)
        assert run.summary["states"] == {state: ["steady"], "refused": ["broken", "forgotten", "moved"]}, run.output
        assert "is missing. Write the file again" in run.failure("moved")
        assert "fleet.json has no plan of this host" in run.failure("forgotten")
    run = hosts.play("bind", "--check", "--limit", "steady", **reviewed, npu_affinity_move_memory=True, npu_affinity_interval="20min")
    assert "npu_affinity_move_memory" not in run.failure("steady") and "/npu-affinity-irq.timer: changed" in run.failure("steady")
    run = hosts.play("bind", "--check", "--limit", "steady", **reviewed, npu_affinity_move_memory=True)
    assert "fleet.json says: npu_affinity_move_memory has another value" in run.failure("steady"), run.output
    back = hosts.play("rollback", "--limit", "steady", npu_affinity_to="-1", **reviewed)
    assert "npu_affinity_reviewed is not read here" in back.output
    gone = hosts.succeed("unbind", "--limit", "steady", **reviewed)
    assert "npu_affinity_reviewed is not read here" in gone.output, gone.output

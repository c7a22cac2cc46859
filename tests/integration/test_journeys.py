# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three new users, who read the last 15 lines of each run: an operator of many hosts, an engineer with one, and a platform engineer."""

import json
import subprocess

import pytest

from tests.fakes.small_host import MACHINE, commands, node

pytestmark = pytest.mark.headline
LINES = 15
ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}


def last(run):
    """The last lines before the recap that are of the summary."""
    lines = [line for line in run.output[: run.output.rindex("\nPLAY RECAP")].splitlines() if line]
    (start,) = (place for place, line in enumerate(lines) if line.startswith("SUMMARY of "))
    assert len(lines) - start <= LINES, run.output
    return lines[start:]


def reads(run, *starts):
    """Assert that the summary has these lines, each by its start, in this order, and none besides but what a bind changes."""
    lines = [line for line in last(run) if not line.startswith("effect on ")]
    assert len(lines) == len(starts), "\n".join(lines)
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start), lines


def offered(run):
    """What the summary offers to run next, comments included."""
    return [line.removeprefix("next: ") for line in last(run) if line.startswith("next: ")]


def following(run):
    """The playbooks of these commands."""
    return [line.partition("playbooks/")[2].partition(".yml")[0] for line in offered(run)]


def copied(hosts, line):
    """Run a line as somebody who copied it, with the words that a shell makes of it."""
    shell = "ansible-playbook() { printf '%s\\0' \"$@\"; }; " + line
    words = subprocess.run(["bash", "-c", shell], stdout=subprocess.PIPE, text=True, check=True).stdout
    return hosts.run(words.split("\0")[:-1])


def test_an_operator_of_many_hosts_finds_what_to_do(fleet):
    hosts = fleet(n1="i310_pro", n2="i310_pro", gone="i310_pro")
    hosts.give({"gone": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}})
    gone, plan, silent = "1 unreachable: gone", "plan of n1, n2 (even_split): NPU 0=", "error on gone: "
    predicted = hosts.play("bind", "--check", "--diff")
    assert predicted.output.count("+ npu-0.slice") == predicted.output.count("\nn2: the same as n1\n") == 1, "in batches of one host"
    ways = "binding method: 2 hosts by slices"
    reads(predicted, "SUMMARY of bind, 3 hosts, check", "2 would change: n1, n2", gone, ways, plan, silent, "2 notes", "next", "next")
    bound = hosts.play("bind", **ALL_AT_ONCE)
    reads(bound, "SUMMARY of bind, 3 hosts", "2 changed: n1, n2", gone, ways, plan, silent, "2 notes", "next: ", "next: ", "next: ")
    assert following(bound) == ["bind", "verify", "unbind"]
    for name in ("n1", "n2"):
        for number in (0, 1):
            (hosts.tree(name) / f"etc/systemd/system/npu-{number}.slice").unlink()
    drifted = hosts.play("verify")
    assert drifted.output.count("expected a file, found no such file") == 2, "one line for each file, of both hosts"
    error = "error on n1, n2: drifted: differs from its plan, likely manual change [NPU_FILE_CHANGED]"
    reads(drifted, "SUMMARY of verify, 3 hosts", "2 drifted: n1, n2", gone, plan, silent, error, "1 note; -v shows it", "next: ", "next: ")
    assert following(drifted) == ["verify", "bind"]
    repaired = copied(hosts, offered(drifted)[-1])
    assert last(repaired)[1] == "2 changed: n1, n2", repaired.output


def test_an_engineer_with_one_host_finds_the_worker_outside(fleet):
    worker = {"npu": 1, "pid": 4711, "comm": "python"}
    hosts = fleet(localhost={**MACHINE, "npus": {**MACHINE["npus"], "processes": [worker]}})
    outside = "1 NPU process runs outside its pool: python.service (pid 4711, NPU 1) on CPUs 0-31, pool 0-15"
    planned, bound, verified = (hosts.play(playbook) for playbook in ("plan", "bind", "verify"))
    assert "work       python.service (pid 4711, NPU 1): runs on CPUs 0-31, pool" in planned.output
    assert f"to do on localhost: {outside} [NPU_WORK_OUTSIDE_POOL]" in last(bound)
    assert f"to do on localhost: bound, workloads not: {outside} [NPU_WORK_OUTSIDE_POOL]" in last(verified)
    assert verified.output.count(outside) == 1
    assert (following(planned), following(bound), following(verified)) == (["bind"], ["bind", "verify", "unbind"], ["bind"])
    adopt = "-e npu_affinity_adopt=now  # confine the running work to its pools, without a restart"
    assert last(verified)[-1].endswith(adopt) and last(bound)[-3].endswith(adopt)
    adopted = copied(hosts, offered(verified)[-1])
    assert "1 unit adopted on localhost" in last(adopted) and outside not in adopted.output


def test_a_platform_engineer_waits_for_the_kubelet(fleet, tmp_path):
    hosts = node(fleet)
    enabled = {"npu_affinity_kubelet_enabled": True, **commands(tmp_path / "kubectl.log")}
    pending = "to do on node: the kubelet's change is pending: cpuManagerPolicy: none -> static"
    bound = hosts.play("bind", **enabled)
    plan = "plan of node (topo_affinity): NPU 0="
    reads(bound, "SUMMARY of bind, 1 host", "1 changed: node", "binding method: 1 host by slices", plan, pending, "2 notes", "next", "next")
    restarted = hosts.play("bind", npu_affinity_kubelet_restart=True, **enabled)
    reads(restarted, "SUMMARY of bind", "1 changed: node", "binding method: 1 host by the kubelet", plan, "2 notes", "next", "next")
    assert following(restarted) == ["verify", "unbind"]


PLAN = "etc/npu-affinity/plan.json"


def test_the_commands_that_are_offered_can_be_copied(fleet, tmp_path):
    hosts = fleet(a="i310_pro", b="i310_pro")
    plans = tmp_path / "reviewed plans.json"
    planned = hosts.play("plan", "--limit", "a", npu_affinity_strategy="even_split", npu_affinity_plan_file=str(plans))
    (bind,) = offered(planned)
    assert "npu_affinity_reviewed" in bind
    verify, unbind = offered(copied(hosts, bind))
    assert json.loads((hosts.tree("a") / PLAN).read_text())["strategy"] == "even_split"
    assert not (hosts.tree("b") / PLAN).exists()
    assert verify.startswith(bind.partition(" -e ")[0].replace("bind.yml", "verify.yml"))

    healthy = ["grep", "-q", '"housekeeping": ""', str(hosts.tree("a") / PLAN)]
    canary = hosts.play("bind", "--limit", "a", npu_affinity_housekeeping="0", npu_affinity_health=healthy)
    assert canary.summary["states"] == {"failed": ["a"]}
    rollback, _again = offered(canary)
    assert "1 changed: a\n" in copied(hosts, rollback).output
    assert json.loads((hosts.tree("a") / PLAN).read_text())["housekeeping"] == ""
    assert "1 unbound: a\n" in copied(hosts, unbind).output
    assert not (hosts.tree("a") / PLAN).exists()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where can a job run? Asked of live hosts and of saved facts."""

import json

import pytest

from tests.fakes.small_host import MACHINE

BUSY = {**MACHINE, "npus": {**MACHINE["npus"], "processes": [{"npu": npu, "pid": 300 + npu, "comm": "python"} for npu in (0, 1)]}}


def answer(fleet, folder, **variables):
    file = folder / "answer.json"
    run = fleet.succeed("place", npu_affinity_placement_file=str(file), **variables)
    return run, json.loads(file.read_text())


@pytest.mark.headline
def test_live_hosts_and_their_saved_state_give_the_same_answer(fleet, tmp_path):
    hosts = fleet(idle=MACHINE, busy=BUSY, gone=MACHINE)
    hosts.hosts["gone"]["ansible_python_interpreter"] = "/no/such/python"
    hosts.inventory.write_text(
        hosts.inventory.read_text().replace("    gone:\n", "    gone:\n      ansible_connection: ssh\n      ansible_host: ''\n")
    )
    request = {"npus": 1, "cpus": 8, "policy": "single-numa-node"}
    with hosts.untouched():
        run, live = answer(hosts, tmp_path, npu_affinity_request=request)
    (task,) = live["tasks"]
    assert (task["host"], task["npus"], task["cpus"], task["numa"]) == ("idle", [0], "16-23", [1])
    refused = {entry["host"]: entry["reason"] for entry in live["refused"]}
    assert "0 chips are free" in refused["busy"] and refused["gone"]
    assert "A task with 1 NPU and 8 CPUs can run on idle" in run.output

    facts = tmp_path / "facts"
    facts.mkdir()
    for name in ("idle", "busy"):
        topology = next(entry for entry in run.of(name, "ok") if "ansible_facts" in entry["result"])["result"]["ansible_facts"]
        (facts / f"{name}.json").write_text(json.dumps(topology))
    (facts / "s1_cached").write_text(json.dumps({"__payload__": json.dumps(topology)}))
    (facts / "torn.json").write_text("{")
    _run, saved = answer(hosts, tmp_path, npu_affinity_request=request, npu_affinity_facts=str(facts))
    assert saved["tasks"] == live["tasks"]
    refused = {entry["host"]: entry["reason"] for entry in saved["refused"]}
    assert refused.keys() == {"busy", "cached", "torn"}
    assert "its saved facts are not valid JSON" in refused["torn"]

    job = {"tasks": [{"name": "decode", "npus": 1, "cpus": 8, "replicas": 2}, {"name": "router", "cpus": 4}]}
    run, found = answer(hosts, tmp_path, npu_affinity_request=job, npu_affinity_facts=str(facts))
    assert [(task["name"], task["host"], task["npus"]) for task in found["tasks"]] == [
        ("decode", "idle", [0]),
        ("decode", "idle", [1]),
        ("router", "busy", []),
    ]
    assert "The job can run: 2 tasks decode with 1 NPU and 8 CPUs each on idle; a task router" in " ".join(run.output.split())

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet is bound and verified; then one thing changes on every host, and each host says exactly that."""

import json
from xml.etree import ElementTree

from tests.fakes.small_host import DROP_IN, MACHINE, PLAN, SLICE, UNITS, VARIABLES, limp, said, write

# how each difference of the limping host begins, in any order
LINES = [
    "NPU 0 cq_update_irq: expected CPUs 18, found CPUs 7 (IRQ 2757); likely irqbalance: it runs without the policy",
    "NPU 0 sq_send_trigger_irq: expected CPUs 17, found CPUs 30 (IRQ 2753); likely irqbalance: it runs without the policy",
    SLICE + ": expected AllowedCPUs=1-15, found AllowedCPUs=0,1-15; likely manual change: changed by hand",
    UNITS + "npu-0.slice: expected a file, found no such file; likely manual change: removed",
    DROP_IN + ": expected Slice=npu-0.slice, found Slice=system.slice; likely manual change: changed by hand",
    "NPU 1 dev1_sq_send_wq: expected CPUs 1, found CPUs 0-31; likely manual change: moved by hand",
    "card 1: expected on, found off; likely manual change: npu-smi switched it",
    "npu-affinity-irq.timer at boot: expected enabled, found not enabled; likely manual change: disabled by hand",
    "pool of NPU 1: expected 1-15 online, found 10 offline; likely offline CPU: CPU 10",
]
CHANGES = {"limping": LINES, "unbound": [PLAN + ": expected the plan in force, found no such file; likely never bound"]}


def suite_of(folder, host):
    (suite,) = ElementTree.parse(folder / f"{host}.xml").getroot()
    assert suite.get("name") == host
    return suite


def test_a_bound_fleet_is_clean_until_hosts_report_own_changes(fleet, tmp_path):
    hosts = fleet(**{host: {**MACHINE, "cgroup": "v1" if host == "refused" else "v2"} for host in [*CHANGES, "refused"]})
    for host in hosts.hosts:
        write(hosts.tree(host), "/usr/lib/systemd/system/vllm@.service", "[Service]\nExecStart=/usr/bin/vllm\n")
    run = hosts.succeed("bind", "--limit", "limping,refused", **VARIABLES)
    with hosts.untouched():
        run = hosts.succeed("verify", **VARIABLES)
    for host in hosts.hosts:
        assert [action.rpartition(".")[2] for action in run.modules(host)] == ["gather", "binding_info"]
        line, *remarks = said(run, host)
        assert line.startswith("never bound, so there is nothing to compare" if host == "unbound" else "0 of ")
        assert ["npu_affinity_housekeeping has no effect on system.slice" in text for text in remarks] == [True] * (host == "refused")

    limp(hosts.tree("limping"))
    services = "{{ [{'unit': 'vllm@0.service', 'npus': [9 if inventory_hostname == 'refused' else 0]}] }}"
    reports = tmp_path / "reports" / "of today"
    variables = {**VARIABLES, "npu_affinity_services": services, "npu_affinity_fail_on": ["drift", "unbound"]}
    with hosts.untouched():
        run = hosts.play("verify", npu_affinity_reports=str(reports), **variables)
    assert run.status == 2, run.output
    assert sorted(path.name for path in reports.iterdir()) == sorted(f"{host}.{kind}" for host in hosts.hosts for kind in ("json", "xml"))
    for host, beginnings in CHANGES.items():
        report, suite = json.loads((reports / f"{host}.json").read_text()), suite_of(reports, host)
        lines = [entry["sentence"] for entry in report["drift"]]
        assert len(lines) == len(beginnings), lines
        assert all(any(line.startswith(beginning) for line in lines) for beginning in beginnings), lines
        failures = [failure.text.splitlines()[0] for failure in suite.iter("failure")]
        assert sorted(failures) == sorted(f"{host}: {line}" for line in lines)
        assert len(suite) == sum(map(len, report["checked"].values()))
        first, *rest = said(run, host)
        assert rest[: len(lines)] == lines
        assert first == f"{len(lines)} of {len(suite)} compared objects differ"
        assert run.failure(host).startswith("differs from its plan, likely ")
    assert json.loads((reports / "refused.json").read_text())["drift"] == []
    *others, changes = said(run, "limping")
    assert not [line for line in others if "A bind moves" in line], "the last remark has it"
    assert changes.startswith("to do: A bind would now change CPUs 1-15,17-31 -> 1-9,11-15,17-31; NPU 1 (0000:01:00.0): CPUs 1-15 -> 1-9,")
    assert said(run, "refused")[-1].startswith("to do: A bind would now be refused: npu_affinity_services: vllm@0.service wants NPU 9")


def test_settings_changed_since_the_bind_are_a_remark_not_drift(fleet, tmp_path):
    hosts = fleet(a="i310_pro")
    run = hosts.play("verify", npu_affinity_fail_on=["unbound"])
    assert run.status == 2 and run.failure("a").startswith("differs from its plan, likely never bound"), run.output
    hosts.succeed("bind", npu_affinity_irq_enabled=False)
    run = hosts.succeed("verify")
    first, *rest = said(run, "a")
    (remark,) = (line for line in rest if line.startswith("to do: A bind would now change "))
    assert first.startswith("0 of ") and "feature irq: off -> on (moves interrupts of NPUs to their pools); " in remark
    (hosts.tree("a") / UNITS[1:] / "npu-0.slice").unlink()
    assert hosts.play("verify", npu_affinity_fail_on=["unbound"]).status == 0, "it was bound, and drift is not asked for"
    found = []
    for enabled in (False, True):
        run = hosts.play("verify", npu_affinity_irq_enabled=enabled, npu_affinity_reports=str(tmp_path))
        assert run.status == 2 and run.failure("a").startswith("differs from its plan, likely manual change"), run.output
        found.append(json.loads((tmp_path / "a.json").read_text())["drift"])
    assert found[0] == found[1] and len(found[0]) == 1


def test_a_muted_finding_is_listed_and_passes_until_it_expires(fleet, tmp_path):
    hosts = fleet(a="i310_pro")
    hosts.succeed("bind")
    (hosts.tree("a") / UNITS[1:] / "npu-0.slice").unlink()
    mute = {"code": "NPU_FILE_CHANGED", "hosts": ["a*"], "until": "2100-01-01", "reason": "ticket 7"}
    run = hosts.succeed("verify", npu_affinity_mute=[mute], npu_affinity_reports=str(tmp_path))
    assert run.summary["states"] == {"as bound": ["a"]}, run.output
    assert "likely manual change: removed [NPU_FILE_CHANGED]; muted until 2100-01-01 00:00 UTC: ticket 7" in run.output, run.output
    assert "2 notes; -v shows them" in run.output, run.output
    assert not list(suite_of(tmp_path, "a").iter("failure")) and len(list(suite_of(tmp_path, "a").iter("skipped"))) == 1
    run = hosts.play("verify", npu_affinity_mute=[{**mute, "until": "2026-01-01"}])
    assert run.status == 2 and "the mute of NPU_FILE_CHANGED (ticket 7) expired at 2026-01-01 00:00 UTC" in run.output, run.output


def test_reports_that_cannot_be_written_hide_no_drift(fleet, tmp_path):
    hosts = fleet(a="i310_pro")
    (tmp_path / "file").touch()
    reports = {"npu_affinity_reports": str(tmp_path / "file")}
    run = hosts.succeed("bind", **reports)
    assert run.summary["states"] == {"changed": ["a"]}, run.output
    (hosts.tree("a") / UNITS[1:] / "npu-0.slice").unlink()
    run = hosts.play("verify", **reports)
    assert run.status == 2 and run.failure("a").startswith("differs from its plan, likely manual change"), run.output
    remark = f"{tmp_path}/file/a.json cannot be written on the controller: File exists"
    assert f"The report is missing: {remark} [NPU_REPORT_MISSING]" in run.summary["hosts"]["a"]["remarks"]


def test_workers_that_took_the_pool_of_another_npu_are_reported(fleet):
    """One service, a worker for each NPU: as vLLM-Ascend 0.24 binds the second data-parallel shard, on the pool of local rank 0."""
    workers = [{"npu": npu, "pid": 4711 + 10 * npu, "comm": "VLLM", "cpus": "0-15"} for npu in (0, 1)]
    hosts = fleet(host={**MACHINE, "npus": {**MACHINE["npus"], "processes": workers}})
    by_host = {"npu_affinity_batches": ["100%"]}
    run = hosts.succeed("bind", **by_host, npu_affinity_bound_by="workers", npu_affinity_engine_version="0.24.0")
    ranks = "chooses the pool of a worker by its local rank: rank 0 takes 0-15 (NPU 0), rank 1 takes 16-31 (NPU 1)."
    assert ranks in " ".join(run.output.split()), run.output
    run = hosts.play("verify", npu_affinity_bound_by="workers")
    away = "1 NPU process runs outside its pool: VLLM.service (pid 4721, NPU 1) on CPUs 0-15, pool 16-31"
    assert run.summary["states"] == {"bound, workloads not": ["host"]}, run.output
    remedy = "VLLM.service: update vLLM-Ascend and restart it, or set npu_affinity_bound_by: host"
    assert run.summary["hosts"]["host"]["reasons"] == [f"{away}; {remedy} [NPU_WORK_OUTSIDE_POOL]"]
    assert "(pid 4721, NPU 1) runs in the pool of NPU 0, likely because vLLM-Ascend" in run.output, run.output
    run = hosts.succeed("bind", **by_host)
    assert hosts.play("verify").summary["states"] == {"as bound": ["host"]}, "the host's slices bind a service with both NPUs to both pools"


def test_drift_that_no_bind_corrects_fails_every_bind(fleet):
    hosts = fleet(host="i310_pro")
    hosts.succeed("bind")
    drop_in = hosts.tree("host") / UNITS[1:] / "npu-0.slice.d/99-site.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Slice]\nAllowedCPUs=\nAllowedCPUs=3\n")
    for options in [(), ("--check",)]:
        run = hosts.play("bind", *options)
        (reason,) = run.summary["hosts"]["host"]["reasons"]
        assert run.status == 2 and "compared objects differ: npu-0.slice CPUs" in reason and "99-site.conf" in reason, run.output
    muted = [{"code": "NPU_CPUSET_CHANGED", "until": "2999-01-01", "reason": "ours"}]
    assert hosts.play("bind", npu_affinity_mute=muted).summary["states"] == {"unchanged": ["host"]}
    hosts.succeed("bind", npu_affinity_fail_on=[])


def test_work_elsewhere_is_a_state_and_fails_only_on_request(fleet, tmp_path):
    worker = {"npu": 1, "pid": 4711, "comm": "python"}
    hosts = fleet(host={**MACHINE, "npus": {**MACHINE["npus"], "processes": [worker]}})
    away = "1 NPU process runs outside its pool: python.service (pid 4711, NPU 1) on CPUs 0-31, pool 0-15"
    hosts.succeed("bind")
    run = hosts.play("bind")
    assert run.summary["states"] == {"unchanged": ["host"]} and run.output.count(f"to do on host: {away}") == 1, run.output
    run = hosts.succeed("verify", npu_affinity_reports=str(tmp_path))
    assert run.summary["states"] == {"bound, workloads not": ["host"]}, run.output
    assert json.loads((tmp_path / "host.json").read_text())["outside"][0]["cpus"] == "0-31"
    must = hosts.play("verify", npu_affinity_fail_on=["drift", "workloads"])
    assert must.status == 2 and must.summary["hosts"]["host"]["reasons"] == [f"{away} [NPU_WORK_OUTSIDE_POOL]"]
    for options in [(), ("--check",)]:
        must = hosts.play("bind", *options, npu_affinity_fail_on=["drift", "workloads"])
        found = must.summary["hosts"]["host"]
        reason = f"Check the host on which nothing is to be changed: {away} [NPU_WORK_OUTSIDE_POOL]"
        assert (must.status, found["reasons"], found["remarks"]) == (2, [reason], []), must.output
        assert must.summary["states"] == {"failed": ["host"]}

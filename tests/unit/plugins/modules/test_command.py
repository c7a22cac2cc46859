# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command ``npu-affinity`` on a simulated host, as module host_files has installed it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._command import running
from ansible_collections.npu.affinity.plugins.module_utils._command.known import known
from ansible_collections.npu.affinity.plugins.module_utils._command.program import main, parser
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._host.installed import ARCHIVE, COMMAND, COMPLETION, LIBRARY
from ansible_collections.npu.affinity.plugins.module_utils._launch.forms import FORMS
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import PATH as LOCK
from ansible_collections.npu.affinity.plugins.module_utils._state.previous import record
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads as filter_workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import launch as filter_launch
from tests.fakes.bound import HISTORY, MACHINE, SETTINGS, state_of
from tests.simulator import generate as simulator

WORKERS = [{"npu": 0, "chip": 0, "pid": 4242, "comm": "python3", "memory_mib": 100, "cpus": "0-15"}]
SLICE = "etc/systemd/system/npu-0.slice"
PLAN = "etc/npu-affinity/plan.json"
CGROUPS = "sys/fs/cgroup/npu.slice"


@pytest.fixture(scope="session")
def bound(tmp_path_factory):
    """A host that was bound once with all features, by alice, and then without role threads, by bob."""
    root = tmp_path_factory.mktemp("bound")
    simulator.generate({**MACHINE, "npus": {**MACHINE["npus"], "processes": WORKERS}}, root)
    topology = gather(Host(str(root)))
    workloads, off = [{"name": "llm", "npus": [0, 1], "share": True}], ("tuning", "metrics")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("slices", "threads"):
            patch.setitem(SETTINGS[name], "workloads", workloads)
        states = [state_of(topology, *off), state_of(topology, *off, "threads")]
    for state, author, reason in zip(states, ("alice", "bob"), ("New cards", ""), strict=True):
        arguments = {"root": str(root), "state": state, "author": author, "reason": reason}
        command = [sys.executable, "-m", "ansible_collections.npu.affinity.plugins.modules.host_files"]
        done = subprocess.run(command, input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}), capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["changed"]
    for folder, cpus, mems in (
        ("", "0-31", "0-1"),
        ("/npu-0.slice", "0-15", "0-1"),
        ("/npu-1.slice", "16-31", "0-1"),
        ("/npu-llm.slice", "0-31", "0-1"),
    ):
        (root / (CGROUPS + folder)).mkdir(parents=True, exist_ok=True)
        for key, value in (("cpus", cpus), ("mems", mems)):
            (root / (CGROUPS + folder) / f"cpuset.{key}.effective").write_text(value + "\n")
    for name in ("systemd-run", "taskset", "numactl", "setpriv"):
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (root / "usr/bin" / name).write_text("#!/bin/sh\n")
        (root / "usr/bin" / name).chmod(0o755)
    return root


@pytest.fixture
def host(bound, tmp_path):
    shutil.copytree(bound, tmp_path / "host", symlinks=True)
    return tmp_path / "host"


@pytest.fixture
def run(request, capsys):
    """Call the command on the host of the test: the one that all share, unless the test changes its own."""

    def call(*words):
        root = request.getfixturevalue("host" if "host" in request.fixturenames else "bound")
        code = main(["--root", str(root), *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def edit(host):
    (host / SLICE).write_text((host / SLICE).read_text().replace("0-15", "0-7"))


def unbind(host):
    command = [sys.executable, "-m", "ansible_collections.npu.affinity.plugins.modules.unbind"]
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": {"root": str(host)}})
    subprocess.run(command, input=arguments, capture_output=True, text=True, check=True)


def test_bound(run):
    code, out, _err = run("status")
    assert code == 0
    assert out.startswith("bound: 2 NPUs, ") and re.search(r"Z, bind by bob, run \d+T\d+-\w+\n\Z", out) and out.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_is_not_root_is_told_what_sudo_finds(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/var/lib/npu-affinity/npu-affinity", "status"])
    os.seteuid(65534)
    try:
        code = main(sys.argv[1:])
    finally:
        os.seteuid(0)
    said = "npu-affinity: only root can read all of it: sudo /var/lib/npu-affinity/npu-affinity status\n"
    assert (code, *capsys.readouterr()) == (1, "", said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("path", ["etc/npu-affinity", PLAN])
@pytest.mark.parametrize("words", [("plan",), ("explain", "npu", "0"), ("explain", "cpu", "3"), ("status",)])
def test_who_may_not_read_the_plan_is_told_so(bound, capsys, path, words):
    with tempfile.TemporaryDirectory() as folder:  # that of a test is root's alone
        os.chmod(folder, 0o755)
        shutil.copytree(bound, folder + "/host", symlinks=True)
        os.chmod(f"{folder}/host", 0o755)
        os.chmod(f"{folder}/host/{path}", 0o600)
        os.seteuid(65534)
        try:
            code = main(["--root", folder + "/host", *words])
        finally:
            os.seteuid(0)
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert re.search(r"/etc/npu-affinity/p[a-z]+\.json cannot be read \(Permission denied\): run as root \(become: true, or sudo\)", err), (
        err
    )


@pytest.mark.parametrize(
    "text", ['{"npus": []}', '{"npus": [{"id": 0, "pool": "0-3"}]}', '{"npus": [], "quality": 5}', '{"npus": [], "reason": []}']
)
@pytest.mark.parametrize("words", [("plan",), ("explain", "npu", "0"), ("explain", "cpu", "3"), ("status",), ("verify", "--json")])
def test_a_plan_of_another_shape_is_a_sentence(run, host, text, words):
    (host / PLAN).write_text(text)
    code, _out, err = run(*words)
    assert code in (0, 1, 3) and (code != 1 or "plan" in err or "not the slice" in err)


def test_status_prints_the_document_of_verify_as_json(run, host):
    assert json.loads(run("status", "--json")[1])["state"] == "bound"
    edit(host)
    code, out, _err = run("status", "--json")
    assert code == 3 and json.loads(out) == json.loads(run("verify", "--json")[1])


def test_drifted_with_the_cause(run, host):
    edit(host)
    code, out, _err = run("status")
    assert (code, out.count("\n")) == (3, 1)
    assert out.startswith("drifted: 1 of ")
    assert "/etc/systemd/system/npu-0.slice (manual change, NPU_FILE_CHANGED); 'npu-affinity verify' shows why" in out
    code, out, _err = run("verify")
    assert code == 3 and "expected AllowedCPUs=0-15, found AllowedCPUs=0-7; likely manual change: changed by hand [NPU_FILE_CHANGED]" in out
    code, out, _err = run("verify", "--json")
    found = json.loads(out)
    assert (code, found["state"], found["bound"], found["last_change"]["author"]) == (3, "drifted", True, "bob")
    assert [(entry["object"], entry["code"]) for entry in found["drift"]] == [("/etc/systemd/system/npu-0.slice", "NPU_FILE_CHANGED")]
    assert found["checked"]["files"]


def test_work_outside_its_pool_is_a_state_of_its_own(run, host):
    for status in (host / "proc/4242/task").glob("*/status"):
        status.write_text(status.read_text().replace("Cpus_allowed_list:\t0-15", "Cpus_allowed_list:\t0-31"))
    away = "1 NPU process runs outside its pool: python3.service (pid 4242, NPU 0) on CPUs 0-31, pool 0-15 [NPU_WORK_OUTSIDE_POOL]"
    assert run("status")[:2] == (6, f"bound, workloads not: {away}\n")
    code, out, _err = run("verify")
    work, step = out.splitlines()[1].split(": ", 1)
    assert (code, work) == (6, "python3.service (pid 4242, NPU 0)")
    assert step.startswith("bind with npu_affinity_adopt: now, or add {unit: python3.service, npus: [0]} to npu_affinity_services")
    found = json.loads(run("verify", "--json")[1])
    assert (found["state"], found["bound"], found["drift"], found["outside"][0]["cpus"]) == ("bound, workloads not", True, [], "0-31")
    edit(host)
    code, out, _err = run("verify")
    assert code == 3 and away in out.splitlines()


def test_status_and_explain_list_the_ranks_of_a_service(run, host):
    shutil.copytree(host / "proc/4242", host / "proc/4343", symlinks=True)
    (host / "proc/4343/task/4242").rename(host / "proc/4343/task/4343")
    (link,) = (host / "proc/4343/fd").iterdir()
    link.unlink()
    link.symlink_to("/dev/davinci1")
    first = "rank 0 of python3.service: NPU 0, 16 CPUs, local pages not known"
    second = "rank 1 of python3.service: NPU 1, CPUs 0-15, pool 16-31, local pages not known"
    assert run("status")[1].splitlines()[1:] == [first, second]
    assert json.loads(run("status", "--json")[1])["ranks"] == [first, second]
    assert f"remark: {first}; {second} [NPU_RANKS_PLACED]" in run("verify")[1].splitlines()
    assert second in " ".join(run("explain", "pid", "4343")[1].split()) and first not in " ".join(run("explain", "pid", "4343")[1].split())


@pytest.mark.parametrize("file", ["/dev/vdavinci103", "/dev/davinci100"], ids=["on the host", "in a container"])
def test_work_on_a_hard_vnpu_is_work_on_its_npu(run, host, file):
    (link,) = (host / "proc/4242/fd").iterdir()
    link.unlink()
    link.symlink_to(file)
    assert run("status")[1].startswith("bound: ")
    assert "all of its threads have the CPUs of their roles" in run("explain", "pid", "4242")[1]
    for status in (host / "proc/4242/task").glob("*/status"):
        status.write_text(status.read_text().replace("Cpus_allowed_list:\t0-15", "Cpus_allowed_list:\t0-31"))
    away = "1 NPU process runs outside its pool: python3.service (pid 4242, NPU 0) on CPUs 0-31, pool 0-15"
    assert away in run("status")[1] and away in " ".join(run("explain", "pid", "4242")[1].split())


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_explain_says_the_same_as_status(run, host, version):
    """A container whose mask is narrower than its role, by its number and by its name."""
    container = "c0ffee" + "0" * 58
    paths = {"v2": "0::/system.slice/docker-%s.scope\n", "v1": "5:cpuset:/docker/%s\n1:name=systemd:/docker/%s\n"}[version]
    (host / "proc/4242/cgroup").write_text(paths.replace("%s", container))
    folder = host / "var/lib/docker/containers" / container
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text('{"Name": "/LLM"}')
    placed = "all of its threads have the CPUs of their roles"
    assert placed in run("explain", "pid", "4242")[1] and run("status")[1].startswith("bound: ")
    for status in (host / "proc/4242/task").glob("*/status"):
        status.write_text(status.read_text().replace("Cpus_allowed_list:\t0-15", "Cpus_allowed_list:\t0-3"))
    (host / "etc/systemd/system.conf").write_text("[Manager]\nCPUAffinity=0-3\n")
    why = "1 NPU process is not placed as planned: container LLM (pid 4242, NPU 0) on CPUs 0-3, pool 0-15 ("
    code, out, _err = run("status")
    assert code == 6 and out.startswith("bound, workloads not: " + why)
    for subject in ("pid 4242", "container LLM", "container c0ffee000000"):
        text = " ".join(run("explain", *subject.split())[1].split())
        assert why in text and "/etc/systemd/system.conf says CPUAffinity=0-3" in text, text


def test_a_plan_that_is_edited_or_gone_is_drift(run, host):
    text = (host / PLAN).read_text()
    (host / PLAN).write_text(text.replace('"0-15"', '"0-13"', 1))
    assert run("status")[0] == 3
    (host / PLAN).write_text("half a pl")
    assert run("status")[0] == 3
    assert "is not valid JSON" in run("plan")[2]
    (host / PLAN).unlink()
    assert run("status")[0] == 3


def test_pending_during_another_change_and_after_an_aborted_one(run, host):
    (host / LOCK[1:]).parent.mkdir(exist_ok=True)
    with open(host / LOCK[1:], "w") as lock:
        lock.write("module host_files (process 7) since today")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run("status") == (4, "pending: module host_files (process 7) since today is changing this host\n", "")
    assert run("status")[0] == 0
    record(Host(str(host)), "interrupted", ["/etc/systemd/system/npu-0.slice"])
    code, out, _err = run("status")
    assert code == 4 and out.startswith("pending: a run was interrupted")
    assert run("verify")[0] == 4


def test_pending_where_a_service_follows_at_its_next_start(run, monkeypatch):
    from ansible_collections.npu.affinity.plugins.module_utils._command import checking
    from ansible_collections.npu.affinity.plugins.module_utils._base.findings import OLD_PROCESS, Cause, Findings

    findings = Findings()
    findings.differs(
        "services", "vllm@0.service", "in npu-0.slice", "in system.slice", Cause(OLD_PROCESS, "it still runs as it was started")
    )
    compared = checking.compare

    def found(host, **options):
        return compared(host, **options)._replace(findings=findings)

    monkeypatch.setattr(checking, "compare", found)
    assert run("status")[:2] == (4, "pending: vllm@0.service (not restarted, NPU_NOT_RESTARTED)\n")


def test_not_bound(run, host):
    unbind(host)
    assert run("status") == (5, "not bound: there is no plan in force on this host\n", "")
    assert run("verify", "--json")[0] == 5
    assert run("plan") == (1, "", "npu-affinity: there is no plan in force: this host is not bound\n")
    assert run("history")[:2] == (0, "This host has no history.\n")


def test_errors_are_one_sentence(run, host, capsys):
    (host / "etc/npu-affinity/previous.json").write_text("half a rec")
    code, out, err = run("status")
    assert (code, out, err.count("\n")) == (1, "", 1) and "is not valid JSON" in err
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2 and "usage: npu-affinity" in capsys.readouterr().err


def test_a_host_bound_without_history_is_compared_by_its_plan(run, host):
    shutil.rmtree(host / HISTORY[1:])
    edit(host)
    code, out, _err = run("verify")
    assert code == 0 and "this host has no history, so files and units are not compared" in out


def test_roles_that_were_applied_one_by_one_are_all_compared(run, host):
    entries = [json.loads((host / HISTORY[1:] / f"{number}.json").read_text()) for number in (1, 2)]
    for entry, names in zip(entries, (("slices", "device_share"), ("irq",)), strict=True):
        entry["state"]["features"] = {name: presence for name, presence in entry["state"]["features"].items() if name in names}
        mine = "slice" if "slices" in names else "irq"
        entry["state"]["files"] = [file for file in entry["state"]["files"] if mine in file["path"]]
        (host / HISTORY[1:] / f"{entries.index(entry) + 1}.json").write_text(json.dumps(entry))
    (host / "etc/systemd/system/npu-affinity-irq.timer").unlink()
    edit(host)
    drift = [entry["object"] for entry in json.loads(run("verify", "--json")[1])["drift"]]
    assert {"/etc/systemd/system/npu-affinity-irq.timer", "/etc/systemd/system/npu-0.slice"} <= set(drift)


def test_the_plan_as_a_table(run):
    code, out, _err = run("plan")
    lines = out.splitlines()
    assert code == 0 and lines[0].split() == ["NPU", "PCI", "NUMA", "pool", "IRQ", "main", "ACL", "release", "memory", "slice"]
    assert lines[1].split() == ["0", "0000:c1:00.0", "0", "0-15", "0-1", "2-13", "14", "15", "0-1", "npu-0.slice"]
    assert "topo_affinity is the rule" in out and "The host\n           binds the workloads" in out
    assert json.loads(run("plan", "--json")[1])["strategy"] == "topo_affinity"


def test_history(run):
    code, out, _err = run("history")
    assert code == 0 and [line.split()[0] for line in out.splitlines() if line[0] != " "] == ["2", "1"]
    assert "bind by alice, npu.affinity" in out and ": New cards" in out and "feature threads: present -> absent" in out
    assert [entry["id"] for entry in json.loads(run("history", "--json")[1])] == [2, 1]


EXPLAINED = {
    "npu": (
        ["npu", "0"],
        [
            r"NPU +NPU 0 \(0000:c1:00.0\) has CPUs 0-15 \(irq 0-1, main 2-13, acl 14, release 15\), memory nodes 0-1 \(since \S+Z, bind",
            r"why +strategy topo_affinity",
            r"slice +npu-0.slice: AllowedCPUs=0-15, AllowedMemoryNodes=0-1 by /etc/systemd/system/npu-0.slice \(since",
            r"service +vllm@0.service by /etc/systemd/system/vllm@0.service.d/50-npu-affinity.conf",
            r"workload +llm in npu-llm.slice",
            r"processes +4242 \(python3\)",
            r"interrupts +IRQ 2754-2769 cq_update_irq on CPUs 1\n",
        ],
    ),
    "cpu of a role": (
        ["cpu", "1"],
        [
            r"CPU +1: online, NUMA node 0",
            r"NPU +of NPU 0 \(0000:c1:00.0\) in role irq",
            r"interrupts +of NPU 0: 16 cq_update_irq, bound by /etc",
        ],
    ),
    "cpu in one word": (["cpu30"], [r"in role acl", r"npu-1.slice: AllowedCPUs=16-31"]),
    "a process outside": (
        ["pid", "4242"],
        [
            r"process +4242 \(python3\) may use CPUs 0-15, memory nodes 0-1",
            r"group +/system.slice/python3.service",
            "nothing of npu.affinity confines it",
            r"it has the device of NPU 0 \(0000:c1:00.0\) open, and is not in npu-0.slice",
        ],
    ),
}


@pytest.mark.parametrize(("words", "patterns"), EXPLAINED.values(), ids=EXPLAINED)
def test_explain(run, words, patterns):
    code, out, _err = run("explain", *words)
    text = re.sub(r"\n {11}", " ", out)
    assert code == 0 and [pattern for pattern in patterns if not re.search(pattern, text)] == [], text


@pytest.mark.parametrize(("words", "kind", "subject"), [("npu 0", "npu", "npu-0"), ("cpu30", "cpu", "30"), ("pid 4242", "pid", "4242")])
def test_explain_prints_its_rows_as_json(run, words, kind, subject):
    code, out, err = run("explain", "--json", *words.split())
    found = json.loads(out)
    assert (code, err, found["kind"], found["subject"], found["remarks"]) == (0, "", kind, subject, [])
    text = " ".join(run("explain", *words.split())[1].split())
    assert found["rows"] and all(" ".join(f"{row['title']} {row['text']}".split()) in text for row in found["rows"])


def test_explain_says_where_an_npu_is_not_as_the_bind_set_it(run, host):
    plan = json.loads((host / PLAN).read_text())
    wrote = (host / SLICE).read_text()
    (host / SLICE).write_text(wrote.replace("AllowedCPUs=0-15", "AllowedCPUs=0-7"))
    (host / CGROUPS / "npu-0.slice/cpuset.cpus.effective").write_text("0-7\n")
    plan["npus"][0]["pool"] = "0-11"
    (host / PLAN).write_text(json.dumps(plan))
    said = " ".join(run("explain", "npu", "0")[1].split())
    assert "which is not what the bind set: CPUs 0-15" in said
    assert f"AllowedMemoryNodes=0-1 by /{SLICE}, which is not what the bind wrote: AllowedCPUs=0-15" in said
    assert "npu-0.slice has CPUs 0-7, and the bind set 0-15" in said
    assert "alice" not in said.partition(" why ")[0], "nobody who bound it made it so"


@pytest.mark.parametrize(
    ("cpus", "said"),
    [("4-31", "system.slice has CPUs 4-15 of it until a workload uses it"), ("16-31", "its CPUs are not lent to the system")],
)
def test_explain_says_whether_cpus_are_lent_to_the_system(run, host, cpus, said):
    (host / PLAN).write_text(json.dumps({**json.loads((host / PLAN).read_text()), "follow": True}))
    (host / "sys/fs/cgroup/system.slice").mkdir(exist_ok=True)
    (host / "sys/fs/cgroup/system.slice/cpuset.cpus").write_text(cpus)
    assert said in run("explain", "npu", "0")[1]
    assert ("lent to system.slice until a workload uses its pool" in run("explain", "cpu", "5")[1]) is (cpus == "4-31")


def test_the_forms_of_a_name_say_the_same(run):
    assert (
        len({run("explain", *words.split())[1] for words in ("npu 1", "npu1", "npu-1", "NPU 1", "npu-1.slice", "0000:01:00.0", "01:00.0")})
        == 1
    )


def test_explain_a_process_in_its_slice_with_its_threads_roles(run, host):
    for number in (2,):  # role threads is on in the entry before
        (host / HISTORY[1:] / f"{number}.json").unlink()
    (host / "proc/4242/cgroup").write_text("0::/npu.slice/npu-0.slice/run-1.scope\n")
    (host / "proc/4242/environ").write_text("HOME=/root\0ASCEND_RT_VISIBLE_DEVICES=0\0")
    code, out, _err = run("explain", "pid", "4242")
    assert code == 0
    for text in (
        "group      /npu.slice/npu-0.slice/run-1.scope",
        "npu.slice: AllowedCPUs=0-31",
        "npu-0.slice: AllowedCPUs=0-15",
        "NPU 0 (0000:c1:00.0) has CPUs 0-15",
        "of role main (python3",
        "of role acl (acl_thread) on CPUs 0-15, and should be on 14",
        "placed by /etc/systemd/system/npu-affinity-watch.service (since",
        "ASCEND_RT_VISIBLE_DEVICES=0",
    ):
        assert text in out, out


@pytest.mark.parametrize("path", [COMMAND, COMPLETION])
def test_verify_compares_the_files_of_the_command(run, host, path):
    before = json.loads(run("status", "--json")[1])["checked"]["files"]
    assert {ARCHIVE, COMMAND, COMPLETION} <= set(before)
    with (host / path[1:]).open("a") as file:
        file.write("# edited\n")
    code, out, _err = run("verify")
    assert code == 3 and re.match(r"drifted: 1 of \d+ objects differ: %s \(" % path, out)


def test_help_describes_the_command_and_its_parts():
    assert parser().description == "Show and verify the CPU binding of this host, explain it, and run commands in it."
    commands = parser()._subparsers._group_actions[0].choices  # pylint: disable=protected-access
    assert commands["status"].description == "Print the binding state in one line and as exit status."
    assert all(re.match(r"[A-Z][^.?]*\.$", command.description) for command in commands.values())


def test_plan_shows_slices_only_if_they_are_written(run, host):
    assert run("plan")[1].splitlines()[1].split()[-1] == "npu-0.slice"
    for path in (host / SLICE).parent.glob("npu-*.slice"):
        path.unlink()
    assert ".slice" not in run("plan")[1]


def test_explain_leaves_pods_to_the_kubelet(run, host):
    (host / "proc/4242/cgroup").write_text("0::/kubepods.slice/kubepods-pod1.slice/cri-1.scope\n")
    assert "the kubelet assigns its CPUs" in run("explain", "pid", "4242")[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("3", "a number alone can be each of them: pid 3, npu 3, cpu 3"),
        ("card 3", "'card 3' is no process, container, NPU or CPU"),
        (
            "npu 7",
            "'npu-7' is not the slice or PCI function of an NPU or GPU, nor a workload, on this host, which has npu-0, npu-1, ",
        ),
        ("cpu 99", "there is no CPU 99: this host has 0-31"),
        ("pid 99999", "there is no process 99999"),
        ("container x", "no container 'x' uses an accelerator here; of those that do there are: none"),
    ],
)
def test_what_cannot_be_explained_is_said(run, words, sentence):
    code, out, err = run("explain", *words.split())
    assert (code, out) == (1, "") and sentence in err


@pytest.mark.parametrize("words", ["1", "npu1", "npu-1", "npu-1.slice"])
def test_unknown_slice_names_where_the_npu_of_that_id_is(host, words):
    plan = json.loads((host / PLAN).read_text())
    plan["npus"] = [{**plan["npus"][1], "id": 0}, {**plan["npus"][0], "id": 1, "slice": "npu-2.slice"}]
    plan["npus"][0]["slice"] = "npu-0.slice"
    (host / PLAN).write_text(json.dumps(plan))
    with pytest.raises(ValueError, match=r"which has npu-0, npu-2, workload llm \(NPU 1 is in npu-2\.slice\)$"):
        running.find_npu(known(Host(str(host))), words)


COMMAND_LINES = {
    "an NPU": ("0", "npu-0.slice", "0-15", "0"),
    "its slice": ("npu-1", "npu-1.slice", "16-31", "1"),
    "its function": ("01:00.0", "npu-1.slice", "16-31", "1"),
    "a workload": ("llm", "npu-llm.slice", "0-31", "0,1"),
}


@pytest.mark.parametrize(("name", "home", "cpus", "devices"), COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_run_starts_a_command_in_its_slice_with_devices_unmasked(bound, name, home, cpus, devices, monkeypatch):
    """A mask of the slice's CPUs would outlive the slice on kernels from 6.2 on."""
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    found = running.launch(known(Host(str(bound))), name, ["python3", "-c", "pass"])
    words = [word.replace(str(bound), "") for word in found.argv]
    assert words[:4] == ["/usr/bin/systemd-run", "--scope", "--collect", f"--slice={home}"]
    assert words[5:] == ["--", "/usr/bin/taskset", "--cpu-list", "0-31", "python3", "-c", "pass"]
    assert f"{home}, CPUs {cpus}" in found.where
    assert found.environment == {"ASCEND_RT_VISIBLE_DEVICES": devices}


def test_run_leaves_other_roles_cpus_and_the_users_device_choice(host, monkeypatch):
    (host / HISTORY[1:] / "2.json").unlink()
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    found = running.launch(known(Host(str(host))), "llm", ["true"], user="root")
    words = [word.replace(str(host), "") for word in found.argv]
    assert words[words.index("--cpu-list") + 1 :] == [
        "2-13,18-29",
        "/usr/bin/setpriv",
        "--reuid=0",
        "--regid=0",
        "--init-groups",
        "--",
        "true",
    ]
    assert found.environment["ASCEND_RT_VISIBLE_DEVICES"] == "1" and found.environment["LOGNAME"] == "root"


def test_run_without_cgroup_v2(host, monkeypatch):
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    (host / "sys/fs/cgroup/cgroup.controllers").unlink()
    (host / "sys/fs/cgroup/cpuset").mkdir()
    entry = json.loads((host / HISTORY[1:] / "2.json").read_text())
    entry["state"]["expected"] = []
    (host / HISTORY[1:] / "2.json").write_text(json.dumps(entry))
    found = running.launch(known(Host(str(host))), "0", ["true"])
    assert [word.replace(str(host), "") for word in found.argv] == [
        *("/usr/bin/numactl", "--physcpubind=0-15", "--preferred=0", "--", "true")
    ]


def without_slices(host):
    path = host / HISTORY[1:] / "2.json"
    entry = json.loads(path.read_text())
    entry["state"].update(
        expected=[], notes={"slices": ["The kubelet's CPU manager is static and owns the CPUs, so no slices are written."]}
    )
    path.write_text(json.dumps(entry))


VNPU = {
    "name": "infer",
    "npus": [0],
    "slice": "npu-0-infer.slice",
    "pool": "2-5",
    "mems": "0",
    "environment": {"NPU_MEM_QUOTA": "1024"},
    "volumes": ["/srv/vnpu:/hami-vnpu-core:ro"],
}


def with_vnpu(host):
    path = host / HISTORY[1:] / "2.json"
    entry = json.loads(path.read_text())
    entry["state"]["live"]["slices"]["vnpus"] = [VNPU]
    path.write_text(json.dumps(entry))


PART = "vNPU infer is a part of an NPU, which a library inside a container holds: start its container with the options of "
PART += "/etc/npu-affinity/vnpu/infer.env, as 'npu-affinity launch docker "
REFUSED = {
    "a vNPU": ("infer", with_vnpu, PART),
    "the slice of a vNPU": ("npu-0-infer.slice", with_vnpu, PART),
    "an unknown name": (
        "seven",
        lambda host: None,
        "'seven' is not the slice or PCI function of an NPU or GPU, nor a workload",
    ),
    "not bound": ("0", unbind, "bind it first"),
    "a lost card": ("1", lambda host: (host / "sys/bus/pci/devices/0000:01:00.0").unlink(), "dropped off the PCI bus; bind again"),
    "a lost card before it": (
        "1",
        lambda host: (host / "sys/bus/pci/devices/0000:c1:00.0").unlink(),
        "npu-smi has renumbered the others: bind again to identify which one NPU 1 (0000:01:00.0) is now",
    ),
    "another cpuset": (
        "0",
        lambda host: (host / CGROUPS / "npu-0.slice/cpuset.cpus.effective").write_text("0-31\n"),
        "npu-0.slice should have CPUs 0-15 and has 0-31: 'npu-affinity verify' shows why",
    ),
    "no active slice": ("0", lambda host: shutil.rmtree(host / CGROUPS / "npu-0.slice"), "npu-0.slice is not active"),
    "a static kubelet": ("0", without_slices, "this host has no slice for NPU 0 (0000:c1:00.0). The kubelet's CPU manager is static"),
    "no systemd-run": ("0", lambda host: (host / "usr/bin/systemd-run").unlink(), "systemd-run is not installed"),
}


@pytest.mark.parametrize(("name", "change", "sentence"), REFUSED.values(), ids=REFUSED)
def test_run_refuses_in_words(host, name, change, sentence):
    change(host)
    with pytest.raises(ValueError) as refused:
        running.launch(known(Host(str(host))), name, ["true"])
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "command, remedy",
    [
        ("docker run vllm", "start it with what 'npu-affinity launch docker 0' prints"),
        ("sudo /usr/bin/podman run vllm", "start it with what 'npu-affinity launch podman 0' prints"),
        ("env A=1 docker-compose up", "start it with what 'npu-affinity launch compose 0' prints"),
        ("kubectl apply -f pod.yaml", "filter npu.affinity.launch"),
    ],
)
def test_run_refuses_what_an_engine_would_start_elsewhere(bound, command, remedy):
    with pytest.raises(ValueError, match=f"start the work, which would run outside npu-0.slice: .*{remedy}"):
        running.launch(known(Host(str(bound))), "0", command.split())


def filtered(root, form, names, **options):
    """Return what filter launch writes for a host that this test gathers itself, as in a playbook."""
    topology, plan = gather(Host(str(root))), json.loads((root / PLAN).read_text())
    llm = filter_workloads(plan, [{"name": "llm", "npus": [0, 1]}], topology)[0]
    both = {**llm, "name": "npu-0-1", "slice": "npu.slice"}
    entry = {"0": plan["npus"][0], "npu-1": plan["npus"][1], "llm": llm, "infer": VNPU, "0 1": both}[names]
    return filter_launch(entry, form, topology=topology, **options).rstrip("\n") + "\n"


LAUNCHED = [(form, "0", "", {}) for form in FORMS]
LAUNCHED += [(form, "llm", "", {}) for form in ("docker", "compose", "torch_npu")]
LAUNCHED += [
    ("podman", "npu-1", "--image vllm --command serve --port 80", {"image": "vllm", "command": ["serve", "--port", "80"]}),
    ("docker", "0 1", "--arguments=--rm --name x", {"arguments": "--rm", "name": "x"}),
    ("docker", "llm", "--binding topo_affinity --no-devices", {"binding": "topo_affinity", "devices": False}),
    ("systemd_run", "0", "--environment openmp --engine sglang", {"environment": {"openmp": True}, "engine": "sglang"}),
    ("ctr", "0", "--containerd-version 2.1 --no-notes", {"containerd_version": "2.1", "notes": False}),
]


@pytest.mark.parametrize("form, names, words, options", LAUNCHED)
def test_launch_prints_what_the_filter_writes(bound, run, form, names, words, options):
    assert run("launch", form, *names.split(), *words.split()) == (0, filtered(bound, form, names, **options), "")


def test_launch_knows_the_parts_of_npus(host, run):
    with_vnpu(host)
    assert run("launch", "docker", "infer") == (0, filtered(host, "docker", "infer"), "")
    assert run("launch", "docker", "infer", "1")[2] == "npu-affinity: a vNPU is a part of one NPU: launch vNPU infer alone\n"


def test_launch_names_no_slice_that_the_host_lacks(host, run):
    without_slices(host)
    assert "--cgroup-parent" not in run("launch", "docker", "0")[1]


@pytest.mark.parametrize(
    "change, words, sentence",
    [
        (unbind, "docker 0", "there is no plan in force on this host: bind it first"),
        (
            lambda host: None,
            "docker 7",
            "'7' is not the slice or PCI function of an NPU or GPU, nor a workload, on this host, which has npu-0",
        ),
        (lambda host: None, "taskset 0 --image x", "form taskset has no option image; it has command, engine,"),
        (lambda host: None, "docker 0 --engine x", "engine: expected one of dynamo, "),
        (REFUSED["a lost card"][1], "docker 1", "dropped off the PCI bus; bind again"),
        (lambda host: (host / "sys/devices/system/cpu/online").write_text("0-7\n"), "podman 0", "Requested CPUs are not available"),
    ],
)
def test_launch_refuses_in_one_sentence(host, run, change, words, sentence):
    change(host)
    code, out, err = run("launch", *words.split())
    assert (code, out) == (1, "") and err.startswith("npu-affinity: ") and sentence in err and err.count("\n") == 1


def test_run_refuses_devices_that_are_not_those_of_its_cpus(bound, monkeypatch):
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    with pytest.raises(ValueError, match="ASCEND_RT_VISIBLE_DEVICES=1 is set, and the devices here are 0"):
        running.launch(known(Host(str(bound))), "0", ["true"])


def test_run_ends_with_125_where_it_starts_nothing(run):
    assert run("run", "0", "--", "true")[0] == 125
    code, out, err = run("run", "0")
    assert (code, out) == (125, "") and "run needs a command" in err


def test_what_is_installed_runs_without_the_collection(host):
    launcher = (host / COMMAND[1:]).read_text()
    assert launcher.startswith("#!/usr/bin/python3 -IS\n# Managed by npu.affinity") and os.access(host / COMMAND[1:], os.X_OK)
    moved = host.parent / "npu-affinity"
    moved.write_text(launcher.replace(ARCHIVE, str(host) + ARCHIVE).replace("/usr/bin/python3", os.path.realpath(sys.executable)))
    moved.chmod(0o755)
    done = subprocess.run([moved, "--root", str(host), "status"], capture_output=True, text=True, env={}, cwd="/", check=False)
    assert (done.returncode, done.stdout[:7], done.stderr) == (0, "bound: ", "")
    assert not list((host / LIBRARY[1:]).rglob("*.pyc"))
    assert subprocess.run([moved, "--root", str(host), "--version"], capture_output=True, env={}, check=True).stdout
    command = [moved, "exec", "--root", str(host), "--or-run", "--", "env"]
    done = subprocess.run(command, capture_output=True, text=True, env={"LOCAL_RANK": "1"}, check=True)
    assert done.stdout == "LOCAL_RANK=1\n" and "of which none is among CPUs 18-29 of NPU 1" in done.stderr


def completed(words, folder):
    script = (
        f"source {folder}{COMPLETION}; COMP_WORDS=(npu-affinity {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        '_npu_affinity; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_what_the_parser_knows(bound):
    commands = list(parser()._subparsers._group_actions[0].choices)  # pylint: disable=protected-access
    assert completed("''", bound) == [*commands, "--help", "--version"]
    assert completed("ver", bound) == ["verify"]
    assert completed("verify --j", bound) == ["--json"]
    assert completed("explain ''", bound) == ["pid", "container", "npu", "gpu", "cpu", "--json", "--help"]
    assert completed("status --j", bound) == ["--json"]
    assert completed("exec --r", bound) == ["--role"] and "acl" in completed("exec --role ''", bound)
    assert completed("run --u", bound) == ["--user"] and "root" in completed("run --user roo", bound)
    assert "0" in completed("explain cpu 0", bound)
    launch = parser()._subparsers._group_actions[0].choices["launch"]  # pylint: disable=protected-access
    options = [option for action in launch._actions for option in action.option_strings if option != "-h"]  # pylint: disable=protected-access
    assert completed("launch ''", bound) == [*sorted(FORMS), "--help"]
    assert completed("launch docker --", bound) == options and "sglang" in completed("launch docker --engine s", bound)
    (text,) = [file["content"] for file in runtime.files_of(None) if file["path"] == COMPLETION]
    assert "/etc/systemd/system/{npu,gpu}-*.slice" in text

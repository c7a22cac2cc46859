# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command ``npu-affinity`` on a simulated host, as module host_files has installed it. Most of it is in ``command.txt``."""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import OLD_PROCESS, Cause, Findings
from ansible_collections.npu.affinity.plugins.module_utils._command import launching, running, state
from ansible_collections.npu.affinity.plugins.module_utils._command.program import main, parser
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._host.installed import ARCHIVE, COMMAND, COMPLETION, CODE_FOLDER
from ansible_collections.npu.affinity.plugins.module_utils._launch.forms import FORMS
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import PATH as LOCK
from ansible_collections.npu.affinity.plugins.module_utils._state.previous import record
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads as filter_workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import launch as filter_launch
from tests.fakes.bound import HISTORY, MACHINE, SETTINGS, state_of
from tests.fakes.programs import run_main
from tests.fakes.sessions import replay, sessions
from tests.simulator import generate as simulator

WORKERS = [{"npu": 0, "chip": 0, "pid": 4242, "comm": "python3", "memory_mib": 100, "cpus": "0-15"}]
PLAN, NEWEST = "etc/npu-affinity/plan.json", HISTORY[1:] + "/2.json"
TIME, RUN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", r"\d{8}T\d{6}-[0-9a-f]{4}"
CGROUPS = {"": ("0-31", "0-1"), "/npu-0.slice": ("0-15", "0-1"), "/npu-1.slice": ("16-31", "0-1"), "/npu-llm.slice": ("0-31", "0-1")}


@pytest.fixture(scope="session")
def bound(tmp_path_factory, run_module):
    """A host that was bound once with all features, by alice, and then without role threads, by bob."""
    root = tmp_path_factory.mktemp("bound")
    simulator.generate({**MACHINE, "npus": {**MACHINE["npus"], "processes": WORKERS}}, root)
    topology = gather(Host(str(root)))
    workloads, off = [{"name": "llm", "npus": [0, 1], "share": True}], ("tuning", "metrics")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("slices", "threads"):
            patch.setitem(SETTINGS[name], "workloads", workloads)
        states = [state_of(topology, *off), state_of(topology, *off, "threads")]
    for wanted, author, reason in zip(states, ("alice", "bob"), ("New cards", ""), strict=True):
        assert run_module("host_files", root=str(root), state=wanted, author=author, reason=reason)["changed"]
    for folder, sets in CGROUPS.items():
        group = root / f"sys/fs/cgroup/npu.slice{folder}"
        group.mkdir(parents=True, exist_ok=True)
        for key, value in zip(("cpus", "mems"), sets, strict=True):
            (group / f"cpuset.{key}.effective").write_text(value + "\n")
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    for name in ("systemd-run", "taskset", "numactl", "setpriv"):
        (root / "usr/bin" / name).write_text("#!/bin/sh\n")
        (root / "usr/bin" / name).chmod(0o755)
    return root


@pytest.fixture
def host(bound, tmp_path):
    shutil.copytree(bound, tmp_path / "host", symlinks=True)
    return tmp_path / "host"


def call(root, *words):
    """Call the command, and return its status and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(["--root", str(root), *words])
        except SystemExit as stopped:
            code = stopped.code
    return code, out.getvalue(), err.getvalue()


def edited(path, **sections):
    """What changes parts of a JSON document of a host: each part by a function of its value."""

    def change(host):
        document = json.loads((host / path).read_text())
        parts = document["state"] if path == NEWEST else document
        parts.update({name: change(parts.get(name)) for name, change in sections.items()})
        (host / path).write_text(json.dumps(document))

    return change


def renumbered(npus):
    return [{**npus[1], "id": 0, "slice": "npu-0.slice"}, {**npus[0], "id": 1, "slice": "npu-2.slice"}]


UNBIND = "ansible_collections.npu.affinity.plugins.modules.unbind"
STATIC = {"slices": ["The kubelet's CPU manager is static and owns the CPUs, so no slices are written."]}
VNPU = {"name": "infer", "npus": [0], "slice": "npu-0-infer.slice", "pool": "2-5", "mems": "0"}
VNPU |= {"environment": {"NPU_MEM_QUOTA": "1024"}, "volumes": ["/srv/vnpu:/hami-vnpu-core:ro"]}
CHANGES = {
    "unbind": lambda host: run_main(UNBIND, text=json.dumps({"ANSIBLE_MODULE_ARGS": {"root": str(host)}})),
    "interrupt": lambda host: record(Host(str(host)), "interrupted", ["/etc/systemd/system/npu-0.slice"]),
    "without slices": edited(NEWEST, expected=lambda _units: [], notes=lambda _notes: STATIC),
    "with a vNPU": edited(NEWEST, live=lambda live: {**live, "slices": {**live["slices"], "vnpus": [VNPU]}}),
    "renumber": edited(PLAN, npus=renumbered),
}


def would_run(host, options, command):
    """What ``npu-affinity run`` would say and execute, with its variables."""
    options = [option for option in shlex.split(options) if option != "--user"]
    try:
        launched = running.launch(state.record_of(Host(str(host))), options[-1], shlex.split(command), *options[:-1])
    except ValueError as error:
        return f"{error} [125]"
    variables = [f"{name}={value}" for name, value in sorted(launched.environment.items())]
    return f"{launched.where}\n{' '.join(variables)} {shlex.join(launched.argv)}".replace(str(host), "")


def completed(words, folder):
    script = f"source {folder}{COMPLETION}; COMP_WORDS=(npu-affinity {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _npu_affinity;"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("claim, commands", sessions(pathlib.Path(__file__).with_name("command.txt")))
def test_a_session(host, monkeypatch, claim, commands):
    def answer(command):
        variable, words = re.fullmatch(r"(?:ASCEND_RT_VISIBLE_DEVICES=(\S+) )?(.*)", command).groups()
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", variable) if variable else monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", False)
        word, _blank, rest = words.partition(" ")
        if words in CHANGES:
            CHANGES[words](host)
        elif word == "npu-affinity":
            code, out, err = call(host, *shlex.split(rest))
            printed = re.sub(TIME, "2026-01-02T03:04:05Z", re.sub(RUN, "20260102T030405-abcd", out + err))
            return printed.rstrip("\n") + (f" [{code}]" if code else "")
        elif word == "run":
            return would_run(host, *rest.split(" -- "))
        elif word == "complete":
            return " ".join(completed(rest, host))
        else:
            subprocess.run(["sh", "-c", words], cwd=host, check=True)
        return ""

    replay(commands, answer)


@contextlib.contextmanager
def nobody():
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@as_root
def test_who_is_not_root_is_told_what_sudo_finds(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/var/lib/npu-affinity/npu-affinity", "status"])
    with nobody():
        code = main(sys.argv[1:])
    sentence = "npu-affinity: only root can read all of it: sudo /var/lib/npu-affinity/npu-affinity status\n"
    assert (code, *capsys.readouterr()) == (1, "", sentence)


@as_root
@pytest.mark.parametrize("path", ["etc/npu-affinity", PLAN])
@pytest.mark.parametrize("words", ["plan", "explain npu 0", "explain cpu 3", "status"])
def test_who_may_not_read_the_plan_is_told_so(bound, path, words):
    with tempfile.TemporaryDirectory() as folder:  # that of a test is root's alone
        os.chmod(folder, 0o755)
        shutil.copytree(bound, folder + "/host", symlinks=True)
        os.chmod(f"{folder}/host", 0o755)
        os.chmod(f"{folder}/host/{path}", 0o600)
        with nobody():
            code, out, err = call(folder + "/host", *words.split())
    assert (code, out) == (1, "")
    assert re.search(r"/etc/npu-affinity/p\w+\.json cannot be read \(Permission denied\): run as root \(become: true, or sudo\)", err), err


def test_documents_are_printed_as_json(host):
    assert json.loads(call(host, "plan", "--json")[1])["strategy"] == "topo_affinity"
    assert [entry["id"] for entry in json.loads(call(host, "history", "--json")[1])] == [2, 1]
    for file in (host / "proc/4242/task").glob("*/status"):
        file.write_text(file.read_text().replace("Cpus_allowed_list:\t0-15", "Cpus_allowed_list:\t0-31"))
    status = json.loads(call(host, "status", "--json")[1])
    assert (status["state"], status["bound"], status["drift"]) == ("bound, workloads not", True, [])
    assert status["outside"][0]["cpus"] == "0-31"
    assert status["last_change"]["author"] == "bob" and {ARCHIVE, COMMAND, COMPLETION} <= set(status["checked"]["files"])
    (host / COMMAND[1:]).unlink()
    code, out, _err = call(host, "status", "--json")
    assert code == 3 and json.loads(out) == json.loads(call(host, "verify", "--json")[1])


def test_pending_during_another_change(host):
    (host / LOCK[1:]).parent.mkdir(exist_ok=True)
    with open(host / LOCK[1:], "w") as lock:
        lock.write("module host_files (process 7) since today")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert call(host, "status") == (4, "pending: module host_files (process 7) since today is changing this host\n", "")
    assert call(host, "status")[0] == 0


def test_pending_where_a_service_follows_at_its_next_start(bound, monkeypatch):
    findings, compare = Findings(), state.compare
    cause = Cause(OLD_PROCESS, "it still runs with its former settings")
    findings.differs("services", "vllm@0.service", "in npu-0.slice", "in system.slice", cause)
    monkeypatch.setattr(state, "compare", lambda host, **options: compare(host, **options)._replace(findings=findings))
    assert call(bound, "status")[:2] == (4, "pending: vllm@0.service (not restarted, NPU_NOT_RESTARTED)\n")


@pytest.mark.parametrize("words, kind, subject", [("npu 0", "npu", "npu-0"), ("cpu30", "cpu", "30"), ("pid 4242", "pid", "4242")])
def test_explain_prints_its_rows_as_json(bound, words, kind, subject):
    code, out, err = call(bound, "explain", "--json", *words.split())
    text, document = " ".join(call(bound, "explain", *words.split())[1].split()), json.loads(out)
    assert (code, err, document["kind"], document["subject"], document["remarks"]) == (0, "", kind, subject, [])
    assert document["rows"] and all(" ".join(f"{row['title']} {row['text']}".split()) in text for row in document["rows"])


def test_the_forms_of_a_name_say_the_same(bound):
    names = (["npu", "1"], ["npu1"], ["npu-1"], ["NPU", "1"], ["npu-1.slice"], ["0000:01:00.0"], ["01:00.0"])
    assert len({call(bound, "explain", *words) for words in names}) == 1


def filtered(root, form, names, **options):
    """Return what filter launch writes for a host that this test gathers itself, as in a playbook."""
    topology, plan = gather(Host(str(root))), json.loads((root / PLAN).read_text())
    llm = filter_workloads(plan, [{"name": "llm", "npus": [0, 1]}], topology)[0]
    both = {**llm, "name": "npu-0-1", "slice": "npu.slice"}
    entry = {"0": plan["npus"][0], "npu-1": plan["npus"][1], "llm": llm, "infer": VNPU, "0 1": both}[names]
    return filter_launch(entry, form, topology=topology, **options).rstrip("\n") + "\n"


LAUNCHED = [(form, "0", "", {}) for form in FORMS] + [(form, "llm", "", {}) for form in ("docker", "compose", "torch_npu")]
LAUNCHED += [
    ("podman", "npu-1", "--image vllm --command serve --port 80", {"image": "vllm", "command": ["serve", "--port", "80"]}),
    ("docker", "0 1", "--arguments=--rm --name x", {"arguments": "--rm", "name": "x"}),
    ("docker", "llm", "--binding topo_affinity --no-devices", {"binding": "topo_affinity", "devices": False}),
    ("systemd_run", "0", "--environment openmp --engine sglang", {"environment": {"openmp": True}, "engine": "sglang"}),
    ("ctr", "0", "--containerd-version 2.1 --no-notes", {"containerd_version": "2.1", "notes": False}),
]


@pytest.mark.parametrize("form, names, words, options", LAUNCHED)
def test_launch_prints_what_the_filter_writes(bound, form, names, words, options):
    assert call(bound, "launch", form, *names.split(), *words.split()) == (0, filtered(bound, form, names, **options), "")


def test_launch_knows_the_parts_of_npus(host):
    CHANGES["with a vNPU"](host)
    assert call(host, "launch", "docker", "infer") == (0, filtered(host, "docker", "infer"), "")


TYPED = [
    ("x: GPU 0 is in MIG mode; give devices=false and pass one", "x: GPU 0 is in MIG mode; give --no-devices and pass one"),
    ("vnpu: no split into t; add ascend_runtime=true", "--vnpu: no split into t; add --ascend-runtime"),
    ("ctr has none; use nerdctl, or containerd_version='2.0'", "ctr has none; use nerdctl, or --containerd-version 2.0"),
    ("engine: x, and binding=cluster asks for that", "--engine: x, and --binding cluster asks for that"),
    ("not known; leave slurm_sockets out", "not known; leave --slurm-sockets out"),
    ("NPU 0: OMP_PROC_BIND=true, --memory=3, the name: none", "NPU 0: OMP_PROC_BIND=true, --memory=3, the name: none"),
]


@pytest.mark.parametrize("of_filter, of_command", TYPED)
def test_launch_says_options_as_its_user_types_them(of_filter, of_command):
    assert launching.typed(of_filter) == of_command


def test_what_is_installed_runs_without_the_collection(host):
    launcher = (host / COMMAND[1:]).read_text()
    assert launcher.startswith("#!/usr/bin/python3 -IS\n# Managed by npu.affinity") and os.access(host / COMMAND[1:], os.X_OK)
    moved = host.parent / "npu-affinity"
    moved.write_text(launcher.replace(ARCHIVE, str(host) + ARCHIVE).replace("/usr/bin/python3", os.path.realpath(sys.executable)))
    moved.chmod(0o755)

    def run(*words, **environment):
        return subprocess.run([moved, *words], capture_output=True, text=True, env=environment, cwd="/", check=True)

    done = run("--root", str(host), "status")
    assert (done.stdout[:7], done.stderr) == ("bound: ", "") and not list((host / CODE_FOLDER[1:]).rglob("*.pyc"))
    assert run("--root", str(host), "--version").stdout
    done = run("exec", "--root", str(host), "--or-run", "--", "env", LOCAL_RANK="1")
    assert done.stdout == "LOCAL_RANK=1\n" and "of which none is among CPUs 18-29 of NPU 1" in done.stderr


def test_bash_completes_what_the_parser_knows(bound):
    commands = parser()._subparsers._group_actions[0].choices  # pylint: disable=protected-access
    assert completed("''", bound) == [*commands, "--help", "--version"]
    options = [option for action in commands["launch"]._actions for option in action.option_strings if option != "-h"]  # pylint: disable=protected-access
    assert completed("launch ''", bound) == [*sorted(FORMS), "--help"] and completed("launch docker --", bound) == options
    (text,) = [file["content"] for file in runtime.files_of(None) if file["path"] == COMPLETION]
    assert "/etc/systemd/system/{npu,gpu}-*.slice" in text

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of Ansible that operators have: playbooks end with one summary, the same lines and the same status under each of them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import CHECKOUT, REPOSITORY

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
BIN = Path(sys.executable).parent
GONE = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_args": ""}
UNREACHABLE = 4
"""The status of ansible-playbook for a run with unreachable hosts."""
ENDS = {
    "plan": ["SUMMARY of plan, 2 hosts", "1 planned: there", "1 unreachable: gone", "binding method: 1 host by slices"],
    "bind": ["SUMMARY of bind, 2 hosts", "1 changed: there", "1 unreachable: gone", "binding method: 1 host by slices"],
    "verify": ["SUMMARY of verify, 2 hosts", "1 as bound: there", "1 unreachable: gone"],
    "unbind": ["SUMMARY of unbind, 2 hosts", "1 unbound: there", "1 unreachable: gone"],
}
NOT_PLACED = "refused gone: its topology cannot be gathered: "
CACHE = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_INJECT_FACT_VARS": "true"}
CONFIGURATIONS = {  # Mitogen need not be installed, because no play takes its strategy
    "all at once": {"ANSIBLE_ANY_ERRORS_FATAL": "true", "ANSIBLE_STRATEGY": "free", **CACHE},
    "any_errors_fatal": {"ANSIBLE_ANY_ERRORS_FATAL": "true"},
    "free": {"ANSIBLE_STRATEGY": "free"},
    "host_pinned": {"ANSIBLE_STRATEGY": "ansible.builtin.host_pinned"},
    "fact cache": CACHE,
    "mitogen": {"ANSIBLE_STRATEGY": "mitogen_linear"},
    "ansible-runner": {},
}


def environment(configuration, folder):
    """The variables of a configuration; that of the cache names a folder."""
    found = {**CHECKOUT, **configuration, "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_LOCALHOST_WARNING": "false"}
    if "ANSIBLE_CACHE_PLUGIN" in found:
        found["ANSIBLE_CACHE_PLUGIN_CONNECTION"] = str(folder / "cache")
    return {**{name: value for name, value in os.environ.items() if name != "MAKELEVEL"}, **found}


def run(name, hosts, playbook, *arguments):
    """Return the status and the lines of a playbook under a configuration."""
    variables = environment(CONFIGURATIONS.get(name, {}), hosts.folder)
    if name != "ansible-runner":
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            found = hosts.play(playbook, *arguments)
        return found.status, found.output.splitlines()
    project = hosts.folder / "private/project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "play.yml").write_text(f"- name: Run it\n  ansible.builtin.import_playbook: npu.affinity.{playbook}\n")
    command = ["ansible-runner", "run", str(project.parent), "-p", "play.yml", "--inventory", str(hosts.inventory)]
    command += ["--cmdline", "-e npu_affinity_confirm=yes"]
    ended = subprocess.run(command, cwd=hosts.folder, env=variables, capture_output=True, text=True, check=False, timeout=300)
    return ended.returncode, COLOURS.sub("", ended.stdout).replace("\r", "").splitlines()


def recap(lines, host):
    (line,) = (line for line in lines if line.startswith(f"{host} ") and "unreachable=" in line)
    return dict(word.split("=") for word in line.partition(":")[2].split())


@pytest.mark.parametrize("name", [name if name == "all at once" else pytest.param(name, marks=pytest.mark.long) for name in CONFIGURATIONS])
def test_one_summary_with_the_same_lines_and_status(fleet, name):
    hosts = fleet(gone="i310_pro", there="i310_pro")
    request = json.dumps({"npu_affinity_request": {"npus": 1}})
    if "ANSIBLE_CACHE_PLUGIN" in CONFIGURATIONS[name]:
        status, lines = run(name, hosts, "place", "-e", request)
        assert status == 0 and not [line for line in lines if line.startswith("refused")], lines
    hosts.give({"gone": GONE})
    for playbook, end in [(each, ENDS[each]) for each in (("bind", "unbind") if name == "all at once" else ENDS)]:
        status, lines = run(name, hosts, playbook)
        assert status == UNREACHABLE, lines
        begun = [place for place, line in enumerate(lines) if line.startswith("SUMMARY of ")]
        assert len(begun) == 1 and lines[begun[0] : begun[0] + len(end)] == end, lines
        assert any(line.startswith("error on gone: unreachable: ") for line in lines), lines
        assert (recap(lines, "gone")["unreachable"], recap(lines, "gone")["failed"]) == ("1", "0")
        assert (recap(lines, "there")["unreachable"], recap(lines, "there")["failed"]) == ("0", "0")
    if "ANSIBLE_CACHE_PLUGIN" in CONFIGURATIONS[name]:
        status, lines = run(name, hosts, "place", "-e", request)
        assert any(line.startswith(NOT_PLACED) for line in lines), "its facts of an earlier run are in the cache"


def test_what_is_listed_without_a_run(fleet):
    hosts = fleet(there="i310_pro")
    listed = [("bind", "--list-hosts", "there"), ("rollback", "--list-tasks", "Roll back"), ("inspect", "--list-hosts", "Read")]
    for playbook, option, said in listed:
        run = hosts.play(playbook, option)
        assert run.status == 0 and said in run.output, run.output


def test_every_play_has_its_strategy_and_outlives_a_dead_host():
    """Whatever ``ansible.cfg`` says: other strategies ignore ``run_once``, and ``any_errors_fatal`` ends a run before its summary."""
    documents = [yaml.safe_load(path.read_text()) for path in REPOSITORY.glob("playbooks/**/*.yml") if path.parent.name != "tasks"]
    plays = [play for document in documents if isinstance(document, list) for play in document if "hosts" in play]
    assert len(plays) > 15
    for play in plays:
        assert play["strategy"] == "ansible.builtin.linear" and play["any_errors_fatal"] is False, play["name"]


@pytest.mark.long
def test_300_hosts_of_304_that_do_not_answer(fleet):
    hosts = fleet(there1="i310_pro", there2="i310_pro", there3="i310_pro", there4="i310_pro")
    inventory = yaml.safe_load(hosts.inventory.read_text())
    for number in range(1, 301):
        inventory["all"]["hosts"][f"gone{number:03}"] = {**GONE, "ansible_host": f"127.0.1.{number % 250}"}
    hosts.inventory.write_text(yaml.safe_dump(inventory))
    for playbook, state in (("bind", "changed"), ("verify", "as bound")):
        status, lines = run("", hosts, playbook)
        assert status == UNREACHABLE
        assert {f"4 {state}: there[1:4]", "300 unreachable: gone[001:300]"} <= set(lines)
        said = [line for line in lines if line.startswith("error on gone")]
        assert 0 < len(said) <= 3 and not [line for line in said if "127.0.1." in line], said
        assert recap(lines, "gone300")["unreachable"] == "1"
        assert len(lines) < 300 * 6 + 100, "five lines of a task and one of the recap for each host"
        after = lines[lines.index("PLAY RECAP *********************************************************************") - 20 :]
        assert f"SUMMARY of {playbook}, 304 hosts" in after

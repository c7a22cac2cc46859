# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts and the playbooks run over them as a user runs them.

``fleet(name=machine, ...)`` writes hosts, each a name of ``tests/simulator/machines`` or a description, and gives a ``Fleet``:

* ``play(playbook, *arguments, **variables)`` runs ansible-playbook (see ``controller.py``) and gives a ``Run``: exit status, output and the
  results of every task;
* ``succeed(...)`` is a ``play`` that must end with status 0;
* ``copy(host, *others)`` gives hosts the tree of another;
* ``give({host: variables})`` gives hosts variables of their own, and ``tree(host)`` is a host's root;
* ``with untouched(host, ...)`` asserts that runs change nothing there; ``touched(before, after)`` compares two of ``snapshot(host)``.

A run costs half a second of CPU, and one more for every host that it binds: a test that can ask a run that is there anyway does not start
one of its own, and has no more hosts than it needs. Where a test has several, ``npu_affinity_batches=["100%"]`` takes them at once.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes.changes import touched
from tests.integration import controller
from tests.simulator.generate import generate

REPOSITORY = Path(__file__).resolve().parents[2]
CHECKOUT = {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build")}
"""The environment in which Ansible takes this checkout."""
ON_CONTROLLER = {
    "set_fact",
    "assert",
    "debug",
    "fail",
    "step",
    "set_stats",
    "meta",
    "include_role",
    "import_role",
    "include_tasks",
    "validate_argument_spec",
}

PLANNING = ("choose_entry", "gather", "plan", "plan_to_bind", "plan_to_compare", "plan_to_show")
MODULES = {
    **dict.fromkeys(PLANNING, "gather"),
    "apply": "host_files",
    **dict.fromkeys(("compare", "verify", "verify_after_bind"), "binding_info"),
    "read_history": "history_info",
    "unbind": "unbind",
    "measure": "measure_info",
    "collect": "host_archive",
    "check_health": "command",
}
"""The modules that steps run on hosts."""


class Run:
    """One ansible-playbook run: its exit status, output, and the results of every task."""

    def __init__(self, process, journal):
        self.status = process.returncode
        self.output = process.stdout + process.stderr
        self.results = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        for entry in self.results:
            step = entry["result"].get("step", "")
            without = step in PLANNING and entry["outcome"] == "ok" and "ansible_facts" not in entry["result"]
            if step in MODULES and not without:
                entry["action"] = f"npu.affinity.{MODULES[step]}"

    def of(self, host, outcome=None):
        return [entry for entry in self.results if entry["host"] == host and outcome in (None, entry["outcome"])]

    def changed(self, host):
        return sum(bool(entry["result"].get("changed")) for entry in self.of(host, "ok"))

    def failure(self, host):
        """Why the host failed: what the summary says of it, or else the last task that failed."""
        *_noted, entry = self.of(host, "failed")
        said = entry["result"]["msg"]
        return " ".join(self.summary["hosts"][host]["reasons"]) if said.endswith("the summary says why") else said

    @property
    def summary(self):
        """What the playbook said at its end, as data."""
        (entry,) = (entry for entry in self.results if entry["action"].endswith("set_stats"))
        return entry["result"]["ansible_stats"]["data"]["npu_affinity_summary"]

    def modules(self, host):
        """The actions that ran as modules on the host."""
        actions = [entry["action"] for entry in self.of(host) if entry["outcome"] != "skipped"]
        return [action for action in actions if action.rpartition(".")[2] not in ON_CONTROLLER]

    def diff(self, host):
        """The lines of all differences that the host's tasks showed."""
        results = [of["result"] for of in self.of(host, "ok")]
        found = [entry for result in results for entry in _as_list(result.get("diff"))]
        lines = [line for entry in found for key in ("prepared", "before", "after") for line in entry.get(key, "").splitlines()]
        return lines + [line for result in results if not result.get("diff") for line in result.get("differences", ())]

    def files(self, host):
        """The paths that the host's file tasks wrote or would write, and those that they remove."""
        written = {path for entry in self.of(host, "ok") for path in entry["result"].get("files", [])}
        removed = {path for entry in self.of(host, "ok") for path in entry["result"].get("removed", [])}
        return written, removed


def _as_list(value):
    return value if isinstance(value, list) else [value] if value else []


class Fleet:
    """A few simulated hosts and their inventory in one folder; ``collection``: another one than that of this checkout."""

    def __init__(self, folder, hosts, collection=REPOSITORY):
        self.folder = folder
        self.collection = collection
        self.hosts = {}
        for host, machine in hosts.items():
            generate(machine, folder / host)
            self.hosts[host] = {"npu_affinity_root": str(folder / host)}
        self.inventory = folder / "inventory.yml"
        variables = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        self.inventory.write_text(yaml.safe_dump({"all": {"hosts": self.hosts, "vars": variables}}))

    def tree(self, host):
        return self.folder / host

    def copy(self, host, *others):
        """Give other hosts the tree that a host has now; what binds equal hosts alike need not run for each."""
        for other in others:
            shutil.rmtree(self.tree(other))
            subprocess.run(["cp", "--archive", self.tree(host), self.tree(other)], check=True)

    def give(self, variables):
        """Give hosts variables of their own: ``{host: {name: value}}``."""
        folder = self.folder / "host_vars"
        folder.mkdir(exist_ok=True)
        for host, values in variables.items():
            (folder / f"{host}.yml").write_text(yaml.safe_dump(values))

    def play(self, playbook, *arguments, **variables):
        if playbook == "unbind":
            variables = {"npu_affinity_confirm": True, **variables}
        playbook = playbook if playbook.endswith(".yml") else f"playbooks/{playbook}.yml"
        return self.run(["-i", str(self.inventory), playbook, *arguments, "-e", json.dumps(variables)])

    def run(self, arguments):
        """Run ansible-playbook with these arguments."""
        journal = self.folder / "journal"
        journal.unlink(missing_ok=True)
        environment = {
            **{name: value for name, value in os.environ.items() if name != "MAKELEVEL"},
            **CHECKOUT,
            **({} if self.collection is REPOSITORY else {"ANSIBLE_COLLECTIONS_PATH": str(self.collection.parents[2])}),
            "ANSIBLE_CALLBACK_PLUGINS": str(REPOSITORY / "tests/integration/callbacks"),
            "ANSIBLE_CALLBACKS_ENABLED": "journal",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "AFFINITY_JOURNAL": str(journal),
        }
        return Run(controller.ansible_playbook(arguments, self.collection, environment), journal)

    def succeed(self, playbook, *arguments, **variables):
        """Run a playbook that must succeed."""
        run = self.play(playbook, *arguments, **variables)
        assert run.status == 0, run.output
        return run

    @contextlib.contextmanager
    def untouched(self, *hosts):
        """Assert that nothing in the trees of these hosts, or of all, is another afterwards."""
        before = {host: self.snapshot(host) for host in hosts or self.hosts}
        yield
        for host, found in before.items():
            assert touched(found, self.snapshot(host)) == set(), host

    def snapshot(self, host):
        """Everything in a host's tree that a run could have touched: content, time and inode of every file, targets of links."""
        found, contents, folders = {}, {}, [str(self.tree(host))]
        while folders:
            for entry in os.scandir(folders.pop()):
                if entry.is_symlink():
                    found[entry.path] = os.readlink(entry.path)
                elif entry.is_dir():
                    folders.append(entry.path)
                else:
                    state = entry.stat()
                    if state.st_ino not in contents:  # a tree has many names for each of its constants
                        contents[state.st_ino] = Path(entry.path).read_bytes()
                    found[entry.path] = (state.st_mtime_ns, state.st_ino, contents[state.st_ino])
        root = len(str(self.tree(host)))
        return {path[root:]: state for path, state in found.items() if not path.endswith("smi-calls.log")}


@pytest.fixture
def fleet(tmp_path):
    return lambda **hosts: Fleet(tmp_path, {name.replace("_", "-"): machine for name, machine in hosts.items()})


def pytest_sessionfinish():
    controller.close()

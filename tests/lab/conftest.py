# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's fixtures: a machine for each test process, fresh for each test, the real playbooks over ssh, and a log of what was asserted."""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import ansible
import psutil
import pytest
import yaml

from tests import cache
from tests.integration import controller
from tests.integration.conftest import Run
from tests.lab import image
from tests.lab.image import ARCHITECTURE
from tests.lab.machine import BOOTED, PATIENCE, Machine, made_of
from tests.lab.shapes import A2, A3, DUO, EIGHT, ENGINES, ENGINES_V1, HYBRID, ISOLATED, NONE, NVME, ODD, SELINUX, V1

REPOSITORY = Path(__file__).resolve().parents[2]
SHAPES = [A3, ODD, NVME, NONE, EIGHT, V1, HYBRID, ISOLATED, ENGINES, ENGINES_V1, SELINUX, A2, DUO]
"""In the order of their tests: those with few tests first, for a process that goes on to another machine does not come back."""
FILES = {
    "engines": ["test_engines.py", "test_adopt.py", "test_pods.py", "test_soak.py"],
    "engines-v1": ["test_adopt.py", "test_pods.py"],
    "selinux": ["test_selinux.py"],
}
"""The tests of images that have more programs."""
_FOUND = {path.name for path in Path(__file__).parent.glob("test_*.py")}
collect_ignore = sorted(_FOUND - set(FILES[image.NAME]) if image.NAME in FILES else {"test_engines.py", "test_pods.py", "test_selinux.py"})
BEGUN = time.monotonic()
LOG, NOT_RUN = "asserted", "not run"
BOUND, RECORD = "bound", "record.pickle"
KEPT, HOUR = 6, 3600
"""Guests in that state that stay in the cache, of 500 MB each, besides those of the last hour."""
PLAN = "/etc/npu-affinity/plan.json"
PLAY_SECONDS = 900
SERVED, ALONE = "/usr/bin/python3", "/usr/bin/python3-alone"
"""A guest's Python: modules run by it are forks of a server in the guest (``guest/lab-modules.service``), or processes as anywhere."""
KILL_MODULES = f"pkill -KILL -xf {ALONE} || true"
"""The program comes to a module's Python through a pipe, so that its command line is no longer than this."""
SETTINGS = {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_CALLBACKS_ENABLED": "journal", "ANSIBLE_TIMEOUT": "120"}


class Claims:
    """What a test asserts, written down for the reader of the log."""

    def __init__(self, title):
        self.lines = ["", title]

    def equal(self, what, found, wanted):
        self._claim(found == wanted, f"{what}: {found}", f"wanted: {wanted}")

    def true(self, what, condition, details=""):
        self._claim(condition, what, details)

    def _claim(self, holds, line, details):
        self.lines.append(f"{'    ok' if holds else 'NOT so'}  {line}")
        assert holds, f"{line} {details}"


class Bound(NamedTuple):
    """A machine right after its first bind, that run, and what the kernel and the files said before it."""

    machine: Machine
    run: Run
    before: dict
    files_before: dict


class Operator(NamedTuple):
    """Who runs playbooks on a machine: variables of the host, and settings of Ansible in the environment."""

    variables: dict
    environment: dict


def root(machine, python):
    """Root, with the configuration of this checkout. On a busy machine npu-smi takes longer than on any host."""
    settings = {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_SSH_ARGS": f"-F {machine.ssh_config}"}
    return Operator({"ansible_python_interpreter": python, "npu_affinity_timeout": PATIENCE}, settings)


@functools.cache
def sources():
    """A digest of all that a bind depends on besides its machine, and of what makes its record."""
    digest = hashlib.sha256(ansible.__version__.encode())
    folders = [REPOSITORY / name for name in ("plugins", "roles", "playbooks", "meta", "tests/integration/callbacks")]
    paths = [path for folder in folders for path in folder.rglob("*") if path.suffix not in (".md", ".pyc") and path.is_file()]
    for path in sorted([*paths, REPOSITORY / "ansible.cfg", REPOSITORY / "tests/integration/conftest.py", Path(__file__)]):
        digest.update(f"{path.relative_to(REPOSITORY)}\0{path.read_text()}\0".encode())
    return digest.hexdigest()


class Lab:
    """The machine that runs at the moment, and its saved states: ``booted`` (as installed) and ``bound`` (after the first bind).

    Both stay in the cache: one process makes them, and others go on from there.
    """

    def __init__(self, folder):
        self._folder = folder
        self._journal = folder / "journal"
        self._numbers = itertools.count()
        self._machine = None
        self._bound = None

    def fresh(self, shape):
        """A machine as it is right after its boot."""
        if not self._restored(shape, BOOTED):
            self._begin(shape, cache.place(*self._kind_of_bound(shape)), BOOTED)
        return self._machine

    def bound(self, shape):
        """A :class:`Bound` machine."""
        if not shape.saveable:
            return self._first_bind(shape)
        if not self._bound or not self._restored(shape, BOUND):
            kept = cache.folder(*self._kind_of_bound(shape), functools.partial(self._bind_and_keep, shape), KEPT, HOUR)
            self._begin(shape, kept, BOUND)
        return self._bound

    def _kind_of_bound(self, shape):
        return f"lab-{BOUND}", [*made_of(shape), sources()]

    def _begin(self, shape, kept, state):
        """Start a machine in one of its states, both of which a folder of the cache keeps if such a machine was bound before."""
        self.close()
        machine = Machine(shape)
        try:
            if cache.is_made(kept):
                *record, compiled = pickle.loads((kept / RECORD).read_bytes())
                machine.compiled_in[BOUND] = compiled[0]
                Machine.compiled = max(Machine.compiled, compiled)
                machine.resume(kept, state)
                self._bound = Bound(machine, *record)
            else:
                machine.boot()
        except BaseException:
            machine.stop()  # it has no state to restore, and no later test may take it for one that has
            raise
        self._machine = machine

    def _first_bind(self, shape):
        machine = self.fresh(shape)
        before, files = machine.look(), machine.files()
        bound = Bound(machine, self.play_as(root(machine, ALONE), machine, "bind"), before, files)
        assert bound.run.status == 0, bound.run.output
        return bound

    def _bind_and_keep(self, shape, folder):
        machine, *record = self._first_bind(shape)
        (folder / RECORD).write_bytes(pickle.dumps((*record, Machine.compiled)))
        machine.keep(folder, BOUND)

    def _restored(self, shape, state):
        usable = self._machine and self._machine.shape is shape and self._machine.runs and shape.saveable
        if usable:
            self._machine.restore(state)
        return usable

    def play(self, machine, playbook, *arguments, **variables):
        """Run a playbook of the collection on the machine as an operator does, and return the :class:`Run`."""
        return self.play_as(root(machine, SERVED), machine, playbook, *arguments, **variables)

    def play_as(self, operator, machine, playbook, *arguments, **variables):
        words, environment = self._command(operator, machine.shape.name, playbook, arguments, variables, self._journal)
        run = Run(controller.ansible_playbook(words, REPOSITORY, environment, PLAY_SECONDS), self._journal)
        if run.status:
            print(run.output)
        machine.keep_compiled()
        return run

    def begin(self, machine, playbook, *arguments, **variables):
        """Start such a run by the command itself, and return ``(its process, its journal)``, of which :meth:`ended` makes the result."""
        journal = self._folder / f"journal-{next(self._numbers)}"
        words, environment = self._command(root(machine, ALONE), machine.shape.name, playbook, arguments, variables, journal)
        command = [str(Path(sys.executable).parent / "ansible-playbook"), *words]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=REPOSITORY, env=environment, **streams), journal

    def ended(self, process, journal):
        process.stdout, process.stderr = process.communicate(timeout=PLAY_SECONDS)
        return Run(process, journal)

    def _command(self, operator, name, playbook, arguments, variables, journal):
        inventory = self._folder / "inventory.yml"
        journal.unlink(missing_ok=True)
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {name: operator.variables}}}))
        environment = {
            **os.environ,
            **SETTINGS,
            **operator.environment,
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build"),
            "ANSIBLE_CALLBACK_PLUGINS": str(REPOSITORY / "tests/integration/callbacks"),
            "AFFINITY_JOURNAL": str(journal),
        }
        file = playbook if playbook.endswith(".yml") else f"playbooks/{playbook}.yml"
        return ["-i", str(inventory), file, *arguments, "-e", json.dumps(variables)], environment

    def close(self):
        if self._machine:
            self._machine.stop()
        self._machine = self._bound = None


def shape_of(item):
    """The machine of a test: its parameter, what its file says, or the small one."""
    usual = getattr(item.module, "SHAPE", DUO)
    return item.callspec.params.get("shape", usual) if hasattr(item, "callspec") else usual


def pytest_collection_modifyitems(items):
    """Tests of one machine follow each other, so that each machine starts once.

    Faults take longest and come first of theirs: no process waits long for the other at the end. If time is short (``LAB_SHORT``), the
    machine with most of the tests comes first, and what takes longest comes last.
    """
    short = bool(os.environ.get("LAB_SHORT"))
    order = SHAPES[::-1] if short else SHAPES
    items.sort(key=lambda item: (order.index(shape_of(item)), (item.path.stem != "test_faults") != short))


def kill(process, _journal):
    """Kill a run with all its processes, so that none of them can tidy up."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
            member.kill()
    process.communicate(timeout=PATIENCE)


def success(run):
    """The exit status of a run, and its output where that is not 0."""
    return run.status, run.output if run.status else ""


def said(run):
    """What a run said, without the line breaks that its lists got."""
    return " ".join(run.output.split())


def changes(run):
    """The exit status of a run, and every task that changed something, with what it returned of that."""
    changed = [(entry["task"], entry["result"]) for entry in run.results if entry["outcome"] == "ok" and entry["result"].get("changed")]
    return run.status, [
        (task, {name: value for name, value in result.items() if value and name != "invocation"}) for task, result in changed
    ]


def changed_files(machine, files):
    """The paths of files, links and folders that are not as they were."""
    return sorted({path for path, _state in machine.files().items() ^ files.items()})


def plan_of(machine):
    """The plan in force on a machine."""
    return json.loads(machine.run(f"cat {PLAN}"))


def drift(lab, machine, folder, **variables):
    """The exit status of verify, and ``{object: first word of the cause}``."""
    report = folder / f"{machine.shape.name}.json"
    report.unlink(missing_ok=True)
    run = lab.play(machine, "verify", npu_affinity_reports=str(folder), **variables)
    return run.status, {entry["object"]: entry["cause"] for entry in json.loads(report.read_text())["drift"]}


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    if lacking := image.missing():
        pytest.exit(lacking, returncode=1)
    image.build()
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()
    controller.close()


@pytest.fixture
def claims(request):
    claims = Claims(request.function.__doc__)
    request.node.user_properties.append((LOG, claims.lines))
    return claims


def pytest_runtest_setup(item):
    """Begin no test after ``--lab-minutes``. Tests that were not run fail the run, unless ``LAB_SHORT`` says why (``tests/rota``).

    This comes before all fixtures: without time, no image is built.
    """
    suites = item.get_closest_marker("suites")
    if suites and ARCHITECTURE == "amd64" and image.SUITE not in suites.args:
        pytest.skip(f"only {' and '.join(suites.args)} can show it")
    minutes = item.config.getoption("lab_minutes")
    if minutes and time.monotonic() - BEGUN > 60 * minutes:
        item.user_properties.append((NOT_RUN, True))
        pytest.skip(f"not run: the {max(minutes, 0)} minutes of LAB_MINUTES are over")


def pytest_configure(config):
    config.addinivalue_line("markers", "suites(*names): the releases that can show it")
    config.addinivalue_line("markers", "core: the claims that a user relies on most, each on the smallest machine that shows it")
    config.addinivalue_line("markers", "architecture: what LAB_ARCH=arm64 runs on aarch64 machines, too")
    config.addinivalue_line("markers", "soak: what make soak runs, for half an hour")


def pytest_report_header():
    """What tests/lab/systems.py reads in a log: which machines, and which commit."""
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return f"lab: image {image.NAME}, {image.SUITE}, {image.PLATFORMS.get(ARCHITECTURE)}, commit {commit}, {datetime.date.today()}"


def pytest_addoption(parser):
    parser.addoption("--lab-minutes", type=int, default=0, help="begin no test after so many minutes; 0: no limit; -1: begin none")


class Log:
    """Prints what a test asserted when it has ended, in one piece, whichever process it ran in, and names the tests that were not run."""

    def __init__(self, reporter):
        self._reporter = reporter
        self._not_run = []

    def pytest_runtest_logreport(self, report):
        properties = dict(report.user_properties)
        if report.when == "setup" and NOT_RUN in properties:
            self._not_run.append(report.nodeid)
        if report.when == "call":
            for line in properties.get(LOG, []):
                self._reporter.write_line(line)

    def pytest_sessionfinish(self, session):
        if self._not_run and not os.environ.get("LAB_SHORT"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self):
        if self._not_run:
            self._reporter.write_line(f"incomplete: {len(self._not_run)} tests not run: {', '.join(sorted(self._not_run))}")


def pytest_sessionstart(session):
    if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
        session.config.pluginmanager.register(Log(reporter))

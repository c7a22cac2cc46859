# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rulebook in ansible-rulebook: notifications as Alertmanager posts them arrive, and hosts are bound, or reported. Needs Java.

One process of ansible-rulebook is started for all tests; each has a simulated host of its own.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests import cache
from tests.fakes.small_host import MACHINE, VARIABLES, interrupt
from tests.integration import controller
from tests.integration.conftest import REPOSITORY, Fleet

REQUIREMENT = "ansible-rulebook==1.3.2"
RULEBOOK = REPOSITORY / "extensions/eda/rulebooks/heal.yml"
TOKEN = "the-token-of-this-test"
HOSTS = ("node1", "node2", "node3", "node4")
SECONDS = 120


@pytest.fixture(scope="session")
def programs():
    """A virtual environment of Python with ansible-rulebook."""

    def make(folder):
        venv.create(folder / "venv", with_pip=True, symlinks=True)
        subprocess.run([folder / "venv/bin/python", "-m", "pip", "install", "--quiet", REQUIREMENT], check=True, timeout=600)

    return cache.folder("rulebook", [REQUIREMENT, sys.version], make, kept=1) / "venv"


class Rulebook:
    """The rulebook as it runs over a fleet."""

    def __init__(self, programs, fleet):
        self.fleet = fleet
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings = {"webhook_token": TOKEN, "webhook_port": self.port}
        (fleet.folder / "settings.yml").write_text(yaml.safe_dump(settings))
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build"),
            "PYTHONPATH": "",
            "PYTHONUNBUFFERED": "1",
        }
        command = [programs / "bin/ansible-rulebook", "--rulebook", "npu.affinity.heal", "--inventory", fleet.inventory]
        command += ["--vars", fleet.folder / "settings.yml"]
        self.log = fleet.folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=fleet.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.wait(self.listens, "it listens")

    def listens(self):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def wait(self, condition, what):
        end = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None and time.monotonic() < end, f"not seen: {what}\n{self.said()}"
            time.sleep(0.2)

    def said(self):
        return self.log.read_text()

    def says(self, text, times=1):
        self.wait(lambda: self.said().count(text) >= times, text)

    def runs(self, host):
        """How many playbooks were run for a host."""
        return self.said().count(f"{host}: bound because of")

    def notify(self, *alerts, token=TOKEN):
        """Post what Alertmanager 0.25 posts to a webhook (version 4 of its payload), and return the status."""
        status = "firing" if any(alert["status"] == "firing" for alert in alerts) else "resolved"
        group = {"alertname": "NpuAffinityDrift"}
        payload = {"receiver": "npu-affinity", "status": status, "alerts": alerts, "version": "4", "truncatedAlerts": 0}
        payload |= {"groupLabels": group, "commonLabels": {**group, "severity": "warning"}, "commonAnnotations": {}}
        payload |= {"externalURL": "http://alertmanager:9093", "groupKey": '{}:{alertname="NpuAffinityDrift"}'}
        headers = {"Content-Type": "application/json", "User-Agent": "Alertmanager/0.25.0", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/", json.dumps(payload).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def move(self, host):
        """Move an interrupt, and return the file that shows where it is, and where it was."""
        tree = self.fleet.tree(host)
        path = tree / interrupt(tree, "cq_update_irq", 0)[1:]
        before = path.read_text()
        path.write_text("9\n")
        return path, before

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def alert(host, cause="manual change", minute=0, name="NpuAffinityDrift", status="firing"):
    return {
        "status": status,
        "labels": {"alertname": name, "cause": cause, "instance": f"{host}:9100" if host else "", "job": "node", "severity": "warning"},
        "annotations": {"summary": f"{host}: 1 objects are not as planned, likely cause: {cause}"},
        "startsAt": f"2026-11-22T17:{minute:02d}:12.345Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus:9090/graph?g0.expr=npu_affinity_drifted_objects",
        "fingerprint": "5ef77f1f8a3ecf8d",
    }


@pytest.fixture(scope="module")
def rulebook(programs, tmp_path_factory):
    fleet = Fleet(tmp_path_factory.mktemp("events"), dict.fromkeys(HOSTS, MACHINE))
    run = fleet.play("bind", "--limit", HOSTS[0], **VARIABLES)
    controller.close()
    assert run.status == 0, run.output
    fleet.copy(*HOSTS)
    inventory = yaml.safe_load(fleet.inventory.read_text())
    inventory["all"]["vars"].update(VARIABLES)
    inventory["all"]["children"] = {"npu_hosts": {"hosts": dict.fromkeys(HOSTS, {})}}
    fleet.inventory.write_text(yaml.safe_dump(inventory))
    started = Rulebook(programs, fleet)
    yield started
    started.close()


def test_the_schema_of_ansible_rulebook_holds(programs):
    (schema,) = programs.glob("lib/python*/site-packages/ansible_rulebook/schema/ruleset_schema.json")
    jsonschema.validate(yaml.safe_load(RULEBOOK.read_text()), json.loads(schema.read_text()))


def test_only_a_drifted_host_is_bound_and_once_within_minutes(rulebook):
    path, before = rulebook.move("node1")
    other, _before = rulebook.move("node2")
    assert rulebook.notify(alert("node1")) == 200
    rulebook.wait(lambda: path.read_text() == before, "the interrupt is back")
    rulebook.says("node1 ")  # the summary of the play

    path.write_text("9\n")
    rulebook.notify(alert("node1", minute=10))
    rulebook.notify(alert("node4", name="NpuAffinityLostNpu", cause=""))
    rulebook.says("node4: not bound because of NpuAffinityLostNpu")  # which came after
    assert rulebook.runs("node1") == 1
    assert (path.read_text(), other.read_text()) == ("9\n", "9\n")


def test_a_host_that_drifts_again_and_again_is_reported(rulebook):
    rulebook.notify(*(alert("node2", minute=minute) for minute in range(0, 50, 10)))
    rulebook.says("node2: not bound, because it drifted 4 times in 24 hours, likely cause: manual change")
    assert rulebook.runs("node2") == 1


# alerts, and what is reported of them; nothing is bound
WITHOUT_A_HOST = "An alert without a host: not bound because of"
NOT_BOUND = {
    "what a bind does not heal": (alert("node3", cause="fought over"), "node3: not bound because of NpuAffinityDrift: node3: 1 objects"),
    "an alert without a host": (alert(""), f"{WITHOUT_A_HOST} NpuAffinityDrift"),
    "a pattern": (alert("node*", name="NpuAffinityNotBound"), f"{WITHOUT_A_HOST} NpuAffinityNotBound"),
    "a group": (alert("npu_hosts", cause="irqbalance"), f"{WITHOUT_A_HOST} NpuAffinityDrift: npu_hosts: 1 objects"),
}


@pytest.mark.parametrize("sent, said", NOT_BOUND.values(), ids=NOT_BOUND)
def test_what_is_only_reported(rulebook, sent, said):
    rulebook.notify(sent)
    rulebook.says(said)
    assert rulebook.runs("node3") == 0


def test_without_the_token_nothing_is_taken(rulebook):
    path, _before = rulebook.move("node3")
    assert rulebook.notify(alert("node3"), token="another") == 401
    rulebook.notify(alert("node3", status="resolved"))
    rulebook.notify(alert("node3", name="NpuAffinityNewNpu", cause=""))
    rulebook.says("node3: not bound because of NpuAffinityNewNpu")
    assert rulebook.runs("node3") == 0 and path.read_text() == "9\n"

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A feature that somebody adds: one file on the host's side, one on the controller's, one role, and its name in the register."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.installed import ARCHIVE

from tests.simulator import generate as simulator

REPOSITORY = Path(__file__).parents[4]
PACKAGE = "ansible_collections.npu.affinity.plugins."
MACHINE = {
    "cpus": {"per_node": 16},
    "nodes": {"count": 1},
    "npus": {"family": "a2", "name": "910B3", "memory_mib": 65536, "cards": [{"npu": 0, "bdf": "0000:c1:00.0", "node": 0}]},
}
FILE, LIVE = "etc/npu-affinity/toy.conf", "run/npu-affinity/toy"
RECORD = "etc/npu-affinity/previous.json"
ON_THE_HOST = """
from ..._state import previous
from ..._state.files import atomic_write, make_folder
from ..._state.step import LiveStep
from ..feature import Feature


class Toy(LiveStep):
    title = "toys"

    def __init__(self, host, wanted):
        LiveStep.__init__(self)
        self.host = host
        self.wanted = wanted
        self.before = None

    @property
    def changed(self):
        return self.before != self.wanted

    def look(self, check):
        self.before = self.host.text("/run/npu-affinity/toy")

    def run(self):
        previous.record(self.host, "toy", {"was": self.before or ""})
        make_folder(self.host, "/run/npu-affinity", 0o755)
        atomic_write(self.host, "/run/npu-affinity/toy", self.wanted)

    def undo(self):
        if self.before is not None:
            atomic_write(self.host, "/run/npu-affinity/toy", self.before)

    def lines(self):
        return {"other files": ["~ toy: %s -> %s" % (self.before, self.wanted)] if self.changed else []}


def _step(host, state, choices):
    return Toy(host, state["live"]["toy"]) if state["live"].get("toy") else None


def _check(data):
    if not isinstance(data["was"], str):
        raise ValueError("the toy was %r" % data["was"])


def _compare(comparing):
    from ..._base.findings import EDIT, Cause

    wanted, found = comparing.wanted.live.get("toy"), comparing.host.text("/run/npu-affinity/toy")
    if wanted and found == wanted:
        comparing.findings.same("toys", "the toy")
    elif wanted:
        comparing.findings.differs("toys", "the toy", wanted, found or "nothing", Cause(EDIT, "played with"))


def _codes():
    from ..._base.findings import Code

    return {"NPU_TOY_CHANGED": Code("The toy is not as planned.", kinds=["toys"])}


FEATURE = Feature(
    "toy",
    live=str,
    owned=("/etc/npu-affinity/toy.conf",),
    sections={"toy": _check},
    leftovers=("/run/npu-affinity/toy",),
    step=_step,
    compare=_compare,
    codes=_codes,
)
"""
ON_THE_CONTROLLER = f"""
from {PACKAGE}module_utils._features.toy.feature import FEATURE
from {PACKAGE}plugin_utils._desired.feature import Feature, managed


def wanted(topology, plan, settings):
    if not settings["enabled"]:
        return Feature(owned=FEATURE.owned)
    return Feature(files=(managed("/etc/npu-affinity/toy.conf", "size=%d\\n" % settings["size"]),), owned=FEATURE.owned, live="rolls")
"""
ROLE = """
argument_specs:
  main:
    options:
      npu_affinity_toy_enabled: {description: Whether there is a toy., type: bool, default: false}
      npu_affinity_toy_size: {description: How large it is., type: int, default: 1}
"""
STATE = f"""
import json, sys
from {PACKAGE}module_utils._host.host import Host
from {PACKAGE}module_utils._topology.gather import gather
from {PACKAGE}plugin_utils._desired.state import desired_state
from {PACKAGE}plugin_utils._settings.features import of_features
settings = of_features(json.loads(sys.argv[2]))
print(json.dumps(desired_state(gather(Host(sys.argv[1])), {{**settings, "remarks": [], "applied": {{}}}})))
"""


@pytest.fixture
def collection(tmp_path):
    """A copy of the collection with a toy in each of the three places."""
    top = tmp_path / "path/ansible_collections/npu/affinity"
    for folder in ("plugins", "roles"):
        shutil.copytree(REPOSITORY / folder, top / folder, ignore=shutil.ignore_patterns("__pycache__"))
    package = top / "plugins/module_utils/_features/toy"
    for path, text in {
        package / "__init__.py": "",
        package / "feature.py": ON_THE_HOST,
        top / "plugins/plugin_utils/_desired/toy.py": ON_THE_CONTROLLER,
        top / "roles/toy/meta/argument_specs.yml": ROLE,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    register = top / "plugins/module_utils/_features/register.py"
    text = register.read_text().replace("METRICS, KUBELET", "METRICS, KUBELET, TOY")
    register.write_text(text.replace("from .tuning", "from .toy.feature import FEATURE as TOY\nfrom .tuning"))
    return tmp_path / "path"


@pytest.fixture
def host(tmp_path):
    tree = tmp_path / "host"
    simulator.generate(MACHINE, tree)
    return tree


@pytest.fixture
def run(collection, host):
    """Runs a module of the copy on the host."""

    def call(*command, text=None):
        environment = {"PYTHONPATH": str(collection), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [sys.executable, *command], input=text, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def module(name, check=False, fails=False, **arguments):
        given = {"root": str(host), **arguments, "_ansible_check_mode": check, "_ansible_remote_tmp": str(host / "tmp")}
        result = call("-m", f"{PACKAGE}modules.{name}", text=json.dumps({"ANSIBLE_MODULE_ARGS": given}))
        assert bool(result.get("failed")) == fails, result.get("msg")
        return result

    module.state = lambda **settings: call("-c", STATE, str(host), json.dumps(settings))
    return module


def test_a_new_feature_is_bound_verified_rolled_back_and_unbound(run, host):
    bound = run.state(npu_affinity_toy_enabled=True, npu_affinity_toy_size=3)
    assert bound["features"]["toy"] == "present"
    assert run("host_files", check=True, state=bound)["changed"] and not (host / FILE).exists() and not (host / LIVE).exists()
    assert "/" + FILE in run("host_files", state=bound)["files"]
    assert (host / FILE).read_text().endswith("size=3\n") and (host / LIVE).read_text() == "rolls"
    assert not run("host_files", state=bound)["changed"]
    code = hashlib.sha256((host / ARCHIVE[1:]).read_bytes()).hexdigest()
    assert run("topology_facts", compare=True, host_code=code)["in_force"]["digest"] == bound["digest"]

    clean = run("binding_info")
    assert clean["drift"] == [] and clean["checked"]["toys"] == ["the toy"]
    (host / FILE).write_text((host / FILE).read_text() + "size=4\n")
    (host / LIVE).write_text("stands")
    sentence = "the toy: expected rolls, found stands; likely manual change: played with [NPU_TOY_CHANGED]"
    drift = run("binding_info")["drift"]
    assert [entry["object"] for entry in drift] == ["/" + FILE, "the toy"] and drift[1]["sentence"] == sentence

    again = run.state(npu_affinity_toy_enabled=True, npu_affinity_toy_size=4)
    assert run("host_files", state=again, features=["toy"])["files"] == ["/" + FILE]
    assert run("host_files", state=bound)["changed"]

    assert run("host_files", state=run.state())["changed"]
    assert not (host / FILE).exists() and not (host / LIVE).exists()
    entry = run("history_info", to="-1")["entry"]
    assert run("host_files", state=entry["state"], action="rollback")["changed"]
    assert (host / FILE).read_text().endswith("size=3\n") and (host / LIVE).read_text() == "rolls"

    assert "toyy is not a feature: use adopt, device_share" in run("unbind", features=["toyy"], fails=True)["msg"]
    assert run("unbind", features=["toy"])["changed"]
    assert not (host / FILE).exists() and not (host / LIVE).exists()
    assert (host / "etc/systemd/system/npu-0.slice").exists() and run("binding_info")["drift"] == []


def test_a_new_features_record_is_checked_before_the_first_write(run, host):
    bound = run.state(npu_affinity_toy_enabled=True)
    run("host_files", state=bound)
    before = json.loads((host / RECORD).read_text())
    assert before["toy"] == {"was": ""}
    (host / RECORD).write_text(json.dumps(dict(before, toy={"was": 1})))
    refused = run("host_files", state=run.state(), fails=True)["msg"]
    assert "section 'toy' cannot be restored (ValueError: the toy was 1)" in refused and (host / FILE).exists()

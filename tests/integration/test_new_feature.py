# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A feature that somebody adds by docs/adding-a-feature.md: its file for hosts, that for the controller, its role, and the register."""

import json
import shutil

import pytest

from tests.integration.conftest import REPOSITORY, Fleet

PACKAGE = "ansible_collections.npu.affinity.plugins."
ON_THE_HOST = """
from ..._state.value_kind import Setting
from ..feature import value_feature

POLICY = "/sys/devices/system/cpu/cpufreq/policy*/"
FEATURE = value_feature(
    "governor",
    {"governor": Setting(POLICY + "scaling_governor", "CPU", "related_cpus", "scaling_available_governors")},
    meaning="CPUs have another frequency governor than planned.",
    by_whom="set by hand, or by TuneD",
)
"""
ON_THE_CONTROLLER = f"""
from {PACKAGE}module_utils._features.governor.feature import FEATURE
from {PACKAGE}plugin_utils._desired.feature import of_values


def is_on(settings):
    return bool(settings["governor"])


def wanted(topology, plan, settings):
    return of_values(FEATURE, {{"governor": settings["governor"]}}, settings["python"], "Set the frequency governor of CPUs")
"""
ROLE = """
argument_specs:
  main:
    options:
      npu_affinity_root: {description: Root directory of the host's files., type: path, default: /}
      npu_affinity_python: {description: Python of the boot unit., type: path, default: /usr/bin/python3}
      npu_affinity_governor: {description: Frequency governor of all CPUs., type: str, default: ""}
"""
GOVERNORS = [f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor" for number in (0, 1)]
FILE, UNIT, SLICE = "etc/npu-affinity/governor.json", "etc/systemd/system/npu-affinity-governor.service", "etc/systemd/system/npu-0.slice"
RECORD = "etc/npu-affinity/previous.json"


@pytest.fixture
def collection(tmp_path):
    """A copy of the collection with the feature."""
    top = tmp_path / "path/ansible_collections/npu/affinity"
    for folder in ("plugins", "roles", "playbooks", "meta"):
        shutil.copytree(REPOSITORY / folder, top / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "galaxy.yml", top)
    package = top / "plugins/module_utils/_features/governor"
    register = top / "plugins/module_utils/_features/register.py"
    imports, tuple_of = "from .tuning.feature", "METRICS, KUBELET"
    registered = register.read_text().replace(imports, f"from .governor.feature import FEATURE as GOVERNOR\n{imports}")
    for path, text in {
        package / "__init__.py": "",
        package / "feature.py": ON_THE_HOST,
        top / "plugins/plugin_utils/_desired/governor.py": ON_THE_CONTROLLER,
        top / "roles/governor/meta/argument_specs.yml": ROLE,
        register: registered.replace(tuple_of, f"{tuple_of}, GOVERNOR"),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


@pytest.fixture
def host(tmp_path, collection):
    fleet = Fleet(tmp_path, {"a": "i310_pro"}, collection)
    for path in GOVERNORS:
        (fleet.tree("a") / path).parent.mkdir(parents=True)
        (fleet.tree("a") / path).write_text("schedutil\n")
    return fleet


@pytest.mark.headline
def test_a_new_feature_works_in_every_playbook(host, tmp_path):
    tree, on = host.tree("a"), {"npu_affinity_governor": "performance"}

    def governors():
        return [(tree / path).read_text().strip() for path in GOVERNORS]

    predicted, done = host.succeed("bind", "--check", "--diff", **on), host.succeed("bind", "--diff", **on)
    line = "  ~ governor: schedutil -> performance on 2 CPUs"
    assert line in predicted.diff("a") and line in done.diff("a")
    assert "host settings: governor performance" in predicted.output
    assert governors() == ["performance"] * 2 and json.loads((tree / FILE).read_text())["governor"] == "performance"
    assert "python3 -m npu_affinity governor" in (tree / UNIT).read_text()
    with host.untouched():
        host.succeed("bind", **on)

    (tree / GOVERNORS[1]).write_text("powersave\n")
    found = host.play("verify", **on)
    said = "governor: expected performance, found performance (1 of 2), powersave (1 of 2); likely manual change: set by hand, or by TuneD"
    assert found.status == 2 and f"{said} [NPU_GOVERNOR_CHANGED]" in " ".join(found.output.split()), found.output

    host.succeed("bind")
    assert governors() == ["schedutil"] * 2 and not (tree / FILE).exists() and "governor" not in json.loads((tree / RECORD).read_text())
    host.succeed("rollback", npu_affinity_to="-1")
    assert governors() == ["performance"] * 2 and (tree / UNIT).exists()

    archives = {"npu_affinity_archives": str(tmp_path / "archives"), "npu_affinity_report": str(tmp_path / "page.html")}
    (tree / GOVERNORS[1]).write_text("powersave\n")
    host.succeed("collect", **archives, **on)
    assert "governor: expected performance" in host.play("inspect", **archives).output

    host.succeed("unbind", npu_affinity_features=["governor"])
    assert governors() == ["schedutil"] * 2 and not (tree / FILE).exists() and not (tree / UNIT).exists() and (tree / SLICE).exists()
    host.succeed("verify")

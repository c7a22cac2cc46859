# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One plan in the terms of every engine, and statements about container sets."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Callable, Iterator

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import slices
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.checks import Statement, check
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import launch

PROSE = {"about", "sources", "origin", "compose_note", "cce_cpu_reservation_rule"}
ENTRY = {"id", "note", "input", "expected", "origin"}
CHECK_INPUT = {"cgroup_parent", "driver", "container_cpus", "slice_cpus", "host_cpus", "cgroup", "kubelet", "binding", "total_npus"}
KUBELET = {"policy", "reservedSystemCPUs", "exclusive"}
CHECK_EXPECTED = {"ok", "message", "effective"}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "fields", lambda: known(document, PROSE | set(FORMS) | {"plan", "checks", "cce_cpu_reservation"}, "the file")
    for key, compare in FORMS.items():
        if key in document:
            yield key, lambda key=key, compare=compare: compare(document[key], document["plan"])
    for case in document.get("checks", []):
        yield f"{case['id']} {case['note']}", lambda case=case: statement(case)
    for case in document.get("cce_cpu_reservation", []):
        yield f"{case['id']} {case['note']}", lambda case=case: reservation(case)


def known(fields: dict, names: set[str], where: str) -> None:
    assert set(fields) <= names, f"{where}: unknown fields {sorted(set(fields) - names)}"


def words(plan: dict, engine: str, **options: object) -> list[str]:
    return shlex.split(launch(plan, engine, notes=False, visible_devices=False, **options))


def container(engine: str) -> Callable[[list, dict], None]:
    def compare(recipe: list[str], plan: dict) -> None:
        written = words(plan, engine)
        assert written[:2] == [engine, "run"]
        assert [word.replace("--volume=", "-v") for word in written[2:-1]] == recipe

    return compare


def nerdctl(recipe: list[str], plan: dict) -> None:
    assert words(plan, "nerdctl", devices=False)[2:-1] == recipe


def compose(recipe: dict, plan: dict) -> None:
    for name, service in recipe["services"].items():
        written = yaml.safe_load(launch(plan, "compose", name=name))["services"][name]
        assert {key: written.get(key) for key in service} == service


def settings(text: str) -> set[tuple[str, str]]:
    """Return the settings of a unit file, each with its section."""
    section, found = "", set()
    for line in text.splitlines():
        if line.startswith("["):
            section = line
        elif line and not line.startswith("#"):
            found.add((section, line))
    return found


def slice_unit(recipe: dict, plan: dict) -> None:
    known(recipe, {"file", "text"}, "slice_unit")
    unit = {"description": "", "cpus": plan["cpus"], "mems": plan["mems"]}
    assert settings(recipe["text"]) <= settings(slices.slice_text(unit))


def quadlet(recipe: dict, plan: dict) -> None:
    known(recipe, {"file", "text", "note"}, "quadlet")
    path = pathlib.PurePath(recipe["file"])
    text = launch(plan, "quadlet", image="example", name=path.stem)
    assert str(path) in text
    assert settings(recipe["text"]) <= settings(text)
    assert "--cgroup-parent" not in text


def systemd_service(recipe: dict, plan: dict) -> None:
    known(recipe, {"drop_in"}, "systemd_service")
    assert launch(plan, "systemd", notes=False) == recipe["drop_in"]


def ctr(recipe: str, plan: dict) -> None:
    written = words(plan, "ctr", name="name")
    (group,) = [word.removeprefix("--cgroup=") for word in written if word.startswith("--cgroup=")]
    assert f'"{group}"' in recipe
    assert "no cpuset flags" in recipe and not any(word.startswith("--cpuset") for word in written)


def ascend_docker_runtime(recipe: dict, plan: dict) -> None:
    known(recipe, {"env", "note"}, "ascend_docker_runtime")
    wanted = dict(line.split(" ")[0].split("=", 1) for line in recipe["env"])
    written = words(plan, "docker", ascend_runtime=True, vnpu=wanted["ASCEND_VNPU_SPECS"])
    assert [word for word in written if word.startswith("--env=")] == [f"--env={name}={value}" for name, value in wanted.items()]
    assert not any(word.startswith(("--device", "--volume")) for word in written)


def kubernetes(recipe: dict, plan: dict) -> None:
    known(recipe, {"never", "express_as", "change_order", "per_card_even_split"}, "kubernetes")
    text = launch(plan, "kubelet")
    written = yaml.safe_load(text)
    assert written.pop("reservedSystemCPUs") == plan["cpus"]
    for key, value in recipe["express_as"].items():
        if key in written:
            assert written[key] == value or written[key] in value.split(), key
    assert {"cpuManagerPolicy", "cpuManagerPolicyOptions", "topologyManagerPolicy"} <= set(written)
    positions = [text.index(step.split(" (")[0]) for step in recipe["change_order"] if step != "change config"]
    assert positions == sorted(positions)


FORMS: dict[str, Callable] = {
    "slice_unit": slice_unit,
    "docker_run": container("docker"),
    "podman_run": container("podman"),
    "compose": compose,
    "quadlet": quadlet,
    "systemd_service": systemd_service,
    "nerdctl": nerdctl,
    "ctr": ctr,
    "ascend_docker_runtime": ascend_docker_runtime,
    "kubernetes": kubernetes,
}


def statement(case: dict) -> None:
    known(case, ENTRY, case["id"])
    known(case["input"], CHECK_INPUT, f"{case['id']} input")
    known(case["input"].get("kubelet") or {}, KUBELET, f"{case['id']} kubelet")
    known(case["expected"], CHECK_EXPECTED, f"{case['id']} expected")
    verdict = check(Statement(**case["input"]))
    assert case["expected"].get("message", "") in verdict.message
    exact = {key: value for key, value in case["expected"].items() if key != "message"}
    assert {key: getattr(verdict, key) for key in exact} == exact


def reservation(case: dict) -> None:
    known(case, ENTRY, case["id"])
    pytest.skip("the collection reads what a node's kubelet reserves and does not compute what CCE would reserve")

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One plan in the terms of every engine, and statements about container sets."""

from __future__ import annotations

import functools
import pathlib
import shlex
from collections.abc import Callable
from typing import Any

import yaml
from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import slices
from ansible_collections.npu.affinity.plugins.module_utils._launch.launching import check
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import launch

KUBELET = "policy reservedSystemCPUs exclusive"


def words(plan: dict, engine: str, **options: object) -> list[str]:
    return shlex.split(launch(plan, engine, notes=False, visible_devices=False, **options))


def container(engine: str, recipe: list[str], plan: dict) -> None:
    written = words(plan, engine)
    assert written[:2] == [engine, "run"]
    assert [word.replace("--volume=", "-v") for word in written[2:-1]] == recipe


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
    require_known(recipe, "file text", "slice_unit")
    unit = {"description": "", "cpus": plan["cpus"], "mems": plan["mems"]}
    assert settings(recipe["text"]) <= settings(slices.slice_text(unit))


def quadlet(recipe: dict, plan: dict) -> None:
    require_known(recipe, "file text note", "quadlet")
    path = pathlib.PurePath(recipe["file"])
    text = launch(plan, "quadlet", image="example", name=path.stem)
    assert str(path) in text
    assert settings(recipe["text"]) <= settings(text)
    assert "--cgroup-parent" not in text


def systemd_service(recipe: dict, plan: dict) -> None:
    require_known(recipe, "drop_in", "systemd_service")
    assert launch(plan, "systemd", notes=False) == recipe["drop_in"]


def ctr(recipe: str, plan: dict) -> None:
    written = words(plan, "ctr", name="name")
    (group,) = [word.removeprefix("--cgroup=") for word in written if word.startswith("--cgroup=")]
    assert f'"{group}"' in recipe
    assert "no cpuset flags" in recipe and not any(word.startswith("--cpuset") for word in written)


def ascend_docker_runtime(recipe: dict, plan: dict) -> None:
    require_known(recipe, "env note", "ascend_docker_runtime")
    wanted = dict(line.split(" ")[0].split("=", 1) for line in recipe["env"])
    written = words(plan, "docker", ascend_runtime=True, vnpu=wanted["ASCEND_VNPU_SPECS"])
    assert [word for word in written if word.startswith("--env=")] == [f"--env={name}={value}" for name, value in wanted.items()]
    assert not any(word.startswith(("--device", "--volume")) for word in written)


def kubernetes(recipe: dict, plan: dict) -> None:
    require_known(recipe, "never express_as change_order per_card_even_split", "kubernetes")
    text = launch(plan, "kubelet")
    written = yaml.safe_load(text)
    assert written.pop("reservedSystemCPUs") == plan["cpus"]
    for key, value in recipe["express_as"].items():
        if key in written:
            assert written[key] == value or written[key] in value.split(), key
    assert {"cpuManagerPolicy", "cpuManagerPolicyOptions", "topologyManagerPolicy"} <= set(written)
    positions = [text.index(step.split(" (")[0]) for step in recipe["change_order"] if step != "change config"]
    assert positions == sorted(positions)


def statement(given: dict, expected: dict) -> None:
    require_known(given.get("kubelet") or {}, KUBELET, "kubelet")
    verdict = check(**given)
    assert expected.get("message", "") in verdict.message
    exact = {key: value for key, value in expected.items() if key != "message"}
    assert {key: getattr(verdict, key) for key in exact} == exact


FORMS: dict[str, Callable[[Any, dict], None]] = {
    "slice_unit": slice_unit,
    "docker_run": functools.partial(container, "docker"),
    "podman_run": functools.partial(container, "podman"),
    "compose": compose,
    "quadlet": quadlet,
    "systemd_service": systemd_service,
    "nerdctl": nerdctl,
    "ctr": ctr,
    "ascend_docker_runtime": ascend_docker_runtime,
    "kubernetes": kubernetes,
}


def check_of(form: str) -> Callable[[Any, dict], None]:
    return lambda recipe, document: FORMS[form](recipe, document["plan"])

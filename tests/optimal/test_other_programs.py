# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of others give what is said of them: published pools are those of ``cpu_binding.py`` of released packages of vLLM-Ascend, and
what the comparison of plans has recorded is what hwloc-distrib, which make optimal installs, and packages of engines print.

The packages come from the index of pip into the cache. The program runs as it is, on a parsed host.
"""

import contextlib
import re
import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_hosts import host  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402
from tests.compare import packages  # noqa: E402
from tests.compare.machines import shapes, subjects  # noqa: E402
from tests.compare.rules import engines, hwloc  # noqa: E402

VERSIONS = {"0.18.0": ("a2", "a3", "310p"), "0.23.0": ("a2", "a3", "310p", "a5")}
MACHINES = 200


@pytest.fixture(params=VERSIONS)
def released(request):
    """Return a version and its program."""
    with contextlib.ExitStack() as stack:
        try:
            program = stack.enter_context(packages.vllm_ascend(request.param))
        except packages.CONNECTION_FAILED as error:
            pytest.skip(f"no index has vllm-ascend {request.param}: {getattr(error, 'stderr', None) or error}"[:300])
        yield request.param, program


def machine(seed, families):
    details = Random(seed)
    nodes, family = details.choice([1, 2, 4, 8]), details.choice(families)
    return host(
        [details.randrange(nodes) for _npu in range(details.choice([1, 2, 4, 8]))],
        nodes=nodes,
        cores=details.choice([16, 24, 40]),
        threads=details.choice([1, 2]),
        numbering=details.choice(["adjacent", "far"]),
        family=family,
    )


def test_published_pools_are_those_of_the_released_program(released):
    version, program = released
    bound = 0
    for seed in range(MACHINES):
        topology = machine(seed, VERSIONS[version])
        try:
            found = packages.division(program, topology, topology["cpus"]["online"])
        except RuntimeError as error:
            with pytest.raises(ValueError, match=re.escape(str(error)[:20])):
                plan(topology, repair=False)
            continue
        assert {entry["id"]: expand(entry["pool"]) for entry in plan(topology, repair=False)["npus"]} == found, seed
        bound += bool(found)
    assert bound > MACHINES // 2


def test_recorded_outputs_of_hwloc_are_those_of_the_program(tmp_path, monkeypatch):
    recorded = hwloc.recorded()
    monkeypatch.setattr(hwloc, "FILE", tmp_path / "hwloc.json")
    with subjects(shapes()[:2]) as found:
        assert hwloc.record(found), "hwloc-distrib is not installed"
    again = hwloc.recorded()
    if again["version"] != recorded["version"]:
        pytest.skip(f"hwloc {again['version']} is installed, {recorded['version']} was recorded")
    assert again["sets"] and again["sets"].items() <= recorded["sets"].items()


def test_recorded_outputs_of_engines_are_those_of_the_packages(tmp_path, monkeypatch):
    """On the machines with GPUs, and on one of each other family."""
    machines = {shape.title if shape.family == "GPU" else shape.family: shape for shape in shapes()}
    before = engines.recorded()
    monkeypatch.setattr(engines, "FILE", tmp_path / "engines.json")
    with subjects([*machines.values()]) as found:
        try:
            engines.record(found)
        except packages.CONNECTION_FAILED as error:
            pytest.skip(f"no index has the packages: {getattr(error, 'stderr', None) or error}"[:300])
    again = engines.recorded()
    assert again["versions"] == before["versions"]
    assert len(again["sets"]) > 10 and again["sets"].items() <= before["sets"].items()

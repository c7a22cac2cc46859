# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Published pools are those that ``cpu_binding.py`` of the released packages of vLLM-Ascend makes.

The packages come from the index of pip into the cache. The program runs as it is: modules that it imports and does not need here are
stubs, and it is given a parsed host in place of the output of commands.
"""

from __future__ import annotations

import logging
import re
import sys
import types
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_hosts import host  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402
from tests.compare import packages  # noqa: E402

VERSIONS = {"0.18.0": ("a2", "a3", "310p"), "0.23.0": ("a2", "a3", "310p", "a5")}
MACHINES = 200


STUBS = {
    "psutil": {},
    "regex": {name: getattr(re, name) for name in ("compile", "fullmatch", "match", "search", "split")},
    "vllm": {},
    "vllm.logger": {"logger": logging.getLogger("vllm")},
    "vllm_ascend": {},
    "vllm_ascend.utils": {
        "AscendDeviceType": types.SimpleNamespace(A2="a2", A3="a3", _310P="310p", A5="a5"),
        "get_ascend_device_type": lambda: None,
    },
}


@pytest.fixture(params=VERSIONS)
def released(request):
    """Return a version and its program."""
    try:
        folder = packages.files("vllm-ascend", request.param, ["vllm_ascend/cpu_binding.py"])
    except packages.CONNECTION_FAILED as error:
        pytest.skip(f"no index has vllm-ascend {request.param}: {getattr(error, 'stderr', None) or error}"[:300])
    with packages.loaded(folder / "cpu_binding.py", STUBS) as program:
        yield request.param, program


def theirs(program, topology):
    """Return the pools of all NPUs, each of which has a process, {} where nothing is bound."""
    npus = [npu["id"] for npu in topology["npus"]]
    threads = max((len(expand(core)) for core in topology["cpus"]["siblings"]), default=1)
    printed = "\n".join(f"{cpu} {node['id']}" for node in topology["numa"] for cpu in expand(node["cpus"]))
    program.get_ascend_device_type = lambda: topology["npus"][0]["family"]
    program.execute_command = lambda words: (printed if words[1:] else f"Thread(s) per core: {threads}", 0)
    made = program.CpuAlloc.__new__(program.CpuAlloc)
    device = types.SimpleNamespace(
        allowed_cpus=expand(topology["cpus"]["online"]),
        running_npu_list=npus,
        all_logic_npus=npus,
        total_logic_npus=len(npus),
        npu_affinity={npu["id"]: expand(npu["affinity"]) for npu in topology["npus"] if npu["affinity"]},
    )
    program.DeviceInfo = lambda: device
    made.__init__(0)
    made.build_cpu_pools()
    made.allocate()
    return made.npu_cpu_pool


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
            found = theirs(program, topology)
        except RuntimeError as error:
            with pytest.raises(ValueError, match=re.escape(str(error)[:20])):
                plan(topology, repair=False)
            continue
        assert {entry["id"]: expand(entry["pool"]) for entry in plan(topology, repair=False)["npus"]} == found, seed
        bound += bool(found)
    assert bound > MACHINES // 2

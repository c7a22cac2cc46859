# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Published pools are those that ``cpu_binding.py`` of the released packages of vLLM-Ascend makes.

The packages come from the index of pip into the cache. The program runs as it is: modules that it imports and does not need here are
stubs, and it is given a parsed host in place of the output of commands.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_hosts import host  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402
from tests import cache  # noqa: E402

PLATFORMS = ("manylinux_2_24_aarch64", "manylinux_2_28_aarch64", "manylinux_2_34_aarch64")
VERSIONS = {"0.18.0": ("a2", "a3", "310p"), "0.23.0": ("a2", "a3", "310p", "a5")}
MACHINES = 200
SECONDS = 300
"""So long pip may take for a package of about 30 MB."""


def fetch(version):
    def make(folder):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11"]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        command += ["--dest", str(folder), f"vllm-ascend=={version}"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            (folder / "cpu_binding.py").write_bytes(package.read("vllm_ascend/cpu_binding.py"))
        wheel.unlink()

    try:
        return cache.folder("vllm-ascend", [version], make) / "cpu_binding.py"
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"no index has vllm-ascend {version}: {getattr(error, 'stderr', None) or error}"[:300])


def load(version, monkeypatch):
    kinds = types.SimpleNamespace(A2="a2", A3="a3", _310P="310p", A5="a5")
    stubs = {
        "psutil": {},
        "regex": {name: getattr(re, name) for name in ("compile", "fullmatch", "match", "search", "split")},
        "vllm": {},
        "vllm.logger": {"logger": logging.getLogger("vllm")},
        "vllm_ascend": {},
        "vllm_ascend.utils": {"AscendDeviceType": kinds, "get_ascend_device_type": lambda: None},
    }
    for name, values in stubs.items():
        stub = types.ModuleType(name)
        vars(stub).update(values)
        monkeypatch.setitem(sys.modules, name, stub)
    spec = importlib.util.spec_from_file_location("cpu_binding", fetch(version))
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


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


@pytest.mark.parametrize("version", VERSIONS)
def test_published_pools_are_those_of_the_released_program(version, monkeypatch):
    program = load(version, monkeypatch)
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

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of released packages, which pip downloads into the cache. They run as they are, next to stubs of what they import."""

from __future__ import annotations

import importlib.util
import logging
import re
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from tests import cache

PLATFORMS = [f"manylinux_2_{number}_{machine}" for number in (24, 28, 34) for machine in ("aarch64", "x86_64")]
SECONDS = 600
"""So long pip may take for a package of some hundred MB."""
CONNECTION_FAILED = (subprocess.SubprocessError, OSError)
QUIET = logging.getLogger("tests.compare.quiet")
QUIET.addHandler(logging.NullHandler())
VLLM_ASCEND = {
    "psutil": {},
    "regex": {name: getattr(re, name) for name in ("compile", "fullmatch", "match", "search", "split")},
    "vllm": {},
    "vllm.logger": {"logger": QUIET},
    "vllm_ascend": {},
    "vllm_ascend.utils": {
        "AscendDeviceType": types.SimpleNamespace(A2="a2", A3="a3", _310P="310p", A5="a5"),
        "get_ascend_device_type": lambda: None,
    },
}
"""What ``cpu_binding.py`` of vLLM-Ascend imports and does not need here."""


def files(name: str, version: str, members: Sequence[str]) -> Path:
    """Return a folder with these files of a package. One of :data:`CONNECTION_FAILED` says that no index has it."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11"]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        subprocess.run([*command, "--dest", str(folder), f"{name}=={version}"], check=True, capture_output=True, text=True, timeout=SECONDS)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            for member in members:
                (folder / Path(member).name).write_bytes(package.read(member))
        wheel.unlink()

    return cache.folder("packages", [name, version, *members], make)


@contextmanager
def loaded(path: Path, stubs: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    """Yield the module of a file. ``stubs`` are the names in modules that it imports, also while it runs."""
    made = {}
    for name, values in stubs.items():
        made[name] = types.ModuleType(name)
        vars(made[name]).update(values)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    program = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, made):
        spec.loader.exec_module(program)
        yield program


@contextmanager
def vllm_ascend(version: str) -> Iterator[Any]:
    """Yield the program by which a release of vLLM-Ascend binds CPUs."""
    with loaded(files("vllm-ascend", version, ["vllm_ascend/cpu_binding.py"]) / "cpu_binding.py", VLLM_ASCEND) as program:
        yield program


def division(program: Any, topology: Mapping[str, Any], cpus: str) -> Any:
    """Return the pools that the program makes of a host, each of whose NPUs has a process, from parsed input and not from commands."""
    npus = [npu["id"] for npu in topology["npus"]]
    threads = max((len(expand(core)) for core in topology["cpus"]["siblings"]), default=1)
    printed = "\n".join(f"{cpu} {node['id']}" for node in topology["numa"] for cpu in expand(node["cpus"]))
    program.get_ascend_device_type = lambda: topology["npus"][0]["family"]
    program.execute_command = lambda words: (printed if words[1:] else f"Thread(s) per core: {threads}", 0)
    device = types.SimpleNamespace(
        allowed_cpus=expand(cpus),
        running_npu_list=npus,
        all_logic_npus=npus,
        total_logic_npus=len(npus),
        npu_affinity={npu["id"]: expand(npu["affinity"]) for npu in topology["npus"] if npu["affinity"]},
    )
    program.DeviceInfo = lambda: device
    made = program.CpuAlloc(0)
    made.build_cpu_pools()
    made.allocate()
    return made.npu_cpu_pool

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors' files: driver versions, device nodes, and the working npu-smi and nvidia-smi with the description that they read."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import py_compile
import tempfile

from .machine import Machine
from .tree import Tree

SHEBANG = "#!/usr/bin/env python3\n"
HERE = pathlib.Path(__file__).parent
ASCEND = "/usr/local/Ascend"
NPU_SMI = ASCEND + "/driver/tools/npu-smi"
SOFT_SPLIT = "/usr/local/hami-vnpu-core"
NVIDIA_SMI = "/usr/bin/nvidia-smi"
INFORMATION = "Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n"
SIMULATOR = "/simulator"
DESCRIPTION = SIMULATOR + "/machine.json"
SHARE_STATE = "/run/npu-smi/share.json"
START = (
    SHEBANG
    + """import os
import signal
import sys

ROOT = os.path.abspath(__file__)[: -len("%s")]
sys.path.insert(0, ROOT + "%s")
sys.dont_write_bytecode = True

import npu_smi

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
sys.exit(npu_smi.main(ROOT, sys.argv[1:]))
"""
    % (NPU_SMI, SIMULATOR)
)


def write(tree: Tree, machine: Machine) -> None:
    tree.folder("/var/log")
    tree.folder("/run")
    if machine.chips:
        _write_ascend(tree, machine)
    if machine.gpus:
        _write_nvidia(tree, machine)
    if machine.soft_split:
        tree.bytes(SOFT_SPLIT + "/libvnpu.so", b"\x7fELF")
        tree.text(SOFT_SPLIT + "/ld.so.preload", "/hami-vnpu-core/libvnpu.so\n")
    tree.write(DESCRIPTION, json.dumps(_for_the_tools(machine), indent=1))


def _write_ascend(tree: Tree, machine: Machine) -> None:
    version = machine.driver["version"]
    tree.text(ASCEND + "/driver/version.info", "Version=%s\nascendhal_version=7.35.23\npackage_version=%s\n" % (version, version))
    status = "Driver_Install_Status=complete\n" if machine.driver["installed"] else ""
    tree.text("/etc/ascend_install.info", "UserName=HwHiAiUser\nUserGroup=HwHiAiUser\nDriver_Install_Path_Param=%s\n%s" % (ASCEND, status))
    for name in ["davinci_manager", "devmm_svm", "hisi_hdc", *("davinci%d" % chip.phy for chip in machine.chips_on_bus)]:
        tree.text("/dev/" + name)
    tree.text(NPU_SMI, START, mode=0o755)
    tree.text(SIMULATOR + "/npu_smi.py", (HERE / "npu_smi.py").read_text())
    tree.bytes(importlib.util.cache_from_source(SIMULATOR + "/npu_smi.py"), _compiled())
    shared = ["%d:%d" % (chip.card, chip.chip) for chip in machine.chips if chip.device_share]
    if shared:
        tree.write(SHARE_STATE, json.dumps(shared))


@functools.cache
def _compiled() -> bytes:
    """The bytecode of npu-smi for this Python, which takes longer to compile than to run; other Pythons compile it at every call."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "npu_smi.pyc")
        py_compile.compile(str(HERE / "npu_smi.py"), file, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        return pathlib.Path(file).read_bytes()


def _write_nvidia(tree: Tree, machine: Machine) -> None:
    words = "NVRM version: NVIDIA UNIX %s Kernel Module  %s" % (machine.architecture, machine.gpu_driver)
    tree.write("/proc/driver/nvidia/version", words)
    drivers = {function.bdf: function.driver for function in machine.functions}
    for index, gpu in enumerate(gpu for gpu in machine.gpus if drivers[gpu.bdf] == "nvidia"):
        folder = "/proc/driver/nvidia/gpus/" + gpu.bdf
        tree.text("/dev/nvidia%d" % index)
        tree.text(folder + "/information", INFORMATION % (gpu.name, gpu.uuid, gpu.bdf, index))
        if gpu.memory_node is not None:
            tree.text(folder + "/numa_status", "Node:          %d\nStatus:        online\n" % gpu.memory_node)
    tree.text(NVIDIA_SMI, SHEBANG + (HERE / "nvidia_smi.py").read_text(), mode=0o755)


def _for_the_tools(machine: Machine) -> dict:
    """What npu-smi and nvidia-smi read. Tests may edit it in the tree: each call reads it again."""
    chip, process = ("card", "chip", "phy", "bdf", "name", "memory_mib", "health"), ("card", "chip", "pid", "comm", "memory_mib")
    return {
        "family": machine.family,
        "architecture": machine.architecture,
        "version": machine.driver["version"],
        "npu_smi": machine.driver["npu_smi"] or machine.driver["version"],
        "layout": machine.driver["layout"],
        **machine.npu_tool,
        "chips": [{key: getattr(each, key) for key in chip} for each in machine.chips],
        "processes": [{key: getattr(each, key) for key in process} for each in machine.processes],
        "gpus": [dataclasses.asdict(gpu) for gpu in machine.gpus],
        "nodes": {node.id: machine.node_lists[node.id] for node in machine.nodes},
        "faults": machine.faults,
    }

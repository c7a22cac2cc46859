# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nvidia-smi that lives in a simulated host's tree at ``/usr/bin`` and answers for that host.

It knows ``--query-gpu=FIELDS --format=csv[,noheader][,nounits]``, ``topo -m`` and ``-L``. NUMA nodes and CPUs come from the tree's sysfs;
a GPU that is bound to another driver than nvidia's (vfio-pci for a guest) is not seen. ``affinity_width`` in the description cuts the CPU
list to that many characters, as the real tool does where CPUs of the nodes alternate. Fault ``nvidia_error``: true: no driver answers.
Every call appends its arguments to ``/var/log/nvidia-smi-calls.log``.
"""

from __future__ import annotations

import json
import os
import sys

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
"""


def value_of(gpu, index, name):
    """Return a field's value and its unit ('' for none); None for a field that is not known."""
    return {
        "index": (index, ""),
        "uuid": (gpu["uuid"], ""),
        "gpu_uuid": (gpu["uuid"], ""),
        "name": (gpu["name"], ""),
        "pci.bus_id": ("0000" + gpu["bdf"].upper(), ""),
        "gpu_bus_id": ("0000" + gpu["bdf"].upper(), ""),
        "memory.total": (gpu["memory_mib"], "MiB"),
        "memory.used": (1, "MiB"),
        "mig.mode.current": ("[N/A]", ""),
        "driver_version": (gpu["driver"], ""),
    }.get(name)


def print_query(gpus, fields, style):
    for name in fields:
        if gpus and value_of(gpus[0], 0, name) is None:
            print('Field "%s" is not a valid field to query.\n' % name)
            return 2
    if "noheader" not in style and gpus:
        units = [value_of(gpus[0], 0, name)[1] for name in fields]
        print(", ".join("%s [%s]" % (name, unit) if unit else name for name, unit in zip(fields, units)))
    for index, gpu in enumerate(gpus):
        cells = []
        for name in fields:
            value, unit = value_of(gpu, index, name)
            cells.append("%s %s" % (value, unit) if unit and "nounits" not in style else str(value))
        print(", ".join(cells))
    return 0


def print_topo(gpus, width):
    names = ["GPU%d" % index for index in range(len(gpus))]
    print("\t".join([""] + names + ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]))
    for name, gpu in zip(names, gpus):
        links = [" X " if gpu is other else "NODE" if gpu["node"] == other["node"] else "SYS" for other in gpus]
        node = "N/A" if gpu["node"] < 0 else str(gpu["node"])
        print("\t".join([name] + links + [gpu["cpus"][:width], node, "", "N/A"]))
    print(LEGEND)
    return 0


def main():
    root = os.path.dirname(os.path.abspath(__file__))[: -len("/usr/bin")]
    words = sys.argv[1:]
    with open(os.path.join(root, "var/log/nvidia-smi-calls.log"), "a") as calls:
        calls.write(" ".join(words) + "\n")
    with open(os.path.join(root, "simulator/machine.json")) as file:
        description = json.load(file)
    if description["faults"].get("nvidia_error"):
        print(NO_DRIVER)
        return 9

    def read(path):
        with open(os.path.join(root, path)) as file:
            return file.read().strip()

    gpus = []
    for gpu in description["gpus"]:
        device = "sys/bus/pci/devices/" + gpu["bdf"]
        if os.path.basename(os.path.realpath(os.path.join(root, device, "driver"))) == "nvidia":
            node, cpus = int(read(device + "/numa_node")), read(device + "/local_cpulist")
            gpus.append(dict(gpu, node=node, cpus=cpus, driver=description["gpu_tool"]["driver"]))
    options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if "--query-gpu" in options:
        return print_query(gpus, options["--query-gpu"].split(","), options.get("--format", "csv").split(","))
    if words == ["topo", "-m"]:
        return print_topo(gpus, description["gpu_tool"]["affinity_width"])
    if words == ["-L"]:
        for index, gpu in enumerate(gpus):
            print("GPU %d: %s (UUID: %s)" % (index, gpu["name"], gpu["uuid"]))
        return 0
    print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

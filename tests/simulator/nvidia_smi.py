# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nvidia-smi that lives in a simulated host's tree at ``/usr/bin`` and answers for that host.

It knows ``--query-gpu=FIELDS --format=csv[,noheader][,nounits]``. A GPU that is bound to another driver than nvidia's (vfio-pci for a
guest) is not seen. Fault ``nvidia_error``: true: no driver answers. Every call appends its arguments to ``/var/log/nvidia-smi-calls.log``.
"""

from __future__ import annotations

import json
import os
import sys

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


def value_of(gpu, index, name):
    """Return a field's value and its unit ('' for none); None for a field that is not known."""
    return {
        "index": (index, ""),
        "uuid": (gpu["uuid"], ""),
        "name": (gpu["name"], ""),
        "pci.bus_id": ("0000" + gpu["bdf"].upper(), ""),
        "memory.total": (gpu["memory_mib"], "MiB"),
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

    gpus = []
    for gpu in description["gpus"]:
        driver = os.path.join(root, "sys/bus/pci/devices", gpu["bdf"], "driver")
        if os.path.basename(os.path.realpath(driver)) == "nvidia":
            gpus.append(gpu)
    options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if "--query-gpu" in options:
        return print_query(gpus, options["--query-gpu"].split(","), options.get("--format", "csv").split(","))
    print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

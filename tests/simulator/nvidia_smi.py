# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for nvidia-smi that lives in a simulated host's tree at ``/usr/bin`` and answers for that host.

It knows ``--query-gpu=FIELDS --format=csv[,noheader][,nounits]``, ``-L``, ``topo -m`` and ``topo -C -M -i INDEX``. A GPU that is bound to
another driver than nvidia's (vfio-pci for a guest) is not seen. Every call appends its arguments to ``/var/log/nvidia-smi-calls.log``.

Faults
nvidia_error    true: no driver answers
nvidia_hang     seconds before the first word
nvidia_lost     addresses of GPUs that fell off the bus: a sentence on each, and no row, with status 0
nvidia_stops    true: the sentence on the first of these is all, with status 15, unless other GPUs are requested by address (``-i``)
nvidia_old      true: a release that knows neither MIG nor ``topo -C``
"""

import json
import os
import sys
import time

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


LOST = "Unable to determine the device handle for GPU %s: Unknown Error"
WRONG = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"


def value_of(gpu, index, name):
    """Return a field's value and its unit ('' for none); None for a field that is not known."""
    known = {"mig.mode.current": ("[N/A]" if gpu["mig"] is None else "Enabled", "")} if not gpu["old"] else {}
    return {
        **known,
        "index": (index, ""),
        "uuid": (gpu["uuid"], ""),
        "name": (gpu["name"], ""),
        "pci.bus_id": ("0000" + gpu["bdf"].upper(), ""),
        "memory.total": (gpu["memory_mib"], "MiB"),
    }.get(name)


def print_query(gpus, fields, style, asked):
    for name in fields:
        if gpus and value_of(gpus[0], 0, name) is None:
            print('Field "%s" is not a valid field to query.\n' % name)
            return 2
    for gpu in gpus:
        if gpu["lost"] and not asked:
            print(LOST % gpu["bdf"].upper())
    if "noheader" not in style and gpus:
        units = [value_of(gpus[0], 0, name)[1] for name in fields]
        print(", ".join("%s [%s]" % (name, unit) if unit else name for name, unit in zip(fields, units)))
    for index, gpu in enumerate(gpus):
        if not gpu["lost"] and asked in (None, gpu["bdf"]):
            cells = [value_of(gpu, index, name) for name in fields]
            print(", ".join("%s %s" % (value, unit) if unit and "nounits" not in style else str(value) for value, unit in cells))
    return 0


def print_topo(gpus, words, nodes):
    """Print the closest node of the GPU that ``-i`` names, or the matrix with the CPUs of it."""
    if words == ["-m"]:
        names = ["GPU%d" % index for index in range(len(gpus))]
        print("\t\033[4m%s\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m" % "\t".join(names))
        for name, gpu in zip(names, gpus):
            links = [" X " if other == name else "SYS" for other in names]
            own = "N/A" if gpu["memory_node"] is None else gpu["memory_node"]
            print("\t".join([name, *links, nodes.get(str(gpu["closest"]), ""), str(gpu["closest"]), "", str(own)]))
        return 0
    if words[:3] != ["-C", "-M", "-i"] or gpus[0]["old"] or not words[3].isdigit() or int(words[3]) >= len(gpus):
        print(WRONG)
        return 1
    print("NUMA IDs of closest CPU: %s\nNUMA IDs of closest memory: %s" % ((gpus[int(words[3])]["closest"],) * 2))
    return 0


def print_list(gpus):
    for index, gpu in enumerate(gpus):
        print("GPU %d: %s (UUID: %s)" % (index, gpu["name"], gpu["uuid"]))
        for part, uuid in enumerate(gpu["mig"] or ()):
            print("  MIG 1g.10gb     Device  %d: (UUID: %s)" % (part, uuid))
    return 0


def main():
    root = os.path.dirname(os.path.abspath(__file__))[: -len("/usr/bin")]
    words = sys.argv[1:]
    with open(os.path.join(root, "var/log/nvidia-smi-calls.log"), "a") as calls:
        calls.write(" ".join(words) + "\n")
    with open(os.path.join(root, "simulator/machine.json")) as file:
        description = json.load(file)
    faults = description["faults"]
    time.sleep(faults.get("nvidia_hang", 0))
    if faults.get("nvidia_error"):
        print(NO_DRIVER)
        return 9

    gpus = []
    for gpu in description["gpus"]:
        device = os.path.join(root, "sys/bus/pci/devices", gpu["bdf"])
        if os.path.basename(os.path.realpath(os.path.join(device, "driver"))) == "nvidia":
            with open(os.path.join(device, "numa_node")) as file:
                node = int(file.read())
            closest = (node if node >= 0 else "N/A") if gpu["closest"] is None else gpu["closest"]
            lost, old = gpu["bdf"] in faults.get("nvidia_lost", ()), faults.get("nvidia_old", False)
            gpus.append(dict(gpu, closest=closest, lost=lost, old=old))
    lost = [gpu for gpu in gpus if gpu["lost"]]
    asked = words[words.index("-i") + 1] if "--format=csv" in words and "-i" in words else None
    if lost and faults.get("nvidia_stops") and asked in (None, lost[0]["bdf"]):
        print(LOST % lost[0]["bdf"].upper())
        return 15
    options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if "--query-gpu" in options:
        return print_query(gpus, options["--query-gpu"].split(","), options.get("--format", "csv").split(","), asked)
    if words == ["-L"]:
        return print_list(gpus)
    if words[:1] == ["topo"] and gpus:
        return print_topo(gpus, words[1:], description["nodes"])
    print(WRONG)
    return 1


if __name__ == "__main__":
    sys.exit(main())

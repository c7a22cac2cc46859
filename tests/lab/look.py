# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints what the kernel of a guest says about CPUs, as JSON. Shares no code with the collection, which it is a witness against.

    {slices: {name: {cpus, mems, procs}}, functions: {pci: {number, node, vectors: {irq: {name, affinity, effective}}, unused}},
     nvme: {irq: ...}, workqueues: {name: cpulist}, threads: {name: cpulist}, nodes: {id: {cpus, memory}}, siblings: [cpulist], online}

``slices`` are those below /sys/fs/cgroup/npu.slice with itself, ``number`` is the driver's of the device, ``unused`` counts the vectors
without a handler.
"""

import glob
import json
import os
import re

VIRTUAL = "/sys/devices/virtual/workqueue"
SETTABLE = re.compile(r"dev\d+_sq_(send_wq|fair_wq|task)")


def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def cpulist(mask):
    number = int(mask.replace(",", ""), 16)
    cpus = [cpu for cpu in range(number.bit_length()) if number >> cpu & 1]
    runs = []
    for cpu in cpus:
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in runs)


def slices():
    folders = glob.glob("/sys/fs/cgroup/npu.slice") + glob.glob("/sys/fs/cgroup/npu.slice/*.slice")
    return {
        os.path.basename(folder): {
            "cpus": read(folder + "/cpuset.cpus.effective"),
            "mems": read(folder + "/cpuset.mems.effective"),
            "populated": "populated 1" in (read(folder + "/cgroup.events") or ""),
        }
        for folder in folders
    }


def vectors(function):
    """Those with a handler, whose folder in /proc/irq has one of the handler's name."""
    found, unused = {}, 0
    for irq in sorted(os.listdir(function + "/msi_irqs") if os.path.exists(function + "/msi_irqs") else [], key=int):
        folder = "/proc/irq/%s/" % irq
        handlers = [name for name in os.listdir(folder) if os.path.isdir(folder + name)] if os.path.exists(folder) else []
        if not handlers:
            unused += 1
            continue
        affinity, effective = read(folder + "smp_affinity_list"), read(folder + "effective_affinity_list")
        found[irq] = {"name": handlers[0], "affinity": affinity, "effective": effective}
    return found, unused


def functions():
    found = {}
    for folder in sorted(glob.glob("/sys/bus/pci/devices/*")):
        if read(folder + "/vendor") != "0x19e5":
            continue
        named, unused = vectors(folder)
        (device,) = glob.glob(folder + "/misc/davinci*")
        number = int(re.search(r"\d+$", device).group())
        node = int(read(folder + "/numa_node"))
        found[os.path.basename(folder)] = {"number": number, "node": node, "vectors": named, "unused": unused}
    return found


def nvme():
    found = {}
    for folder in glob.glob("/sys/class/nvme/*/device"):
        found.update(vectors(os.path.realpath(folder))[0])
    return found


def threads():
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        status = read("/proc/%s/status" % pid) or ""
        name = status.partition("\n")[0].partition("\t")[2]
        if SETTABLE.fullmatch(name) and not read("/proc/%s/cmdline" % pid):
            found[name] = re.search(r"Cpus_allowed_list:\s*(\S+)", status).group(1)
    return found


def nodes():
    found = {}
    for folder in glob.glob("/sys/devices/system/node/node[0-9]*"):
        memory = re.search(r"MemTotal:\s*(\d+)", read(folder + "/meminfo") or "MemTotal: 0").group(1)
        found[re.search(r"\d+$", folder).group()] = {"cpus": read(folder + "/cpulist"), "memory": int(memory)}
    return found


print(
    json.dumps(
        {
            "slices": slices(),
            "functions": functions(),
            "nvme": nvme(),
            "workqueues": {name: cpulist(read(VIRTUAL + "/%s/cpumask" % name)) for name in os.listdir(VIRTUAL) if SETTABLE.fullmatch(name)},
            "threads": threads(),
            "nodes": nodes(),
            "siblings": sorted({read(path) for path in glob.glob("/sys/devices/system/cpu/cpu*/topology/thread_siblings_list")}),
            "online": read("/sys/devices/system/cpu/online"),
        }
    )
)

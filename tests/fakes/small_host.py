# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host of a fleet, what can differ on it, and what verify says of it."""

from __future__ import annotations

import subprocess

from tests.fakes.two_cards import two_cards

UNITS = "/etc/systemd/system/"
MACHINE = {
    **two_cards(1, 0),
    "irqbalance": {"installed": True, "active": False, "unit": "debian", "options": ""},
}
VARIABLES = {
    "npu_affinity_batches": ["100%"],
    "npu_affinity_device_share_enabled": True,
    "npu_affinity_housekeeping": "1",
    "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}],
}
SLICE = UNITS + "npu-1.slice"
DROP_IN = UNITS + "vllm@0.service.d/50-npu-affinity.conf"
PLAN = "/etc/npu-affinity/plan.json"


def write(tree, path, text):
    (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (tree / path[1:]).write_text(text)


def replace(tree, path, old, new):
    text = (tree / path[1:]).read_text()
    assert old in text
    write(tree, path, text.replace(old, new))


def interrupt(tree, name, place):
    """The affinity file of an interrupt: the one of that name, in the order of /proc/interrupts, that a function comes to."""
    table = (tree / "proc/interrupts").read_text().splitlines()
    numbers = [line.split(":")[0].strip() for line in table if line.endswith(" " + name)]
    return "/proc/irq/%s/smp_affinity_list" % numbers[place]


def share_off(tree, card):
    command = [tree / "usr/local/Ascend/driver/tools/npu-smi", "set", "-t", "device-share", "-i", str(card), "-d", "0"]
    subprocess.run(command, input="Y\n", text=True, check=True, capture_output=True)


def run_irqbalance(tree):
    group = tree / "sys/fs/cgroup/system.slice/irqbalance.service"
    group.mkdir()
    (group / "cgroup.procs").write_text("901\n")
    write(tree, interrupt(tree, "sq_send_trigger_irq", 0), "30\n")


def limp(tree):
    """Everything that can differ without hiding something else, each a line of its own."""
    write(tree, interrupt(tree, "cq_update_irq", 3), "7\n")
    run_irqbalance(tree)
    replace(tree, SLICE, "AllowedCPUs=", "AllowedCPUs=0,")
    (tree / UNITS[1:] / "npu-0.slice").unlink()
    replace(tree, DROP_IN, "Slice=npu-0.slice", "Slice=system.slice")
    write(tree, "/sys/devices/virtual/workqueue/dev1_sq_send_wq/cpumask", "ffffffff\n")
    share_off(tree, 1)
    (tree / UNITS[1:] / "timers.target.wants/npu-affinity-irq.timer").unlink()
    write(tree, "/sys/devices/system/cpu/online", "0-9,11-31\n")


def said(run, host):
    """The lines of a host, without its name."""
    (lines,) = (entry["result"]["lines"] for entry in run.of(host, "ok") if entry["action"].endswith("binding_info"))
    assert all(line.startswith(host + ": ") for line in lines)
    return [line.partition(": ")[2] for line in lines]


def slices(tree):
    """``{slice: (CPUs, memory nodes)}`` of a host's tree."""
    found = {}
    for path in sorted((tree / UNITS[1:]).glob("*.slice")):
        values = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        found[path.name] = (values["AllowedCPUs"], values["AllowedMemoryNodes"])
    return found

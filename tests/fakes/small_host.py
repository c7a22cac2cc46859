# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small hosts of a fleet, what can differ on them, and what verify says of them: with shared cards, with workers whose threads have roles,
and nodes of Kubernetes."""

from __future__ import annotations

import hashlib
import subprocess
from typing import Any


def host_with(cards: list[dict[str, Any]], **npus: Any) -> dict[str, Any]:
    """Return a host with 32 CPUs on two nodes, and with these cards."""
    return {
        "cpus": {"per_node": 16},
        "nodes": {"count": 2},
        "npus": {"family": "a2", "name": "910B3", "memory_mib": 65536, "cards": cards, **npus},
    }


def two_cards(first: int, second: int) -> dict[str, Any]:
    """Return a host with NPU 0 on the one node and NPU 1 on the other."""
    return host_with([{"npu": 0, "bdf": "0000:c1:00.0", "node": first}, {"npu": 1, "bdf": "0000:01:00.0", "node": second}])


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
THREADED = host_with([{"npu": number, "bdf": f"0000:{0xC1 + number:02x}:00.0", "node": number // 2} for number in range(4)])
THREADS = {"npu_affinity_threads_enabled": True}
NODE = {**MACHINE, "kubelet": {"policy": "none"}}
KUBELET_FOLDER = "etc/kubernetes/kubelet.conf.d"
KUBELET_DROP_IN = KUBELET_FOLDER + "/50-npu-affinity.conf"
KUBELET_STATE = "var/lib/kubelet/cpu_manager_state"


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


def start(tree, pid, cgroup, device=None):
    """A worker whose threads are on all CPUs, in the tree of a host."""
    folder = tree / "proc" / str(pid)
    for number, name in enumerate(("VLLM::Worker", "acl_thread", "release_thread", "KVCacheSendingT")):
        task = folder / "task" / str(pid + number)
        task.mkdir(parents=True)
        (task / "comm").write_text(name + "\n")
        (task / "status").write_text(f"Name:\t{name}\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t0-31\n")
    (folder / "comm").write_text("VLLM::Worker\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    if device is not None:
        (folder / "fd").mkdir()
        (folder / "fd" / "9").symlink_to(f"/dev/davinci{device}")


def placed(tree, pid):
    """The CPUs of a worker's main thread, acl_thread, release_thread and the one that sends KV caches."""
    texts = [(tree / f"proc/{pid}/task/{pid + number}/status").read_text() for number in range(4)]
    return tuple(text.rpartition("\t")[2].strip() for text in texts)


def soft_split(*paths):
    """The variables of soft split with these files of the controller."""
    files = [{"name": path.name, "src": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in paths]
    return {"npu_affinity_vnpu_enabled": True, "npu_affinity_vnpu_files": files}


def read_drop_ins(tree):
    """Let the kubelet of a host read drop-ins."""
    write(tree, "/etc/default/kubelet", f"KUBELET_EXTRA_ARGS=--config-dir=/{KUBELET_FOLDER}\n")


def node(fleet, **kinds):
    """Return a fleet with one node of Kubernetes, whose kubelet reads drop-ins."""
    hosts = fleet(node=NODE, **kinds)
    read_drop_ins(hosts.tree("node"))
    return hosts


def commands(log):
    return {f"npu_affinity_kubelet_{word}": ["/bin/sh", "-c", f"echo {word} >> {log}"] for word in ("drain", "uncordon")}

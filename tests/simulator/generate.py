# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn a short machine description in YAML into a directory tree of sysfs, procfs and working vendor tools.

    python -m tests.simulator.generate MACHINE.yml TARGET
    python -m tests.simulator.generate --fleet FLEET.yml FOLDER [--machine HOST=MACHINE] ...

MACHINE is a file, or the name of one in ``machines/``. A tree is written when there is none, or when the description or the simulator
changed since; otherwise it is left as it is, with everything that was done to it. To change a tree's faults, its device share or its cards
afterwards see ``faults.py``, to restart it ``reboot.py``.

The machine language. Every key has a default unless it says "needed"; an unknown key is an error.

about           one sentence for the reader
architecture    aarch64 or x86_64
kernel, product, vendor, os
                texts; os is an id and a version, such as "openEuler 22.03"; from kernel 6 on /proc/interrupts has the newer words
systemd         version number, shown by libsystemd-shared-<number>.so
cgroup          v2, v1 or hybrid
first_irq       number of the first accelerator interrupt; NPU functions follow each other in steps of 256
cpus
  per_node      needed: CPUs (threads) of each node that has CPUs
  packages      sockets, over which the nodes are dealt in order
  smt           none; adjacent: threads of core k are 2k and 2k+1; split: k and k + number of cores
  order         blocks: a node's cores follow each other; round_robin: cores are dealt to the nodes one by one
  cores_per_cache
                cores that share a last-level cache (default: those of a node)
  cores_per_cluster
                cores of a cluster, where the kernel shows clusters
  offline, isolated
                cpulists; offline CPUs have no topology and stand in no other list, as in the kernel
  possible      number of possible CPUs, where it is more than there are
nodes
  count or ids  ids may have gaps
  without_cpus  ids of nodes that have memory only
  memory_mib    one number for all, or a mapping of node id to number (missing: 0)
  distances     a matrix in the order of the ids, or {package: distance inside a socket, other: distance to other sockets}
npus
  family        needed: 310, 310p, 910, a2, a3 or a5
  name          needed: the chip's name as npu-smi prints it; any word
  memory_mib    needed: a chip's memory
  chips_per_card
  vectors       allocated interrupt vectors of each function; the first 18 have the driver's names
  managed       names of those vectors that the kernel manages (see irq.py)
  mesh          how many cards are linked directly to each other (default: all)
  affinity      whether npu-smi prints the CPU Affinity column (default: as the product does)
  node          NUMA node of cards that name none; -1: the kernel knows none
  cards         needed, in the order of the logic ids: {npu: NPU ID, bdf: address or one per chip, node: node or one per address,
                phy: physical id or one per chip (default: counted up), name, health, device_share, lost}
                a lost card has dropped off the bus: npu-smi knows of it no more and other logic ids close up
  processes     {npu, chip, pid, comm, memory_mib, cpus, mems, mib: memory by node}: workers on an NPU, with acl_thread and release_thread
gpus
  name, memory_mib
                needed
  device        PCI device id
  driver        version
  cards         needed: {bdf, node, memory_node: node that is its memory, closest: node that nvidia-smi prints (default: node),
                mig: number of MIG devices, driver: vfio-pci for a GPU of a guest}
  processes     {gpu: number of its device file, pid, comm, cpus, mems, mib}: workers on a GPU
driver
  version, npu_smi
                versions of the Ascend driver and (default: the same) of the tool
  layout        newest: the published source; release: releases up to 25.5 (narrower tables, no NIC columns, queries without -i
                loop over all cards), on a5 25.7; wide: 26.0 on a3
  installed     false: the package's installation is not marked complete
soft_split      true: the library and the preload file that HAMi's device plugin places are there
irqbalance      {installed, active, unit: rhel or debian (which environment file and key), options: value of the key}
kubelet         {version, policy, topology_policy, reserved: cpulist, default_cpus: cpulist, exclusive: {pod: {container: cpulist}}}
units           unit files of services that an administrator installed: [vllm@.service]
faults          what the vendor tools do wrong: see npu_smi.py and nvidia_smi.py

A fleet is a mapping ``hosts`` of host name to {machine, group, change, vars}; change is laid over the machine's description, mapping by
mapping, and vars are variables of the inventory. Its trees lie in FOLDER/<host>, its Ansible inventory in FOLDER/inventory.yml.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import yaml

from . import cpu, driver, irq, numa, pci, proc, systemd
from .machine import resolve
from .tree import Tree

HERE = pathlib.Path(__file__).parent
ORIGIN = "simulator/origin.json"
VOLATILE = "simulator/volatile.json"
DEFAULT_GROUP = "npu_hosts"

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(machine: str | os.PathLike) -> dict[str, Any]:
    """Return the description in a file, or in the one of that name in ``machines/``."""
    path = pathlib.Path(machine)
    if not path.suffix:
        path = HERE / "machines" / ("%s.yml" % machine)
    if not path.is_file():
        names = ", ".join(sorted(found.stem for found in (HERE / "machines").glob("*.yml")))
        raise ValueError("there is no machine description %s; name a file or one of %s" % (machine, names))
    return _parse(path)


def _parse(path: pathlib.Path) -> dict[str, Any]:
    with path.open() as file:
        return yaml.load(file, Loader=_Loader)


def generate(machine: dict[str, Any] | str | os.PathLike, target: str | os.PathLike) -> None:
    """Write a machine's tree to a directory, unless the same one is there already.

    Raises ``ValueError`` when the description is wrong, or when the directory holds something else.
    """
    description = machine if isinstance(machine, dict) else load(machine)
    target = pathlib.Path(target).absolute()
    origin = {"description": description, "simulator": _simulator_digest()}
    origin = json.loads(json.dumps(origin, default=str))
    if target.exists():
        if not (target / ORIGIN).is_file() and any(target.iterdir()):
            raise ValueError("%s is not a simulated host's tree and not empty: name another directory or remove it" % target)
        if (target / ORIGIN).is_file() and json.loads((target / ORIGIN).read_text()) == origin:
            return
    resolved = resolve(description)
    target.parent.mkdir(parents=True, exist_ok=True)
    before = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix=".%s-" % target.name, dir=target.parent) as work:
            new, old = os.path.join(work, "new"), os.path.join(work, "old")
            tree = Tree(new)
            for writer in (cpu, numa, pci, irq, proc, systemd, driver):
                writer.write(tree, resolved)
            tree.write("/" + VOLATILE, json.dumps(tree.volatile))
            tree.write("/" + ORIGIN, json.dumps(origin, indent=1))
            if target.exists():
                os.rename(target, old)
            os.rename(new, target)
    finally:
        os.umask(before)


def _simulator_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def merge(description: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a description with a change laid over it: mappings are merged, every other value is replaced."""
    result = copy.deepcopy(description)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if both else copy.deepcopy(value)
    return result


def generate_fleet(fleet: str | os.PathLike, folder: str | os.PathLike, machines: dict[str, str] | None = None) -> None:
    """Write the trees of a fleet file's hosts, and of further hosts (name -> machine), and their Ansible inventory."""
    path = pathlib.Path(fleet)
    hosts = dict(_parse(path)["hosts"])
    hosts.update({name: {"machine": machine} for name, machine in (machines or {}).items()})
    folder = pathlib.Path(folder).absolute()
    groups: dict[str, dict[str, Any]] = {}
    for name, entry in hosts.items():
        generate(merge(load(entry["machine"]), entry.get("change", {})), folder / name)
        group = groups.setdefault(entry.get("group", DEFAULT_GROUP), {"hosts": {}})
        group["hosts"][name] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "npu_affinity_root": str(folder / name),
            **entry.get("vars", {}),
        }
    head = "# Managed by npu.affinity: simulated hosts of %s, each a directory tree next to this file.\n" % path.name
    (folder / "inventory.yml").write_text(head + yaml.safe_dump(groups, sort_keys=False))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.generate", description="Write simulated hosts.")
    parser.add_argument("--fleet", metavar="FLEET.yml", help="write all hosts of a fleet and their inventory")
    parser.add_argument("--machine", metavar="HOST=MACHINE", action="append", default=[], help="one more host of the fleet")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="MACHINE TARGET, or with --fleet the folder")
    options = parser.parse_args(arguments)
    try:
        if options.fleet and len(options.paths) == 1:
            generate_fleet(options.fleet, options.paths[0], dict(pair.split("=", 1) for pair in options.machine))
        elif not options.fleet and len(options.paths) == 2:
            generate(*options.paths)
        else:
            parser.error("expected MACHINE TARGET, or --fleet FLEET.yml FOLDER")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])

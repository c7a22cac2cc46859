# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real machines' sysfs trees (``<stem>.tar.xz``) and what is known about them (``<stem>.json``)."""

from __future__ import annotations

import functools
import pathlib
import tarfile
import tempfile
from collections.abc import Callable, Iterator

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import cpus as _cpus
from ansible_collections.npu.affinity.plugins.module_utils._kernel import pci as _pci

ABOUT = {"dump", "source", "fidelity", "machine", "notes", "possible_cpus", "package_groups"}
FIELDS = ABOUT | {
    "online_cpus", "present_cpus", "online_nodes", "nodes", "threads_per_core", "smt_sibling_groups", "cluster_groups", "l3", "pci",
}  # fmt: skip
NODE_FIELDS = {"id", "cpulist", "online_cpus", "mem_total_kib", "mem_free_kib", "distances"}
PCI_FIELDS = {"bdf", "numa_node", "class", "vendor", "device", "local_cpus", "msi_irqs"}


@functools.cache
def unpacked(archive: pathlib.Path) -> tuple[Host, tempfile.TemporaryDirectory]:
    """Return the host of an archive with one folder, and the temporary directory that lives as long as it is referred to."""
    folder = tempfile.TemporaryDirectory(prefix="sysfs-")
    with tarfile.open(archive) as tar:
        tar.extractall(folder.name, filter="tar")
    (root,) = pathlib.Path(folder.name).iterdir()
    return Host(str(root)), folder


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    archive = folder / f"{document['dump']}.tar.xz"
    online = set(expand(document["online_cpus"]))

    def host() -> Host:
        return unpacked(archive)[0]

    def fields():
        unknown = set(document) - FIELDS
        unknown |= {key for node in document["nodes"] for key in node} - NODE_FIELDS
        unknown |= {key for device in document["pci"] for key in device} - PCI_FIELDS
        assert not unknown, f"unknown fields: {', '.join(sorted(unknown))}"

    def cpus():
        found = _cpus.cpus(host())
        assert found["online"] == document["online_cpus"]
        assert found["offline"] == compress(set(expand(document["present_cpus"])) - online)

    def cores():
        groups = document["smt_sibling_groups"]
        assert _cpus.cpus(host())["siblings"] == [group for group in groups if len(expand(group)) > 1]
        assert {len(expand(group)) for group in groups} == {document["threads_per_core"]}

    def caches():
        caches, clusters = [cache["cpus"] for cache in document["l3"]], document.get("cluster_groups", [])
        sizes = {len(expand(cluster)) for cluster in clusters}
        between = clusters and document["threads_per_core"] < min(sizes) and max(sizes) < min(len(expand(cache)) for cache in caches)
        assert _cpus.cpus(host())["caches"] == (clusters if between else caches)

    def nodes():
        expected = [
            {
                "id": node["id"],
                "cpus": node["online_cpus"],
                "memory_mib": node["mem_total_kib"] // 1024,
                "distances": node["distances"],
            }
            for node in document["nodes"]
        ]
        assert _cpus.nodes(host(), online) == expected
        assert compress(node["id"] for node in expected) == document["online_nodes"]

    def pci():
        expected = {device["bdf"]: device["numa_node"] for device in document["pci"]}
        found = {bdf: _pci.numa_node(host(), bdf) for bdf in host().names(_pci.DEVICE_FOLDER)}
        assert found == {bdf: None if node == -1 else node for bdf, node in expected.items()}

    for check in (fields, cpus, cores, caches, nodes, pci):
        yield check.__name__, check

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host that is a node of Kubernetes, whose kubelet reads drop-ins."""

from __future__ import annotations


from tests.fakes.small_host import MACHINE, write

NODE = {**MACHINE, "kubelet": {"policy": "none"}}
FOLDER = "etc/kubernetes/kubelet.conf.d"
STATE = "var/lib/kubelet/cpu_manager_state"
DROP_IN = FOLDER + "/50-npu-affinity.conf"


def read_drop_ins(tree):
    """Let the kubelet of a host read drop-ins."""
    write(tree, "/etc/default/kubelet", f"KUBELET_EXTRA_ARGS=--config-dir=/{FOLDER}\n")


def node(fleet, **kinds):
    """Return a fleet with one node of Kubernetes, whose kubelet reads drop-ins."""
    hosts = fleet(node=NODE, **kinds)
    read_drop_ins(hosts.tree("node"))
    return hosts


def commands(log):
    return {f"npu_affinity_kubelet_{word}": ["/bin/sh", "-c", f"echo {word} >> {log}"] for word in ("drain", "uncordon")}

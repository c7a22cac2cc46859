# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What form slurm writes, read by slurmctld and slurmd of Debian 13, in namespaces of their own. Needs root.

``config_overrides`` lets Slurm believe in cores that this machine does not have; the lines themselves are those of the form.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import launch
from tests import cache

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
SUITE = "trixie"
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
HOSTS = "127.0.0.1 controller localhost\n"
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=controller
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=npu
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
TaskProlog=/etc/slurm/taskprolog
SlurmdParameters=config_overrides{parameters}
{node} NodeAddr=127.0.0.1 RealMemory=1
PartitionName=all Nodes=ALL Default=YES State=UP
"""
LINE = re.compile(r"slurm.conf needs (?:SlurmdParameters=(?P<parameter>\S+) and )?(?P<node>NodeName=.*?);")
PROLOG = re.compile(r"^```sh\n(#!/bin/sh\nheld=.*?)```$", re.MULTILINE | re.DOTALL)
JUDGEMENT = "scontrol show node node | grep -E 'State=|Reason=|CfgTRES='"


def topology(siblings=(), numa=("0-11", "12-23", "24-35", "36-47")):
    return {
        "machine": {"cgroup": "v2", "systemd": 252},
        "cpus": {"online": "0-47", "siblings": list(siblings)},
        "numa": [{"id": number, "cpus": cpus, "memory_mib": 1024} for number, cpus in enumerate(numa)],
        "npus": [{"kind": "npu", "id": number, "phy_id": number, "family": "a2", "pci": f"0000:{number:02x}:00.0"} for number in range(4)],
        "kubelet": None,
    }


def entries(*pools):
    return [
        {"id": number, "pci": f"0000:{number:02x}:00.0", "pool": pool, "irq": "0-1", "mems": "", "slice": f"npu-{number}.slice"}
        for number, pool in enumerate(pools)
    ]


SHARED = entries("0-5", "6-11", "12-23", "24-35")
ACROSS = entries("2-11", "12-23", "20-31", "36-47")
THREADS = topology(siblings=[f"{cpu},{cpu + 6}" for first in (0, 12, 24, 36) for cpu in range(first, first + 6)])
ONE_NODE = topology(numa=["0-47"])
CASES = [
    ("two NPUs of one node", topology(), SHARED, "24.11", "IDLE"),
    ("pools across nodes", topology(), ACROSS, "24.11", "IDLE"),
    ("two threads a core", THREADS, SHARED, "24.11", "IDLE"),
    ("one NUMA node", ONE_NODE, SHARED, "24.11", "IDLE"),
    ("lines of an old Slurm", topology(), SHARED, "22.05", "DRAIN"),
]


@pytest.fixture(scope="session")
def root():
    def make(folder):
        command = ["mmdebstrap", "--variant=apt", "--aptopt=APT::Install-Recommends false", f"--include={','.join(PACKAGES)}"]
        subprocess.run([*command, SUITE, str(folder / "root")], check=True, timeout=900)
        (folder / "root/etc/hosts").write_text(HOSTS)

    return cache.folder("slurm", [SUITE, *PACKAGES, HOSTS], make, kept=1) / "root"


def run_node(root, folder, host, plan, version, command):
    """Return what a command prints on a node whose configuration the form wrote."""
    texts = [launch(entry, "slurm", topology=host, name="node", slurm_version=version) for entry in plan]
    current = LINE.search(launch(plan[0], "slurm", topology=host, name="node"))
    parameter = f",{current['parameter']}" if current["parameter"] else ""
    (folder / "slurm.conf").write_text(CONFIGURATION.format(parameters=parameter, node=current["node"]))
    (folder / "gres.conf").write_text("".join(texts))
    (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    (folder / "taskprolog").write_text(PROLOG.search((REPOSITORY / "docs/containers.md").read_text())[1])
    (folder / "taskprolog").chmod(0o755)
    return subprocess.run(
        [str(HERE / "run-node"), str(root), str(folder), command], check=True, stdout=subprocess.PIPE, text=True, timeout=90
    ).stdout


@pytest.mark.parametrize("host, plan, version, state", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_slurm_takes_the_node(root, tmp_path, host, plan, version, state):
    said = run_node(root, tmp_path, host, plan, version, JUDGEMENT)
    assert state in said and (state == "IDLE" or "doesn't match socket boundaries" in said), said


def test_a_task_sees_the_npus_that_its_job_has(root, tmp_path):
    jobs = " && ".join(f"srun --gres=npu:{count} printenv ASCEND_RT_VISIBLE_DEVICES" for count in (1, 4))
    one, all_of_them = run_node(root, tmp_path, topology(), SHARED, "24.11", f"timeout 60 sh -c '{jobs}'").split()
    assert one in ("0", "1", "2", "3") and all_of_them == "0,1,2,3"

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What form slurm writes, read by slurmctld and slurmd of Debian 12 and 13, in namespaces of their own. Needs root.

``config_overrides`` lets Slurm believe in cores that this machine does not have; the lines themselves are those of the form.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.slices import slice_text
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import launch
from tests import cache
from tests.fakes.ranks import install

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
SUITES = {"22.05": "bookworm", "24.11": "trixie"}
"""Releases of Debian by their Slurm."""
CGROUPS = {"22.05": "cgroup/v1", "24.11": "disabled"}
"""22.05 wants a plugin for cgroups even where nothing uses it."""
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "python3")
HOSTS = "127.0.0.1 controller localhost\n"
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=controller
ProctrackType=proctrack/linuxproc
TaskPlugin={tasks}
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
L3_CACHES = topology()
L3_CACHES["cpus"]["caches"] = [f"{first}-{first + 5}" for first in range(0, 48, 6)]
CASES = [
    ("two NPUs of one node", topology(), SHARED, "24.11", "24.11", "IDLE"),
    ("pools across nodes", topology(), ACROSS, "24.11", "24.11", "IDLE"),
    ("two threads a core", THREADS, SHARED, "24.11", "24.11", "IDLE"),
    ("one NUMA node", ONE_NODE, SHARED, "24.11", "24.11", "IDLE"),
    ("L3 caches", L3_CACHES, SHARED, "24.11", "24.11", "IDLE"),
    ("lines of an old Slurm", topology(), SHARED, "22.05", "24.11", "DRAIN"),
    ("lines of an old Slurm, read by it", topology(), SHARED, "22.05", "22.05", "IDLE"),
    ("lines of a new Slurm, read by an old one", topology(), ACROSS, "24.11", "22.05", "IDLE"),
]
"""The lines are written for one Slurm, and read by another or the same."""
TWO_CPUS = {**ONE_NODE, "cpus": {"online": "0-1", "siblings": []}, "numa": [{"id": 0, "cpus": "0-1", "memory_mib": 1024}]}
TWO_CPUS["npus"] = TWO_CPUS["npus"][:2]
SWAPPED = [{**entry, "irq": ""} for entry in entries("1", "0")]
"""The NPU that Slurm gives away first has not the CPU that it gives away first."""


@pytest.fixture(scope="session")
def roots():
    def root(version):
        suite = SUITES[version]

        def make(folder):
            command = ["mmdebstrap", "--variant=apt", "--aptopt=APT::Install-Recommends false", f"--include={','.join(PACKAGES)}"]
            subprocess.run([*command, suite, str(folder / "root")], check=True, timeout=900)
            (folder / "root/etc/hosts").write_text(HOSTS)

        return cache.folder("slurm", [suite, *PACKAGES, HOSTS], make, kept=len(SUITES)) / "root"

    return root


def run_node(roots, folder, host, plan, command, written="24.11", read="24.11", tasks="task/none"):
    """Return what a command prints on a node whose configuration the form wrote for one version, and another may read."""
    sockets = "l3" if "caches" in host["cpus"] else "numa"
    texts = [launch(entry, "slurm", topology=host, name="node", slurm_version=written, slurm_sockets=sockets) for entry in plan]
    current = LINE.search(launch(plan[0], "slurm", topology=host, name="node", slurm_sockets=sockets))
    parameter = f",{current['parameter']}" if current["parameter"] else ""
    (folder / "slurm.conf").write_text(CONFIGURATION.format(parameters=parameter, node=current["node"], tasks=tasks))
    (folder / "gres.conf").write_text("".join(texts))
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={CGROUPS[read]}\n")
    for entry in plan:
        text = slice_text({"description": entry["slice"], "cpus": entry["pool"], "mems": entry["mems"]})
        (folder / entry["slice"]).write_text(text)
    (folder / "taskprolog").write_text(PROLOG.search((REPOSITORY / "docs/workloads.md").read_text())[1])
    (folder / "taskprolog").chmod(0o755)
    return subprocess.run(
        [str(HERE / "run-node"), str(roots(read)), str(folder), command], check=True, stdout=subprocess.PIPE, text=True, timeout=90
    ).stdout


@pytest.mark.parametrize("host, plan, written, read, state", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_slurm_takes_the_node(roots, tmp_path, host, plan, written, read, state):
    said = run_node(roots, tmp_path, host, plan, JUDGEMENT, written, read)
    assert state in said and (state == "IDLE" or "doesn't match socket boundaries" in said), said


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="the tasks of this test run on CPUs 0 and 1")
@pytest.mark.parametrize("version, tasks", [("24.11", "task/none"), ("24.11", "task/affinity"), ("22.05", "task/none")])
def test_a_task_has_the_npus_of_its_job_and_their_cpus(roots, tmp_path, version, tasks):
    """The second job starts while the first runs, which waits for its end."""
    look = 'printenv ASCEND_RT_VISIBLE_DEVICES; sed -n "s/^Cpus_allowed_list:.//p" /proc/self/status'
    script = f"""\
cat > /run/look <<'look'
{look}
[ "$1" != wait ] || until [ -e /run/done ]; do sleep 0.1; done
look
srun --gres=npu:1 sh /run/look wait > /run/first &
until [ -s /run/first ]; do sleep 0.1; done
srun --gres=npu:1 sh /run/look > /run/second
touch /run/done
wait
cat /run/first /run/second
srun --gres=npu:2 sh /run/look
"""
    (tmp_path / "jobs").write_text(script)
    found = run_node(roots, tmp_path, TWO_CPUS, SWAPPED, "timeout 60 sh -eu /etc/slurm/jobs", version, version, tasks)
    assert found.split() == ["0", "1", "1", "0", "0,1", "0-1"]


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="the tasks of this test run on CPUs 0 and 1")
@pytest.mark.parametrize("version, tasks", [("24.11", "task/affinity"), ("22.05", "task/none")])
def test_each_rank_of_srun_has_the_cpus_of_its_npu(roots, tmp_path, version, tasks):
    install(tmp_path / "host", ["1", "0"])
    subprocess.run(["tar", "-C", tmp_path, "-cf", tmp_path / "host.tar", "host"], check=True)
    script = f"""\
tar -C /run -xf /etc/slurm/host.tar
sed -i "s|{tmp_path}/host|/run/host|" /run/host/usr/local/bin/npu-affinity
echo 'echo $SLURM_LOCALID; sed -n "s/^Cpus_allowed_list:.//p" /proc/self/status' > /run/look
srun --ntasks=2 --label /run/host/usr/local/bin/npu-affinity exec --root /run/host -- sh /run/look
"""
    (tmp_path / "jobs").write_text(script)
    found = run_node(roots, tmp_path, TWO_CPUS, SWAPPED, "timeout 60 sh -eu /etc/slurm/jobs", version, version, tasks)
    assert sorted(found.splitlines()) == ["0: 0", "0: 1", "1: 0", "1: 1"]

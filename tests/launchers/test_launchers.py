# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of docs/ranks.md with real launchers: the ranks of Open MPI, MPICH and torchrun on the CPUs of their devices.

All NPUs are stand-ins; each has one CPU, the last NPU the first CPU. Open MPI starts each rank on one core, which is another one.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.fakes.ranks import install

REPOSITORY = Path(__file__).parents[2]
CPUS = sorted(os.sched_getaffinity(0), reverse=True)
POOLS = [str(CPUS[number % len(CPUS)]) for number in range(4)]
LOOK = """\
cpus=$(sed -n "s/^Cpus_allowed_list:.//p" /proc/self/status)
nodes=$(sed -n "1s/.*prefer[^:]*:\\([0-9]*\\).*/\\1/p" /proc/self/numa_maps)
echo rank $RANK on $cpus, nodes $nodes
"""
RANKS = {
    "openmpi": ("mpirun.openmpi --allow-run-as-root --oversubscribe -np 4", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "openmpi by core": (f"mpirun.openmpi --allow-run-as-root --bind-to core -np {min(len(CPUS), 4)}", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "mpich": ("mpirun.mpich -np 4", "MPI_LOCALRANKID"),
    "mpich by core": ("mpirun.mpich -bind-to core -np 4", "MPI_LOCALRANKID"),
    "torchrun": (f"{REPOSITORY}/build/torch/bin/torchrun --nproc-per-node 4 --no-python", "LOCAL_RANK"),
}


@pytest.mark.parametrize("launcher", RANKS)
def test_each_rank_has_the_cpus_and_memory_of_its_device(tmp_path, launcher):
    command, variable = RANKS[launcher]
    program = [install(tmp_path / "host", POOLS), "exec", "--root", str(tmp_path / "host"), "--"]
    program += ["sh", "-c", LOOK.replace("RANK", variable)]
    done = subprocess.run([*command.split(), *program], capture_output=True, text=True, check=True, cwd="/", timeout=120)
    ranks = int(command.split("-np ")[1]) if "-np " in command else 4
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} on {POOLS[rank]}, nodes 0" for rank in range(ranks)]


def test_the_rank_of_a_whole_job_is_refused(tmp_path):
    program = [install(tmp_path / "host", POOLS), "exec", "--root", str(tmp_path / "host"), "--print"]
    command = ["mpirun.mpich", "-np", "2", "env", "-u", "MPI_LOCALRANKID", *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=120)
    assert done.returncode == 125 and "PMI_RANK counts over all hosts" in done.stderr

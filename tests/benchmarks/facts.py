# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wall time and size of the facts of a simulated host with 640 CPUs and 16 NPUs.

    python -m tests.benchmarks.facts [ROUNDS]

``ansible.builtin.setup`` on this machine is the baseline of the same run; both are whole ``ansible`` calls, in turns: a busy
machine slows both. An empty module gives the share of Ansible itself. The simulated npu-smi starts a Python for each of its three calls.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from tests.simulator import generate

REPOSITORY = pathlib.Path(__file__).parents[2]
MACHINE = "a3_640_split"
LIMIT_KIB = 24
EMPTY, BASELINE, FACTS = "ansible.builtin.ping", "ansible.builtin.setup", "npu.affinity.topology_facts"


def ansible(module: str, *arguments: str) -> tuple[float, dict]:
    """Return the seconds that an ``ansible`` call on this machine took, and the module's result."""
    program = pathlib.Path(sys.executable).with_name("ansible")
    command = [program, "localhost", "-c", "local", "-m", module, *(["-a", " ".join(arguments)] if arguments else [])]
    environment = dict(
        os.environ,
        PATH=f"{program.parent}:{os.environ['PATH']}",
        ANSIBLE_COLLECTIONS_PATH=str(REPOSITORY / "build"),
        ANSIBLE_PYTHON_INTERPRETER=sys.executable,
        ANSIBLE_LOAD_CALLBACK_PLUGINS="true",
        ANSIBLE_STDOUT_CALLBACK="ansible.builtin.minimal",
        ANSIBLE_CALLBACK_RESULT_FORMAT="json",
        ANSIBLE_NOCOLOR="true",
        ANSIBLE_LOCALHOST_WARNING="false",
    )
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    return seconds, json.loads(done.stdout[done.stdout.index("{") :])


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder, "host")
        generate.generate(MACHINE, tree)
        runs = {EMPTY: (EMPTY,), BASELINE: (BASELINE,), FACTS: (FACTS, f"root={tree}")}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        results = {}
        for _round in range(rounds):
            for name, call in runs.items():
                taken, results[name] = ansible(*call)
                seconds[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    facts = results[FACTS]["ansible_facts"]["npu_affinity_topology"]
    cpus, npus = facts["cpus"]["online"], len(facts["npus"])
    if npus != 16 or facts["problems"]:
        sys.exit(f"the facts are not those of a healthy {MACHINE}: {npus} NPUs, problems {facts['problems']}")
    print(f"facts of CPUs {cpus} and {npus} NPUs, median of {rounds} rounds; the second column is without the empty module's time")
    own = {name: median - medians[EMPTY] for name, median in medians.items()}
    for name, median in medians.items():
        print(f"  {name:30} {median:6.2f} s {own[name]:6.2f} s")
    ratios = medians[FACTS] / medians[BASELINE], own[FACTS] / own[BASELINE]
    print(f"  {'facts / setup':30} {ratios[0]:6.2f}   {ratios[1]:6.2f}     (the module: at most 0.50 wanted)")
    print(f"  size as JSON                   {len(json.dumps(facts)) / 1024:6.1f} KiB          (less than {LIMIT_KIB} wanted)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)

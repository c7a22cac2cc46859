# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of npu_affinity_environment: they fit a workload to its pool, and none of them binds it to CPUs.

Sources: vLLM-Ascend 182b75ea, "Optimization and Tuning" and its tutorials (OMP_PROC_BIND=false, jemalloc, tcmalloc) and PR 11307; the
OpenMP specification (OMP_NUM_THREADS; without it a process starts a thread for each of its CPUs); Ascend Extension for PyTorch, environment
variable TASK_QUEUE_ENABLE (level 2 cannot capture graphs).
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .binders import OPENMP, OPENMP_BINDER
from .cpulist import expand

Variables = Dict[str, Tuple[str, str]]
"""``{name: (value, reason)}``."""
SETTING = "npu_affinity_environment"
SWITCHES = ("openmp", "task_queue", "allocator")


def values_of(variables: Variables) -> Dict[str, str]:
    return {name: value for name, (value, _reason) in variables.items()}


def fitting(switches: Mapping[str, bool], cpus: str, kinds: Sequence[str], allocator: Optional[str]) -> Variables:
    """Return the variables of a workload that has these CPUs and a process for each of its devices, which are of these kinds."""
    variables: Variables = {}
    if switches.get("openmp"):
        count, processes = len(expand(cpus)), max(len(kinds), 1)
        threads = max(count // processes, 1)
        shares = "%d CPUs of the pool for %d process%s" % (count, processes, "es" if processes > 1 else "")
        variables["OMP_NUM_THREADS"] = (str(threads), "%s; a process would start %d threads (OpenMP specification)." % (shares, count))
        variables["OMP_PROC_BIND"] = ("false", "The pool binds; OpenMP would put the process on one CPU (vLLM-Ascend PR 11307).")
    if switches.get("task_queue") and "npu" in kinds:
        variables["TASK_QUEUE_ENABLE"] = ("1", "Operators are launched by a second thread (torch_npu); level 2 cannot capture graphs.")
    if switches.get("allocator") and allocator:
        variables["LD_PRELOAD"] = (allocator, "Threads allocate memory with fewer locks (vLLM-Ascend, Optimization and Tuning).")
    return variables


def overridden(unit: str, variables: Variables, elsewhere: Mapping[str, Tuple[str, str]]) -> List[str]:
    """Return a sentence for each variable that a unit would get and that another file sets otherwise, or that undoes what it gets.

    ``elsewhere``: ``{name: (value, file)}`` of what other files of the unit set.
    """
    sentences = []
    for name, (value, file) in elsewhere.items():
        fact = "%s: %s sets %s=%s, which stays" % (unit, file, name, value)
        if name in OPENMP:
            if "OMP_PROC_BIND" in variables and OPENMP_BINDER.is_on(value):
                sentences.append("%s: OpenMP can then bind the program's threads itself; remove the variable there." % fact)
        elif name in variables and value != variables[name][0]:
            sentences.append("%s; %s would set %s." % (fact, SETTING, variables[name][0]))
    return sentences

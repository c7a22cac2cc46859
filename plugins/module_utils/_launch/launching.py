# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to run or paste, so a workload runs on the CPUs of its NPUs, after a look at whether it can work there."""

from __future__ import annotations

from typing import Any, Mapping

from .._base.binders import ENGINES, NPUS_ONLY, why_unbound
from .checks import Statement, verdicts
from .facts import Facts
from .filling import texts
from .forms import FORMS, Form
from .options import checked
from .workload import Workload, read

BINDINGS = ("global_slice", "topo_affinity", "cluster")
"""The rules by which vLLM-Ascend binds its own process."""
BINDS_ITSELF = "vLLM-Ascend: leave enable_cpu_binding on, and do not set OMP_PROC_BIND=true, which puts the process on one CPU first."
HOST_BINDS = "vLLM-Ascend: set enable_cpu_binding to false in additional_config, and do not set OMP_PROC_BIND=true."
_NUMA = (
    "vLLM starts each worker on the CPUs and the memory node of its GPU. It needs numactl, and binds memory to that node alone."
    "{numa_arguments:?}{command:?}",
    "vLLM: add {numa_arguments}. It then starts each worker on the CPUs and the memory node of its GPU, with numactl.{command:!}",
)


def launch(
    entry: Any,
    form: str,
    topology: Any = None,
    binding: str = "",
    total_npus: Any = None,
    forms: Mapping[str, Form] = FORMS,
    **options: Any,
) -> str:
    """Return the text of a form for a plan's entry or a workload; what its user has to know stands above it in comments.

    ``topology`` is the fact of the host: it brings physical ids, CPUs, cgroup version and kubelet. ``binding`` names the rule by which
    the workload binds itself, empty when it does not; ``total_npus`` is how many NPUs it lists. The ``engine`` of a workload counts where
    ``options`` name none. ``options`` are ``name``, ``notes`` (False: no comments) and those of the form. Raises ``ValueError`` for what
    cannot work, with a sentence that says why.
    """
    if not isinstance(form, str) or form not in forms:
        raise ValueError(f"form: expected one of {', '.join(sorted(forms))}; got {form!r}")
    if binding and binding not in BINDINGS:
        raise ValueError(f"binding: expected one of {', '.join(BINDINGS)}, or nothing where the host binds; got {binding!r}")
    made = forms[form]
    if isinstance(entry, Mapping) and not binding and "engine" in made.options:
        options = {"engine": entry.get("engine"), **options}
    given = checked(form, made.options, options)
    if binding and given["engine"]:
        raise ValueError(
            f"engine: {given['engine']} is configured not to bind itself, and binding={binding} asks for that; leave one of the two out"
        )
    workload = read(entry, topology, given["name"])
    why = NPUS_ONLY if workload.kind == "gpu" else why_unbound(workload.topology) if workload.topology else ""
    if binding and why:
        raise ValueError(f"binding: {workload.title} cannot bind itself by {binding}: {why}; leave binding out, and the host binds it")
    if workload.share and "npu_smi" not in made.options:
        others = ", ".join(sorted(name for name, other in forms.items() if "npu_smi" in other.options))
        raise ValueError(f"{workload.title} is a part of an NPU, which a library inside a container holds; launch it with {others}")
    warnings = _warnings(workload, made, binding, total_npus)
    facts = made.facts(workload, given, contained="image" in made.options)
    refusal = next(texts(made.refusals, facts), None)
    if refusal:
        raise ValueError(refusal)
    text = made.write(made.text, facts)
    if not given["notes"]:
        return text
    in_process = (list(texts(_NUMA, facts)) or _in_process(workload, binding, given["engine"])) if made.starts else []
    return "".join(f"# {note}\n" for note in [*texts(made.notes, facts), *warnings, *_reasons(facts), *in_process]) + text


def _reasons(facts: Facts) -> list[str]:
    """Return why each variable of option ``environment`` is set, and why LD_PRELOAD is not."""
    found = facts["fitting"]
    reasons = [f"{name}: {reason}" for name, (_value, reason) in found.items()]
    if (facts.options["environment"] or {}).get("allocator") and "LD_PRELOAD" not in found:
        why = "an image has its own libraries" if facts["contained"] else "topology names no jemalloc or tcmalloc on the host"
        reasons.append(f"LD_PRELOAD is not set: {why}. Set it yourself if an allocator is installed.")
    return reasons


def _in_process(workload: Workload, binding: str, engine: str) -> list[str]:
    """Return what to run, so the host alone binds, or the workload alone, where a variable does not say it."""
    if engine:
        return [ENGINES[engine].arguments] if ENGINES[engine].arguments else []
    return [BINDS_ITSELF if binding else HOST_BINDS] if workload.kind == "npu" else []


def _warnings(workload: Workload, form: Form, binding: str, total_npus: Any) -> list[str]:
    """Return the warnings about a workload's CPUs; ``ValueError`` with the first thing that cannot work."""
    topology = workload.topology
    statement = Statement(
        cgroup_parent=workload.slice or None,
        container_cpus=workload.cpus,
        host_cpus=topology["cpus"]["online"] if topology else None,
        kubelet=topology.get("kubelet") if topology and not form.for_pods else None,
        binding=binding,
        total_npus=_listed(workload, total_npus) if binding else 0,
    )
    found = list(verdicts(statement))
    for verdict in found:
        if not verdict.ok:
            raise ValueError(f"{workload.title} cannot be launched so: {verdict.message}")
    return [verdict.message for verdict in found if verdict.ok == "warn"]


def _listed(workload: Workload, total_npus: Any) -> int:
    if total_npus is not None:
        if isinstance(total_npus, bool) or not isinstance(total_npus, int):
            raise ValueError(f"total_npus: expected the number of NPUs that npu-smi lists; got {total_npus!r}")
        return total_npus
    if not workload.topology:
        raise ValueError("total_npus: in-process binding divides by the number of NPUs that npu-smi lists; give it, or give topology")
    return sum(npu.get("kind") != "gpu" for npu in workload.topology["npus"])

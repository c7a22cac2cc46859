# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to run or paste, so a workload runs on the CPUs of its NPUs, after a look at whether it can work there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import fitted, numa
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.checks import (
    binding_verdict,
    kubelet_verdict,
    parent_verdict,
    set_verdict,
)
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import FORMS
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import checked
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Workload, read
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import workers

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

BINDINGS = ("global_slice", "topo_affinity", "cluster")
"""The rules by which vLLM-Ascend binds its own process."""
IN_KUBERNETES = ("kubernetes", "kubelet", "dra", "balloons")
"""Forms whose CPUs the kubelet or its neighbours give to pods, so that pods on them are no contradiction."""
BINDS_ITSELF = "vLLM-Ascend: leave enable_cpu_binding on, and do not set OMP_PROC_BIND=true, which puts the process on one CPU first."
HOST_BINDS = "vLLM-Ascend: set enable_cpu_binding to false in additional_config, and do not set OMP_PROC_BIND=true."


def launch(
    entry: Mapping[str, Any],
    form: str,
    *,
    topology: Topology | None = None,
    binding: str = "",
    total_npus: int | None = None,
    **options: Any,
) -> str:
    """Return the text of a form for a plan's entry or a workload; what its user has to know stands above it in comments.

    ``topology`` is the fact of the host: it brings physical ids, CPUs, cgroup version and kubelet. ``binding`` names the rule by which
    the workload binds itself, empty when it does not; ``total_npus`` is how many NPUs it lists. The ``engine`` of a workload counts where
    ``options`` name none. ``options`` are ``name``, ``notes``
    (False: no comments) and those of the form. Raises ``ValueError`` for what cannot work, with a sentence that says why.
    """
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"form: expected one of {', '.join(FORMS)}; got {form!r}")
    if binding and binding not in BINDINGS:
        raise ValueError(f"binding: expected one of {', '.join(BINDINGS)}, or nothing where the host binds; got {binding!r}")
    if isinstance(entry, Mapping) and not binding and "engine" in FORMS[form].OPTIONS:
        options = {"engine": entry.get("engine"), **options}
    made = checked(form, FORMS[form].OPTIONS, options)
    if binding and made.engine:
        raise ValueError(
            f"engine: {made.engine} is configured not to bind itself, and binding={binding} asks for that; leave one of the two out"
        )
    workload = read(entry, topology, made.name)
    if binding and (why := _why_unbound(workload)):
        raise ValueError(f"binding: {workload.title} cannot bind itself by {binding}: {why}; leave binding out, and the host binds it")
    warnings = _checked(workload, form, binding, total_npus)
    words = numa.arguments(workload, made.engine)
    recipe = FORMS[form].recipe(workload, numa.handed_over(made, words))
    if not made.notes:
        return recipe.text
    reasons = fitted.notes(workload, made, contained="image" in FORMS[form].OPTIONS)
    in_process = [numa.note(made, words)] if words else _in_process(workload, binding, made.engine)
    sentences = [*recipe.notes, *warnings, *reasons, *(in_process if recipe.starts else [])]
    return "".join(f"# {sentence}\n" for sentence in sentences) + recipe.text


def _in_process(workload: Workload, binding: str, engine: str) -> list[str]:
    """Return what to run, so the host alone binds, or the workload alone, where a variable does not say it."""
    if engine:
        return [sentence] if (sentence := ENGINES[engine].arguments) else []
    return [BINDS_ITSELF if binding else HOST_BINDS] if workload.kind == "npu" else []


def _why_unbound(workload: Workload) -> str:
    """Return why the workers of a workload do not bind themselves, or '' where they do or the host is not known."""
    if workload.kind == "gpu":
        return workers.NPUS_ONLY
    return workers.why_unbound(workload.topology) if workload.topology else ""


def _checked(workload: Workload, form: str, binding: str, total_npus: int | None) -> list[str]:
    """Return the warnings about a workload's CPUs; ``ValueError`` with the first thing that cannot work."""
    topology = workload.topology
    if workload.share and "npu_smi" not in FORMS[form].OPTIONS:
        forms = ", ".join(name for name in FORMS if "npu_smi" in FORMS[name].OPTIONS)
        raise ValueError(f"{workload.title} is a part of an NPU, which a library inside a container holds; launch it with {forms}")
    online = topology["cpus"]["online"] if topology else None
    verdicts = [set_verdict(workload.cpus, host_cpus=online)]
    if workload.slice:
        verdicts.append(parent_verdict(workload.slice))
    if form not in IN_KUBERNETES and topology:
        verdicts.append(kubelet_verdict(topology.get("kubelet"), workload.cpus))
    if binding:
        verdicts.append(binding_verdict(binding, workload.cpus, _listed(workload, total_npus)))
    for verdict in verdicts:
        if not verdict.ok:
            raise ValueError(f"{workload.title} cannot be launched so: {verdict.message}")
    return [verdict.message for verdict in verdicts if verdict.ok == "warn"]


def _listed(workload: Workload, total_npus: int | None) -> int:
    if total_npus is not None:
        if isinstance(total_npus, bool) or not isinstance(total_npus, int):
            raise ValueError(f"total_npus: expected the number of NPUs that npu-smi lists; got {total_npus!r}")
        return total_npus
    if not workload.topology:
        raise ValueError("total_npus: in-process binding divides by the number of NPUs that npu-smi lists; give it, or give topology")
    return sum(npu.get("kind") != "gpu" for npu in workload.topology["npus"])

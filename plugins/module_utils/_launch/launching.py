# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to run or paste, so a workload runs on the CPUs of its NPUs, after a look at whether it can work there.

Sources of what container engines, the kubelet and in-process binding make of CPU sets: moby (names of parent slices, CPUs of the daemon),
opencontainers/runc ``ExpandSlice``, podman (cgroupfs), kernel ``Documentation/admin-guide/cgroup-v2.rst`` (cpuset), kubernetes issues 85764
and 104147 (what runs next to a kubelet), and vllm-project/vllm-ascend@182b75ea ``vllm_ascend/cpu_binding.py`` (CPUs that it needs).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple

from .._base.binders import ENGINES, NPUS_ONLY, why_unbound
from .facts import Facts
from .filling import texts
from .forms import FORMS, Form
from .options import checked
from .workload import Workload, read
from .._base.cpulist import compress, expand

if TYPE_CHECKING:
    from .._base.documents import Topology

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
    chosen = forms[form]
    if isinstance(entry, Mapping) and not binding and "engine" in chosen.options:
        options = {"engine": entry.get("engine"), **options}
    given = checked(form, chosen.options, options)
    if binding and given["engine"]:
        raise ValueError(
            f"engine: {given['engine']} is configured not to bind itself, and binding={binding} asks for that; leave one of the two out"
        )
    workload = read(entry, topology, given["name"])
    why = NPUS_ONLY if workload.kind == "gpu" else why_unbound(workload.topology) if workload.topology else ""
    if binding and why:
        raise ValueError(f"binding: {workload.title} cannot bind itself by {binding}: {why}; leave binding out, and the host binds it")
    if workload.share and "npu_smi" not in chosen.options:
        others = ", ".join(sorted(name for name, other in forms.items() if "npu_smi" in other.options))
        raise ValueError(f"{workload.title} is a part of an NPU, which a library inside a container holds; launch it with {others}")
    warnings = _warnings(workload, chosen, binding, total_npus)
    facts = chosen.facts(workload, given, contained="image" in chosen.options)
    refusal = next(texts(chosen.refusals, facts), None)
    if refusal:
        raise ValueError(refusal)
    text = chosen.write(chosen.text, facts)
    if not given["notes"]:
        return text
    notes = [*texts(chosen.notes, facts), *warnings, *_reasons(facts), *(_in_process(facts, binding) if chosen.starts else ())]
    return "".join(f"# {note}\n" for note in notes) + text


def _reasons(facts: Facts) -> Iterator[str]:
    """Yield why each variable of option ``environment`` is set, and why LD_PRELOAD is not."""
    variables = facts["fitting"]
    yield from (f"{name}: {reason}" for name, (_value, reason) in variables.items())
    if (facts.options["environment"] or {}).get("allocator") and "LD_PRELOAD" not in variables:
        why = "an image has its own libraries" if facts["contained"] else "topology names no jemalloc or tcmalloc on the host"
        yield f"LD_PRELOAD is not set: {why}. Set it yourself if an allocator is installed."


def _in_process(facts: Facts, binding: str) -> list[str]:
    """Return what to run, so the host alone binds, or the workload alone, where a variable does not say it."""
    engine, by_numactl = facts.options["engine"], list(texts(_NUMA, facts))
    if by_numactl or engine:
        return by_numactl or [ENGINES[engine].arguments] * bool(ENGINES[engine].arguments)
    return [BINDS_ITSELF if binding else HOST_BINDS] if facts.workload.kind == "npu" else []


def _warnings(workload: Workload, form: Form, binding: str, total_npus: Any) -> list[str]:
    """Return the warnings about a workload's CPUs; ``ValueError`` with the first thing that cannot work."""
    topology = workload.topology
    judged = verdicts(
        cgroup_parent=workload.slice or None,
        container_cpus=workload.cpus,
        host_cpus=topology["cpus"]["online"] if topology else None,
        kubelet=topology.get("kubelet") if topology and not form.for_pods else None,
        binding=binding,
        total_npus=_listed(topology, total_npus) if binding else 0,
    )
    warnings = []
    for verdict in judged:
        if not verdict.ok:
            raise ValueError(f"{workload.title} cannot be launched so: {verdict.message}")
        warnings += [verdict.message] if verdict.ok == "warn" else []
    return warnings


def _listed(topology: Topology, total_npus: object) -> int:
    if total_npus is None and not topology:
        raise ValueError("total_npus: in-process binding divides by the number of NPUs that npu-smi lists; give it, or give topology")
    number = sum(npu.get("kind") != "gpu" for npu in topology["npus"]) if total_npus is None else total_npus
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"total_npus: expected the number of NPUs that npu-smi lists; got {number!r}")
    return number


LEAST_CPUS = 5
"""CPUs that vLLM-Ascend needs for every NPU it lists: two for interrupts, one each for main, ACL and release."""
_SLICE = re.compile(r"^(-|[A-Za-z0-9:_.\\]+(-[A-Za-z0-9:_.\\]+)*)\.slice\Z")


class Verdict(NamedTuple):
    """``ok`` is True, False, or ``warn`` for what works but not as one would think; ``effective`` the cpulist that results, if known."""

    ok: bool | str
    message: str = ""
    effective: str | None = None


def parent_verdict(name: str, driver: str = "systemd") -> Verdict:
    """Judge the parent cgroup of a container. ``driver`` is the engine's cgroup driver, systemd or cgroupfs."""
    if driver != "systemd":
        is_slice = name.endswith(".slice") and "/" not in name
        text = f"the cgroupfs driver takes a path, not the slice {name}; switch the engine to the systemd cgroup driver"
        return Verdict(False, text) if is_slice else Verdict(True)
    if not name.endswith(".slice") or name == ".slice":
        return Verdict(False, 'cgroup-parent for systemd cgroup should be a valid slice named as "xxx.slice"')
    return Verdict(True) if _SLICE.match(name) else Verdict(False, f"invalid slice name: {name}")


def set_verdict(container_cpus: str, slice_cpus: str | None = None, host_cpus: str | None = None, cgroup: int | str = 2) -> Verdict:
    """Judge a container's cpulist (empty: none of its own) against its slice's and against those that the engine sees.

    None means that a set is not known or not restricted. ``cgroup`` is the version: 2 or ``v2``, anything else is version 1.
    """
    wanted = set(expand(container_cpus, "container_cpus"))
    if host_cpus is not None and wanted - set(expand(host_cpus, "host_cpus")):
        return Verdict(False, f"Requested CPUs are not available - requested {container_cpus}, available: {host_cpus}")
    if slice_cpus is None:
        return Verdict(True, effective=compress(wanted) if wanted else host_cpus)
    granted = set(expand(slice_cpus, "slice_cpus"))
    if wanted <= granted:
        return Verdict(True, effective=compress(wanted or granted))
    outside = compress(wanted - granted)
    if cgroup not in (2, "v2"):
        text = f"failed to write cpuset.cpus: permission denied: CPUs {outside} are not in the slice's {slice_cpus} (cgroup version 1)"
        return Verdict(False, text)
    if wanted & granted:
        return Verdict(True, f"CPUs {outside} are not in the slice and are left out", compress(wanted & granted))
    return Verdict(True, f"CPUs {outside} are not in the slice: the setting is ignored and all of the slice is used", compress(granted))


def kubelet_verdict(kubelet: Mapping[str, Any] | None, slice_cpus: str) -> Verdict:
    """Judge CPUs of a slice outside Kubernetes on a host with a kubelet.

    ``kubelet`` has ``policy`` and, where known, ``reservedSystemCPUs`` and ``exclusive`` (container -> cpulist).
    """
    if not kubelet:
        return Verdict(True)
    cpus = set(expand(slice_cpus, "slice_cpus"))
    if kubelet.get("policy") != "static":
        return Verdict("warn", f"The kubelet has no static CPU manager: pods float over all CPUs and run on {slice_cpus} as well.")
    for container, exclusive in (kubelet.get("exclusive") or {}).items():
        common = cpus & set(expand(exclusive, f"exclusive CPUs of {container}"))
        if common:
            return Verdict(False, f"the kubelet has given CPUs {compress(common)} to container {container} exclusively")
    reserved = kubelet.get("reservedSystemCPUs")
    if reserved is None:
        return Verdict("warn", f"The kubelet has a static CPU manager: let its reservedSystemCPUs cover {slice_cpus}.")
    outside, now = compress(cpus - set(expand(reserved, "reservedSystemCPUs"))), reserved or "(none)"
    text = f"the kubelet has a static CPU manager and hands out CPUs {outside}; reservedSystemCPUs, now {now}, must cover them"
    return Verdict(False, text) if outside else Verdict(True)


def binding_verdict(binding: str, container_cpus: str, total_npus: int) -> Verdict:
    """Judge a set in which vLLM-Ascend binds itself. ``total_npus`` counts all NPUs that ``npu-smi`` lists there, not only those used."""
    if binding != "global_slice":
        return Verdict("warn", f"Whether {binding} finds enough CPUs in {container_cpus} depends on the affinity of all listed NPUs.")
    if total_npus < 1:
        raise ValueError(f"total_npus: in-process binding counts at least 1 NPU, got {total_npus}; give the number that npu-smi lists")
    count = len(expand(container_cpus, "container_cpus"))
    text = (
        f"Insufficient CPUs for binding with CPU role reservations: total_allowed={count}, total_npus={total_npus}, "
        f"min_per_npu={count // total_npus} (<{LEAST_CPUS}). Need at least {LEAST_CPUS * total_npus} CPUs in cpuset. Turn "
        "enable_cpu_binding off, or give all containers the same host-wide set"
    )
    return Verdict(False, text) if count // total_npus < LEAST_CPUS else Verdict(True)


def verdicts(
    cgroup_parent: str | None = None,
    driver: str = "systemd",
    container_cpus: str | None = None,
    slice_cpus: str | None = None,
    host_cpus: str | None = None,
    cgroup: int | str = 2,
    kubelet: Mapping[str, Any] | None = None,
    binding: str = "",
    total_npus: int = 0,
) -> Iterator[Verdict]:
    """Yield a verdict on each of the settings of a container that are there; cpulists are None where a setting is absent."""
    cpus = slice_cpus or container_cpus or ""
    if cgroup_parent is not None:
        yield parent_verdict(cgroup_parent, driver)
    if container_cpus is not None:
        on_cpus = set_verdict(container_cpus, slice_cpus, host_cpus, cgroup)
        cpus = on_cpus.effective or cpus
        yield on_cpus
    if kubelet is not None:
        yield kubelet_verdict(kubelet, slice_cpus or container_cpus or "")
    if binding:
        yield binding_verdict(binding, cpus, total_npus)


def check(**statement: Any) -> Verdict:
    """Judge all settings together and return the worst verdict; among equals the first, with the effective CPUs where known."""
    judged = list(verdicts(**statement))
    if not judged:
        raise ValueError("nothing to check: give cgroup_parent, container_cpus, kubelet or binding")
    worst = min(judged, key=lambda verdict: (verdict.ok is not False, verdict.ok is True))
    effective = next((verdict.effective for verdict in judged if verdict.effective), None)
    return Verdict(worst.ok, worst.message, effective)

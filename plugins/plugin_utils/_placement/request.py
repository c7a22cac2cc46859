# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job asks for, checked, and which numbers of NPUs it may ask for over all its tasks.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910a3/superpod`` and ``internal/npu/policy/chip8node8sp``
(checkSpBlock, checkRequireNPU) and the sizes of every product's rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import POLICIES
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import product, superpods, switches, trees
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES


class SwitchState(TypedDict, total=False):
    """As in :class:`_placement.switches.Switch`, but ``healthy`` is what is called unhealthy there."""

    shared: int
    healthy: int
    spanned_by: Sequence[str]


class Service(TypedDict):
    """An inference service, and the job that is placed. ``jobs`` have ``labels`` and ``hosts``."""

    id: str
    job: str
    jobs: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Switches:
    """``states`` are those of switches that are not free."""

    version: str = "1.0"
    schema: str = switches.NORMAL
    tor_count: int | None = None
    shared_switches: int = 2
    states: Mapping[str, SwitchState] = field(default_factory=dict)


@dataclass(frozen=True)
class SuperPods:
    """A block has ``sp_block`` NPUs; ``reserve_nodes`` hosts of every SuperPod are kept; ``soft`` allows pieces of blocks.

    ``ra_block``, ``super_pod_size`` and ``ub_memory`` are for the Atlas 950.
    """

    sp_block: int
    reserve_nodes: int = 0
    soft: bool = False
    ra_block: int = 1
    super_pod_size: int | None = None
    ub_memory: bool = False
    service: Service | None = None


@dataclass(frozen=True)
class Trees:
    """``config`` is MindCluster's ``resource-level-config``, ``levels`` the job's ``huawei.com/affinity-config``."""

    config: Any = None
    levels: str = "level1=1"


@dataclass(frozen=True)
class Request:
    """``cpus`` and ``npus`` are those of one task, ``replicas`` is the number of tasks, and ``multi`` whether the job has several."""

    cpus: int = 0
    npus: int = 0
    policy: str = "none"
    replicas: int = 1
    family: str = "auto"
    mode: str | None = None
    weight: int = 1
    kubernetes: bool = False
    limit: int = 20
    switch: Switches | None = None
    superpod: SuperPods | None = None
    tree: Trees | None = None
    multi: bool = False

    @property
    def affinity(self) -> str | None:
        """The affinity between hosts, a key of :data:`_placement.product.AFFINITIES`."""
        if self.switch:
            return self.switch.version
        return product.SUPERPOD if self.superpod else product.TREE if self.tree else None

    def as_data(self) -> dict[str, Any]:
        """Return the request with its defaults, as plain data."""
        fields = asdict(self)
        del fields["multi"]
        return fields


DEFAULTS = Request().as_data()
LARGEST = max(rule.chips for rule in RULES.values() if rule.superpod)
"""The most NPUs of a host in a SuperPod."""


def checked(request: object) -> Request:
    """Return a request with its defaults. ``ValueError`` names the field, what was found and what is expected."""
    given = fields_of("request", _plain(request), DEFAULTS)
    for name, choices in (("policy", POLICIES), ("mode", product.MODES)):
        if given[name] not in (DEFAULTS[name], *choices):
            raise ValueError(f"{name}: expected one of {', '.join(choices)}; got {given[name]!r}")
    if given["family"] != "auto" and given["family"] not in RULES:
        raise ValueError(f"family: expected auto or one of {', '.join(RULES)}; got {given['family']!r}")
    mode = product.mode_of(given["family"])
    if mode and given["mode"] not in (None, mode):
        raise ValueError(f"mode: {given['mode']} contradicts family {given['family']}; leave one of them out")
    given |= {name: number_of(name, given[name], 0) for name in ("cpus", "npus", "weight")}
    given |= {name: number_of(name, given[name], 1) for name in ("replicas", "limit")}
    npus, replicas = given["npus"], given["replicas"]
    if not given["cpus"] and not npus:
        raise ValueError("cpus and npus: a task needs at least one CPU or one NPU; both are 0")
    given["mode"] = given["mode"] or mode
    given["kubernetes"] = _truth("kubernetes", given["kubernetes"])
    given["switch"] = None if given["switch"] is None else _switch(given["switch"])
    given["superpod"] = None if given["superpod"] is None else _superpod(given["superpod"], npus, replicas, given["family"])
    given["tree"] = None if given["tree"] is None else _tree(given["tree"], npus, replicas)
    if len(several := [name for name in ("switch", "superpod", "tree") if given[name]]) > 1:
        raise ValueError(f"{' and '.join(several)}: a job has affinity to switches, SuperPods or a tree, not to both; leave one out")
    return Request(**given, multi=replicas > 1)


def _plain(value: Any) -> Any:
    """Return dictionaries and lists of templates as plain ones, because Ansible's own cannot be copied."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _tree(given: object, npus: int, replicas: int) -> Trees:
    fields = fields_of("tree", given, vars(Trees()))
    if not npus:
        raise ValueError("tree: its tasks take whole hosts, and npus is 0")
    trees.trees(fields["config"])
    trees.levels_of(str(fields["levels"]), replicas)
    return Trees(fields["config"], str(fields["levels"]))


def _switch(given: object) -> Switches:
    fields = fields_of("switch", given, vars(Switches()))
    version = str(fields["version"])
    if version not in switches.VERSIONS or fields["schema"] not in switches.SCHEMAS:
        raise ValueError(
            f"switch: expected a version of {', '.join(switches.VERSIONS)} and a schema of {', '.join(switches.SCHEMAS)}; "
            f"got {version!r} and {fields['schema']!r}"
        )
    shared = number_of("shared_switches", fields["shared_switches"], 1)
    if shared > 2:
        raise ValueError(f"shared_switches: a job shares 1 or 2 switches with others, not {shared}")
    count = None if fields["tor_count"] is None else number_of("tor_count", fields["tor_count"], 1)
    states = {str(switch): state for switch, state in (fields["states"] or {}).items()}
    return Switches(version, fields["schema"], count, shared, states)


def _superpod(given: object, npus: int, replicas: int, family: str) -> SuperPods:
    fields = fields_of("superpod", given, {**vars(SuperPods(0)), "sp_block": None})
    if not npus:
        raise ValueError("superpod: blocks are made of NPUs, and npus is 0")
    if fields["sp_block"] is None:
        fields["sp_block"] = npus * replicas
    for name, least in (("sp_block", 1), ("reserve_nodes", 0), ("ra_block", 1), ("super_pod_size", 0)):
        if name != "super_pod_size" or fields[name] is not None:
            fields[name] = number_of(name, fields[name], least)
    fields |= {name: _truth(name, fields[name]) for name in ("soft", "ub_memory")}
    fields["service"] = None if fields["service"] is None else _service(fields["service"])
    superpod = SuperPods(**fields)
    if family == superpods.ATLAS_950:
        refusal = of_950(superpod, npus, replicas)
    else:  # where no product is named, every host refuses what its product does not allow
        rule = RULES.get(family)
        single = rule.single if rule and rule.superpod else range(1, LARGEST + 1)
        refusal = of_superpod(single, npus, replicas, superpod.sp_block, npus if replicas > 1 else LARGEST)
    if refusal:
        raise ValueError(refusal)
    return superpod


def of_950(wanted: SuperPods, npus: int, replicas: int) -> str | None:
    """Return why the scheduler of the Atlas 950 does not take a job, None where it does."""
    return next(superpods.refusals_950(replicas, npus, wanted.sp_block, wanted.ra_block, wanted.super_pod_size, wanted.ub_memory), None)


def _service(given: object) -> Service:
    fields = fields_of("service", given, {"id": "", "job": "", "jobs": {}})
    jobs = fields["jobs"] or {}
    if not isinstance(jobs, Mapping) or not all(
        isinstance(job, Mapping) and isinstance(job.get("labels") or {}, Mapping) for job in jobs.values()
    ):
        raise ValueError(f"service: expected jobs as {{name: {{labels: {{{superpods.LABEL}: id}}, hosts: []}}}}; got {jobs!r}")
    return {"id": str(fields["id"]), "job": str(fields["job"]), "jobs": jobs}


def fields_of(what: str, given: object, defaults: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{what}: expected a dictionary with some of {', '.join(defaults)}; got {given!r}")
    if unknown := [str(name) for name in given if name not in defaults]:
        raise ValueError(f"{what}: {', '.join(unknown)} is not known; known are {', '.join(defaults)}")
    return {**defaults, **given}


def number_of(name: str, value: object, least: int) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name}: expected a whole number of {least} or more; got {value!r}")
    return number


def _truth(name: str, value: object) -> bool:
    try:
        return bool(boolean(value or False))
    except TypeError:
        raise ValueError(f"{name}: expected true or false; got {value!r}") from None


def of_superpod(single: Collection[int], per_task: int | None, replicas: int | None, sp_block: int | None, node_npus: int) -> str | None:
    """Return why a job in SuperPods of so many tasks with so many NPUs each is not allowed, None where it is.

    ``single`` are the sizes of a task that is its job, ``sp_block`` the NPUs of a block in a logical SuperPod, ``node_npus`` those of a
    host. What is None is not looked at.
    """
    tasks = replicas or 1
    total = None if per_task is None else per_task * tasks
    block = total if sp_block is None else sp_block
    if block is not None and block < 1:
        return f"size not allowed: sp-block {block} is not a number of NPUs; give 1 or more"
    if block is not None and block != total and block % node_npus:
        return f"size not allowed: sp-block {block} is not a multiple of the {node_npus} NPUs of a host"
    if per_task is None or total is None or block is None:
        return None
    if tasks == 1:
        allowed = [size for size in single if size <= node_npus]
        if per_task not in allowed:
            return f"size not allowed: a single task in a SuperPod has {compress(allowed).replace(',', ', ')} NPUs, not {per_task}"
        return None if block == per_task else f"size not allowed: a single task has {per_task} NPUs, which must equal sp-block {block}"
    if total % block:
        return f"size not allowed: the {total} NPUs of the job are not a multiple of sp-block {block}"
    return None if per_task == node_npus else f"size not allowed: tasks of one job in a SuperPod have {node_npus} NPUs each, not {per_task}"

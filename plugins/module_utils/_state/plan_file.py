# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one reader of plan.json, the plan in force: every plan has the shape and the schema that this version knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, cast

from .._base.cpulist import expand
from .._host.host import Host
from .._base.outside import json_of, require_shape
from .._base.version import refuse_newer

if TYPE_CHECKING:
    from .._base.documents import Plan, PlanEntry

PATH = "/etc/npu-affinity/plan.json"
RECORD = "/etc/npu-affinity/previous.json"
SETS = ("pool", "irq", "main", "kv", "acl", "release", "mems", "memory_nodes")
_TEXTS = SETS + ("pci", "slice", "kind")
_NUMBERS = ("card", "chip", "phy_id")
_OPTIONAL = {
    "strategy?": str,
    "requested?": str,
    "reason?": str,
    "cpus?": str,
    "repaired?": [str],
    "warnings?": [str],
    "lost?": [dict],
    "quality?": dict,
}
_SLICE = re.compile(r"[A-Za-z0-9:_.\\-]+\.slice\Z")


class Broken(ValueError):
    """The file is not what a bind writes; ``why`` says what it is instead."""

    def __init__(self, path: str, why: str) -> None:
        ValueError.__init__(self, "%s is %s; bind the host again to write it" % (path, why))
        self.why = why


def memory_nodes(entry: Mapping[str, object]) -> str:
    """Return the NUMA nodes, as a cpulist, that what runs on an NPU may use: '' where its memory is not bound. ``mems`` are the nearest."""
    return str(entry.get("memory_nodes") or "")


def numa_policy(nearest: str, allowed: str) -> tuple[str, str] | None:
    """Return the policy and the nodes by which a process keeps to memory nodes where no cpuset holds them, or None to leave it alone.

    ``nearest`` and ``allowed`` are cpulists, as ``mems`` and :func:`memory_nodes` of a plan. ``bind`` kills a process when these nodes are
    full, so it is taken only where no other nodes are allowed. ``preferred`` takes one node (set_mempolicy(2)); without a policy the kernel
    takes the node that a thread runs on.
    """
    if not allowed:
        return None
    if set(expand(allowed)) == set(expand(nearest)):
        return "bind", allowed
    return ("preferred", nearest) if len(expand(nearest)) == 1 else None


def numactl_memory(nearest: str, allowed: str) -> list[str]:
    """Return the arguments with which numactl sets a :func:`numa_policy`."""
    policy = numa_policy(nearest, allowed)
    return ["--%s=%s" % ({"bind": "membind"}.get(policy[0], policy[0]), policy[1])] if policy else []


def plan_npus(plan: Any) -> list[PlanEntry]:
    """Return the plan's NPUs. Raises ``ValueError`` with what is wrong when it is not a plan, :class:`Newer` for a newer schema."""
    npus = plan.get("npus") if isinstance(plan, dict) else None
    refuse_newer("the plan", plan)
    if not isinstance(npus, list) or not all(isinstance(npu, dict) and {"id", "pool"} <= set(npu) for npu in npus):
        raise ValueError("the plan has no list 'npus' of NPUs with 'id' and 'pool'; give the fact npu_affinity_plan")
    require_shape(plan, _OPTIONAL, "the plan")
    for npu in npus:
        _check_npu(npu)
    for key in ("housekeeping", "poll"):
        _check_set(plan, key, key)
    return npus


def _check_npu(npu: Any) -> None:
    if not _is_number(npu["id"]):
        raise ValueError("an NPU of the plan has the id %r, which is not a number" % (npu["id"],))
    title = "NPU %s" % npu["id"]
    for key in _TEXTS:
        if not isinstance(npu.get(key, ""), (str, type(None))):
            raise ValueError("%s of %s is %r, which is not text" % (key, title, npu[key]))
    for key in _NUMBERS:
        if npu.get(key) is not None and not _is_number(npu[key]):
            raise ValueError("%s of %s is %r, which is not a number" % (key, title, npu[key]))
    for key in SETS:
        _check_set(npu, key, "%s of %s" % (key, title))
    if npu.get("slice") and not _SLICE.match(npu["slice"]):
        raise ValueError("slice of %s is %r, which is not a name of a slice" % (title, npu["slice"]))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_set(document: Any, key: str, title: str) -> None:
    if not isinstance(document.get(key, ""), (str, type(None))):
        raise ValueError("%s is %r, which is not a cpulist" % (title, document[key]))
    expand(document.get(key) or "", title)


def read(host: Host, path: str = PATH) -> Plan | None:
    """Return the plan in force, or None if there is none. Raises :class:`Newer`, or :class:`Broken` with what is wrong with it."""
    text = host.text(path)
    if text is None:
        return None
    try:
        plan: Plan = json_of(text)
    except ValueError as error:
        raise Broken(path, "not valid JSON (%s)" % error)
    refuse_newer(path, plan)
    try:
        plan_npus(plan)
    except ValueError as error:
        raise Broken(path, "not a plan (%s)" % error)
    return plan


def parsed(text: str | None) -> Plan:
    """Return what a text of plan.json says, nothing where it is not a plan: a bind writes that again, and an unbind removes it."""
    try:
        document = json_of(text or "{}")
    except ValueError:
        return {}
    return cast("Plan", document if isinstance(document, dict) else {})


def refuse_newer_plan(host: Host) -> None:
    """Raise :class:`Newer` where the plan in force is that of a newer version; any other one can be written again."""
    refuse_newer(PATH, parsed(host.read(PATH)))

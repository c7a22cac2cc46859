# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which metrics there are of a host, and what they are now: the host is gathered and compared as verify does it. Reads only."""

from __future__ import annotations

import calendar
import time
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..._state import plan_file
from ..._drift.codes import PAIRS, WORK_OUTSIDE_POOL, code_of
from ..._base.findings import LOST_CARD, NEW_CARD, Findings
from ..._drift.in_force import compare
from ..._base.findings import Device, with_lost
from ..._state.history import entries
from ..._state.history.in_force import in_force
from ..._state.host_code import compared_with
from ..._host.host import CommandError, Host
from ..._features.hugepages.shortage import counts_of
from ..._features.irq import counters
from ..._kernel.hugepages import Pages, pages
from ..._topology.gather import gather
from ..._users.finding import by_process
from ..._base.version import VERSION
from .exposition import Metric, Sample, value_of

if TYPE_CHECKING:
    from ..._base.documents import NpuUser, Plan

LAST_VERIFY = "npu_affinity_last_verify_timestamp_seconds"
METRICS = (
    Metric(
        "npu_affinity_info",
        "gauge",
        "Always 1; labels: version that bound the host, strategy of the plan.",
        ("strategy", "version"),
    ),
    Metric("npu_affinity_bound", "gauge", "1 if the host has a plan in force, otherwise 0."),
    Metric(
        "npu_affinity_last_bind_timestamp_seconds",
        "gauge",
        "Time of the last bind or rollback that changed the host, in seconds since 1970.",
    ),
    Metric("npu_affinity_verify_success", "gauge", "1 if the last comparison of the host with its plan succeeded, otherwise 0."),
    Metric(LAST_VERIFY, "gauge", "Time of the last comparison of the host with its plan, in seconds since 1970."),
    Metric("npu_affinity_verify_duration_seconds", "gauge", "Duration of the last comparison, including calls of npu-smi."),
    Metric("npu_affinity_compared_objects", "gauge", "Objects in the last comparison, by kind.", ("kind",)),
    Metric(
        "npu_affinity_drifted_objects", "gauge", "Objects that differ from the plan in force, by likely cause and code.", ("cause", "code")
    ),
    Metric(
        "npu_affinity_pending_changes",
        "gauge",
        "Changes that were bound and still wait, such as that of a kubelet for the drain of its node.",
    ),
    Metric("npu_affinity_npus", "gauge", "NPUs and GPUs with CPUs in the plan in force."),
    Metric("npu_affinity_lost_npus", "gauge", "NPUs and GPUs of the plan in force, or of the one before, that are missing."),
    Metric("npu_affinity_new_npus", "gauge", "NPUs and GPUs of the host without CPUs in the plan in force."),
    Metric(
        "npu_affinity_unconfined_processes",
        "gauge",
        "Processes that use an NPU or GPU outside its pool, or with too few CPUs, except pods.",
        ("code", "device", "npu"),
    ),
    Metric(
        "npu_affinity_hugepages",
        "gauge",
        "Huge pages of nodes for which the plan has a number: wanted, granted, and free ones of these.",
        ("node", "size", "state"),
    ),
    Metric(
        "npu_affinity_nic_queues",
        "gauge",
        "Queue interrupts of network functions: near their function, elsewhere, or fixed by the kernel.",
        ("pci", "state"),
    ),
    Metric("npu_affinity_local_ratio", "gauge", "Share of the CPUs of all pools that are local to their device, 0 to 1."),
    Metric(
        "npu_affinity_rebinds_total",
        "counter",
        "Runs since boot that restored interrupts, workqueues or threads, by the timer (check), or a driver or link (driver).",
        ("trigger",),
    ),
    Metric("npu_affinity_interrupts_rebound_total", "counter", "Interrupts that these runs restored since boot.", ("trigger",)),
)


def samples(host: Host, before: str | None) -> tuple[dict[str, list[Sample]], str]:
    """Return ``({name: samples}, why the host could not be compared or '')``; ``before`` is the text of the last run.

    What is not known has no sample, except for the time of the last comparison, which stays.
    """
    found: dict[str, list[Sample]] = {}
    begun = time.monotonic()
    history = in_force(host)
    why = ""
    try:
        plan = plan_file.read(host)
        topology = gather(host, npu_smi=history.npu_smi)
        compared = compare(host, topology, must_be_bound=True, host_code=compared_with(host, None), history=history)
        found.update(_of_comparison(compared.findings, plan or {}, topology["npus"]))
        found["npu_affinity_unconfined_processes"] = _of_users(host, compared.findings, plan or {}, topology.get("users") or ())
        found["npu_affinity_hugepages"] = _of_hugepages(host, compared.wanted.live.get("hugepages"))
        found[LAST_VERIFY] = _one(int(time.time()))
    except (OSError, ValueError, CommandError) as error:
        plan, why = None, str(error)
        last = value_of(before, LAST_VERIFY)
        found[LAST_VERIFY] = [] if last is None else _one(int(last))
    found["npu_affinity_verify_success"] = _one(0 if why else 1)
    found["npu_affinity_verify_duration_seconds"] = _one(time.monotonic() - begun)
    bound_at = [entry.time for entry in history.entries if entry.action in ("bind", "rollback")][-1:]
    found["npu_affinity_last_bind_timestamp_seconds"] = [
        sample for text in bound_at for sample in _one(calendar.timegm(time.strptime(text, entries.TIME)))
    ]
    found["npu_affinity_info"] = [({"strategy": str((plan or {}).get("strategy") or ""), "version": VERSION}, 1)]
    counted = counters.counts(host)
    found["npu_affinity_rebinds_total"] = [({"trigger": trigger}, counts[counters.RUNS]) for trigger, counts in counted.items()]
    found["npu_affinity_interrupts_rebound_total"] = [
        ({"trigger": trigger}, counts[counters.INTERRUPTS]) for trigger, counts in counted.items()
    ]
    return found, why


def _one(value: float) -> list[Sample]:
    return [({}, value)]


def _of_comparison(findings: Findings, plan: Plan, present: Sequence[Mapping[str, Any]]) -> dict[str, list[Sample]]:
    found = [(finding.cause.word, code_of(finding.kind, finding.cause.word)) for finding in findings.drift]
    causes = [cause for cause, _code in found]
    there = {(npu.get("pci") or "").lower() for npu in present}
    gone = [npu for npu in plan.get("lost") or () if (npu.get("pci") or "").lower() not in there]
    local = (plan.get("quality") or {}).get("local")
    return {
        "npu_affinity_bound": _one(1 if plan else 0),
        "npu_affinity_compared_objects": [({"kind": kind}, len(names)) for kind, names in findings.checked.items()],
        "npu_affinity_drifted_objects": [({"cause": cause, "code": code}, found.count((cause, code))) for cause, code in PAIRS],
        "npu_affinity_pending_changes": _one(len(findings.pending)),
        "npu_affinity_npus": _one(len(plan.get("npus") or ())),
        "npu_affinity_lost_npus": _one(causes.count(LOST_CARD) + len(gone)),
        "npu_affinity_new_npus": _one(causes.count(NEW_CARD)),
        "npu_affinity_nic_queues": [
            ({"pci": pci, "state": state}, number) for pci, states in findings.queues.items() for state, number in states.items()
        ],
        "npu_affinity_local_ratio": [] if local is None else _one(float(local)),
    }


def _of_users(host: Host, findings: Findings, plan: Plan, users: Iterable[NpuUser]) -> list[Sample]:
    """Count the processes outside for each NPU that they have open; a process of two NPUs is counted for both."""
    outside = {pid for user in findings.outside for pid in user["pids"]}
    npus = with_lost(plan) if plan else []
    parts = [part for user in users for part in by_process(host, npus, user) if part["processes"][0]["pid"] in outside]
    used = [(npu["kind"], npu["id"]) for part in parts for npu in part["npus"]]
    devices = [Device.of(npu) for npu in plan.get("npus") or ()]
    return [
        ({"code": WORK_OUTSIDE_POOL, "device": device.kind, "npu": str(device.id)}, used.count((device.kind, device.id)))
        for device in devices
    ]


def _of_hugepages(host: Host, wanted: Mapping[str, Any] | None) -> list[Sample]:
    found: list[Sample] = []
    for size, counts in counts_of(wanted).items() if wanted else ():
        for node, count in sorted(counts.items()):
            now = pages(host, size, node) or Pages(0, 0, 0)
            numbers = {"wanted": count, "granted": now.pool, "free": now.free}
            found += [({"node": str(node), "size": "%dkB" % size, "state": state}, number) for state, number in numbers.items()]
    return found

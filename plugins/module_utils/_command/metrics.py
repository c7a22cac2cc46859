# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a host: gathered and compared as verify does it, and written for node exporter as text for Prometheus.

A timer runs ``python3 -m npu_affinity metrics``. Source of the format: text exposition format 0.0.4
(prometheus.io/docs/instrumenting/exposition_formats).
"""

from __future__ import annotations

import argparse
import calendar
import math
import time
from typing import TYPE_CHECKING, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple, Union

from .._base.findings import LOST_CARD, NEW_CARD, Device, Findings, with_lost
from .._base.outside import say, shown_lines
from .._base.version import VERSION
from .._drift.codes import PAIRS, WORK_OUTSIDE_POOL, code_of
from .._drift.in_force import compare
from .._features.hugepages.pages import counts_of
from .._features.irq import rebinds
from .._features.metrics import textfile
from .._features.metrics.feature import SECTION, SETTINGS
from .._host.host import CommandError, Host
from .._kernel.hugepages import Pages, pages
from .._state import plan_file, previous
from .._state.files import MARKER
from .._state.history import TIME, in_force
from .._state.host_code import compared_with
from .._state.lock import changing
from .._topology.gather import gather
from .._users.finding import by_process

if TYPE_CHECKING:
    from .._base.documents import HugePagesLive, Npu, NpuUser, Plan

PROGRAM = "npu_affinity metrics"
_HEAD = MARKER + ": metrics of how the CPUs of this host are bound, written by npu-affinity-metrics.timer."
Labels = Dict[str, str]
Number = Union[int, float]
Sample = Tuple[Labels, Number]


class Metric(NamedTuple):
    """What there is to know of a metric before it is measured; ``labels`` are their names."""

    name: str
    help: str
    labels: Tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


LAST_VERIFY = "npu_affinity_last_verify_timestamp_seconds"
METRICS = (
    Metric("npu_affinity_info", "Always 1; labels: version that bound the host, strategy of the plan.", ("strategy", "version")),
    Metric("npu_affinity_bound", "1 if the host has a plan in force, otherwise 0."),
    Metric("npu_affinity_last_bind_timestamp_seconds", "Time of the last bind or rollback that changed the host, in seconds since 1970."),
    Metric("npu_affinity_verify_success", "1 if the last comparison of the host with its plan succeeded, otherwise 0."),
    Metric(LAST_VERIFY, "Time of the last comparison of the host with its plan, in seconds since 1970."),
    Metric("npu_affinity_verify_duration_seconds", "Duration of the last comparison, including calls of npu-smi."),
    Metric("npu_affinity_compared_objects", "Objects in the last comparison, by kind.", ("kind",)),
    Metric("npu_affinity_drifted_objects", "Objects that differ from the plan in force, by likely cause and code.", ("cause", "code")),
    Metric(
        "npu_affinity_pending_changes",
        "Pending changes, such as that of a kubelet, which waits for a restart with npu_affinity_kubelet_restart.",
    ),
    Metric("npu_affinity_npus", "NPUs and GPUs with CPUs in the plan in force."),
    Metric("npu_affinity_lost_npus", "NPUs and GPUs of the plan in force, or of the one before, that are missing."),
    Metric("npu_affinity_new_npus", "NPUs and GPUs of the host without CPUs in the plan in force."),
    Metric(
        "npu_affinity_unconfined_processes",
        "Processes that use an NPU or GPU outside its pool, or with too few CPUs, except pods.",
        ("code", "device", "npu"),
    ),
    Metric(
        "npu_affinity_hugepages",
        "Huge pages of each memory node in the plan, by state: wanted, granted, and free among the granted.",
        ("node", "size", "state"),
    ),
    Metric(
        "npu_affinity_nic_queues",
        "Queue interrupts of network functions: near their function, elsewhere, or fixed by the kernel.",
        ("pci", "state"),
    ),
    Metric("npu_affinity_local_ratio", "Share of the CPUs of all pools that are local to their device, 0 to 1."),
    Metric(
        "npu_affinity_rebinds_total",
        "Runs since boot that restored interrupts, workqueues or threads, by the timer (check), or a driver or link (driver).",
        ("trigger",),
    ),
    Metric("npu_affinity_interrupts_rebound_total", "Interrupts that these runs restored since boot.", ("trigger",)),
)


def samples(host: Host, before: str | None) -> tuple[dict[str, list[Sample]], str]:
    """Return ``({name: samples}, why the host could not be compared or '')``; ``before`` is the text of the last run.

    What is not known has no sample, except for the time of the last comparison, which stays.
    """
    measured: dict[str, list[Sample]] = {}
    begun, history, why = time.monotonic(), in_force(host), ""
    try:
        plan = plan_file.read(host)
        topology = gather(host, npu_smi=history.npu_smi)
        compared = compare(host, topology, must_be_bound=True, host_code=compared_with(host, None), history=history)
        measured.update(_of_comparison(compared.findings, plan or {}, topology["npus"]))
        measured["npu_affinity_unconfined_processes"] = _of_users(host, compared.findings, plan or {}, topology.get("users") or ())
        measured["npu_affinity_hugepages"] = _of_hugepages(host, compared.wanted.live.get("hugepages"))
        measured[LAST_VERIFY] = _one(int(time.time()))
    except (OSError, ValueError, CommandError) as error:
        plan, why = None, str(error)
        last = value_of(before, LAST_VERIFY)
        measured[LAST_VERIFY] = [] if last is None else _one(int(last))
    measured["npu_affinity_verify_success"] = _one(0 if why else 1)
    measured["npu_affinity_verify_duration_seconds"] = _one(time.monotonic() - begun)
    binds = [calendar.timegm(time.strptime(entry.time, TIME)) for entry in history.entries if entry.action in ("bind", "rollback")]
    measured["npu_affinity_last_bind_timestamp_seconds"] = [({}, second) for second in binds[-1:]]
    measured["npu_affinity_info"] = [({"strategy": str((plan or {}).get("strategy") or ""), "version": VERSION}, 1)]
    totals = rebinds.totals(host)
    for name, key in (("npu_affinity_rebinds_total", "runs"), ("npu_affinity_interrupts_rebound_total", "interrupts")):
        measured[name] = [({"trigger": trigger}, counts[key]) for trigger, counts in totals.items()]
    return measured, why


def _one(value: float) -> list[Sample]:
    return [({}, value)]


def _of_comparison(findings: Findings, plan: Plan, present: Sequence[Npu]) -> dict[str, list[Sample]]:
    pairs = [(finding.cause.word, code_of(finding.kind, finding.cause.word)) for finding in findings.drift]
    causes = [cause for cause, _code in pairs]
    there = {(npu.get("pci") or "").lower() for npu in present}
    local = (plan.get("quality") or {}).get("local")
    gone = [npu for npu in plan.get("lost") or () if (npu.get("pci") or "").lower() not in there]
    return {
        "npu_affinity_bound": _one(1 if plan else 0),
        "npu_affinity_compared_objects": [({"kind": kind}, len(names)) for kind, names in findings.checked.items()],
        "npu_affinity_drifted_objects": [({"cause": cause, "code": code}, pairs.count((cause, code))) for cause, code in PAIRS],
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
    devices = [(device.kind, device.id) for device in map(Device.of, plan.get("npus") or ())]
    return [({"code": WORK_OUTSIDE_POOL, "device": kind, "npu": str(number)}, used.count((kind, number))) for kind, number in devices]


def _of_hugepages(host: Host, wanted: HugePagesLive | None) -> list[Sample]:
    rows: list[Sample] = []
    size, counts = counts_of(wanted) if wanted else (0, {})
    for node, count in counts.items():
        now = pages(host, size, node) or Pages(0, 0, 0)
        numbers = {"wanted": count, "granted": now.pool, "free": now.free}
        rows += [({"node": str(node), "size": "%dkB" % size, "state": state}, number) for state, number in numbers.items()]
    return rows


def text(head: str, metrics: Iterable[Metric], samples: Mapping[str, Sequence[Sample]]) -> str:
    """Return the text of the metrics that have samples, below a comment."""
    lines = ["# %s" % head]
    for metric in metrics:
        values = samples.get(metric.name) or ()
        if values:
            lines += ["# HELP %s %s" % (metric.name, _escaped(metric.help)), "# TYPE %s %s" % (metric.name, metric.kind)]
        for labels, value in values:
            pairs = ['%s="%s"' % (name, _escaped(shown_lines(label)).replace('"', '\\"')) for name, label in labels.items()]
            number = repr(round(value, 6)) if isinstance(value, float) else str(value)
            lines.append("%s%s %s" % (metric.name, "{%s}" % ",".join(pairs) if pairs else "", number))
    return "\n".join(lines) + "\n"


def value_of(text: str | None, name: str) -> float | None:
    """Return the value of a metric without labels in a text, or None where it has none."""
    for line in (text or "").splitlines():
        word, _blank, value = line.partition(" ")
        if word == name:
            try:
                return float(value) if math.isfinite(float(value)) else None
            except ValueError:
                return None
    return None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the metrics to the file that role metrics has chosen.

    The lock is held to write, and not while the host is compared: a driver that is loaded meanwhile is bound at once. Returns 0, and 1 with
    a sentence where nothing could be written; that the host could not be compared is a metric.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Write metrics of the binding of this host for node exporter.")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    host = Host(parser.parse_args(argv).root)
    try:
        with changing(host, PROGRAM):  # a bind that is under way ends first
            wanted = textfile.wanted(host)
            none = "There is no %s: no metrics are written." % SETTINGS
            path, remark = (None, none) if wanted is None else textfile.place(host, wanted)
            if path is not None:
                previous.record(host, SECTION, [path])
        if path is None:
            say(remark)
            return 0
        measured, why = samples(host, host.read(path))
        with changing(host, PROGRAM):
            if textfile.wanted(host) == wanted:
                textfile.write(host, path, text(_HEAD, METRICS, measured))
    except (OSError, ValueError) as error:
        say("No metrics are written: %s" % error)
        return 1
    if why:
        say("This host could not be compared with its plan: %s" % why)
    return 0

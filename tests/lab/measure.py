# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind does for a worker with a noisy neighbour. ``LAB_IMAGE=measure python -m tests.lab.measure FOLDER`` measures it in the lab.

The worker, stress-ng's memory benchmark, is a service. cyclictest, which sleeps and looks how late it wakes, is another one of the same
NPU, and the neighbour keeps every CPU busy from a third. Latencies are those of :data:`ROUNDS` runs of cyclictest; playbook ``measure``
counts the rest. Before the bind no service has CPUs of its own; after it the first two have those of the NPU, and the neighbour the
housekeeping CPUs.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.npu.affinity.plugins.module_utils._base.table import columns
from ansible_collections.npu.affinity.plugins.plugin_utils._report import measures_table
from tests.integration import controller
from tests.lab import image
from tests.lab.conftest import Lab, success
from tests.lab.shapes import MEASURED, kvm_works

ROUNDS = 10
SECONDS, WINDOWS_SECONDS = 4, 20
"""Of a round, and of what the playbook counts."""
LONGEST = 200000
"""Microseconds up to which cyclictest counts each latency."""
LATENCIES = "/run/latencies.json"
SERVICE = "[Service]\nExecStart=/bin/sh -c 'exec 3</dev/davinci0; exec {}'\n"
SERVICES = {
    "worker": SERVICE.format("stress-ng --stream 1 --stream-l3-size 4m"),
    "latency": f"{SERVICE}Type=oneshot\nStandardOutput=null\n".format(
        f"cyclictest --quiet --policy=other --interval=4000 --duration={SECONDS} --histogram={LONGEST} --json={LATENCIES}"
    ),
    "neighbour": f"[Service]\nExecStart=/usr/bin/stress-ng --cpu {MEASURED.cpus} --cpu-method int64\n",
}
LIMITS = (
    "This machine was emulated. That shows who waits for whom. It does not show how long that takes on real CPUs, what a remote node "
    "costs, or which interrupts an NPU causes. Read the changes, and not the times."
)
SETTINGS = {
    "npu_affinity_services": [{"unit": f"{name}.service", "npus": [0]} for name in ("worker", "latency")],
    "npu_affinity_housekeeping": "0-1",
    "npu_affinity_housekeeping_confine_holders": True,  # the worker runs in system.slice when it is measured first
    "npu_affinity_min_cpus": 2,
    "npu_affinity_measure_seconds": WINDOWS_SECONDS,
}
SHARES = {"median": 0.5, "99 %": 0.99, "99.9 %": 0.999}


def percentile(thread: Mapping, share: float) -> float:
    """Return the milliseconds that at least this share of a round's latencies do not exceed, of what cyclictest says of its thread."""
    passed = 0
    for latency, samples in sorted(thread["histogram"].items(), key=lambda entry: int(entry[0])):
        passed += samples
        if passed >= share * thread["cycles"]:
            return int(latency) / 1000
    return thread["max"] / 1000  # longer than what is counted one by one


def latencies(thread: Mapping) -> dict[str, float]:
    found = {f"cyclictest latency, {name}, ms": percentile(thread, share) for name, share in SHARES.items()}
    return {**found, "cyclictest latency, longest, ms": thread["max"] / 1000}


def counts(measure: Mapping) -> dict[str, list[float]]:
    """Return the values of each window of what the playbook measured of the worker."""
    (row,) = (row for row in measure["workloads"] if row["processes"])
    metrics, memory = row["metrics"], row["memory"]
    remote, whole = sum(process["remote_mib"] for process in memory), sum(sum(process["mib"].values()) for process in memory)
    return {
        "worker's moves to another CPU per s": metrics["cpu_migrations"]["windows"],
        "worker preempted, times per s": metrics["involuntary_switches"]["windows"],
        "worker waits for a CPU, ms per s": metrics["waiting"]["windows"],
        "its memory on the remote node, %": [100 * remote / whole],
    }


def table(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the lines of a table: means of the windows of both sides, and the change with its interval where there are enough of them."""
    rows = [["", "unbound", "bound", "change (95 %)"]]
    for name, windows in before.items():
        sides = windows, after[name]
        change = measures_table.change(*sides, in_percent=True) if min(map(len, sides)) >= measures_table.FEWEST and any(windows) else None
        told = "" if change is None else f"{change} %" if change.is_change else "no conclusion"
        rows.append([name, *(f"{statistics.fmean(side):.1f}" if side else "not counted" for side in sides), told])
    return columns(rows)


def side(lab: Lab, machine, folder: Path, label: str) -> dict[str, list[float]]:
    """Measure the services as they are now."""
    machine.run("systemctl restart worker neighbour && sleep 5")
    rounds = []
    for number in range(1, ROUNDS + 1):
        machine.run("systemctl start latency")
        (thread,) = json.loads(machine.run(f"cat {LATENCIES}"))["thread"].values()
        rounds.append(latencies(thread))
        print(f"{label}, round {number} of {ROUNDS}: {rounds[-1]}", flush=True)
    run = lab.play(machine, "measure", npu_affinity_measures=str(folder), npu_affinity_measure_label=label, **SETTINGS)
    machine.run("systemctl stop worker neighbour")
    if run.status:
        raise RuntimeError(run.output)
    measure = json.loads((folder / machine.shape.name / f"{label}.json").read_text())
    return {name: [each[name] for each in rounds] for name in rounds[0]} | counts(measure)


def main(folder: Path) -> None:
    if lacking := image.missing():
        raise SystemExit(lacking)
    image.build()
    folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(folder)
    try:
        machine = lab.fresh(MEASURED)
        for name, text in SERVICES.items():
            machine.write(f"/etc/systemd/system/{name}.service", text)
        machine.run("systemctl daemon-reload")
        before = side(lab, machine, folder, "before")
        status, output = success(lab.play(machine, "bind", **SETTINGS))
        if status:
            raise RuntimeError(output)
        lines = table(before, side(lab, machine, folder, "after"))
    finally:
        lab.close()
        controller.close()
    lines += [LIMITS] if not kvm_works() else []
    (folder / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

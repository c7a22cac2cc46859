# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of a fleet differed from its plan, run by run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Record = Mapping[str, Any]


def timeline(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return ``[{label, hosts, compared, drifted, objects, causes}]`` of runs, the oldest first.

    A run is ``{name, records}``. Its label is the time of its newest record, or its name where records have no time. ``hosts`` is the
    number of all hosts, ``compared`` of those that could be compared with a plan, ``drifted`` of those that differed. ``objects`` is the
    number of objects that did, ``causes`` has it by cause.
    """
    found = [_run(run) for run in runs]
    return [run for _order, run in sorted(found, key=lambda entry: entry[0])]


def _run(run: Mapping[str, Any]) -> tuple[tuple[str, str], dict[str, Any]]:
    if not isinstance(run, Mapping) or "records" not in run:
        raise ValueError(f"runs: a run has its name in 'name' and the records of its hosts in 'records'; got {str(run)[:80]!r}")
    records: list[Record] = list(run["records"])
    name = str(run.get("name") or "")
    time = max((str(record.get("time") or "") for record in records), default="")
    compared = [record for record in records if record.get("bound") and "drift" in record]
    causes = Counter(str(entry["cause"]) for record in compared for entry in record["drift"])
    return (time or name, name), {
        "label": time.replace("T", " ").replace("Z", " UTC") or name,
        "hosts": len(records),
        "compared": len(compared),
        "drifted": sum(bool(record["drift"]) for record in compared),
        "objects": causes.total(),
        "causes": dict(causes),
    }

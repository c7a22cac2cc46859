# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page: data as JSON, a style sheet and a script that draws on demand, in one file that loads nothing.

A content security policy allows that style and that script by their hashes and nothing else; the script writes texts as texts only.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import Start
from ansible_collections.npu.affinity.plugins.plugin_utils._report.records import fleet
from ansible_collections.npu.affinity.plugins.plugin_utils._report.scene import LOOKS, PALETTE

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import Record

    PastRun = TypedDict("PastRun", {"name": str, "records": list[Record]})

_IN_SCRIPT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""A JSON text with these replaced can end no script element, whatever the browser makes of it; the rest is ASCII."""


def report_html(
    records: Iterable[Record],
    title: str = "NPU affinity",
    generated: str = "",
    runs: Iterable[PastRun] = (),
    start: Start | None = None,
    **others: Any,
) -> str:
    """Return the page of a fleet. :func:`_report.records.fleet` has the shapes, what is refused, and the options ``others``.

    ``generated`` says when the hosts were looked at, in words that are shown as they are. ``runs`` are further runs for the table of drift
    over time (:func:`timeline`). ``start`` is how the run was started: commands of the page repeat it.
    """
    of_page = {"title": title, "generated": generated, "runs": timeline(runs), "solid": len(PALETTE)}
    drawn = fleet(records, **others)
    for host in drawn["hosts"]:
        if host["drift"]:
            host["bind"] = (start or Start()).line("bind", limit=host["name"])
    text = json.dumps({**of_page, **drawn}, ensure_ascii=True, separators=(",", ":")).translate(_IN_SCRIPT)
    parts = {"TITLE": escape(shown_lines(title)), "POLICY": escape(_policy()), "STYLE": _style(), "SCRIPT": _asset("page.js"), "DATA": text}
    before, *rest = _asset("page.html").split("@@")
    return before + "".join(parts.get(part, part) for part in rest)


def timeline(runs: Iterable[PastRun]) -> list[dict[str, object]]:
    """Return how much of a fleet differed, run by run: ``[{label, hosts, compared, drifted, objects, causes}]``, the oldest first.

    The label is the time of its newest record, or its name where records have no time. ``hosts`` is the number of all hosts, ``compared``
    of those that could be compared with a plan, ``drifted`` of those that differed. ``objects`` is the number of objects that did,
    ``causes`` has it by cause.
    """
    return [run for _order, run in sorted(map(_run, runs), key=lambda entry: entry[0])]


def _run(run: PastRun) -> tuple[tuple[str, str], dict[str, object]]:
    if not isinstance(run, Mapping) or "records" not in run:
        raise ValueError(f"runs: a run has its name in 'name' and the records of its hosts in 'records'; got {str(run)[:80]!r}")
    records = list(run["records"])
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


def _policy() -> str:
    return (
        f"default-src 'none'; style-src '{_digest(_style())}'; script-src '{_digest(_asset('page.js'))}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _style() -> str:
    rules = []
    for number in range(LOOKS):
        main, role, on, *dark = PALETTE[number % len(PALETTE)]
        role, on = f"light-dark({role},{dark[1]})", f"light-dark({on},{dark[2]})"
        solid = f"--main:light-dark({main},{dark[0]});--chip:{role};--label:{on}"
        colours = solid if number < len(PALETTE) else f"--main:var(--page);--edge:{role}"
        rules.append(f".c{number}{{--role:{role};--on:{on};{colours}}}")
    return _asset("page.css") + "".join(rules)


@functools.cache
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")

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
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import Typed
from ansible_collections.npu.affinity.plugins.plugin_utils._report.records import fleet
from ansible_collections.npu.affinity.plugins.plugin_utils._report.scene import LOOKS, PALETTE
from ansible_collections.npu.affinity.plugins.plugin_utils._report.timeline import timeline

_IN_SCRIPT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""A JSON text with these replaced can end no script element, whatever the browser makes of it; the rest is ASCII."""


def report_html(
    records: Iterable[Mapping[str, Any]],
    title: str = "NPU affinity",
    generated: str = "",
    runs: Iterable[Mapping[str, Any]] = (),
    typed: Typed | None = None,
    **others: Iterable[Any],
) -> str:
    """Return the page of a fleet. :func:`_report.records.fleet` has the shapes, what is refused, and the options ``others``.

    ``generated`` says when the hosts were looked at, in words that are shown as they are. ``runs`` are further runs for the table of drift
    over time (:func:`_report.timeline.timeline`). ``typed`` is how the run was started: commands of the page repeat it.
    """
    of_page = {"title": title, "generated": generated, "runs": timeline(runs), "solid": len(PALETTE)}
    data = {**of_page, **fleet(records, **others)}
    for host in data["hosts"]:
        if host["drift"]:
            host["bind"] = (typed or Typed()).line("bind", limit=host["name"])
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":")).translate(_IN_SCRIPT)
    parts = {"TITLE": escape(shown_lines(title)), "POLICY": escape(_policy()), "STYLE": _style(), "SCRIPT": _asset("page.js"), "DATA": text}
    before, *rest = _asset("page.html").split("@@")
    return before + "".join(parts.get(part, part) for part in rest)


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
        own = solid if number < len(PALETTE) else f"--main:var(--page);--edge:{role}"
        rules.append(f".c{number}{{--role:{role};--on:{on};{own}}}")
    return _asset("page.css") + "".join(rules)


@functools.cache
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")

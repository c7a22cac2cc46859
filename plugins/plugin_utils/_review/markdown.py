# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a fleet as Markdown, for people: each distinct plan once with its hosts, what NPUs have now and get, and what to look at."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import noun
from ansible_collections.npu.affinity.plugins.module_utils._base.table import ROLES, count, roles_shown
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import title
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import folded

Host = Mapping[str, Any]
HEADINGS = ("PCI", "now", "new")
_MARKDOWN = re.compile(r"[\\`*~]|!(?=\[)|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[+-](?=\s)|^#(?=#*\s)|(?<=^\d)[.)](?=\s)")
"""What means something in Markdown. Brackets do so only where a link can follow: names of hosts, such as node[1:4], have them, too."""
FIRST, MOVED, AS_IT_IS, NOTHING, REFUSED, SILENT = GROUPS = (
    "bound for the first time",
    "with other CPUs than now",
    "with the CPUs of now",
    "with nothing to bind",
    "refused",
    "without an answer",
)
"""What becomes of hosts, in the order of the page."""


def markdown(hosts: Mapping[str, Host]) -> str:
    """Return the page of hosts: their entries with what is shown next to them, as :mod:`_review.file` collects them."""
    groups: dict[str, dict[str, Host]] = {group: {} for group in GROUPS}
    for name, host in hosts.items():
        groups[_group(host)][name] = host
    return "\n".join(_lines(len(hosts), {group: members for group, members in groups.items() if members})) + "\n"


def _group(host: Host) -> str:
    if "refused" in host:
        return REFUSED
    if "unreachable" in host:
        return SILENT
    if not host["plan"]["npus"]:
        return NOTHING
    if not host["difference"]["in_force"]:
        return FIRST
    return MOVED if any(row["sentence"] for row in host["difference"]["npus"]) else AS_IT_IS


def _lines(number: int, groups: Mapping[str, Mapping[str, Host]]) -> Iterator[str]:
    yield f"# Plans of {count(number, 'host')}"
    yield ""
    yield f"Written by npu.affinity {VERSION}. What is in force is compared with what a bind would apply."
    yield ""
    yield from (f"* {count(len(hosts), 'host')} {group}" for group, hosts in groups.items())
    for group, hosts in groups.items():
        yield from ("", f"## {count(len(hosts), 'host').capitalize()} {group}")
        if group in (FIRST, MOVED, AS_IT_IS):
            yield from _plans(hosts)
        elif group in (NOTHING, SILENT):
            yield from ("", _names(list(hosts)))
        else:
            yield ""
            yield from _sentences({name: host["refused"] for name, host in hosts.items()}, everybody=False)


def _plans(hosts: Mapping[str, Host]) -> Iterator[str]:
    alike: dict[tuple[str, ...], dict[str, Host]] = {}
    for name, host in hosts.items():
        alike.setdefault(tuple(_plan(host)), {})[name] = host
    for lines, members in alike.items():
        yield from ("", f"### {_names(list(members))}", "", *lines)
        if sentences := list(_sentences({name: _notes(host) for name, host in members.items()}, everybody=True)):
            yield from ("", *sentences)


def _plan(host: Host) -> Iterator[str]:
    plan, features = host["plan"], host["state"]["features"]
    housekeeping = f", housekeeping {plan['housekeeping']}" if plan.get("housekeeping") else ""
    on = ", ".join(feature for feature, presence in features.items() if presence == "present")
    strategy = f"Strategy {plan['strategy']}: {host['reason']}"
    yield f"{_text(strategy)} CPUs {plan['cpus']} divided{housekeeping}. Features: {on or 'none'}."
    yield ""
    entries = {entry["slice"]: entry for entry in plan["npus"]}
    shown = [role for role in roles_shown(plan, host["difference"]) if role != "pool"]  # which the columns now and new are
    rows = []
    for row in host["difference"]["npus"]:
        entry = entries.get(row["slice"] if row["then"] is not None else "", {})
        name = title(entry) if entry else row["npu"]
        rows.append([name, row["pci"], row["now"], row["then"], *(entry.get(role) for role in shown)])
    yield from _table([(of := noun(plan["npus"])), *HEADINGS, *(ROLES[role] for role in shown)], rows)
    if users := host["difference"]["users"]:
        yield ""
        cells = [[row[key] for key in ("user", "npus", "now", "cpus", "mems", "slice")] for row in users]
        yield from _table(("used by", of, "now", "CPUs", "memory", "slice"), cells)


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    for cells in (headings, ["---"] * len(headings), *rows):
        yield f"| {' | '.join(_text(cell or '-').replace('|', chr(92) + '|') for cell in cells)} |"


def _notes(host: Host) -> list[str]:
    """Return what there is to look at. What the table shows of moves is not said again."""
    difference = host["difference"]
    shown = {row["sentence"] for row in difference["npus"]}
    restart = [f"A bind restarts no service; these follow when you restart them: {', '.join(difference['restart'])}"]
    return [host["summary"], *(restart if difference["restart"] else []), *(text for text in host["remarks"] if text not in shown)]


def _sentences(by_host: Mapping[str, Iterable[str]], everybody: bool) -> Iterator[str]:
    """Yield each sentence once, with the hosts of which it was said; without them where that is everybody, if so wanted."""
    by_sentence: dict[str, list[str]] = {}
    for name, sentences in by_host.items():
        for sentence in dict.fromkeys(sentences):
            by_sentence.setdefault(sentence, []).append(name)
    for sentence, names in by_sentence.items():
        yield f"* {_text(sentence)}" if everybody and len(names) == len(by_host) else f"* {_names(names)}: {_text(sentence)}"


def _names(names: list[str]) -> str:
    return _text(folded(names, len(names)))


def _text(value: Any) -> str:
    """Return a text on one line that Markdown shows as it is: no links and images, emphasis, headings or tags of HTML."""
    return _MARKDOWN.sub(r"\\\g<0>", html.escape(shown(" ".join(str(value).split())), quote=False))

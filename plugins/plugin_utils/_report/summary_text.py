# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A summary as lines to read: each plan, sentence and unit once, with its hosts."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base import table
from ansible_collections.npu.affinity.plugins.module_utils._base.table import count
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import gib
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import ERROR, RANKS, TO_DO, is_counted, rank

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Cost, Summary, SummaryOfHost, SummaryOfPlan

SHOWN = 12
"""Names, plans and sentences of a kind that are shown; the others are counted."""
WIDTH = 120
KINDS = {"unit": "", "container": "", "process": "processes"}
"""What running work is counted as, with the plural where that has no s."""
_OWN = re.compile(
    r"(?<=connect to host )\S+|(?<=resolve hostname )[^:]+|(?<=@)\S+(?=: Permission denied)|(?<=closed by )\S+(?= port)"
    r"|\S+(?= cannot be reached over SSH)"
    r"|(?<=\(pid )\d+(?:, \d+)*(?: and \d+ more)?"
)
"""What each host has of its own in a sentence: its address in a message of ssh, and numbers of processes."""
NUMBER = re.compile(r"^(.*?)(\d*)(\D*)\Z")
"""What stands in a name before its last number, the number, and what follows."""


def lines(summary: Summary, verbose: bool = False) -> Iterator[str]:
    """Yield the text of a summary; ``verbose``: with the notes that are otherwise only counted."""
    hosts = summary["hosts"]
    mode = ", check mode: nothing was changed" if summary["check"] else ""
    yield f"SUMMARY of {summary['playbook']}, {count(len(hosts), 'host')}{mode}"
    for state, names in summary["states"].items():
        yield f"{len(names)} {state}: {folded(names)}"
    methods = Counter(entry["method"] for entry in hosts.values() if entry.get("method"))
    if methods:
        first, *others = methods.most_common()
        yield ", ".join([f"binding method: {count(first[1], 'host')} {first[0]}", *(f"{number} {method}" for method, number in others)])
    yield from _adopted(summary)
    runs: dict[str, list[str]] = {}
    for name, entry in hosts.items():
        if entry.get("run"):
            runs.setdefault(entry["run"], []).append(name)
    yield from (f"{'would be at' if summary['check'] else 'at'} the state of run {run}: {folded(names)}" for run, names in runs.items())
    if summary["stopped"]:
        yield f"Stopped: {summary['stopped']}"
    for plan in capped(summary["plans"], "plan"):
        yield from [plan] if isinstance(plan, str) else _plan(plan)
    yield from _grouped("cost on", {name: [_cost(cost)] for name, entry in hosts.items() if (cost := entry.get("cost"))})
    ranked = {name: _ranked(entry) for name, entry in hosts.items()}
    notes = set() if verbose else set(filter(is_counted, (remark for entry in hosts.values() for remark in entry["remarks"])))
    for shown in RANKS:
        yield from _grouped(f"{shown} on", {name: [text for text in texts[shown] if text not in notes] for name, texts in ranked.items()})
    if notes:
        yield f"{count(len(notes), 'note')}; -v shows {'it' if len(notes) == 1 else 'them'}"
    for step in summary["next"]:
        yield f"next: {step['command']}  # {step['purpose']}"


def _ranked(entry: SummaryOfHost) -> dict[str, list[str]]:
    """Return what was said of a host, by rank."""
    by_rank: dict[str, list[str]] = {rank: [] for rank in RANKS}
    by_rank[ERROR if entry["fails"] else TO_DO] += [f"{entry['state']}: {why}" for why in entry["reasons"]]
    by_rank[TO_DO] += [f"restart {', '.join(entry['restart'])}"] if entry["restart"] else []
    for remark in entry["remarks"]:
        by_rank[rank(remark)].append(remark)
    return by_rank


def _cost(cost: Cost) -> str:
    remote = "remote CPUs not known" if cost["remote"] is None else count(cost["remote"], "remote CPU")
    moved = "memory to move not known" if cost["memory_mib"] is None else f"{gib(cost['memory_mib'] << 20)} of memory to move"
    return f"smallest pool {count(cost['smallest'], 'CPU')}, {remote}, {moved}, {count(len(cost['restart']), 'unit')} to restart"


def _adopted(summary: Summary) -> Iterator[str]:
    adopted = {name: entry["adopted"] for name, entry in summary["hosts"].items() if entry.get("adopted")}
    total: Counter[str] = sum(map(Counter, adopted.values()), Counter())
    kinds = [count(total[kind], kind, several) for kind, several in KINDS.items() if total[kind]]
    if kinds:
        listed = " and ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))
        yield f"{listed} {'would be adopted' if summary['check'] else 'adopted'} on {folded(list(adopted))}"


def _plan(plan: SummaryOfPlan) -> Iterator[str]:
    housekeeping = f", housekeeping {plan['housekeeping']}" if plan["housekeeping"] else ""
    kinds = itertools.groupby(plan["pools"].items(), lambda pool: pool[0].split()[0])
    pools = "; ".join(f"{kind} {', '.join(f'{name.split()[1]}={cpus}' for name, cpus in devices)}" for kind, devices in kinds)
    text = f"plan of {folded(plan['hosts'])} ({plan['strategy']}{housekeeping}): {pools}"
    yield from textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _grouped(title: str, sentences: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of :func:`by_host` behind a title."""
    yield from capped([f"{title} {line}" for line in by_host(sentences)], "sentence")


def alike(texts: Mapping[str, Sequence[str]], verbose: bool = True) -> list[str]:
    """Return the lines of hosts, once for all that have the same, below their names; ``verbose``: all, however many differ."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for name, text in texts.items():
        hosts.setdefault(tuple(text), []).append(name)
    blocks = [[f"{folded(names)}:", *text] for text, names in hosts.items() if text]
    if not verbose and len(blocks) > SHOWN + 1:
        blocks = [*blocks[:SHOWN], [f"and {len(blocks) - SHOWN} other results; to see them, run again with -v or --limit"]]
    return [line for block in blocks for line in block]


def by_host(sentences: Mapping[str, Sequence[str]]) -> list[str]:
    """Return each sentence once, after the names of its hosts."""
    return [f"{folded(names)}: {sentence}" for sentence, names in _merged(sentences)]


def _merged(sentences: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield each sentence once with its hosts; those that differ only by :data:`_OWN` are one, unless one host has several of them."""
    hosts: dict[tuple[str, int], dict[str, str]] = {}
    for name, texts in sentences.items():
        times: Counter[str] = Counter()
        for sentence in texts:
            shown = _OWN.sub("…", sentence)
            times[shown] += 1
            hosts.setdefault((shown, times[shown]), {})[name] = sentence
    yield from (([*of.values()][0] if len(set(of.values())) == 1 else shown, list(of)) for (shown, _time), of in hosts.items())


def listed(texts: Sequence[str], most: int) -> list[str]:
    """Return so many texts, and how many there are besides."""
    return [*texts[:most], *([f"and {len(texts) - most} more"] if len(texts) > most else [])]


def capped(items: Sequence[Any], noun: str) -> list[Any]:
    """Return the first of many things, and how many there are besides, which is never a single one."""
    if len(items) <= SHOWN + 1:
        return list(items)
    return [*items[:SHOWN], f"and {count(len(items) - SHOWN, noun)} more; to see them, run again with --limit"]


def folded(names: Sequence[str], most: int = SHOWN) -> str:
    """Return names of hosts, with runs of three and more as an inventory has them: ``node[01:40]``; ``most`` names and runs are shown."""
    parts: list[str] = []
    shown = 0
    for run in _runs(names):
        if len(parts) == most and len(names) - shown > 1:
            return f"{', '.join(parts)} and {len(names) - shown} more"
        ((head, first, tail),), ((_head, last, _tail),) = NUMBER.findall(run[0]), NUMBER.findall(run[-1])
        parts.append(run[0] if len(run) == 1 else f"{head}[{first}:{last}]{tail}")
        shown += len(run)
    return ", ".join(parts)


def _runs(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield names alone, or three and more in a row that differ by their last number, which counts up."""
    for _key, grouped in itertools.groupby(enumerate(names), lambda entry: _place(*entry)):
        run = [name for _index, name in grouped]
        yield from [run] if len(run) > 2 else [[name] for name in run]


def _place(index: int, name: str) -> tuple[Any, ...]:
    """Return what names of a run have in common."""
    ((head, number, tail),) = NUMBER.findall(name)
    return (head, tail, len(number), int(number) - index) if number else (name, index)


def plans(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return the lines for hosts by their variables; those without a plan are left out. The summary of the run has what is a remark."""
    states = {name: variables[name].get("npu_affinity_state") or {} for name in names}
    return plan_tables(
        {
            name: {
                **{key: state[key] for key in ("summary", "difference", "outside", "profile")},
                "plan": {**state["plan"], "warnings": []},
                "topology": {**variables[name]["npu_affinity_topology"], "problems": []},
            }
            for name, state in states.items()
            if state.get("plan")
        }
    )


def plan_tables(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines for ``{host: {plan, topology, summary, difference, outside, profile}}``: options of :func:`sentences`, and
    the sentence on the profile, if there is any."""
    tables: dict[tuple[str, ...], dict[str, Iterable[str]]] = {}
    for name, host in hosts.items():
        profile = [("profile", host["profile"])] if host.get("profile") else []
        of_plan = {key: value for key, value in host.items() if key != "profile"}
        rows = tuple(table.rows(host["plan"], host["topology"], host["difference"]))
        tables.setdefault(rows, {})[name] = dict.fromkeys(map("\t".join, [*profile, *table.sentences(**of_plan)]))
    lines = []
    for rows, sentences in tables.items():
        lines += textwrap.wrap(f"{folded(list(sentences), len(sentences))}:", WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += rows
        for sentence, names in _merged(sentences):
            title, _tab, text = sentence.partition("\t")
            lines += table.wrapped(title, text if len(names) == len(sentences) else f"{text} ({folded(names, len(names))})")
        lines.append("")
    return lines[:-1]


def refused_settings(refused: Mapping[str, Sequence[str]], hosts: Collection[str], groups: Mapping[str, Collection[str]]) -> list[str]:
    """Return each sentence once on the settings of hosts (``refused``), after whose they are: ``hosts`` are all of the run, and ``groups``
    those of the inventory."""
    by_sentence: dict[str, list[str]] = {}
    for host, sentences in refused.items():
        for sentence in sentences:
            by_sentence.setdefault(sentence, []).append(host)
    return [f"{_named(names, hosts, groups)}: {sentence} [NPU_SETTING_INVALID]" for sentence, names in by_sentence.items()]


def _named(names: Sequence[str], hosts: Collection[str], groups: Mapping[str, Collection[str]]) -> str:
    """Return some hosts of a run in few words: all of them, a group of the inventory, or their names."""
    if len(names) == len(hosts) > 1:
        return f"All {len(hosts)} hosts"
    of_run = set(hosts)
    for group, members in sorted(groups.items()):
        if len(names) > 1 and group not in ("all", "ungrouped") and of_run.intersection(members) == set(names):
            return f"Group {group} ({len(names)} hosts)"
    return f"{'Host' if len(names) == 1 else 'Hosts'} {folded(names)}"

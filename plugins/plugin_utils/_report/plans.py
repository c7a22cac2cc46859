# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a fleet as text: each distinct table and each sentence once, with the hosts for which it holds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base import table
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import WIDTH, folded


SHOWN = ("summary", "difference", "outside", "profile")


def of_hosts(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return the lines for hosts by their variables; those without a plan are left out. The summary of the run has what is a remark."""
    states = {name: variables[name].get("npu_affinity_state") or {} for name in names}
    return plan_tables(
        {
            name: {
                **{key: state[key] for key in SHOWN},
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
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, host in hosts.items():
        alike.setdefault(tuple(table.rows(host["plan"], host["topology"], host["difference"])), []).append(name)
    return [line for rows, names in alike.items() for line in _group(rows, {name: hosts[name] for name in names})][:-1]


def _group(rows: Sequence[str], hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of hosts with one table; an empty one is the last."""
    yield from textwrap.wrap(f"{folded(list(hosts), len(hosts))}:", WIDTH, break_long_words=False, break_on_hyphens=False)
    yield from rows
    said: dict[tuple[str, str], list[str]] = {}
    for name, host in hosts.items():
        profile = [("profile", host["profile"])] if host.get("profile") else []
        of_plan = {key: value for key, value in host.items() if key != "profile"}
        for sentence in dict.fromkeys([*profile, *table.sentences(**of_plan)]):
            said.setdefault(sentence, []).append(name)
    for (title, text), names in said.items():
        yield from table.wrapped(title, text if len(names) == len(hosts) else f"{text} ({folded(names, len(names))})")
    yield ""

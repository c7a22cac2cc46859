# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a fleet that are refused: each sentence once, with the hosts that it is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import folded

BUILT_IN = ("all", "ungrouped")


def fleet(refused: Mapping[str, Sequence[str]], hosts: Collection[str], groups: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return what a playbook does about the settings of its hosts.

    ``refused`` are the sentences of each host that has some, ``hosts`` are all of the run, and ``groups`` those of the inventory.
    ``lines`` has each sentence once; ``everywhere``: whether no host is left to go on with.
    """
    named: dict[str, list[str]] = {}
    for host, sentences in refused.items():
        for sentence in sentences:
            named.setdefault(sentence, []).append(host)
    return {
        "refused": {host: list(sentences) for host, sentences in refused.items()},
        "everywhere": len(refused) == len(hosts),
        "lines": [f"{_named(names, hosts, groups)}: {sentence} [NPU_SETTING_INVALID]" for sentence, names in named.items()],
    }


def _named(names: Sequence[str], hosts: Collection[str], groups: Mapping[str, Collection[str]]) -> str:
    """Return some hosts of a run in few words: all of them, a group of the inventory, or their names."""
    if len(names) == len(hosts) > 1:
        return f"All {len(hosts)} hosts"
    of_run = set(hosts)
    for group, members in sorted(groups.items()):
        if len(names) > 1 and group not in BUILT_IN and of_run.intersection(members) == set(names):
            return f"Group {group} ({len(names)} hosts)"
    return f"{'Host' if len(names) == 1 else 'Hosts'} {folded(names)}"

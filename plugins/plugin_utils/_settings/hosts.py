# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of an inventory a playbook takes, and in which batches."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.table import count
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs

GROUP = "npu_hosts"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
NARROWING = {"npu_affinity_features", "npu_affinity_skip_busy"}
"""Variables of one playbook without which it does more."""
WITHOUT_MEANING = {"all", "untagged"}
"""Tags with which every task runs that has none."""


def misspelt(groups: Collection[str]) -> str:
    """Return why the hosts of an inventory are not all meant: a group that has nearly the name of the group of NPU hosts; else ''."""
    near = difflib.get_close_matches(GROUP, set(groups) - {"all", "ungrouped"}, 1, 0.75)
    if GROUP in groups or not near:
        return ""
    return (
        f"the inventory has no group {GROUP}, and its group {near[0]} has nearly that name: rename it to {GROUP}, or name the hosts with "
        f"-e npu_affinity_hosts={near[0]}, or all of them with -e npu_affinity_hosts=all."
    )


def pattern(given: str, groups: Collection[str]) -> str:
    """Return the pattern of hosts: that of the user, else the group of NPU hosts, else all."""
    return given or (GROUP if GROUP in groups else "all")


def one_host(name: object, groups: Mapping[str, Collection[str]], matched: Collection[str]) -> str:
    """Return the name of a host that is one of those ``matched``. Raises ``ValueError`` for all else, groups and patterns included."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        why = "it is not a name"
    elif name in groups:
        why = f"it is a group of {len(groups[name])} hosts"
    elif name not in groups["all"]:
        why = "the inventory has no host of that name"
    elif name not in matched:
        why = "it is not among the hosts of npu_affinity_hosts, or of the group npu_hosts"
    else:
        return name
    raise ValueError(f"npu_affinity_host {name!r} is refused, because {why}: give the name of one host of the inventory.")


def refusal(wanted: str, in_inventory: int, matched: Collection[str], limited: Collection[str] | None, sources: Iterable[str]) -> str:
    """Return why none of the hosts that ``matched`` the pattern, and are ``limited`` if --limit is given, can be worked on, or ''."""
    if not in_inventory:
        return f"the inventory {', '.join(sources) or '(none is given)'} has no hosts: name a file or folder that has some, with -i."
    if not matched:
        return (
            f"{wanted} matches no host of the inventory, which has {count(in_inventory, 'host')}: correct npu_affinity_hosts, or the group "
            "in the inventory."
        )
    if limited is not None and not set(matched) & set(limited):
        return f"--limit names {count(len(set(limited)), 'host')} and none of them is in {wanted}: correct --limit or npu_affinity_hosts."
    return ""


def unread_refusal(extra: Iterable[str], playbook: str) -> str:
    """Return why a playbook cannot take variables of ``-e`` that limit what another one does, or an empty string."""
    for name in sorted(NARROWING.intersection(extra)):
        readers = specs.readers(name) or [playbook]
        if playbook not in readers:
            return (
                f"-e {name}: only playbook {' and '.join(readers)} reads it, and {playbook} would do more than you ask for. Leave it out, "
                "or run that playbook."
            )
    return ""


def tags_refusal(tags: Iterable[str], skipped: Iterable[str]) -> str:
    """Return why these tags of the command line cannot be followed, or an empty string."""
    selected = sorted(set(tags) - WITHOUT_MEANING)
    skips = sorted(set(skipped) & specs.options().keys())
    option = f"--tags {','.join(selected)}" if selected else f"--skip-tags {','.join(skips)}"
    if not selected and not skips:
        return ""
    return (
        f"{option}: the playbooks of npu.affinity have no tags, because a host is bound as a whole. Switch a role off or on with its "
        "variable, such as npu_affinity_irq_enabled: false, and unbind one alone with npu_affinity_features of the playbook unbind."
    )


SETTING = "npu_affinity_batches"
COMPARED = [100]
"""How many hosts are compared at a time. Progress is reported after each batch."""
_BATCH = re.compile(r"[1-9][0-9]*|(?:[1-9][0-9]?|100)%")


def checked(value: Any, setting: str) -> list[Any]:
    """Return the batches as ``serial`` of a play has them. Raises ``ValueError`` for what would run on no host, or on others than meant."""
    batches = list(value) if isinstance(value, list | tuple) else [value]
    for batch in batches:
        if isinstance(batch, bool) or not _BATCH.fullmatch(str(batch).strip()):
            raise ValueError(
                f"{setting}: expected numbers of hosts from 1 on, or percentages from 1% to 100%, such as [1, 5%, 100%]; got {batch!r}"
            )
    if not batches:
        raise ValueError(f"{setting}: the list is empty; give at least one batch, such as [100%]")
    return [str(batch).strip() if "%" in str(batch) else int(batch) for batch in batches]

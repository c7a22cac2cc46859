# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the user: which hosts are taken, and sentences for what would be ignored in silence."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._settings import hosts

FEATURES = {"plan", "slices", "irq"}


@pytest.mark.parametrize(
    "given, groups, expected",
    [("", ["all", "npu_hosts"], "npu_hosts"), ("", ["all", "rack1"], "all"), ("rack1", ["all", "npu_hosts", "rack1"], "rack1")],
)
def test_the_pattern_of_hosts(given, groups, expected):
    assert hosts.pattern(given, groups) == expected


@pytest.mark.parametrize(
    "wanted, in_inventory, matched, limited, sentence",
    [
        ("all", 2, ["a", "b"], None, ""),
        ("npu_hosts", 3, ["a", "b"], ["b", "c"], ""),
        ("all", 0, [], None, "the inventory /site/hosts.yml has no hosts"),
        ("rakc1", 2, [], None, "no host of the inventory matches rakc1, of 2"),
        ("npu_hosts", 0, [], ["a"], "the inventory /site/hosts.yml has no hosts"),
        ("npu_hosts", 3, [], None, "no host of the inventory matches npu_hosts, of 3"),
        ("npu_hosts", 3, ["a", "b"], ["c"], "--limit names 1 of the inventory's hosts, and none of them is in npu_hosts"),
    ],
)
def test_why_there_is_no_host(wanted, in_inventory, matched, limited, sentence):
    found = hosts.refusal(wanted, in_inventory, matched, limited, ["/site/hosts.yml"])
    assert found.startswith(sentence) and bool(found) is bool(sentence)


@pytest.mark.parametrize(
    "tags, skipped, option",
    [
        (["all"], [], ""),
        (["untagged"], [], ""),
        (["all"], ["drain"], ""),  # perhaps of the user's own tasks before a host
        (["irq"], [], "--tags irq: "),
        (["irq", "slices"], ["plan"], "--tags irq,slices: "),
        (["all", "never"], [], "--tags never: "),
        (["all"], ["irq", "drain"], "--skip-tags irq: "),
    ],
)
def test_tags_that_the_playbooks_do_not_have(tags, skipped, option):
    found = hosts.tags_refusal(tags, skipped, FEATURES)
    assert found.startswith(option) and bool(found) is bool(option)

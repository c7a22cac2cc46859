# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In what a machine differs from the one that a desired state was made for, in words."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import changes, hardware

TOPOLOGY = {
    "cpus": {"online": "0-7"},
    "numa": [{"id": 0, "cpus": "0-3"}, {"id": 1, "cpus": "4-7"}],
    "npus": [{"pci": "0000:01:00.0"}, {"pci": "0000:02:00.0"}, {"pci": "0000:02:00.0"}],
}
NODES = [
    "NUMA node 0 had CPUs 0-3 and has CPUs 0-5",
    "NUMA node 1 had CPUs 4-7 and is missing",
    "NUMA node 2 was not there and has CPUs none",
]
CASES = [
    ({}, []),
    ({"npus": [{"pci": "0000:02:00.0"}]}, ["the accelerator at 0000:01:00.0 is missing"]),
    ({"npus": [*TOPOLOGY["npus"], {"pci": "0000:03:00.0"}]}, ["the accelerator at 0000:03:00.0 is new"]),
    ({"npus": []}, ["the accelerator at 0000:01:00.0 is missing", "the accelerator at 0000:02:00.0 is missing"]),
    ({"cpus": {"online": "0-6"}}, ["the CPUs online were 0-7 and are 0-6"]),
    ({"numa": [{"id": 0, "cpus": "0-5"}, {"id": 2, "cpus": ""}]}, NODES),
]


@pytest.mark.parametrize("change, sentences", CASES)
def test_what_has_changed_in_words(change, sentences):
    assert changes(hardware(TOPOLOGY), hardware({**TOPOLOGY, **change})) == sentences
    assert changes(hardware({}), hardware({**TOPOLOGY, **change})) == [], "a state that was made without a machine fits each"

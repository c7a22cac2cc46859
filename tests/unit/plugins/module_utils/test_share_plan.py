# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import plan_changes, select
from ansible_collections.npu.affinity.plugins.module_utils._smi.driver import is_older

ON, OFF = {0: True}, {0: False}
BOTH_ON, BOTH_OFF, ONE_ON = {0: True, 1: True}, {0: False, 1: False}, {0: True, 1: False}


# current, wanted, cards switched by chip, the calls
CHANGES = [
    ("nothing differs", {0: ON, 1: OFF}, {0: ON, 1: OFF}, (), []),
    ("only what differs, ascending", {0: OFF, 1: ON, 5: OFF}, {5: ON, 1: ON, 0: ON}, (), ["-i 0 -d 1", "-i 5 -d 1"]),
    ("off as well as on", {0: ON, 1: OFF}, {0: OFF, 1: ON}, (), ["-i 0 -d 0", "-i 1 -d 1"]),
    ("a state that is not known is set", {0: {0: None}}, {0: OFF}, (), ["-i 0 -d 0"]),
    ("cards that are not wanted stay", {0: ON, 1: OFF}, {1: ON}, (), ["-i 1 -d 1"]),
    ("A3: both dies with one call", {3: BOTH_OFF}, {3: BOTH_ON}, (), ["-i 3 -d 1"]),
    ("A3: dies that drifted apart", {3: ONE_ON}, {3: BOTH_ON}, (), ["-i 3 -d 1"]),
    ("Duo: the whole card in one call", {2: BOTH_OFF}, {2: BOTH_ON}, (2,), ["-i 2 -d 1"]),
    ("Duo: one chip", {2: BOTH_OFF}, {2: {1: True}}, (2,), ["-i 2 -c 1 -d 1"]),
    ("Duo: one chip is right already", {2: ONE_ON}, {2: BOTH_ON}, (2,), ["-i 2 -c 1 -d 1"]),
    ("Duo: one on, one off", {2: ONE_ON}, {2: {0: False, 1: True}}, (2,), ["-i 2 -c 0 -d 0", "-i 2 -c 1 -d 1"]),
]


@pytest.mark.parametrize("current, wanted, by_chip, calls", [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_the_calls_are_the_least_that_lead_to_the_wanted_state(current, wanted, by_chip, calls):
    planned = [" ".join(change.words) for change in plan_changes(current, wanted, by_chip)]
    assert planned == ["set -t device-share " + call for call in calls]


@pytest.mark.parametrize("wanted", [{0: True}, {0: True, 1: False}])
def test_one_die_of_a_card_whose_dies_change_together_is_refused(wanted):
    with pytest.raises(ValueError, match=r"^card 3: its chips 0-1 change together; name the card without a chip, and one state for it$"):
        plan_changes({3: BOTH_OFF}, {3: wanted})


DUO = {2: [0, 1], 5: [0, 1]}
CHOICES = [
    ([], DUO),
    ([5], {5: [0, 1]}),
    (["5"], {5: [0, 1]}),
    ([{"card": 5}], {5: [0, 1]}),
    ([{"card": 5, "chip": 1}], {5: [1]}),
    ([{"card": "5", "chip": "0"}, {"card": 5, "chip": 1}, 2], {5: [0, 1], 2: [0, 1]}),
]


@pytest.mark.parametrize("chosen, selected", CHOICES)
def test_cards_and_chips_are_chosen_by_the_ids_of_npu_smi(chosen, selected):
    assert select(DUO, chosen) == selected


NO_CHOICES = [
    (3, "npus: there is no card 3; npu-smi knows cards 2,5"),
    ({"card": 2, "chip": 2}, "npus: card 2 has no chip 2; it has chips 0-1"),
    ("all", "npus: 'all' is neither a card"),
    ({"npu": 2}, "npus: '{'npu': 2}' is neither a card"),
    ({"card": 2, "die": 1}, "is neither a card"),
    (None, "npus: 'None' is neither a card"),
]


@pytest.mark.parametrize("choice, text", NO_CHOICES)
def test_a_choice_not_on_the_host_is_refused_with_what_it_has(choice, text):
    with pytest.raises(ValueError) as error:
        select(DUO, [choice])
    assert text in str(error.value)


OLDER = ["23.0.rc2.3", "24.1.rc1.b030", "24.1.RC2", "24.1.0.3", "25.0.rc1", "25.0.rc1.1", "25.5.rc1", "25.5", "25.5.1", "26.0.rc2"]


def test_driver_versions_are_ordered_as_they_were_released():
    for index, version in enumerate(OLDER):
        assert [is_older(version, other) for other in OLDER] == [False] * (index + 1) + [True] * (len(OLDER) - index - 1)
    assert not is_older("25.5", "25.5.0")
    assert not is_older("25.5.0", "25.5")

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories of small hosts whose npu-smi is the simulated one, faults included."""

import contextlib
import itertools
import json
import re
import types

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.device_share import sharing
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import Cards, calls_for, refusal, select
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.sharing import Shares
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._smi import tool
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import is_older, Command, Refusal
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.values import main
from tests.fakes.share import Box, wanted
from tests.fakes.workers import Tree, process


@pytest.fixture
def box(tmp_path):
    return lambda kind: Box(tmp_path, kind)


@pytest.fixture
def host(box):
    """Three cards of one chip."""
    return box("a2")


def failure(host, *chosen, **options):
    """Return why a bind fails."""
    with pytest.raises(ValueError) as error:
        host.share(*chosen, **options)
    return str(error.value)


SWITCHED_ON = [
    ("a2", ["-i 0 -d 1", "-i 1 -d 1", "-i 2 -d 1"], ["~ card 0-2 chip 0: off -> on"]),
    ("a3", ["-i 0 -d 1", "-i 4 -d 1"], ["~ card 0,4 chip 0: off -> on", "~ card 0,4 chip 1: off -> on"]),
    ("310p", ["-i 2 -d 1", "-i 5 -d 1"], ["~ card 2,5 chip 0: off -> on", "~ card 2,5 chip 1: off -> on"]),
    ("a5", ["-i 0 -d 1", "-i 1 -d 1"], ["~ card 0-1 chip 0: off -> on"]),
]


@pytest.mark.parametrize("kind, sets, lines", SWITCHED_ON)
def test_each_card_is_switched_on_once_read_back_and_left_alone(box, kind, sets, lines):
    host = box(kind)
    predicted = host.share(check=True)
    assert host.sets == host.shared == [] and previous.recorded(host.host) == {}
    step = host.share()
    assert step.changed and step.lines() == predicted.lines() == {"device share": lines}
    assert step.result() == predicted.result() and step.result()["failures"] == step.warnings == []
    assert len(host.shared) == len(host.description["chips"])
    assert host.sets == ["set -t device-share " + call for call in sets]
    queries = [call for call in host.calls if call.startswith("info")]
    asked = ["info -t device-share -i %d" % card for card in sorted({chip["card"] for chip in host.description["chips"]})]
    assert queries == ["info -m", *asked, *asked]
    assert not host.share().changed
    assert host.calls == queries[: len(asked) + 1], "a run that changes nothing only asks"


def test_only_the_chosen_chip_changes_if_chips_are_independent(box):
    host = box("310p")
    step = host.share({"card": 5, "chip": 1})
    assert host.sets == ["set -t device-share -i 5 -c 1 -d 1"]
    (row,) = step.result()["chips"]
    assert (host.shared, row) == (["5:1"], {"card": 5, "chip": 1, "before": False, "after": True, "enabled": True})
    host.share({"card": 5, "chip": 0})
    assert host.shared == ["5:0"], "what is not wanted any more is as it was"
    assert list(previous.recorded(host.host)["device_share"]) == [*sharing.FILES, "5:0"]


def test_one_die_of_an_a3_card_is_refused_before_any_change(box):
    host = box("a3")
    said = "card 4: its chips 0-1 change together; name the card without a chip, and one state for it"
    assert said in failure(host, {"card": 4, "chip": 1}) and host.sets == []


def test_a_busy_card_stops_nobody_else_and_is_named(host):
    host.faults(busy=[1])
    busy = "card 1: chip 0 is not on, because a container holds the card (exporters and device plugins count); stop it and run again"
    assert failure(host) == "not everything could be bound: " + busy
    assert host.shared == ["0:0", "2:0"]
    step = host.share(ignore_busy=True)
    assert (step.changed, step.warnings, step.result()["busy"]) == (False, [busy], [1])
    host.faults(busy=[0, 2])
    assert host.share(0, 2).warnings == [], "their state is correct"


def test_a_card_that_changed_half_way_is_reported_chip_by_chip(box):
    host = box("310p")
    host.faults(busy=["2:1"])
    step = host.share(2, ignore_busy=True)
    assert [(row["chip"], row["after"]) for row in step.result()["chips"]] == [(0, True), (1, False)]
    assert step.warnings[0].startswith("card 2: chip 1 is not on")
    host.faults()
    host.share(2)
    assert host.sets == ["set -t device-share -i 2 -c 1 -d 1"], "only what is still missing"


NOT_POSSIBLE = [
    # the host, what is wrong there, what is said, and of which cards
    ("a2", {"user": 1000}, "only by the root user", "card 0-2: "),
    ("a2", {"container": True}, "only root user on physical machine", "card 0-2: "),
    ("a2", {"vm": True}, "cannot be executed on a VM", "card 0-2: "),
    ("a2", {"answers": {"info -t device-share -i 1": {"text": "Invalid card id.\n", "status": 0}}}, "cannot answer (invalid)", "card 1: "),
    ("910", {}, "does not support querying device-share", "card 0-1: "),
]


@pytest.mark.parametrize("kind, faults, text, cards", NOT_POSSIBLE)
def test_npu_smi_errors_are_reported_at_any_exit_status(box, kind, faults, text, cards):
    host = box(kind)
    host.faults(**faults)
    assert re.search(cards + ".*" + re.escape(text), failure(host)) and not host.shared


def test_a_hanging_tool_is_queried_once_and_not_once_per_card(box):
    host = box("a2 with 10 cards")
    host.faults(sleep=30)
    cards = Cards([dict(chip, family="a2") for chip in host.description["chips"]])
    said = failure(host, values=Shares(cards=cards), timeout=4)
    assert host.calls == ["info -t device-share -i 0"]
    first = said.partition("card 0: ")[2].partition("; card 1-9: ")[0]
    assert "did not answer within 4 s" in first and said.endswith("card 1-9: npu-smi was not called, because " + first)


def test_a_tool_that_answers_slowly_does_not_keep_a_run_for_ever(box, monkeypatch):
    minutes = itertools.count(0, 60)
    monkeypatch.setattr(tool, "time", types.SimpleNamespace(monotonic=lambda: next(minutes)))
    said = failure(box("a2 with 10 cards"), timeout=100)
    assert "npu-smi was not called, because its answers took 500 s together, which is the limit for a run" in said


def test_an_ok_that_changed_nothing_is_found_out(host):
    host.faults(answers={"set -t device-share -i 1 -d 1": {"text": "\tStatus : OK\n\tMessage : set successfully\n", "status": 0}})
    assert failure(host).endswith(": card 1: chip 0 is not on, although npu-smi reported no error; see the driver's log")


def test_a_complaint_about_a_change_that_was_made_is_no_failure(host, monkeypatch):
    monkeypatch.setattr(sharing, "refusal", lambda output, status: Refusal("unavailable", "npu-smi cannot answer"))
    assert host.share().changed and host.share().warnings == []


def test_a_card_that_cannot_be_read_back_is_a_failure(host, monkeypatch):
    run = Host.run

    def set_and_die(self, argv, stdin="", timeout=None):
        result = run(self, argv, stdin, timeout)
        if argv[1:] == ["set", "-t", "device-share", "-i", "1", "-d", "1"]:
            host.faults(dead=[1])
        return result

    monkeypatch.setattr(Host, "run", set_and_die)
    step = host.share(0, 1, check=True)
    step.look(check=False)
    with pytest.raises(ValueError, match="card 1: its state could not be read back: npu-smi cannot answer"):
        step.run()
    with pytest.raises(ValueError, match="npu-smi cannot answer"):
        step.undo()
    host.faults()
    step.undo()
    assert host.shared == []


# Reading and judging


@pytest.mark.parametrize("output, status, kind", [
    ("\tStatus : OK\n", 0, None),
    ("\tStatus : Fail\n\tMessage : something new\n", 0, "unavailable"),
    ("\tStatus : Fail\n\tMessage : Failed to set chip device-share\n", 203, "busy"),
    ("Are you sure you want to continue setting?(Y/N)\n", 200, "aborted"),
])  # fmt: skip
def test_a_set_command_is_judged_by_its_text_first(output, status, kind):
    error = refusal(output, status)
    assert (error.kind if error else None) == kind


def test_cards_are_the_same_from_npu_smi_and_from_the_topology(box):
    host = box("a3")
    npus = [dict(entry, kind="npu", family="a3") for entry in host.description["chips"]]
    other = Cards.of_topology({"npus": npus + [{"kind": "gpu", "card": None, "chip": None, "family": "gpu", "name": "L40S"}]})
    asked = Shares().cards(host.host)
    assert (asked.chips, asked.by_chip) == (other.chips, other.by_chip) == ({0: [0, 1], 4: [0, 1]}, set())


def test_a_host_without_npu_smi_is_told_where_it_was_looked_for(tmp_path):
    with pytest.raises(Refusal, match="npu-smi was not found in /usr/local/Ascend/driver/tools"):
        Command(Host(str(tmp_path)))


OLD = "the Ascend driver is 25.3.rc1, and 25.5 or newer is required; update the driver first"
NOT_KNOWN = "the version of the Ascend driver is not known, and 25.5 or newer is required"


@pytest.mark.parametrize("version, sentence", [("25.3.rc1", OLD), (None, NOT_KNOWN), ("25.5", "")])
def test_an_old_or_unknown_driver_is_refused(host, monkeypatch, version, sentence):
    monkeypatch.setattr(sharing, "installed_version", lambda _host: version)
    monkeypatch.setattr(sharing, "parse_info", lambda _text: {"version": None})
    assert (failure(host) == sentence) if sentence else host.share().changed
    assert bool(host.sets) is not bool(sentence)


ON, OFF = {0: True}, {0: False}
BOTH_ON, BOTH_OFF, ONE_ON = {0: True, 1: True}, {0: False, 1: False}, {0: True, 1: False}


# chips of card 2 as they are, as they should be, whether they are switched one by one, the calls
CHANGES = {
    "nothing differs": (ON, ON, False, []),
    "off as well as on": (ON, OFF, False, ["-d 0"]),
    "a state that is not known is set": ({0: None}, OFF, False, ["-d 0"]),
    "A3: both dies with one call": (BOTH_OFF, BOTH_ON, False, ["-d 1"]),
    "A3: dies that drifted apart": (ONE_ON, BOTH_ON, False, ["-d 1"]),
    "Duo: the whole card in one call": (BOTH_OFF, BOTH_ON, True, ["-d 1"]),
    "Duo: one chip": (BOTH_OFF, {1: True}, True, ["-c 1 -d 1"]),
    "Duo: one chip is right already": (ONE_ON, BOTH_ON, True, ["-c 1 -d 1"]),
    "Duo: one on, one off": (ONE_ON, {0: False, 1: True}, True, ["-c 0 -d 0", "-c 1 -d 1"]),
}


@pytest.mark.parametrize("current, wanted, by_chip, calls", CHANGES.values(), ids=CHANGES)
def test_the_calls_are_the_least_that_lead_to_the_wanted_state(current, wanted, by_chip, calls):
    assert [" ".join(words) for words in calls_for(2, current, wanted, by_chip)] == ["set -t device-share -i 2 " + call for call in calls]


DUO = {2: [0, 1], 5: [0, 1]}
NO_CARD = "is neither a card"
CHOICES = [
    ([], DUO),
    ([5], {5: [0, 1]}),
    (["5"], {5: [0, 1]}),
    ([{"card": 5}], {5: [0, 1]}),
    ([{"card": 5, "chip": 1}], {5: [1]}),
    ([{"card": "5", "chip": "0"}, {"card": 5, "chip": 1}, 2], {5: [0, 1], 2: [0, 1]}),
    ([3], "npus: there is no card 3; npu-smi knows cards 2,5"),
    ([{"card": 2, "chip": 2}], "npus: card 2 has no chip 2; it has chips 0-1"),
    (["all"], "npus: 'all' " + NO_CARD),
    ([{"npu": 2}], "npus: '{'npu': 2}' " + NO_CARD),
    ([{"card": 2, "die": 1}], NO_CARD),
    ([None], "npus: 'None' " + NO_CARD),
]


@pytest.mark.parametrize("chosen, selected", CHOICES)
def test_cards_and_chips_are_chosen_by_the_ids_of_npu_smi(chosen, selected):
    with pytest.raises(ValueError, match=re.escape(selected)) if isinstance(selected, str) else contextlib.nullcontext():
        assert select(DUO, chosen) == selected


OLDER = ["23.0.rc2.3", "24.1.rc1.b030", "24.1.RC2", "24.1.0.3", "25.0.rc1", "25.0.rc1.1", "25.5.rc1", "25.5", "25.5.1", "26.0.rc2"]


def test_driver_versions_are_ordered_as_they_were_released():
    for index, version in enumerate(OLDER):
        assert [is_older(version, other) for other in OLDER] == [False] * (index + 1) + [True] * (len(OLDER) - index - 1)
    assert not is_older("25.5", "25.5.0")
    assert not is_older("25.5.0", "25.5")


# At boot


def boot(host, *chosen, **more):
    """Run what the boot unit runs for some cards or chips, or all."""
    path = host.root / "etc/npu-affinity/device_share.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"about": "a test", **wanted(*chosen, **more)}))
    host.forget_calls()
    return main(Shares(), ["--root", host.host.root])


def test_at_boot_a_loading_driver_is_awaited_for_a_limited_time(host, capsys, monkeypatch):
    host.faults(error=-8005)
    monkeypatch.setattr(sharing, "_PAUSE", 0.01)
    assert boot(host, wait=2) == 1
    assert "-8005" in capsys.readouterr().out and len(host.calls) > 2
    monkeypatch.setattr(sharing.time, "sleep", lambda seconds: host.faults())
    assert boot(host, wait=60) == 0 and len(host.shared) == 3


ENDINGS = [
    ({"busy": [1]}, [], "card 1: chip 0 is not on"),
    ({}, ["x"], "npu_affinity_device_share_npus: 'x' is neither a card"),
    ({"user": 1000}, [], "card 0-2: chip 0 is not on: npu-smi cannot answer (permission)"),
]


@pytest.mark.parametrize("faults, chosen, line", ENDINGS)
def test_at_boot_a_card_that_stays_off_is_reported_as_a_failure(host, capsys, faults, chosen, line):
    host.faults(**faults)
    assert boot(host, *chosen, ignore_busy=True) == 1
    assert any(text.startswith(line) for text in capsys.readouterr().out.splitlines())


def test_at_boot_the_chosen_cards_are_switched_on_and_listed(box, capsys):
    host = box("310p")
    missing = "npu_affinity_device_share_npus: there is no card 7; npu-smi knows cards 2,5"
    assert (boot(host, 7), host.shared) == (1, [])
    assert boot(host, 2, 7, {"card": 5, "chip": 1}) == 1
    assert host.shared == ["2:0", "2:1", "5:1"]
    said = ["card 2 chip 0: off -> on", "card 2,5 chip 1: off -> on"]
    assert capsys.readouterr().out.splitlines() == [missing, *said, missing]


def test_at_boot_cards_that_appear_one_by_one_are_awaited(host, capsys, monkeypatch):
    for chip in host.description["chips"]:
        folder = host.root / "sys/bus/pci/devices" / chip["bdf"]
        for name, value in (("class", "0x120000"), ("vendor", "0x19e5"), ("device", "0xd802")):
            (folder / name).write_text(value + "\n")
    host.faults(dead=[1])
    monkeypatch.setattr(sharing.time, "sleep", lambda seconds: host.faults())
    assert boot(host, wait=60) == 0 and host.shared == ["0:0", "1:0", "2:0"]
    host.faults(dead=[1])
    assert boot(host) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "npu-smi knows 2 chips, and 3 NPUs are on the PCI bus"


HELD = [
    (77, "npu-exporter", "/system.slice/docker-0123456789ab%s.scope" % ("0" * 52), "/dev/davinci3"),
    (78, "python3", "/user.slice", "/dev/davinci2"),
    (79, "other", "/system.slice/docker-ba9876543210%s.scope" % ("0" * 52), "/dev/davinci0"),
]


def test_who_holds_a_busy_card_is_named(box):
    host = box("a3")
    for pid, name, group, device in HELD:
        process(Tree(host.root), pid, group, [name], devices=[device])
    host.faults(busy=[4])
    assert failure(host).endswith(
        "card 4: chip 0, 1 is not on, because a container holds the card: container 0123456789ab (process 77 npu-exporter), "
        "process 78 python3; stop it and run again"
    )

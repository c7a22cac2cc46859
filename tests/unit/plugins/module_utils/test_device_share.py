# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories of small hosts whose npu-smi is the simulated one, faults included."""

from __future__ import annotations

import itertools
import json
import types

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.device_share import switching, tool
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import Change
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.switching import main, require_driver, restore
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.tool import Cards, Refusal, ShareTool, refusal, states
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from tests.fakes.share import Box
from tests.fakes.workers import Files, process


@pytest.fixture
def box(tmp_path):
    return lambda kind: Box(tmp_path, kind)


@pytest.fixture
def host(box):
    """Three cards of one chip."""
    return box("a2")


SWITCHED_ON = [
    ("a2", ["-i 0 -d 1", "-i 1 -d 1", "-i 2 -d 1"]),
    ("a3", ["-i 0 -d 1", "-i 4 -d 1"]),
    ("310p", ["-i 2 -d 1", "-i 5 -d 1"]),
]


@pytest.mark.parametrize("kind, sets", SWITCHED_ON)
def test_each_card_is_switched_on_once_read_back_and_left_alone(box, kind, sets):
    host = box(kind)
    report = host.switch(True)
    assert report.changed
    assert (report.failed, report.busy, report.warnings) == ({}, [], [])
    assert report.after == {card: dict.fromkeys(chips, True) for card, chips in host.cards.chips.items()}
    assert len(host.shared) == len(host.description["chips"])
    assert host.sets == ["set -t device-share " + call for call in sets]
    queries = [call for call in host.calls if call.startswith("info")]
    assert queries == ["info -t device-share -i %d" % card for card in host.cards.chips] * 2
    again = host.switch(True)
    assert not again.changed
    assert host.calls == queries[: len(host.cards.chips)], "a run that changes nothing only asks"


def test_only_the_chosen_chip_changes_if_chips_are_independent(box):
    host = box("310p")
    predicted = host.switch(True, {"card": 5, "chip": 1}, check=True)
    assert (predicted.changed, predicted.after) == (True, {5: {0: False, 1: True}})
    assert host.sets == host.shared == [] and previous.recorded(host.host) == {}
    report = host.switch(True, {"card": 5, "chip": 1})
    assert host.sets == ["set -t device-share -i 5 -c 1 -d 1"]
    assert (host.shared, report.wanted) == (["5:1"], {5: {1: True}})


def test_one_die_of_an_a3_card_is_refused_before_any_change(box):
    host = box("a3")
    with pytest.raises(ValueError, match="card 4: its chips 0-1 change together"):
        host.switch(True, {"card": 4, "chip": 1})
    assert host.sets == []


def test_a_busy_card_stops_nobody_else_and_is_named(host):
    host.faults(busy=[1])
    report = host.switch(True)
    assert host.shared == ["0:0", "2:0"]
    assert (report.changed, report.busy) == (True, [1])
    assert report.failed == {
        1: "chip 0 is not on, because a container holds the card (exporters and device plugins count); stop it and run again"
    }
    host.faults(busy=[0, 2])
    assert host.switch(True, 0, 2).failed == {}, "their state is correct"


def test_a_card_that_changed_half_way_is_reported_chip_by_chip(box):
    host = box("310p")
    host.faults(busy=["2:1"])
    report = host.switch(True, 2)
    assert report.after == {2: {0: True, 1: False}, 5: {0: False, 1: False}}
    assert report.failed[2].startswith("chip 1 is not on")
    host.faults()
    host.switch(True, 2)
    assert host.sets == ["set -t device-share -i 2 -c 1 -d 1"], "only what is still missing"


NOT_POSSIBLE = [
    ({"user": 1000}, "only by the root user"),
    ({"container": True}, "only root user on physical machine"),
    ({"vm": True}, "cannot be executed on a VM"),
]


@pytest.mark.parametrize("faults, text", NOT_POSSIBLE)
def test_npu_smi_errors_are_reported_per_card_at_any_exit_status(host, faults, text):
    host.faults(**faults)
    report = host.switch(True)
    assert sorted(report.failed) == [0, 1, 2]
    assert all(text in sentence for sentence in report.failed.values())
    assert not report.changed


def test_an_unsupported_product_fails_only_if_it_should_share(box):
    host = box("910")
    assert "does not support querying device-share" in host.switch(True).failed[0]
    report = host.switch(False)
    assert (report.failed, report.changed, host.sets) == ({}, False, [])


def test_a_dead_card_does_not_hide_the_others(host):
    host.faults(dead=[1])
    report = host.switch(True)
    assert host.shared == ["0:0", "2:0"]
    assert list(report.failed) == [1]
    assert "Invalid card id" in report.failed[1]


def test_a_hanging_tool_is_queried_once_and_not_once_per_card(box):
    host = box("a2 with 10 cards")
    host.faults(sleep=30)
    host.host.timeout = 0.5
    report = host.switch(True)
    assert host.calls == ["info -t device-share -i 0"]
    assert "did not answer within 0.5 s" in report.failed[0]
    assert {report.failed[card] for card in range(1, 10)} == {"npu-smi was not called, because " + report.failed[0]}
    assert report.after == {}


def test_a_tool_that_answers_slowly_does_not_keep_a_run_for_ever(box, monkeypatch):
    minutes = itertools.count(0, 60)
    monkeypatch.setattr(tool, "time", types.SimpleNamespace(monotonic=lambda: next(minutes)))
    host = box("a2 with 10 cards")
    host.host.timeout = 100
    host.tool = ShareTool(host.host)
    report = host.switch(True)
    assert "npu-smi was not called, because its answers took 500 s together, which is the limit for a run" in report.failed[9]


def test_at_boot_a_tool_that_hangs_costs_one_time_limit(box, capsys, monkeypatch):
    host = box("a2 with 10 cards")
    host.faults(sleep=30)
    host.forget_calls()
    assert main(["--root", host.host.root, "--timeout", "0.5"] + [str(card) for card in range(10)]) == 1
    assert len(host.calls) == 1
    assert "did not answer within 0.5 s" in capsys.readouterr().out


def test_an_ok_that_changed_nothing_is_found_out(host):
    host.faults(answers={"set -t device-share -i 1 -d 1": {"text": "\tStatus : OK\n\tMessage : set successfully\n", "status": 0}})
    report = host.switch(True)
    assert report.failed == {1: "chip 0 is not on, although npu-smi reported no error; see the driver's log"}


def test_a_complaint_about_a_change_that_was_made_is_no_failure(host):
    real = host.tool.change

    def change_and_complain(change):
        real(change)
        raise Refusal("unavailable", "npu-smi cannot answer")

    host.tool.change = change_and_complain
    report = host.switch(True)
    assert (report.failed, report.changed) == ({}, True)


def test_only_cards_switched_on_here_are_switched_off_by_default(host):
    host.tool.change(Change(0, None, True))
    host.switch(True, 2)
    assert host.shared == ["0:0", "2:0"]
    report = host.switch(False)
    assert host.shared == ["0:0"]
    assert report.warnings == [
        "card 0: chip 0 stays on, because this collection did not switch it on; set only_ours=false to switch it off as well"
    ]
    assert (report.failed, report.wanted) == ({}, {1: {0: False}, 2: {0: False}})
    assert host.switch(False, only_ours=False).warnings == []
    assert host.shared == []


def test_a_host_without_a_record_has_nothing_to_switch_off(box):
    host = box("a3")
    (host.root / "run/npu-smi/share.json").write_text(json.dumps(["0:0", "0:1"]))
    report = host.switch(False)
    assert (report.changed, report.wanted) == (False, {4: {0: False, 1: False}})
    assert report.warnings[0].startswith("card 0: chip 0, 1 stays on")


def undo(host, **options):
    return restore(host.host, host.tool, host.cards, previous.recorded(host.host)["device_share"], **options)


def test_undo_brings_back_the_state_before_the_first_change(box):
    host = box("310p")
    (host.root / "run/npu-smi/share.json").write_text(json.dumps(["2:0"]))
    host.switch(True)
    host.switch(False, only_ours=False)
    recorded = previous.recorded(host.host)["device_share"]
    assert recorded["chips"] == {"2": {"0": True, "1": False}, "5": {"0": False, "1": False}}
    predicted, report = undo(host, check=True), undo(host)
    assert host.shared == ["2:0"] and report.changed and predicted.after == report.after
    assert not undo(host).changed


def test_undo_says_which_cards_it_could_not_bring_back(host):
    host.switch(True)
    host.faults(busy=[2])
    report = undo(host)
    assert host.shared == ["2:0"]
    assert report.failed[2].startswith("chip 0 is not off, because a container holds the card")


# Reading and judging


@pytest.mark.parametrize("rows, card, chip, expected", [
    ([{"card": 3, "chip": 0, "enabled": True}, {"card": 3, "chip": 1, "enabled": False}], 3, None, {3: {0: True, 1: False}}),
    ([{"card": 0, "chip": None, "enabled": False}], 0, None, {0: {0: False}}),
    ([{"card": None, "chip": None, "enabled": True}], 2, 1, {2: {1: True}}),
    ([{"card": 4, "chip": 0, "enabled": True}, {"card": 5, "chip": 0, "enabled": None}], None, None, {4: {0: True}, 5: {0: None}}),
])  # fmt: skip
def test_an_answer_without_ids_belongs_to_the_queried_chip(rows, card, chip, expected):
    assert states(rows, card, chip) == expected


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
    assert (host.cards.chips, host.cards.by_chip) == (other.chips, other.by_chip) == ({0: [0, 1], 4: [0, 1]}, set())


def test_a_host_without_npu_smi_is_told_where_it_was_looked_for(tmp_path):
    with pytest.raises(Refusal, match="npu-smi was not found in /usr/local/Ascend/driver/tools"):
        ShareTool(Host(str(tmp_path)))


VERSION = {"/usr/local/Ascend/driver/version.info": "Version=25.5.1"}
TOO_OLD = "the Ascend driver is %s, and %s or newer is required; update the driver first"
DRIVERS = [
    (VERSION, None, "26.0.rc1", TOO_OLD % ("25.5.1", "26.0.rc1")),
    (VERSION, "25.3.rc1", "25.5", TOO_OLD % ("25.3.rc1", "25.5")),
    ({}, None, "25.5", "the version of the Ascend driver is not known, and 25.5 or newer is required"),
]


@pytest.mark.parametrize("files, version, minimum, error", DRIVERS)
def test_an_old_or_unknown_driver_is_refused(tree, files, version, minimum, error):
    with pytest.raises(ValueError, match="^%s$" % error):
        require_driver(tree.write(files), minimum, version)
    require_driver(tree.write(VERSION), "25.5", None)


# At boot


def test_at_boot_a_loading_driver_is_awaited_for_a_limited_time(host, capsys, monkeypatch):
    host.faults(error=-8005)
    monkeypatch.setattr(switching, "_PAUSE", 0.01)
    assert main(["--root", host.host.root, "--wait", "2"]) == 1
    assert "-8005" in capsys.readouterr().out
    assert len(host.calls) > 2
    monkeypatch.setattr(switching.time, "sleep", lambda seconds: host.faults())
    assert main(["--root", host.host.root, "--wait", "60"]) == 0
    assert len(host.shared) == 3


ENDINGS = [
    ({"busy": [1]}, [], "card 1: chip 0 is not on"),
    ({}, ["x"], "npu_affinity_device_share_npus: '{'card': 'x'}'"),
    ({"user": 1000}, [], "card 0: chip 0 is not on: npu-smi cannot answer (permission)"),
]


@pytest.mark.parametrize("faults, arguments, line", ENDINGS)
def test_at_boot_a_card_that_stays_off_is_reported_as_a_failure(host, capsys, faults, arguments, line):
    host.faults(**faults)
    assert main(["--root", host.host.root] + arguments) == 1
    assert any(text.startswith(line) for text in capsys.readouterr().out.splitlines())


def test_at_boot_the_chosen_cards_are_switched_on_and_listed(box, capsys):
    host = box("310p")
    missing = "there is no card 7; npu-smi knows cards 2,5"
    assert (main(["--root", host.host.root, "7"]), host.shared) == (1, [])
    assert main(["--root", host.host.root, "2", "5:1", "7"]) == 1
    assert host.shared == ["2:0", "2:1", "5:1"]
    assert capsys.readouterr().out.splitlines() == [
        missing,
        "card 2 chip 0: device share is on",
        "card 2 chip 1: device share is on",
        "card 5 chip 1: device share is on",
        missing,
    ]


def test_at_boot_cards_that_appear_one_by_one_are_awaited(host, capsys, monkeypatch):
    for chip in host.description["chips"]:
        folder = host.root / "sys/bus/pci/devices" / chip["bdf"]
        for name, value in (("class", "0x120000"), ("vendor", "0x19e5"), ("device", "0xd802")):
            (folder / name).write_text(value + "\n")
    host.faults(dead=[1])
    monkeypatch.setattr(switching.time, "sleep", lambda seconds: host.faults())
    assert main(["--root", host.host.root, "--wait", "60"]) == 0
    assert host.shared == ["0:0", "1:0", "2:0"]
    host.faults(dead=[1])
    assert main(["--root", host.host.root]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "npu-smi knows 2 chips, and 3 NPUs are on the PCI bus"


HELD = [
    (77, "npu-exporter", "/system.slice/docker-0123456789ab%s.scope" % ("0" * 52), "/dev/davinci3"),
    (78, "python3", "/user.slice", "/dev/davinci2"),
    (79, "other", "/system.slice/docker-ba9876543210%s.scope" % ("0" * 52), "/dev/davinci0"),
]


def test_who_holds_a_busy_card_is_named(box):
    host = box("a3")
    for pid, name, group, device in HELD:
        process(Files(host.root), pid, group, [name], devices=[device])
    host.faults(busy=[4])
    assert host.switch(True).failed == {
        4: "chip 0, 1 is not on, because a container holds the card: container 0123456789ab (process 77 npu-exporter), "
        "process 78 python3; "
        "stop it and run again"
    }

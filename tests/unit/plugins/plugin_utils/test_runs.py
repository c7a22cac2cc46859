# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of a fleet: what a rollback means by a run, a time or -1, and which entry each host goes back to."""

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._report import runs

ACTIONS = {"A": "bind", "B": "bind", "C": "rollback", "X": "bind"}


def run_of(letter):
    hour = 10 + "ABCX".index(letter)
    return {"id": f"20261122T{hour}0000-000{hour - 10}", "time": f"2026-11-22T{hour}:00:00Z", "inventory": "hosts.yml"}


def history(letters, first=1):
    """The history of a host with an entry of each run, as the module returns it."""
    told = {"author": "alice", "reason": ""}
    entries = [{"id": number, "action": ACTIONS[letter], **told, "run": run_of(letter)} for number, letter in enumerate(letters, first)]
    return entries[::-1]


def named(to):
    """A target with the ids of runs in place of their letters."""
    return "".join(run_of(word)["id"] if word in ACTIONS else f"{word}:" for word in to.split(":"))


FLEET = {"canary": "AB", "other": "A", "third": "A"}
RESOLVED = [
    ("a change of the canary alone", FLEET, "-1", "before:B", {"canary": 1, "other": None, "third": None}),
    ("half-way through a rollback", {"canary": "ABC", "other": "AB"}, "-1", "before:B", {"canary": 1, "other": 1}),
    ("after a rollback", {"canary": "ABC", "other": "ABC"}, "-1", "before:B", {"canary": 1, "other": 1}),
    ("a bind after a rollback", {"canary": "ABCX", "other": "AB"}, "-1", "before:X", {"canary": 3, "other": None}),
    ("features one by one", {"canary": "ABB", "other": "AAB"}, "-1", "before:B", {"canary": 1, "other": 2}),
    ("a run", {"canary": "ABX", "other": "AAX", "third": "AC"}, "B", "B", {"canary": 2, "other": 2, "third": 1}),
    ("before a run", {"canary": "ABX", "other": "AX"}, "before:B", "before:B", {"canary": 1, "other": None}),
    ("a time", {"canary": "ABX", "other": "AX"}, "2026-11-22T11:59", "B", {"canary": 2, "other": 1}),
    ("a date", {"canary": "ABX"}, "2026-11-23", "X", {"canary": 3}),
]


@pytest.mark.parametrize(("fleet", "to", "target", "entries"), [row[1:] for row in RESOLVED], ids=[row[0] for row in RESOLVED])
def test_what_is_meant_and_where_each_host_goes(fleet, to, target, entries):
    histories = {name: history(letters) for name, letters in fleet.items()}
    found, (line,) = runs.resolved(histories, named(to) if to[-1] in ACTIONS else to)
    assert found == named(target)
    assert line.partition(" is the state ")[2].startswith(f"{'before' if ':' in target else 'after'} run {named(target[-1])}: ")
    chosen = {name: runs.entry_of(entries, found) for name, entries in histories.items()}
    assert {name: entry and entry["id"] for name, entry in chosen.items()} == entries
    assert runs.resolved(histories, found)[0] == found, "it means the same in the next run"


@pytest.mark.parametrize(
    ("fleet", "to", "why"),
    [
        ({"a": "AB"}, "77", "'77' is not a state to restore: expected -1 "),
        ({"a": "AB"}, "-2", "'-2' is not a state to restore: expected -1 "),
        ({"a": "AB"}, "2026-11-22T09:59", "no run of these hosts had begun at 2026-11-22T09:59:00Z; the newest runs are 2026"),
        ({"a": "A"}, named("X"), f"none of these hosts has run {named('X')} in its history; the only run is {named('A')} (bind)"),
        ({"a": "CC"}, "-1", "these hosts have only rollbacks in their histories"),
    ],
)
def test_what_cannot_be_meant(fleet, to, why):
    with pytest.raises(ValueError, match="^" + why.replace("(", r"\(").replace(")", r"\)")):
        runs.resolved({name: history(letters) for name, letters in fleet.items()}, to)


@pytest.mark.parametrize(
    ("letters", "first", "target", "why"),
    [
        ("A", 1, "before:A", "its first entry is of run 20261122T100000-0000; to restore its state before the first bind, run unbind"),
        ("X", 1, "B", "to restore its state before the first bind, run unbind"),
        ("BX", 4, "before:B", "its oldest entry that is kept is of run 20261122T110000-0001"),
    ],
)
def test_a_host_without_an_earlier_state(letters, first, target, why):
    with pytest.raises(ValueError, match=why):
        runs.entry_of(history(letters, first), named(target))


def test_the_last_run_is_not_known_while_a_host_does_not_answer():
    histories = {"a": history("A")}
    target = runs.resolved(histories, "-1")[0]
    unread = f"the history of b could not be read. If it is the one named above, use -e npu_affinity_to={target}"
    assert unread in runs.unsure("-1", target, ["b"])
    assert not any(runs.unsure(*given) for given in (("-1", target, []), (target, target, ["b"]), ("-1", "-1", ["b"])))
    assert runs.resolved({"a": []}, "-1") == ("-1", []), "no host has a history"


def test_hosts_that_a_run_changed_alike_are_listed_once():
    histories = {f"n{number:03}": history("AB") for number in range(200)} | {"odd": history("B", first=2), "new": []}
    for name, entries in histories.items():
        for entry in entries:
            entry["difference"] = ["8 NPUs" if entry["id"] == 1 else f"file {'x' if name == 'odd' else 'y'}: changed"]
    a, b = (f"{run_of(letter)['id']}  bind by alice with hosts.yml on n[000:199]" for letter in "AB")
    expected = [f"{b}, odd", "  n[000:199]:", "    file y: changed", "  odd:", "    file x: changed", a, "  8 NPUs"]
    assert runs.listing(histories, verbose=False) == expected

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a diff shows: a line for a file, an NPU or a process; which entry of a history is meant, and in what two states differ."""

from __future__ import annotations

import json
import os
import tempfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state import difference, diffs
from ansible_collections.npu.affinity.plugins.module_utils._state.history import FOLDER, Entry, chosen, readable
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from tests.fakes.systemd import MARK, SLICE, UNITS

POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
TEXT = MARK + "[Unit]\nDescription=Workloads of NPU 0\n\n[Slice]\nAllowedCPUs=%s\nAllowedMemoryNodes=0\n"
DROP_IN = MARK + "[Service]\nCPUAffinity=\nCPUAffinity=%s\nEnvironment=A=1\n%s"
SCRIPT = "#!/bin/sh\n" + MARK + 'case "$1" in\n%sesac\n'
TUNING = '{"about": "Managed by npu.affinity",\n"governor": "%s", "numa_balancing": 0}\n'
RULE = MARK + 'ACTION=="bind", KERNEL=="%s", RUN+="/bin/a %%k"\n'
OTHER_RULE = RULE.replace("/bin/a", "/bin/b")
RULES = "/etc/udev/rules.d/90-npu-affinity.rules"
NOTHING = None
CONF, SETTINGS = UNITS + "/a.service.d/a.conf", "/etc/npu-affinity/tuning.json"
MORE = "Environment=B=2\nSlice=npu-0.slice\n"
LINK = FileState(None, None, "/dev/null")
NEW = MARK + 'VERSION = "%s"\n' % VERSION
OLD = NEW.replace(VERSION, "0.0.9")


def file(text, mode=0o644):
    return text if isinstance(text, FileState) else FileState(text, None if text is None else mode)


def entry(number, pool, **others):
    return {"id": number, "chip": 0, "pci": "0000:0%d:00.0" % number, "pool": pool, "slice": "npu-%d.slice" % number, **others}


def plan(*npus, **others):
    return json.dumps({"strategy": "topo_affinity", "cpus": "0-31", "npus": list(npus), **others})


A, B = entry(1, "0-15", irq="0-1"), entry(2, "16-31")
NEW_PLAN, NEW_B = "+ strategy topo_affinity, CPUs 0-31", "+ NPU 2 (0000:02:00.0): CPUs 16-31"
CHANGES = {
    # path, text or state before and after, lines
    "a new slice": (SLICE, NOTHING, TEXT % "0-23", "+ npu-0.slice  AllowedCPUs=0-23  AllowedMemoryNodes=0"),
    "a slice with other CPUs": (SLICE, TEXT % "0-23", TEXT % "2-23", "~ npu-0.slice  AllowedCPUs 0-23 -> 2-23"),
    "a slice that goes": (SLICE, TEXT % "0-23", NOTHING, "- npu-0.slice"),
    "other words": (SLICE, TEXT % "0", "# Managed by npu.affinity\n" + (TEXT % "0")[len(MARK) :], "~ npu-0.slice  comments"),
    "a description": (
        SLICE,
        TEXT % "0",
        TEXT.replace("NPU 0", "A") % "0",
        "~ npu-0.slice  Description Workloads of NPU 0 -> Workloads of A",
    ),
    "a drop-in whose list is emptied": (CONF, NOTHING, DROP_IN % ("0", ""), "+ a.service.d/a.conf  CPUAffinity=0  Environment=A=1"),
    "one value more": (
        CONF,
        DROP_IN % ("0", ""),
        DROP_IN % ("0", MORE),
        "~ a.service.d/a.conf  Environment +B=2  Slice none -> npu-0.slice",
    ),
    "a new udev rule": (RULES, NOTHING, RULE % "0000:c1:00.0|c2", '+ PATH  ACTION=="bind"  KERNEL=="0000:c1:00.0|c2"  RUN+="/bin/a %k"'),
    "a udev rule": (RULES, RULE % "c1|c2", OTHER_RULE % "c1|81", '~ PATH  KERNEL -c2  KERNEL +81  RUN "/bin/a %k" -> "/bin/b %k"'),
    "a udev rule in another order": (RULES, RULE % "a|b", RULE % "b|a", "~ PATH  KERNEL in another order"),
    "a new script": (POLICY, NOTHING, SCRIPT % "", "+ PATH  4 lines"),
    "a script": (POLICY, SCRIPT % "a) ;;\n", SCRIPT % "b) ;;\n", "~ PATH", "    -a) ;;", "    +b) ;;"),
    "a document": (SETTINGS, TUNING % "powersave", TUNING % "performance", "~ PATH  governor powersave -> performance"),
    "a new document": (SETTINGS, NOTHING, TUNING % "a", "+ PATH  governor=a  numa_balancing=0"),
    "another mode": (SLICE, TEXT % "0", file(TEXT % "0", 0o755), "~ npu-0.slice  mode 0644 -> 0755"),
    "a link": (SLICE, NOTHING, LINK, "+ npu-0.slice  symbolic link to /dev/null"),
    "a file in the place of a link": (SLICE, LINK, TEXT % "0", "~ npu-0.slice  symbolic link to /dev/null -> a file"),
    "a private file": (SLICE, NOTHING, file(TEXT % "0", 0o600), "+ npu-0.slice  (not shown; mode 0600)"),
    "a private file that changes": (SLICE, file(TEXT % "0", 0o600), file(TEXT % "0" + "A=secret\n", 0o600), "~ npu-0.slice  (not shown)"),
    "new host code": (installed.ARCHIVE, NOTHING, NEW, "+ PATH: none -> version VERSION"),
    "another version of the host code": (installed.ARCHIVE, OLD, NEW, "~ PATH: version 0.0.9 -> version VERSION"),
    "host code changed by hand": (installed.ARCHIVE, NEW + "1\n", NEW, "~ PATH: other content -> version VERSION"),
    "host code that goes": (installed.ARCHIVE, OLD, NOTHING, "- PATH: version 0.0.9 -> none"),
    "the first plan": (PATH, NOTHING, plan(A, B), NEW_PLAN, "+ NPU 1 (0000:01:00.0): CPUs 0-15, irq 0-1", NEW_B),
    "the last plan": (PATH, plan(B), NOTHING, "- strategy topo_affinity, CPUs 0-31", "- NPU 2 (0000:02:00.0): CPUs 16-31"),
    "housekeeping": (
        PATH,
        plan(A, B),
        plan(entry(1, "2-15", irq="2-3"), B, housekeeping="0-1"),
        "~ housekeeping none -> 0-1",
        "~ NPU 1 (0000:01:00.0): CPUs 0-15 -> 2-15, irq 0-1 -> 2-3",
    ),
    "a part of a pool": (PATH, plan(A), plan({**A, "kv": "4-5"}), "~ NPU 1 (0000:01:00.0): kv none -> 4-5"),
    "a card that cannot be found": (PATH, plan(A, B), plan(B, lost=[A]), "~ NPU 1 (0000:01:00.0): state found -> not found"),
    "planned again without it": (
        PATH,
        plan(B, lost=[A]),
        plan(entry(1, "0-31", pci="0000:02:00.0")),
        "~ NPU 1 (0000:02:00.0): CPUs 16-31 -> 0-31, id 2 -> 1, slice npu-2.slice -> npu-1.slice",
        "- NPU 1 (0000:01:00.0): CPUs 0-15, irq 0-1",
    ),
    "a broken plan": (PATH, "{", plan(B), NEW_PLAN, NEW_B),
}


def told(files):
    """The lines of a diff of files, which has one part only, without its title."""
    (entry,) = diffs.Diff().add_files({path: (file(before), file(after)) for path, before, after in files}).document()
    return [line[2:] for line in entry["prepared"].splitlines()[1:]]


@pytest.mark.parametrize("story", CHANGES)
def test_each_changed_file_and_npu_of_a_plan_is_a_line(story):
    path, before, after, *lines = CHANGES[story]
    assert [line.replace(path, "PATH").replace(VERSION, "VERSION") for line in told([(path, before, after)])] == lines


def test_many_files_that_go_with_their_folder_are_one_line():
    paths = ["/etc/npu-affinity/history/%d.json" % number for number in range(6)]
    assert told([(path, "{}", NOTHING) for path in paths]) == ["- 6 files in /etc/npu-affinity/history"]
    assert told([(path, "{}", NOTHING) for path in paths[:2]]) == ["- " + path for path in paths[:2]]


OTHERS = [
    ("[Slice]\nCPUWeight=50\n", "[Slice]\nCPUWeight=50\n", TEXT % "0"),
    (file("secret\n", 0o640), "(not shown; mode 0640)\n", "(not shown; mode 0644)\n"),
]


@pytest.mark.parametrize("found, before, after", OTHERS)
def test_a_file_of_others_is_shown_as_it_is_unless_it_is_private(found, before, after):
    (entry,) = diffs.Diff().add_files({SLICE: (file(found), file(TEXT % "0"))}).document()
    assert entry == {"before_header": SLICE, "after_header": SLICE, "before": before, "after": after}


def test_systemd_is_told_in_a_line_for_every_verb():
    actions = ["enable a.service", "start a.slice", "enable b.timer", "restore irqbalance.service"]
    (shown,) = diffs.Diff().add_files({}, actions, ["vllm@0.service"]).document()
    assert shown["prepared"] == (
        "systemd:\n  enable a.service, b.timer\n  start a.slice\n  restore irqbalance.service\nwait for a restart:\n  vllm@0.service\n"
    )
    assert diffs.Diff().document() == []


def move(name, before, after):
    return {"name": name, "before": before, "after": after}


def test_many_threads_are_told_by_the_cpus_that_they_get():
    moved = [move("thread_%d" % number, "0-7", "0-5") for number in range(6)] + [move("acl_thread", "0-7", "6"), move("still", "7", "7")]
    processes = [{"title": "process 7", "threads": moved}, {"title": "process 8", "threads": moved[-1:]}]
    assert diffs.threads(processes) == ["~ process 7: 6 threads 0-7 -> 0-5; acl_thread 0-7 -> 6"]
    few = [move("cq", "0", "3"), move("cq", "1", "3"), move("sq", "all", "2")]
    assert diffs.threads([{"title": "process 7", "threads": few}]) == ["~ process 7: 2 cq spread over 0-1 -> 3; sq all -> 2"]


RUN = {"id": "20261120T090000-7f3a", "time": "2026-11-20T09:00:00Z", "inventory": ""}
ENTRIES = [Entry(number, RUN["time"], "0.1.0", "bind", "", "", RUN, {}) for number in (3, 4, 6)]


@pytest.mark.parametrize(("number", "meant"), [(-1, 4), (-2, 3), (3, 3), (6, 6)])
def test_the_entry_that_is_meant(number, meant):
    assert chosen(ENTRIES, number).id == meant


@pytest.mark.parametrize("number", [-3, 0, 5])
def test_an_entry_that_there_is_not(number):
    with pytest.raises(ValueError, match="there is no entry %d in the history; this host has entries 3, 4, 6" % number):
        chosen(ENTRIES, number)


def a_state(files=(), features=None, npus=(), strategy="topo_affinity"):
    plan = {"strategy": strategy, "npus": [{"id": number, "pci": pci, "pool": pool} for number, pci, pool in npus]}
    return {"files": [{"path": path, "content": text} for path, text in files], "features": features or {}, "live": {}, "plan": plan}


DIFFERENCES = [
    (
        a_state(npus=[(0, "0000:c1:00.0", "0-3"), (1, "0000:c2:00.0", "4-7"), (2, "0000:81:00.0", "8-11"), (3, "0000:82:00.0", "12-15")]),
        a_state(npus=[(0, "0000:c1:00.0", "0-3"), (1, "0000:81:00.0", "8-11"), (2, "0000:82:00.0", "12-13"), (3, "0000:01:00.0", "14-15")]),
        [
            "NPU 1 (0000:81:00.0): id 2 -> 1",
            "NPU 2 (0000:82:00.0): CPUs 12-15 -> 12-13, id 3 -> 2",
            "NPU 3 (0000:01:00.0): added, CPUs 14-15",
            "NPU 1 (0000:c2:00.0): removed, CPUs 4-7",
        ],
    ),
    (
        a_state(npus=[(0, "0000:c1:00.0", "0-3"), (1, "0000:01:00.0", "4-7")]),
        a_state(npus=[(0, "0000:c1:00.0", "0-5")], strategy="even_split"),
        ["strategy topo_affinity -> even_split", "NPU 0 (0000:c1:00.0): CPUs 0-3 -> 0-5", "NPU 1 (0000:01:00.0): removed, CPUs 4-7"],
    ),
    (
        a_state(npus=[(0, "", "0-3"), (1, "", "4-7")]),
        a_state(npus=[(0, "", "0-3"), (1, "", "6-7")]),
        ["NPU 1 (without PCI function): CPUs 4-7 -> 6-7"],
    ),
    (
        a_state(files=[("/a", "1"), ("/b", "1")], features={"irq": "present"}),
        a_state(files=[("/b", "2"), ("/c", "1")], features={"irq": "absent"}),
        ["feature irq: on -> off", "file /a: removed", "file /b: changed", "file /c: added"],
    ),
    ({**a_state(), "plan": None}, {**a_state(), "plan": None, "hardware": {"cpus": "0-7"}}, ["only settings of the run"]),
    ({**a_state(), "plan": None}, {**a_state(), "plan": None}, []),
    (a_state(), a_state(files=[(f"/etc/a/{number}", "") for number in range(6)]), ["6 files in /etc/a: added"]),
]


@pytest.mark.parametrize(("before", "after", "lines"), DIFFERENCES)
def test_the_difference_of_two_states(before, after, lines):
    assert difference.difference(after, before) == lines


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_may_not_read_the_history_is_told_so():
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        os.makedirs(root + FOLDER)
        os.chmod(root + FOLDER, 0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(ValueError, match="/etc/npu-affinity/history cannot be read; run as root"):
                readable(Host(root))
        finally:
            os.seteuid(0)


def test_the_first_entry_of_a_history_has_what_it_adds():
    first = Entry(1, RUN["time"], "1.0.0", "bind", "", "", RUN, a_state(files=[("/a", "1")], npus=[(0, "0000:c1:00.0", "0-3")]))
    again = first._replace(id=2)
    assert [row["difference"] for row in difference.rows([first, again])] == [["only settings of the run"], ["1 NPU, 1 file"]]

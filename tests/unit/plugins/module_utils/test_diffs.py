# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a diff shows: a line for a file, an NPU or a process."""

from __future__ import annotations

import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs import diffs
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION as VERSION_OF_OURS

OURS = "# Managed by npu.affinity: changes are overwritten.\n"
UNIT = "/etc/systemd/system/npu-0.slice"
POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
SLICE = OURS + "[Unit]\nDescription=Workloads of NPU 0\n\n[Slice]\nAllowedCPUs=%s\nAllowedMemoryNodes=0\n"
DROP_IN = OURS + "[Service]\nCPUAffinity=\nCPUAffinity=%s\nEnvironment=A=1\n%s"
SCRIPT = "#!/bin/sh\n" + OURS + 'case "$1" in\n%sesac\n'
TUNING = '{"about": "Managed by npu.affinity",\n"governor": "%s", "numa_balancing": 0}\n'
RULE = OURS + 'ACTION=="bind", KERNEL=="%s", RUN+="/usr/bin/systemctl start a@%%k.service"\n'
RULES = "/etc/udev/rules.d/90-npu-affinity.rules"
NOTHING = None

# what: path, text before, text after, lines
FILES = {
    "a new slice": (UNIT, NOTHING, SLICE % "0-23", ["+ npu-0.slice  AllowedCPUs=0-23  AllowedMemoryNodes=0"]),
    "a slice with other CPUs": (UNIT, SLICE % "0-23", SLICE % "2-23", ["~ npu-0.slice  AllowedCPUs 0-23 -> 2-23"]),
    "a slice that goes": (UNIT, SLICE % "0-23", NOTHING, ["- npu-0.slice"]),
    "other words": (UNIT, SLICE % "0", "# Managed by npu.affinity\n" + (SLICE % "0")[len(OURS) :], ["~ npu-0.slice  comments"]),
    "a description": (
        UNIT,
        SLICE % "0",
        (SLICE % "0").replace("NPU 0", "NPU 1"),
        ["~ npu-0.slice  Description Workloads of NPU 0 -> Workloads of NPU 1"],
    ),
    "a drop-in whose list is emptied first": (
        "/etc/systemd/system/a.service.d/50-npu-affinity.conf",
        NOTHING,
        DROP_IN % ("0-1", ""),
        ["+ a.service.d/50-npu-affinity.conf  CPUAffinity=0-1  Environment=A=1"],
    ),
    "one value more": (
        "/etc/systemd/system/a.service.d/50-npu-affinity.conf",
        DROP_IN % ("0-1", ""),
        DROP_IN % ("0-1", "Environment=B=2\nSlice=npu-0.slice\n"),
        ["~ a.service.d/50-npu-affinity.conf  Environment +B=2  Slice none -> npu-0.slice"],
    ),
    "a new udev rule": (
        RULES,
        NOTHING,
        RULE % "0000:c1:00.0|0000:c2:00.0",
        [f'+ {RULES}  ACTION=="bind"  KERNEL=="0000:c1:00.0|0000:c2:00.0"  RUN+="/usr/bin/systemctl start a@%k.service"'],
    ),
    "a udev rule": (
        RULES,
        RULE % "0000:c1:00.0|0000:c2:00.0",
        RULE.replace("systemctl", "true") % "0000:c1:00.0|0000:81:00.0",
        [
            f"~ {RULES}  KERNEL -0000:c2:00.0  KERNEL +0000:81:00.0  "
            'RUN "/usr/bin/systemctl start a@%k.service" -> "/usr/bin/true start a@%k.service"'
        ],
    ),
    "a udev rule in another order": (RULES, RULE % "a|b", RULE % "b|a", [f"~ {RULES}  KERNEL in another order"]),
    "a new script": (POLICY, NOTHING, SCRIPT % "", ["+ %s  4 lines" % POLICY]),
    "a script": (POLICY, SCRIPT % "a) ;;\n", SCRIPT % "b) ;;\n", ["~ " + POLICY, "    -a) ;;", "    +b) ;;"]),
    "a document": (
        "/etc/npu-affinity/tuning.json",
        TUNING % "powersave",
        TUNING % "performance",
        ["~ /etc/npu-affinity/tuning.json  governor powersave -> performance"],
    ),
    "a new document": ("/etc/npu-affinity/t.json", NOTHING, TUNING % "a", ["+ /etc/npu-affinity/t.json  governor=a  numa_balancing=0"]),
}


def file(text, mode=0o644):
    return FileState(text, None if text is None else mode)


def told(diff):
    """The lines of a diff that has one part only, without its title."""
    (entry,) = diff.document()
    return [line[2:] for line in entry["prepared"].splitlines()[1:]]


@pytest.mark.parametrize(("path", "before", "after", "lines"), FILES.values(), ids=list(FILES))
def test_a_file_of_ours_is_a_line(path, before, after, lines):
    assert told(diffs.Diff().add_files({path: (file(before), file(after))})) == lines


def test_modes_links_and_private_files():
    text = SLICE % "0"
    assert told(diffs.Diff().add_files({UNIT: (file(text), file(text, 0o755))})) == ["~ npu-0.slice  mode 0644 -> 0755"]
    assert told(diffs.Diff().add_files({UNIT: (file(None), FileState(None, None, "/dev/null"))})) == [
        "+ npu-0.slice  symbolic link to /dev/null"
    ]
    assert told(diffs.Diff().add_files({UNIT: (FileState(None, None, "/dev/null"), file(text))})) == [
        "~ npu-0.slice  symbolic link to /dev/null -> a file"
    ]
    assert told(diffs.Diff().add_files({UNIT: (file(None), file(text, 0o600))})) == ["+ npu-0.slice  (not shown; mode 0600)"]
    assert told(diffs.Diff().add_files({UNIT: (file(text, 0o600), file(text + "A=secret\n", 0o600))})) == ["~ npu-0.slice  (not shown)"]


def test_a_file_of_others_is_shown_as_it_is():
    (entry,) = diffs.Diff().add_files({UNIT: (file("[Slice]\nCPUWeight=50\n"), file(SLICE % "0"))}).document()
    assert entry == {"before_header": UNIT, "after_header": UNIT, "before": "[Slice]\nCPUWeight=50\n", "after": SLICE % "0"}
    (entry,) = diffs.Diff().add_files({UNIT: (file("secret\n", 0o640), file(SLICE % "0"))}).document()
    assert (entry["before"], entry["after"]) == ("(not shown; mode 0640)\n", "(not shown; mode 0644)\n")


def test_many_files_that_go_with_their_folder_are_one_line():
    folder = "/etc/npu-affinity/history"
    states = {"%s/%d.json" % (folder, number): (file("{}"), file(None)) for number in range(6)}
    assert told(diffs.Diff().add_files(states)) == ["- 6 files in " + folder]
    few = dict(list(states.items())[:2])
    assert told(diffs.Diff().add_files(few)) == ["- %s/0.json" % folder, "- %s/1.json" % folder]


VERSION = 'VERSION = "%s"\n'
NEW = OURS + VERSION % VERSION_OF_OURS
PROGRAMS = {
    "new": (None, NEW, ["+ %s: none -> version " + VERSION_OF_OURS]),
    "another version": (OURS + VERSION % "0.0.9", NEW, ["~ %s: version 0.0.9 -> version " + VERSION_OF_OURS]),
    "by hand": (NEW + "1\n", NEW, ["~ %s: other content -> version " + VERSION_OF_OURS]),
    "removed": (OURS + VERSION % "0.0.9", None, ["- %s: version 0.0.9 -> none"]),
}


@pytest.mark.parametrize(("before", "after", "lines"), PROGRAMS.values(), ids=list(PROGRAMS))
def test_the_host_code_is_one_line(before, after, lines):
    changes = {installed.ARCHIVE: (file(before), file(after))}
    assert told(diffs.Diff().add_files(changes)) == [line % installed.ARCHIVE for line in lines]


def entry(number, pool, **others):
    return {"id": number, "chip": 0, "pci": "0000:0%d:00.0" % number, "pool": pool, "slice": "npu-%d.slice" % number, **others}


def plan(*npus, **others):
    return {"strategy": "topo_affinity", "cpus": "0-31", "npus": list(npus), **others}


A, B = entry(1, "0-15", irq="0-1"), entry(2, "16-31")
PLANS = {
    "the first": (
        None,
        plan(A, B),
        ["+ strategy topo_affinity, CPUs 0-31", "+ NPU 1 (0000:01:00.0): CPUs 0-15, irq 0-1", "+ NPU 2 (0000:02:00.0): CPUs 16-31"],
    ),
    "the last": (plan(B), None, ["- strategy topo_affinity, CPUs 0-31", "- NPU 2 (0000:02:00.0): CPUs 16-31"]),
    "housekeeping": (
        plan(A, B),
        plan(entry(1, "2-15", irq="2-3"), B, housekeeping="0-1"),
        ["~ housekeeping none -> 0-1", "~ NPU 1 (0000:01:00.0): CPUs 0-15 -> 2-15, irq 0-1 -> 2-3"],
    ),
    "kv": (plan(A), plan({**A, "kv": "4-5"}), ["~ NPU 1 (0000:01:00.0): kv none -> 4-5"]),
    "a card that cannot be found": (plan(A, B), plan(B, lost=[A]), ["~ NPU 1 (0000:01:00.0): state found -> not found"]),
    "planned again without it": (
        plan(B, lost=[A]),
        plan(entry(1, "0-31", pci="0000:02:00.0")),
        [
            "~ NPU 1 (0000:02:00.0): CPUs 16-31 -> 0-31, id 2 -> 1, slice npu-2.slice -> npu-1.slice",
            "- NPU 1 (0000:01:00.0): CPUs 0-15, irq 0-1",
        ],
    ),
    "a broken one": ("{", plan(B), ["+ strategy topo_affinity, CPUs 0-31", "+ NPU 2 (0000:02:00.0): CPUs 16-31"]),
}


@pytest.mark.parametrize(("before", "after", "lines"), PLANS.values(), ids=list(PLANS))
def test_a_plan_is_a_line_for_every_npu_that_differs(before, after, lines):
    states = [file(text if text is None or isinstance(text, str) else json.dumps(text)) for text in (before, after)]
    assert told(diffs.Diff().add_files({PATH: states})) == lines


def test_systemd_is_told_in_a_line_for_every_verb():
    actions = ["enable a.service", "start a.slice", "enable b.timer", "put irqbalance.service back to what it was"]
    (shown,) = diffs.Diff().add_files({}, actions, ["vllm@0.service"]).document()
    assert shown["prepared"] == (
        "systemd:\n  enable a.service, b.timer\n  start a.slice\n  put irqbalance.service back to what it was\n"
        "wait for a restart:\n  vllm@0.service\n"
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

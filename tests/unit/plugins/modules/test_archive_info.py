# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever somebody sends: each bad archive is a sentence, takes little memory and time, and the good ones next to it are read."""

import copy
import json
import os
import subprocess
import sys

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import Request, collect
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import reading
from tests.fakes.small_host import two_cards
from tests.simulator import generate as simulator

MIB = 1 << 20
DELETED = object()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The document of an archive."""
    root = tmp_path_factory.mktemp("host") / "root"
    simulator.generate(two_cards(0, 1), root)
    archive, warnings = collect(str(root), 30, Request("good"))
    assert warnings == []
    return json.loads(json.dumps(archive))


def nested(depth, opening="[", closing="]"):
    return (opening * depth + "1" + closing * depth).encode()


# what is no JSON of an archive, what is no UTF-8 or has more than text, and what is too large or too deep
BROKEN = [b"", b" \n", b"hello", b"\x1f\x8b\x08" + bytes(100), b'{"schema": 1', b"{}{}", b"[]", b'"schema"', b"null", b'{"schema": NaN}']
ENCODED = [b'{"schema": 1, "host": "\xff"}', "{}".encode("utf-16"), b"\xef\xbb\xbf{}", bytes(100)]
LARGE = [b"[" + b" " * (9 * MIB) + b"]", b"[" + b"{}," * (2 * MIB) + b"{}]", b'{"schema": ' + b"9" * 100_000 + b"}"]
DEEP = [nested(100_000), nested(100_000, '{"a": ', "}"), nested(900)]  # the last one as deep as Python lets it be
# members of a good archive, and what somebody may have in the place of each
MEMBERS = {
    "schema": (DELETED, None, "1", [1], True, 1.5, 0, -1, 99, 10**30),
    "host": (DELETED, 7, None, ["a"], "x" * 2 * MIB, "\ud800"),
    "settings": ([1], "a", None),
    "settings.npu_affinity_npus": ("\ud800",),
    "time": (1,),
    "more": ({},),
    "topology": (None,),
    "topology.npus": (DELETED, {}),
    "topology.npus.0": ("npu",),
    "topology.npus.0.pci": (7,),
    "topology.npus.0.id": ("0",),
    "topology.npus.0.more": (1,),
    "topology.npus.0.affinity": (["0-7"],),
    "topology.npus.0.memory_mib": (1 << 70,),
    "topology.cpus.online": (7,),
    "topology.cpus.siblings": (["0", 1],),
    "topology.numa.0.distances": ({"0": "10"},),
    "topology.problems": ([{}],),
    "topology.users": ([{"name": "a"}],),
    "topology.drop_ins": ({"a": 1},),
    "topology.applied": ([], {"npus": [{"id": 0}]}, {"npus": [{"id": 0, "pool": "x"}]}),
    "in_force": ([], {"files": [{"path": 1}]}),
    "compared": ({}, {"msg": 7}, None),
    "compared.bound": ("yes",),
    "compared.drift": ([{"code": "NPU_FILE_CHANGED"}],),
    "compared.checked": ({"npus": "0"},),
    "compared.last_change": ({"id": 1},),
    "tools.0.rc": ("0",),
    "tools.0.output": ("text",),
}


def forged(document, path, value):
    inner = changed = copy.deepcopy(document)
    *folders, name = (int(key) if key.isdigit() else key for key in path.split("."))
    for key in folders:
        inner = inner[key]
    if value is DELETED:
        del inner[name]
    else:
        inner[name] = value
    return json.dumps(changed).encode()


def test_forged_archives_are_refused_and_good_ones_read(good, tmp_path):
    (tmp_path / "z.json").write_text(json.dumps(good))
    sent = [*BROKEN, *ENCODED, *LARGE, *DEEP, *(forged(good, path, value) for path, values in MEMBERS.items() for value in values)]
    for number, data in enumerate(sent):
        (tmp_path / f"{number:03}.json").write_bytes(data)
    os.mkfifo(tmp_path / "a-fifo.json")
    (tmp_path / "b.json").symlink_to("nowhere")
    (tmp_path / "c.json").mkdir()
    (tmp_path / "d.json").symlink_to("/dev/zero")
    rows, refused = reading.opened(str(tmp_path))
    assert [row["name"] for row in rows] == ["good"]
    assert [f"{number:03}.json" for number, sentence in enumerate(refused[: len(sent)]) if f"/{number:03}.json" not in sentence] == []
    assert len(refused) == len(sent) + 4
    assert all(sentence.isprintable() and len(sentence) < 500 for sentence in refused)


WRONG = [
    ("schema", 99, "its schema is 99, not 1"),
    ("schema", "\x1b[2J", r"its schema is '\\x1b"),
    ("topology.npus.0.memory_mib", "7", "memory_mib is '7', and should be int"),
]


@pytest.mark.parametrize("path, value, words", WRONG)
def test_a_refusal_says_what_is_wrong(good, tmp_path, path, value, words):
    (tmp_path / "x.json").write_bytes(forged(good, path, value))
    with pytest.raises(ValueError, match=words):
        reading.read(str(tmp_path / "x.json"))


READ = """
import re, resource, sys, time
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import reading
start = time.process_time()
for path in sys.argv[1:]:
    try:
        reading.read(path)
    except ValueError as error:
        assert path in str(error)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) >> 10, time.process_time() - start)
"""
HEAVY = {
    "lists": lambda good: forged(good, "settings.a", [[]] * (7 * MIB // 4)),
    "texts": lambda good: forged(good, "topology.problems", ["a"] * (7 * MIB // 5)),
    "names": lambda good: forged(good, "settings.a", {str(number): 1 for number in range(7 * MIB // 14)}),
}


def test_a_large_archive_takes_little_memory_and_time(good, tmp_path):
    files = [tmp_path / f"{name}.json" for name in HEAVY]
    for path, make in zip(files, HEAVY.values(), strict=True):
        path.write_bytes(make(good))
    run = subprocess.run([sys.executable, "-c", READ, *map(str, files)], capture_output=True, text=True, check=True)
    memory, seconds = map(float, run.stdout.split())
    assert memory < 600 and seconds < 60


def test_names_of_hosts_are_free_and_none_of_groups(good, tmp_path):
    names = ["all", "ungrouped", "npu_affinity_archives", "removed", "node1", "node1", "../Ä b" + "x" * 100]
    for number, name in enumerate(names):
        (tmp_path / f"{number}-x.json").write_text(json.dumps({**good, "host": name}))
    rows, refused = reading.opened(str(tmp_path))
    assert refused == [] and [row["name"] for row in rows[:6]] == ["0-x", "1-x", "2-x", "3-x", "node1", "5-x"]
    assert rows[6]["name"] == "b" + "x" * 63


@pytest.mark.parametrize(
    "read, sentence",
    [
        (lambda folder: reading.opened(f"{folder}/empty"), "has no archive"),
        (lambda folder: reading.opened(f"{folder}/nowhere"), "nowhere cannot be read: No such file"),
        (lambda folder: reading.answer(f"{folder}/x.json", "host_files", {}), "module host_files needs a host"),
    ],
)
def test_what_an_archive_cannot_answer_is_said(good, tmp_path, read, sentence):
    (tmp_path / "x.json").write_text(json.dumps(good))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/notes.txt").write_text("x")
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path)


@pytest.mark.parametrize("must_be_bound", [True, False])
def test_a_host_never_bound_is_drift_if_it_must_be_bound(good, tmp_path, must_be_bound):
    (tmp_path / "x.json").write_text(json.dumps(good))
    answer = reading.answer(str(tmp_path / "x.json"), "binding_info", {"must_be_bound": must_be_bound, "desired": None})
    assert [finding["cause"] for finding in answer["drift"]] == ["never bound"] * must_be_bound

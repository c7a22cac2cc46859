# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever somebody sends: each bad archive is a sentence, takes little memory and time, and the good ones next to it are opened."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import tarfile
import time
import types

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._archive.opening import open_archive
from ansible_collections.npu.affinity.plugins.module_utils._host.recorded import MANIFEST, host_at
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.looking import open_archives

MIB = 1 << 20
ZEROS = bytes(MIB)
LEAST = {"schema": 1, "host": "bad", "commands": []}


def of(**values):
    return json.dumps({**LEAST, **values}).encode()


def deep(depth, opening="[", closing="]"):
    return b'{"schema": 1, "settings": {"a": ' + (opening * depth + "1" + closing * depth).encode() + b"}}"


# what somebody may send as a manifest, by what is wrong with it
MANIFESTS = {
    "empty": b"",
    "blank": b" \n",
    "not JSON": b"hello",
    "cut short": of()[:-5],
    "two documents": of() + of(),
    "a list": b"[]",
    "a text": b'"schema"',
    "a number": b"1",
    "null": b"null",
    "not UTF-8": b'{"schema": 1, "host": "\xff"}',
    "UTF-16": of().decode().encode("utf-16"),
    "UTF-32": of().decode().encode("utf-32-le"),
    "a byte order mark": b"\xef\xbb\xbf" + of(),
    "NUL bytes": bytes(100),
    "too large": b"[" + b" " * (9 * MIB) + b"]",
    "many small objects": b'{"schema": 1, "absent": [' + b"{}," * (2 * MIB) + b"{}]}",
    "deep lists": deep(100_000),
    "deep objects": deep(100_000, '{"a": ', "}"),
    "lists as deep as Python lets them be": deep(900),
    "settings a little too deep": deep(12),
    "an endless number": b'{"schema": ' + b"9" * 100_000 + b"}",
    "a long number inside": b'{"schema": 1, "settings": {"a": ' + b"1" * 5000 + b"}}",
    "NaN": b'{"schema": NaN}',
    "Infinity inside": b'{"schema": 1, "settings": {"a": -Infinity}}',
    "no schema": json.dumps({"host": "bad", "commands": []}).encode(),
    "schema null": of(schema=None),
    "schema text": of(schema="1"),
    "schema list": of(schema=[1]),
    "schema true": of(schema=True),
    "schema float": of(schema=1.5),
    "schema 0": of(schema=0),
    "schema -1": of(schema=-1),
    "schema of a newer version": of(schema=99),
    "newer, and a version of another shape": of(schema=99, version={"a": "\x1b[2J"}),
    "host number": of(host=7),
    "host null": of(host=None),
    "host list": of(host=["a"]),
    "host with a control character": of(host="\x1b[2Jx"),
    "host with a line end": of(host="a\nb"),
    "host without end": of(host="x" * 100_000),
    "source object": of(source={}),
    "time number": of(time=1),
    "time with an escape": of(time="\x1b]0;x\x07"),
    "version list": of(version=[]),
    "live text": of(live="yes"),
    "settings list": of(settings=[1]),
    "settings text": of(settings="a"),
    "settings with a name without end": of(settings={"x" * 10_000: 1}),
    "settings with an escape in a name": of(settings={"\x1b[2J": 1}),
    "settings that are too large": of(settings={"npu_affinity_npus": "x" * MIB}),
    "settings with half a character": of(settings={"npu_affinity_npus": "\ud800"}),
    "programs list": of(programs=["npu-smi"]),
    "programs of another type": of(programs={"npu-smi": 7}),
    "commands object": of(commands={}),
    "commands of texts": of(commands=["npu-smi info"]),
    "commands of lists": of(commands=[["npu-smi"]]),
    "command without words": of(commands=[{"rc": 0}]),
    "command of no words": of(commands=[{"argv": [], "rc": 0}]),
    "command as one text": of(commands=[{"argv": "npu-smi info", "rc": 0}]),
    "command with numbers": of(commands=[{"argv": [1, 2], "rc": 0}]),
    "status text": of(commands=[{"argv": ["a"], "rc": "0"}]),
    "status null": of(commands=[{"argv": ["a"], "rc": None}]),
    "status true": of(commands=[{"argv": ["a"], "rc": True}]),
    "no status and no error": of(commands=[{"argv": ["a"]}]),
    "error list": of(commands=[{"argv": ["a"], "error": ["x"]}]),
    "answer in a file of another type": of(commands=[{"argv": ["a"], "rc": 0, "file": 7}]),
    "answer in a file above": of(commands=[{"argv": ["a"], "rc": 0, "file": "../../etc/passwd"}]),
    "answer of another type": of(commands=[{"argv": ["a"], "rc": 0, "output": {}}]),
    "absent text": of(absent="/a"),
    "absent of numbers": of(absent=[1]),
    "absent without a slash": of(absent=["a"]),
    "absent with NUL": of(absent=["/a\0b"]),
    "absent with half a character": of(absent=["/\ud800"]),
    "whole of lists": of(whole=[[]]),
    "unread null": of(unread=None),
    "unreadable of objects": of(unreadable=[{}]),
    "links list": of(links=[]),
    "links to numbers": of(links={"/a": 1}),
    "links to nothing": of(links={"/a": ""}),
    "links with NUL": of(links={"/a\0": "/b"}),
    "links to NUL": of(links={"/a": "/b\0"}),
    "links above": of(links={"/../a": "/b"}),
    "links behind links": of(links={"/a": "/b", "/a/c": "/d"}),
    "links with a name without end": of(links={"/" + "x" * 5000: "/b"}),
    "link without end": of(links={"/a": "/" + "x" * 10_000}),
    "link in place of the manifest": of(links={"/" + MANIFEST: "/etc/passwd"}),
    "folders list": of(folders=[]),
    "folders of texts": of(folders={"/proc": "*"}),
    "folders of numbers": of(folders={"/proc": [1]}),
    "folders null": of(folders={"/proc": None}),
    "names of texts": of(names={"/proc": "7"}),
    "names of numbers": of(names={"/proc": [7]}),
    "names that lead elsewhere": of(names={"/proc": ["../../x"]}),
    "names of above": of(names={"/proc": [".."]}),
    "names without a slash": of(names={"proc": ["7"]}),
}


def header(name, size=0, kind=b"0", target=""):
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = size, kind, target
    return entry.tobuf(tarfile.GNU_FORMAT)


def packed(path, *parts):
    with gzip.open(path, "wb", 9) as file:
        for part in parts:
            file.write(part)
    return path


def member(name, data):
    return header(name, len(data)) + data + bytes(-len(data) % 512)


def opened(sent, target):
    """What the step of playbook inspect returns of a folder of archives."""
    settings = types.SimpleNamespace(of_playbooks=lambda: {"archives": str(sent)})
    return open_archives(types.SimpleNamespace(settings=settings, say=lambda lines: None), str(target))


def good(path):
    return packed(path, member(MANIFEST, of(host="good")), member("sys/a", b"1\n"), bytes(1024))


def test_odd_manifests_are_reported_and_good_archives_opened(tmp_path):
    (tmp_path / "sent").mkdir()
    for number, data in enumerate(MANIFESTS.values()):
        packed(tmp_path / "sent" / ("%03d.tar.gz" % number), member("sys/a", b""), member(MANIFEST, data), bytes(1024))
    good(tmp_path / "sent/z.tar.gz")
    result = opened(tmp_path / "sent", tmp_path / "opened")
    assert [entry["name"] for entry in result["archives"]] == ["good"]
    for number, sentence in zip(range(len(MANIFESTS)), result["refused"], strict=True):
        assert "%03d.tar.gz" % number in sentence and sentence.isprintable() and len(sentence) < 1000
    assert os.listdir(tmp_path / "opened") == ["good"]


def test_what_a_manifest_may_lack_or_have_besides(tmp_path):
    data = of(about="x", more={"a": [1]}, host="Ä ö/../" + "x" * 100, names={"/proc": ["7", "x\udc80"]}, live=True)
    path = packed(tmp_path / "x.tar.gz", member("sys/a", b""), member(MANIFEST, data), bytes(1024))
    opened = open_archive(str(path), str(tmp_path / "opened"), {})
    assert opened.name == ("Ä-ö-..-" + "x" * 100)[:64] and "more" not in opened.manifest
    assert host_at(opened.folder).names("/proc") == ["7", "x\udc80"]


def pax(*records):
    data = b""
    for record in records:
        length = len(record) + 3
        while len(b"%d %s\n" % (length, record)) != length:
            length += 1
        data += b"%d %s\n" % (length, record)
    return header("x", len(data), b"x") + data + bytes(-len(data) % 512)


def sparse():
    block = bytearray(header("sys/sparse", 512, b"S"))
    block[482] = 1
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + (b"\1" * 512) * 400_000


END = bytes(1024)
BOMBS = {
    "a pax header": lambda: [header("x", 1024 * MIB, b"x"), *[ZEROS] * 200, END],
    "a global pax header": lambda: [header("x", 1024 * MIB, b"g"), *[ZEROS] * 200, END],
    "a long name": lambda: [header("x", 1024 * MIB, b"L"), *[ZEROS] * 200, END],
    "a long link": lambda: [header("x", 1024 * MIB, b"K"), *[ZEROS] * 200, END],
    "pax headers without a member": lambda: [pax(*[b"k=v"] * 8000) * 40] * 100,
    "skipped members": lambda: [member("sys/a", b""), *[header("home/x") * 10_000] * 40, END],
    "headers of a sparse file": lambda: [sparse(), END],
    "members that are not files": lambda: [member("sys/a", b""), *[header("dev/x", 0, b"3") * 10_000] * 40, END],
    "files that are wanted": lambda: [header("sys/%d" % number, 12 * MIB) + ZEROS * 12 for number in range(10)],
    "a large file": lambda: [header("sys/a", 2048 * MIB), *[ZEROS] * 80],
    "a large manifest": lambda: [header(MANIFEST, 1024 * MIB), *[ZEROS] * 80],
    "a name without end": lambda: [pax(b"path=sys/" + b"x" * 60_000) + header("y"), END],
    "many long names": lambda: [pax(b"path=sys/%06d" % number + b"x/" * 500) + header("y") for number in range(7_000)],
    "deep folders": lambda: [member("sys/a", b""), pax(b"path=" + b"sys/" * 10_000), header("y"), END],
}
"""Archives of a few MiB that were up to gigabytes of memory, or minutes."""


OPEN = """
import re, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from ansible_collections.npu.affinity.plugins.module_utils._archive import opening
opening.TOGETHER = 64 << 20
try:
    opening.open_archive(sys.argv[1], sys.argv[2], {})
except ValueError as error:
    print(error)
    print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) >> 10, time.process_time())
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_archive_takes_little_memory_and_time(tmp_path, name):
    path = packed(tmp_path / "bomb.tar.gz", *BOMBS[name]())
    assert path.stat().st_size < 8 * MIB
    command = [sys.executable, "-c", OPEN, str(path), str(tmp_path / "opened")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.stderr == "" and process.returncode == 0
    sentence, used = process.stdout.splitlines()
    assert "bomb.tar.gz" in sentence and len(sentence) < 500
    memory, seconds = map(float, used.split())
    assert memory < 150 and seconds < 60
    assert os.listdir(tmp_path / "opened") == []


BROKEN = {
    "empty": b"",
    "text": b"hello\n" * 1000,
    "zeros": bytes(4096),
    "gzip and nothing": gzip.compress(b""),
    "gzip cut short": gzip.compress(random.Random(1).randbytes(5000))[:2000],
    "gzip with another header": b"\x1f\x8b\x09" + bytes(500),
    "bzip2 and nothing": b"BZh9",
    "xz and nothing": b"\xfd7zXZ\0" + bytes(100),
    "zip": b"PK\x03\x04" + bytes(500),
    "member cut short": header("sys/a", 10_000) + b"x",
    "negative size": None,
    "size that is no number": None,
    "pax header that is cut short": header("x", 100, b"x") + b"30 path=sys/a\n" + bytes(498),
    "pax header with a length of 0": pax(b"path=sys/a").replace(b"14 path", b"00 path"),
    "size in a pax header": pax(b"size=99999999999999999999999"),
    "size in a pax header that is negative": pax(b"size=-100") + member("sys/a", b"x" * 600),
    "sparse": header("sys/a", 512, b"S") + bytes(512),
    "name above": member("../x", b""),
    "absolute name": member("/etc/passwd", b""),
    "NUL in a name": pax(b"path=sys/a\0b") + member("sys/x", b""),
    "escape in a name": member("../\x1b[2J", b""),
    "file in place of a folder": member("sys/a", b"") + member("sys/a/b", b""),
    "folder in place of a file": member("sys/a/b", b"") + member("sys/a", b""),
    "no machine": member("README", b"hello"),
}


def changed(block, place, text):
    block = bytearray(block)
    block[place : place + len(text)] = text
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


BROKEN["negative size"] = changed(header("sys/a"), 124, b"\xff" * 12)
BROKEN["size that is no number"] = changed(header("sys/a"), 124, b"-0000000001\0")


def test_broken_archives_are_reported_and_good_ones_opened(tmp_path):
    (tmp_path / "sent").mkdir()
    for number, data in enumerate(BROKEN.values()):
        (tmp_path / "sent" / ("%03d.tar" % number)).write_bytes(data + (bytes(1024) if len(data) % 512 == 0 else b""))
    os.mkfifo(tmp_path / "sent/a-fifo.tar")
    (tmp_path / "sent/b.tar").symlink_to("nowhere")
    (tmp_path / "sent/c.tar").mkdir()
    (tmp_path / "sent/unpacked/sos_commands").mkdir(parents=True)
    os.mkfifo(tmp_path / "sent/unpacked/sos_commands/lspci_-nnvv")
    good(tmp_path / "sent/z.tar.gz")
    result = opened(tmp_path / "sent", tmp_path / "opened")
    assert [entry["name"] for entry in result["archives"]] == ["good"]
    assert len(result["refused"]) == len(BROKEN) + 4
    assert all(sentence.isprintable() and len(sentence) < 500 for sentence in result["refused"])


@pytest.mark.parametrize("seed", range(20))
def test_an_archive_with_random_bytes_is_opened_or_a_sentence(tmp_path, seed):
    chance = random.Random(seed)
    whole = bytearray(gzip.decompress(good(tmp_path / "good.tar.gz").read_bytes()))
    for _count in range(chance.randint(1, 30)):
        whole[chance.randrange(len(whole))] = chance.choice([0, 1, 45, 46, 47, 48, 55, 120, 128, 255, chance.randrange(256)])
        if chance.random() < 0.5:  # with a checksum that holds, so that what is behind it is looked at
            at = chance.randrange(0, len(whole) - 512, 512)
            whole[at : at + 512] = changed(whole[at : at + 512], 0, b"")
    compressed = bytearray(gzip.compress(bytes(whole)))
    if seed % 4 == 0:
        compressed[chance.randrange(len(compressed))] ^= 1 << chance.randrange(8)
    (tmp_path / "x.tar.gz").write_bytes(compressed)
    try:
        open_archive(str(tmp_path / "x.tar.gz"), str(tmp_path / "opened"), {})
    except ValueError as error:
        assert "x.tar.gz" in str(error)


def test_what_a_sosreport_lists_of_the_bus_is_bounded(tmp_path):
    line = "[1200]: [19e5:" * 200_000
    functions = "".join("%04x:%02x:00.0 x [1200]: y [19e5:d802]\n" % (number >> 8, number & 255) for number in range(25_000))
    for name, text in (("one line", line), ("one address", "0" * 500_000 + ":c1:00.0 x [1200]: y [19e5:d802]")):
        path = packed(tmp_path / "x.tar.gz", member("sys/a", b""), member("sos_commands/pci/lspci_-nnvv", text.encode()), bytes(1024))
        start = time.process_time()
        opened = open_archive(str(path), str(tmp_path / name), {})
        assert time.process_time() - start < 2 and host_at(opened.folder).names("/sys/bus/pci/devices") == []
    path = packed(tmp_path / "x.tar.gz", member("sys/a", b""), member("sos_commands/pci/lspci_-nnvv", functions.encode()), bytes(1024))
    with pytest.raises(ValueError, match="more than 20000 PCI functions"):
        open_archive(str(path), str(tmp_path / "opened"), {})


def test_many_links_of_a_sosreport_take_no_time(tmp_path):
    links = b"".join(header("etc/%05d/x" % number, 0, b"2", "/a") for number in range(5_000))
    path = packed(tmp_path / "x.tar.gz", member("sys/a", b""), links, bytes(1024))
    start = time.process_time()
    open_archive(str(path), str(tmp_path / "opened"), {})
    assert time.process_time() - start < 20


def test_names_of_groups_are_no_names_of_hosts(tmp_path):
    taken = {}
    for name in ("all", "ungrouped", "npu_affinity_archives"):
        path = packed(tmp_path / "x.tar.gz", member(MANIFEST, of(host=name)), member("sys/a", b""), bytes(1024))
        assert open_archive(str(path), str(tmp_path / "opened"), taken).name.startswith("x")

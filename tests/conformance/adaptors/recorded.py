# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded hosts: runs of npu-smi, replayed, and real machines' sysfs trees.

The facts of a host are compared with a reading of the same texts with other means. ``index.json`` names for every text the arguments, the
product and the exit status. A product such as ``A2-910B3-onelost`` is a variant: what was not recorded for it answers as the product whose
name it begins with. Trees are ``<stem>.tar.xz``, and what is known about them is ``<stem>.json``.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator

from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import cpus as _cpus
from ansible_collections.npu.affinity.plugins.module_utils._kernel import pci as _pci
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from tests.fakes.programs import TOOL

QUESTIONS = ["info", "info -m", "info -t topo"]
MAPPED = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+(\d+))?\s+(?:Ascend )?(\S+)\s*$", re.MULTILINE)
SHOWN = re.compile(
    r"^\| (\d+) +(\S+) +\|[^|]+\|[^|]+\|\n\| (\d+) +\d* *\| (\S+) +\|.*?/ *(\d+) *(?:\d+ */ *(\d+) *)?\|$", re.MULTILINE
)  # fmt: skip
BUSY = re.compile(r"^\| (\d+) +(\d+) +\| \d+ +\|", re.MULTILINE)
AFFINITY = re.compile(r"^(NPU|Phy-ID)(\d+) .* (\d+-[\d,-]+) *$", re.MULTILINE)
SHARED = re.compile(r"Device-share Status +: (True|False)\s+Chip ID +: (\d+)")
ABOUT = {"dump", "source", "fidelity", "machine", "notes", "possible_cpus", "package_groups"}
FIELDS = ABOUT | {
    "online_cpus", "present_cpus", "online_nodes", "nodes", "threads_per_core", "smt_sibling_groups", "cluster_groups", "l3", "pci",
}  # fmt: skip
NODE_FIELDS = {"id", "cpulist", "online_cpus", "mem_total_kib", "mem_free_kib", "distances"}
PCI_FIELDS = {"bdf", "numa_node", "class", "vendor", "device", "local_cpus", "msi_irqs"}


def runs(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    fields = {key: None for entry in document.values() for key in entry}
    yield "fields", functools.partial(require_known, fields, "argv product rc stdin user note", "the runs")
    for product in sorted({entry["product"] for entry in document.values()}):
        yield product, lambda product=product: check(answers_of(document, folder, product))


def answers_of(document: dict, folder: pathlib.Path, product: str) -> dict[str, tuple[str, int]]:
    """Return ``{arguments: (text, exit status)}``; of several runs with the same arguments the one with the plainest name."""
    answers = {}
    for name, entry in sorted(document.items(), key=lambda item: (len(item[1]["product"]), -len(item[0]))):
        if entry["argv"] is not None and (product == entry["product"] or product.startswith(entry["product"] + "-")):
            answers[" ".join(entry["argv"])] = ((folder / name).read_text(), entry["rc"])
    return answers


def check(answers: dict[str, tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        program = pathlib.Path(root, "usr/local/sbin/npu-smi")
        program.parent.mkdir(parents=True)
        program.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{TOOL}")
        program.chmod(0o755)
        program.with_name("npu-smi.json").write_text(json.dumps({words: {"text": text, "rc": rc} for words, (text, rc) in answers.items()}))
        facts = gather(Host(root), device_share=True)
        calls = program.with_name("npu-smi.calls").read_text().splitlines()
    expected = reading(answers)
    cards = sorted({npu["card"] for npu in expected})
    assert [{key: npu[key] for key in expected[0]} for npu in facts["npus"]] == expected if expected else facts["npus"] == []
    assert sorted(calls[: len(QUESTIONS)]) == sorted(QUESTIONS), "asked at once, so their order is open"
    assert calls[len(QUESTIONS) :] == [f"info -t device-share -i {card}" for card in cards]
    read = [answers[question] for question in QUESTIONS[: 3 if expected else 2]]
    assert all(any(f"status {rc}" in problem for problem in facts["problems"]) for words, rc in read if rc)


def reading(answers: dict[str, tuple[str, int]]) -> list[dict]:
    """Return what the texts say about every NPU, read with one regular expression for each text."""
    texts = {words: text for words, (text, status) in answers.items()}
    shown = {}
    for card, name, chip, pci, first, last in SHOWN.findall(texts["info"]):
        shown[int(card), int(chip)] = (name, pci.lower(), int(last or first))
    busy = {(int(card), int(chip)) for card, chip in BUSY.findall(texts["info"])}
    affinity = {(label, int(number)): cpus for label, number, cpus in AFFINITY.findall(texts["info -t topo"])}
    npus = []
    for card, chip, logic_id, phy_id, name in MAPPED.findall(texts["info -m"]):
        key = (int(card), int(chip))
        share = {chip: state == "True" for state, chip in SHARED.findall(texts.get(f"info -t device-share -i {card}", ""))}
        name, pci, memory = shown[key]
        physical = int(phy_id) if phy_id else None
        cpus = affinity.get(("NPU", key[0]) if physical is None else ("Phy-ID", physical))
        npu = {"kind": "npu", "id": int(logic_id), "card": key[0], "chip": key[1], "phy_id": physical, "name": name, "pci": pci}
        npus.append({**npu, "affinity": cpus, "memory_mib": memory, "device_share": share.get(chip), "busy": key in busy})
    return npus


@functools.cache
def unpacked(archive: pathlib.Path) -> tuple[Host, tempfile.TemporaryDirectory]:
    """Return the host of an archive with one folder, and the temporary directory that lives as long as it is referred to."""
    folder = tempfile.TemporaryDirectory(prefix="sysfs-")
    with tarfile.open(archive) as tar:
        tar.extractall(folder.name, filter="tar")
    (root,) = pathlib.Path(folder.name).iterdir()
    return Host(str(root)), folder


def trees(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    archive = folder / f"{document['dump']}.tar.xz"
    online = set(expand(document["online_cpus"]))

    def host() -> Host:
        return unpacked(archive)[0]

    def fields():
        unknown = set(document) - FIELDS
        unknown |= {key for node in document["nodes"] for key in node} - NODE_FIELDS
        unknown |= {key for device in document["pci"] for key in device} - PCI_FIELDS
        assert not unknown, f"unknown fields: {', '.join(sorted(unknown))}"

    def cpus():
        found = _cpus.cpus(host())
        assert found["online"] == document["online_cpus"]
        assert found["offline"] == compress(set(expand(document["present_cpus"])) - online)

    def cores():
        groups = document["smt_sibling_groups"]
        assert _cpus.cpus(host())["siblings"] == [group for group in groups if len(expand(group)) > 1]
        assert {len(expand(group)) for group in groups} == {document["threads_per_core"]}

    def caches():
        caches, clusters = [cache["cpus"] for cache in document["l3"]], document.get("cluster_groups", [])
        sizes = {len(expand(cluster)) for cluster in clusters}
        between = clusters and document["threads_per_core"] < min(sizes) and max(sizes) < min(len(expand(cache)) for cache in caches)
        assert _cpus.cpus(host())["caches"] == (clusters if between else caches)

    def nodes():
        found = _cpus.nodes(host(), online)
        expected = [(node["id"], node["online_cpus"], node["mem_total_kib"] // 1024, node["distances"]) for node in document["nodes"]]
        assert [(node["id"], node["cpus"], node["memory_mib"], node["distances"]) for node in found] == expected
        assert compress(node["id"] for node in found) == document["online_nodes"]

    def pci():
        expected = {device["bdf"]: device["numa_node"] for device in document["pci"]}
        found = {bdf: _pci.numa_node(host(), bdf) for bdf in host().names(_pci.DEVICE_FOLDER)}
        assert found == {bdf: None if node == -1 else node for bdf, node in expected.items()}

    for check in (fields, cpus, cores, caches, nodes, pci):
        yield check.__name__, check

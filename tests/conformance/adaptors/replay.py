# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded runs of npu-smi, replayed: the facts of a host against a reading of the same texts with other means.

``index.json`` names for every text the arguments, the product and the exit status. A product such as ``A2-910B3-onelost`` is a
variant: what was not recorded for it answers as the product whose name it begins with.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator

from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather

QUESTIONS = ["info", "info -m", "info -t topo"]
REPLAY = """#!%s -IS
import json, sys
with open(__file__ + ".calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
with open(__file__ + ".json") as file:
    answers = json.load(file)
text, rc = answers.get(" ".join(sys.argv[1:]), ("Error parameter of -t\\n", 215))
sys.stdout.write(text)
sys.exit(rc)
"""
MAPPED = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+(\d+))?\s+(?:Ascend )?(\S+)\s*$", re.MULTILINE)
SHOWN = re.compile(
    r"^\| (\d+) +(\S+) +\|[^|]+\|[^|]+\|\n\| (\d+) +\d* *\| (\S+) +\|.*?/ *(\d+) *(?:\d+ */ *(\d+) *)?\|$", re.MULTILINE
)  # fmt: skip
BUSY = re.compile(r"^\| (\d+) +(\d+) +\| \d+ +\|", re.MULTILINE)
AFFINITY = re.compile(r"^(NPU|Phy-ID)(\d+) .* (\d+-[\d,-]+) *$", re.MULTILINE)
SHARED = re.compile(r"Device-share Status +: (True|False)\s+Chip ID +: (\d+)")


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
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
        program.write_text(REPLAY % os.path.realpath(sys.executable))
        program.chmod(0o755)
        program.with_name("npu-smi.json").write_text(json.dumps(answers))
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
        npus.append(
            {
                "kind": "npu",
                "id": int(logic_id),
                "card": key[0],
                "chip": key[1],
                "phy_id": int(phy_id) if phy_id else None,
                "name": name,
                "pci": pci,
                "affinity": affinity.get(("Phy-ID", int(phy_id)) if phy_id else ("NPU", key[0])),
                "memory_mib": memory,
                "device_share": share.get(chip),
                "busy": key in busy,
            }
        )
    return npus

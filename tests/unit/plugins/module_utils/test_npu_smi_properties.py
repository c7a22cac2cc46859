# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Properties of the readers of npu-smi and nvidia-smi: what a renderer writes they read back, and nothing makes them crash."""

from __future__ import annotations

import pytest

from hypothesis import given, settings
from hypothesis import strategies as st
from test_npu_smi import A2, A3, A5, ANSWERS, DUO, OLD_310

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi, _nvidia_smi
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._smi.tables import damaged_rows

PARSERS = [getattr(_npu_smi, name) for name in _npu_smi.__all__ if name.startswith("parse_")]
PARSERS += [_nvidia_smi.parse_nvidia_topo, _nvidia_smi.parse_nvidia_csv]

card_ids = st.integers(0, 40000)
amounts = st.integers(0, 200000)
names = st.sampled_from(["910B3", "910B4-1", "Ascend910", "310P3", "310Pvir01", "310", "Ascend950DT"])
healths = st.sampled_from(["OK", "Warning", "Alarm", "Critical", "NA", "UNKNOWN_STATE_WITH_A_LONG_NAME"])
pcis = st.one_of(st.none(), st.builds("{:04x}:{:02x}:{:02x}.0".format, st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31)))
cpulists = st.sets(st.integers(0, 639), min_size=1, max_size=40).map(compress)
gaps = st.integers(1, 6)
noise = st.lists(
    st.sampled_from(
        ["", "[INFO limiter::manager] started (PID: 10)", "DrvMngGetConsoleLogLevel failed. (ret=4)", "root@host:~# npu-smi info"]
    ),
    max_size=3,
)
chips = st.builds(
    dict,
    card=card_ids,
    chip=st.integers(0, 3),
    phy_id=st.integers(0, 63),
    logic_id=st.integers(0, 63),
    name=names,
    health=healths,
    pci=pcis,
    memory_total_mib=amounts,
    memory_used_mib=amounts,
)
processes = st.builds(
    dict,
    card=card_ids,
    chip=st.integers(0, 3),
    pid=st.integers(1, 4194304),
    name=st.sampled_from(["", "python3", "VLLM::Worker_TP"]),
    memory_mib=amounts,
)


class Table:
    """Writes rows as npu-smi does, but with the given gaps and frames."""

    def __init__(self, draw):
        self.draw = draw
        self.lines = draw(noise)

    def row(self, *cells):
        blank = " " * self.draw(gaps)
        self.lines.append(
            "|" + "|".join(blank + (blank + " ").join(words) + blank for words in cells) + "|" + " " * self.draw(st.integers(0, 2))
        )

    def frame(self):
        width = self.draw(st.integers(4, 116))
        self.lines += self.draw(
            st.sampled_from([[], ["+" + "=" * width + "+"], ["-" * width], ["+---+" + "-" * width + "+"], ["|" + "=" * width + "|"]])
        )

    def text(self):
        return self.draw(st.sampled_from(["\n", "\r\n"])).join(self.lines)


def pci_words(chip):
    return [chip["pci"].upper() if chip["pci"] else "NA"]


def usage(draw, chip):
    return "%d%s/%s%d" % (chip["memory_used_mib"], " " * draw(st.integers(0, 4)), " " * draw(st.integers(0, 2)), chip["memory_total_mib"])


@st.composite
def infos(draw):
    second = draw(st.sampled_from([None, "Phy-ID", "Device"]))
    separate, hbm, own_process_cell = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    expected = {"version": draw(st.sampled_from(["23.0.rc2", "25.5.1", "24.1.RC2"])), "chips": draw(st.lists(chips, max_size=16))}
    expected["processes"] = draw(st.lists(processes, max_size=5))
    table = Table(draw)
    table.frame()
    table.row(["npu-smi", "9.9", "Version:", expected["version"]])
    table.frame()
    memory = ["Memory-Usage(MB)"] + ["HBM-Usage(MB)"] * hbm
    if separate:  # A5: NPU and name in cells of their own, no chip
        table.row(["NPU", "ID"], ["Name"], ["Health"], ["Power(W)", "Temp(C)"])
        table.row([""], [""], ["Bus-Id"], ["NPU", "Util(%)"] + memory)
    else:
        table.row(["NPU", "Name"], ["Health"], ["Power(W)", "Temp(C)", "Hugepages-Usage(page)"])
        table.row(["Chip"] + ([second] if second else []), ["Bus-Id"], ["AICore(%)"] + memory)
    for chip in expected["chips"]:
        table.frame()
        upper = [[chip["health"]], [draw(st.sampled_from(["-", "NA", "88.1"])), "40", "0    / 0"]]
        fields = ["0"] + ["0    / 0"] * hbm + [usage(draw, chip)]
        table.row(*([[str(chip["card"])], [chip["name"]]] if separate else [[str(chip["card"]), chip["name"]]]), *upper)
        printed = {"Phy-ID": "phy_id", "Device": "logic_id"}.get(second)
        ids = [str(chip["chip"])] + ([str(chip[printed])] if printed else [])
        table.row(*([[""], [""]] if separate else [ids]), pci_words(chip), fields)
        for name in {"phy_id", "logic_id"} - (set() if separate else {printed}):
            chip[name] = None
        chip["chip"] = 0 if separate else chip["chip"]
        chip["health"] = None if chip["health"] == "NA" else chip["health"]
    table.frame()
    table.row(["NPU"] + (["ID"] if own_process_cell else ["Chip"]), ["Process id"], ["Process name"], ["Process memory(MB)"])
    table.row(["No running processes found in NPU 0"])
    for process in expected["processes"]:
        table.frame()
        ids = [str(process["card"])] + ([] if own_process_cell else [str(process["chip"])])
        table.row(ids, [str(process["pid"])], [process["name"]], [str(process["memory_mib"])])
        process["chip"] = None if own_process_cell else process["chip"]
    return table.text(), expected


@settings(max_examples=50, deadline=None)
@given(infos())
def test_info_reads_back_what_was_written(case):
    text, expected = case
    assert _npu_smi.parse_info(text) == expected


@st.composite
def mappings(draw):
    rows = draw(
        st.lists(st.fixed_dictionaries({"card": card_ids, "chip": st.integers(0, 3), "logic_id": amounts, "phy_id": amounts}), max_size=16)
    )
    logic, physical = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    columns = ["NPU ID"] + ["Slot ID"] * draw(st.integers(0, 1)) + ["Chip ID"] + ["Chip Logic ID"] * logic + ["Chip Phy-ID"] * physical
    keys = {"NPU ID": "card", "Slot ID": "card", "Chip ID": "chip", "Chip Logic ID": "logic_id", "Chip Phy-ID": "phy_id"}
    blank = " " * draw(gaps)
    lines = draw(noise) + ["\t" + blank.join([*columns, "Chip Name"])]
    for row in rows:
        row["name"] = draw(st.sampled_from(["Ascend 910B3", "Ascend910", "MiniD"]))
        lines.append("\t" + blank.join([str(row[keys[column]]) for column in columns] + [row["name"]]))
        dashes = ["-"] * (logic + physical)
        lines += [blank.join([str(row["card"])] * (len(columns) - len(dashes)) + dashes + ["Mcu"])] * draw(st.integers(0, 1))
        row.update({} if logic else {"logic_id": None}, **({} if physical else {"phy_id": None}))
    return "\n".join(lines), rows


@settings(max_examples=34, deadline=None)
@given(mappings())
def test_mapping_reads_back_what_was_written(case):
    text, rows = case
    assert _npu_smi.parse_mapping(text) == rows


@st.composite
def topologies(draw):
    prefix = draw(st.sampled_from(["NPU", "Phy-ID"]))
    numbers = sorted(draw(st.sets(card_ids, min_size=1, max_size=16)))
    labels = ["%s%d" % (prefix, number) for number in numbers]
    cards = ["NIC%d" % number for number in range(draw(st.integers(0, 4)))]
    with_cpus = draw(st.booleans())
    blank = " " * draw(gaps)
    link = st.sampled_from(["HCCS", "SYS", "PHB", "SIO", "HCCS_SW", "UB", "NA"])
    rows = []
    lines = draw(noise) + [draw(st.sampled_from(["", "\t   "])) + blank.join(labels + cards + ["CPU Affinity"] * with_cpus)]
    for label, number in zip(labels, numbers):
        links = {other: "X" if other == label else draw(link) for other in labels}
        affinity = draw(st.one_of(st.none(), cpulists)) if with_cpus else None
        rows.append({"label": label, "id": number, "affinity": affinity, "links": links})
        lines.append(blank.join([label, *links.values(), *(draw(link) for _card in cards), *([affinity] if affinity else [])]))
    lines += [blank.join([card, *(draw(link) for column in labels + cards)]) for card in cards]
    lines += ["", "Legend:", "", "  X    = Self", "  NA   = Unknown relationship."]
    return "\n".join(lines), rows


@settings(max_examples=34, deadline=None)
@given(topologies())
def test_topo_reads_back_what_was_written(case):
    text, rows = case
    assert _npu_smi.parse_topo(text) == rows


VOCABULARY = """\
| + - = . ... : , / NPU ID Chip Name Health Bus-Id Process id NPU0 NPU1 Phy-ID3 NIC0 CPU Affinity GPU0 GPU1 NUMA X HCCS
0 1 -1 0-3, 8 5-2 NA 0000:C1:00.0 OK 3 / 4 Memory-Usage(MB) HBM-Usage(MB) Name AICORE Vnpu index name memory.total
Device-share Status True Total Count npu-smi Version: Mcu ret is -8005 (Y/N) Usage: recover mode 99999999999999999999 ² ٣
"""
WORDS = st.sampled_from(VOCABULARY.split() + ["\x1b[4m", "\u00a0", "\t", "\n", "\r", "\x00", "\x0b", "\u2028"])


@pytest.mark.parametrize("parse", PARSERS)
@settings(max_examples=34, deadline=None)
@given(text=st.one_of(st.text(), st.lists(WORDS, max_size=60).map(" ".join), st.lists(WORDS, max_size=60).map("".join)))
def test_any_text_is_read_or_refused(parse, text):
    try:
        parse(text)
    except ValueError as error:
        assert str(error)


MAPPING = """\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t0                              0                              0                              Ascend 910B4
\t0                              1                              -                              Mcu
\t1                              0                              1                              Ascend 910B4
"""
TOPO = """\
\t   NPU0       NPU1       CPU Affinity
NPU0       X          HCCS       144-167
NPU1       HCCS       X          0-23
"""
VNPUS = """\
| Total number of vnpu: 1 |
| Vnpu ID | Vgroup ID | Container ID | Status | Template Name |
| 100 | 0 | 0123456789ab | 0 | vir04 |
"""
NVIDIA_TOPO = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-31\t0\nGPU1\tNV4\t X \t32-63\t1\n"
NVIDIA_CSV = "index, pci.bus_id, name, memory.total [MiB]\n0, 00000000:17:00.0, NVIDIA A100, 81920 MiB\n"
TEMPLATES = ANSWERS["parse_template_info"][0].values[0]
OUTPUTS = [A2, A3, A5, DUO, OLD_310, TEMPLATES, MAPPING, TOPO, VNPUS, NVIDIA_TOPO, NVIDIA_CSV]


@st.composite
def damaged_outputs(draw):
    """An answer as a pipe that broke, a terminal or a broken driver leaves it: lines and cells lost, swapped, repeated and cut short."""
    lines = draw(st.sampled_from(OUTPUTS)).splitlines()
    for _damage in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        cells = line.split("|")
        cut = draw(st.integers(0, len(line)))
        damaged = [
            [],
            [line[:cut]],
            [line[cut:]],
            [line.replace("|", "", draw(st.integers(1, 3)))],
            ["|".join(draw(st.permutations(cells)))],
            [line, lines[draw(st.integers(0, len(lines) - 1))]],
            [line[:cut] + draw(st.sampled_from(["|", " ", "-", "\x00", "²", "\x1b[2J"])) + line[cut + 1 :]],
        ]
        lines[place : place + 1] = draw(st.sampled_from(damaged))
        if not lines:
            break
    text = "\n".join(lines)
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@settings(max_examples=130, deadline=None)
@given(text=damaged_outputs())
def test_a_damaged_answer_is_read_or_refused(text):
    for parse in [*PARSERS, damaged_rows]:
        try:
            parse(text)
        except ValueError as error:
            assert str(error)


@settings(max_examples=34, deadline=None)
@given(text=st.one_of(st.text(), st.lists(WORDS, max_size=60).map(" ".join)), status=st.one_of(st.none(), st.integers(-64, 255)))
def test_a_failed_command_always_has_a_kind(text, status):
    kind = _npu_smi.classify_error(text, status)["error"]
    assert kind in ({*_npu_smi.NEXT_STEP} if status else {None, *_npu_smi.NEXT_STEP})

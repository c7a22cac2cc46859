# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import textwrap

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi
from ansible_collections.npu.affinity.plugins.module_utils._smi.tables import damaged_rows
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import (
    NpuSmiError,
    classify_error,
    parse_board,
    parse_device_share,
    parse_info,
    parse_key_values,
    parse_list,
    parse_mapping,
    parse_recover,
    parse_template_info,
    parse_topo,
    parse_phyid_remap,
    parse_vnpu_cores,
    parse_vnpu_info,
    parse_vnpu_mode,
    parse_vnpu_recover,
)

PARSERS = [getattr(_npu_smi, name) for name in _npu_smi.__all__ if name.startswith("parse_")]


def chip(card, number, pci, used, total, name="910B4", health="OK", phy_id=None, logic_id=None):
    return {
        "card": card,
        "chip": number,
        "phy_id": phy_id,
        "logic_id": logic_id,
        "name": name,
        "health": health,
        "pci": pci,
        "memory_total_mib": total,
        "memory_used_mib": used,
    }


def process(card, number, pid, name, memory_mib):
    return {"card": card, "chip": number, "pid": pid, "name": name, "memory_mib": memory_mib}


# npu-smi info -----------------------------------------------------------------------------------------------------

A2 = """\
[WARN] limiter not started
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc3.b7                                          |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B4               | OK            | 88.0        35                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          2811 / 32768         |
+===========================+===============+====================================================+
| 5     910B4-1             | Warning           | NA      -                 0    / 0             |
| 0                         | 0001:0A:00.0  | 0           0    / 0          30122/ 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 2       0                 | 4711          | python3.11               | 27001                   |
| 2       0                 | 4712          |                          | 12                      |
+===========================+===============+====================================================+
| No running processes found in NPU 5                                                            |
+===========================+===============+====================================================+
"""
A2_CHIPS = [
    chip(2, 0, "0000:c1:00.0", 2811, 32768),
    chip(5, 0, "0001:0a:00.0", 30122, 65536, name="910B4-1", health="Warning"),
]
A2_PROCESSES = [process(2, 0, 4711, "python3.11", 27001), process(2, 0, 4712, "", 12)]

A3 = """\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 26.0.rc1                            Version: 26.0.rc1                                                    |
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 3     Ascend910           | OK            | 150.2                33                      0    / 0                |
| 0     6                   | 0000:91:00.0  | 0                    0    / 0                3001 / 65536            |
+------------------------------------------------------------------------------------------------------------------+
| 3     Ascend910           | OK            | -                    34                      0    / 0                |
| 1     7                   | 0000:93:00.0  | 0                    0    / 0                2999 / 65536            |
+===========================+===============+======================================================================+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 3       1                 | 990           | VLLM::Worker       | 55001                 | 17                      |
+===========================+===============+======================================================================+
"""
A3_CHIPS = [
    chip(3, 0, "0000:91:00.0", 3001, 65536, name="Ascend910", phy_id=6),
    chip(3, 1, "0000:93:00.0", 2999, 65536, name="Ascend910", phy_id=7),
]

DUO = """\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.2.1                                   Version: 25.2.1                                       |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 2944    310P3                 | OK              | NA           41                0     / 0             |
| 0       0                     | 0000:0B:00.0    | 0            1500 / 44280                            |
+-------------------------------+-----------------+------------------------------------------------------+
| 2944    310P3                 | OK              | NA           42                0     / 0             |
| 1       1                     | 0000:0B:00.0    | 0            1400 / 43693                            |
+-------------------------------+-----------------+------------------------------------------------------+
"""
DUO_CHIPS = [
    chip(2944, 0, "0000:0b:00.0", 1500, 44280, name="310P3", logic_id=0),
    chip(2944, 1, "0000:0b:00.0", 1400, 43693, name="310P3", logic_id=1),
]

A5 = """\
+------------------------------------------------------------------------------------------------------------------+
| npu-smi 25.6.rc1                                 Version: 25.6.rc1                                               |
+--------+------------------+---------------+----------------------------------------------------------------------+
| NPU ID | Name             | Health        | Power(W)              Temp(C)                  Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%)           Memory-Usage(MB)         HBM-Usage(MB)         |
+========+==================+===============+======================================================================+
| 4      | Ascend950PR      | OK            | 301.0                 44                       0     / 0             |
|        |                  | NA            | 0                     0     / 0                4096  / 98304         |
+===========================+===============+======================================================================+
| 5      | Ascend950PR      | Alarm         | 305.5                 45                       0     / 0             |
|        |                  | 0000:F1:00.0  | 0                     0     / 0                4097  / 98304         |
+===========================+===============+======================================================================+
| NPU ID                    | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 5                         | 333           | VLLMWorker_TP      | 80000                 | NA                      |
+===========================+===============+======================================================================+
"""
A5_CHIPS = [
    chip(4, 0, None, 4096, 98304, name="Ascend950PR"),
    chip(5, 0, "0000:f1:00.0", 4097, 98304, name="Ascend950PR", health="Alarm"),
]

OLD_310 = """\
+------------------------------------------------------------------------------+
| npu-smi 20.2.2                       Version: 20.2.2                         |
+-------------------+-----------------+----------------------------------------+
| NPU     Name      | Health          | Power(W)          Temp(C)              |
| Chip    Device    | Bus-Id          | AICore(%)         Memory-Usage(MB)     |
+===================+=================+========================================+
| 1       310       | OK              | 12.8              41                   |
| 0       0         | 0000:01:00.0    | 0                 2500 / 8192          |
+-------------------+-----------------+----------------------------------------+
| 1       310       | OK              | 12.8              42                   |
| 3       3         | NA              | 0                 2501 / 8192          |
"""
OLD_310_CHIPS = [
    chip(1, 0, "0000:01:00.0", 2500, 8192, name="310", logic_id=0),
    chip(1, 3, None, 2501, 8192, name="310", logic_id=3),
]

FORMS_OF_INFO = [
    pytest.param(A2, "24.1.rc3.b7", A2_CHIPS, A2_PROCESSES, id="A2: one chip a card, versions differ, wide health cell"),
    pytest.param(A3, "26.0.rc1", A3_CHIPS, [process(3, 1, 990, "VLLM::Worker", 55001)], id="A3: two dies, five process columns"),
    pytest.param(DUO, "25.2.1", DUO_CHIPS, [], id="300I Duo: one bus id for two chips, no HBM, one frame for all"),
    pytest.param(A5, "25.6.rc1", A5_CHIPS, [process(5, None, 333, "VLLMWorker_TP", 80000)], id="A5: four cells, no chips, no bus id"),
    pytest.param(OLD_310, "20.2.2", OLD_310_CHIPS, [], id="310: no hugepages, no closing frame"),
]


@pytest.mark.parametrize("text, version, chips, processes", FORMS_OF_INFO)
def test_info_of_every_product(text, version, chips, processes):
    assert parse_info(text) == {"version": version, "chips": chips, "processes": processes}


DAMAGES = {
    "no frame lines": lambda text: "".join(line for line in text.splitlines(True) if not line.startswith("+")),
    "blanks collapsed": lambda text: re.sub(" +", " ", text),
    "blanks at line ends": lambda text: text.replace("|\n", "|   \n"),
    "CR LF": lambda text: text.replace("\n", "\r\n"),
    "no-break blanks": lambda text: text.replace(" ", "\u00a0"),
    "prompt and log lines before": lambda text: "[root@host ~]# npu-smi info | cat\nDrvMngGetConsoleLogLevel failed. (ret=4)\n" + text,
    "a log line like an error before": lambda text: "dcmi model initialized failed, because the device is used. ret is -8020\n" + text,
    "closing bars lost": lambda text: text.replace("|\n", "\n"),
    "warning after": lambda text: text + "[WARNING]The driver package may not be completely installed.\n",
    "frames everywhere": lambda text: text.replace("\n", "\n|-------|-------|-------|\n"),
    "indented": lambda text: textwrap.indent(text, "    "),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("text, version, chips, processes", FORMS_OF_INFO)
def test_info_survives_what_pasting_and_logging_do_to_it(text, version, chips, processes, damage):
    assert parse_info(damage(text)) == {"version": version, "chips": chips, "processes": processes}


def without_lines(text, *numbers):
    return "".join(line for number, line in enumerate(text.splitlines(True)) if number not in numbers)


WITHOUT_MEMORY = dict(A2_CHIPS[0], memory_used_mib=None, memory_total_mib=None)
PARTS = [
    pytest.param(without_lines(A2, 8), A2_CHIPS[1:], id="a chip whose second line is missing is left out"),
    pytest.param(without_lines(A2, 7), A2_CHIPS[1:], id="a second line without the first belongs to nobody"),
    pytest.param(
        A2.replace("| 0                         | 0000:C1:00.0", "...\n| 0                         | 0000:C1:00.0"),
        A2_CHIPS[1:],
        id="dots stand for left out lines, so the halves around them are different chips",
    ),
    pytest.param(A2.replace("2811 / 32768", "NA"), [WITHOUT_MEMORY, A2_CHIPS[1]], id="no HBM: the DDR is not taken for it"),
    pytest.param(A2.replace("0    / 0          2811", "NA                 2811"), A2_CHIPS, id="no DDR: the HBM is still the last"),
    pytest.param(
        A2.replace("          2811 / 32768         |", ""),
        [WITHOUT_MEMORY, A2_CHIPS[1]],
        id="a line cut before the HBM",
    ),
    pytest.param(A2.replace("| 2     910B4 ", "| x     910B4 "), A2_CHIPS[1:], id="a damaged card id"),
]


@pytest.mark.parametrize("text, chips", PARTS)
def test_info_yields_the_chips_that_can_be_read(text, chips):
    assert parse_info(text)["chips"] == chips


CUT = [
    pytest.param(A3, A3.replace("| 3     Ascend910           | OK            |", "| 3     Ascend910", 1), id="a row cut short"),
    pytest.param(A2, A2.replace("| Health        | Power", "| Health"), id="a heading that lost a bar"),
    pytest.param(A2, A2.replace("| Bus-Id        | AICore", "| AICore"), id="a heading that lost its bus"),
    pytest.param(A2, A2.replace("Health", "He"), id="a heading that is another word"),
    pytest.param(A2, without_lines(A2, 8), id="a chip without its second line"),
    pytest.param(DUO, DUO[: DUO.rindex("| 1       1")], id="an answer that ends within a chip"),
    pytest.param(A5, A5[: A5.index("333")], id="a process cut short"),
]


@pytest.mark.parametrize("whole", [A2, A3, DUO, A5], ids=["A2", "A3", "300I Duo", "A5"])
def test_an_answer_that_is_cut_anywhere_has_no_wrong_value(whole):
    found = parse_info(whole)
    start = whole.index("\n", whole.index("Bus-Id"))
    for end in range(start, len(whole)):
        text = whole[:end]
        rows = parse_info(text)
        for kind, lost in (("chips", (None,)), ("processes", (None, ""))):
            for here, there in zip(rows[kind], found[kind]):
                assert all(value in (there[name], *lost) for name, value in here.items()), text[-120:]
        last = text[text.rindex("\n") + 1 :].rstrip()
        is_row = last[2:3].isdigit() or last[8:9].isdigit()
        assert damaged_rows(text) or last.endswith("|") or not is_row, last


@pytest.mark.parametrize("whole, text", CUT)
def test_damaged_rows_are_named(whole, text):
    assert text != whole and damaged_rows(whole) == []
    assert all(line in map(str.strip, text.splitlines()) for line in damaged_rows(text)) and damaged_rows(text)


def test_process_table_alone_with_damaged_rows():
    text = "| NPU Chip | Process id | Process name |\n| broken |\n| a b | 10 | x |\n| 0 1 | 11 | vllm |\n| 1 0 | - | vllm |\n| 3 | 12 |\n"
    processes = [process(0, 1, 11, "vllm", None), process(3, None, 12, "", None)]
    assert parse_info(text) == {"version": None, "chips": [], "processes": processes}


@pytest.mark.parametrize("header", ["| NPU Name | Health | Power(W) |\n", "| NPU Chip | Process id | Process name |\n"])
def test_a_table_without_rows_is_an_empty_answer(header):
    assert parse_info(header) == {"version": None, "chips": [], "processes": []}


# npu-smi info -m --------------------------------------------------------------------------------------------------

MAPPINGS = [
    pytest.param(
        "\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name                     \n"
        "\t4                              0                              0                              Ascend 910B4\n"
        "\t4                              1                              -                              Mcu                           \n"
        "\t-1                             0                              -                              Mcu                           \n"
        "\t7                              0                              1                              Ascend 910B4\n",
        [(4, 0, 0, None, "Ascend 910B4"), (7, 0, 1, None, "Ascend 910B4")],
        id="A2: controllers and a dead chip are no NPUs, names have blanks",
    ),
    pytest.param(
        "driver log line\nNPU ID Chip ID Chip Logic ID Chip Phy-ID Chip Name\n6 0 0 12 Ascend910\n6 1 1 13 Ascend910\n6 2 - - Mcu\n",
        [(6, 0, 0, 12, "Ascend910"), (6, 1, 1, 13, "Ascend910")],
        id="A3: physical ids next to logic ids, blanks collapsed",
    ),
    pytest.param(
        "  NPU ID    Slot ID    Chip ID    Chip Phy-ID    Chip Name\r\n  3         1          0          8             Ascend950PR\r\n",
        [(3, 0, None, 8, "Ascend950PR")],
        id="A5: no logic id, another column in between",
    ),
    pytest.param(
        "NPU ID  Chip ID  Chip Logic ID  Chip Name\n6  0  0  MiniD\nNPU ID 6 is slow\n6  4  4  3559\n6  3  -  Other\n6  x  7  MiniD\n"
        "6  5  1\n6  Mcu\nlast line\n",
        [(6, 0, 0, None, "MiniD"), (6, 5, 1, None, None)],
        id="310: the host CPU of the card, a part without id, a row without name, damaged rows, log lines",
    ),
    pytest.param("NPU ID  Chip ID  Chip Logic ID  Chip Name\n", [], id="nothing but the header"),
]


@pytest.mark.parametrize("text, rows", MAPPINGS)
def test_mapping(text, rows):
    assert parse_mapping(text) == [dict(zip(("card", "chip", "logic_id", "phy_id", "name"), row)) for row in rows]


# npu-smi info -t topo ---------------------------------------------------------------------------------------------

TOPOLOGIES = [
    pytest.param(
        "\t   NPU1       NPU4       CPU Affinity\nNPU1       X          HCCS       24-47\nNPU4       HCCS       X          0-23\n\n"
        "Legend:\n\n  X    = Self\n  HCCS = Connection traversing HCCS.\n",
        [("NPU1", 1, "24-47", {"NPU1": "X", "NPU4": "HCCS"}), ("NPU4", 4, "0-23", {"NPU1": "HCCS", "NPU4": "X"})],
        id="A2 with gaps between the cards",
    ),
    pytest.param(
        "\t   NPU0       NPU1       NIC0        NIC1        CPU Affinity\n"
        "NPU0       X          PHB        NA         SYS        0-31\nNPU1       PHB        X          NA         SYS        0-31\n"
        "NIC0       NA         NA         X          NA         \nNIC1       SYS        SYS        NA         X          \n\nNIC0: eth0\n",
        [("NPU0", 0, "0-31", {"NPU0": "X", "NPU1": "PHB"}), ("NPU1", 1, "0-31", {"NPU0": "PHB", "NPU1": "X"})],
        id="newer tools: NICs as columns, under a crooked header, and as rows",
    ),
    pytest.param(
        "           Phy-ID6    Phy-ID7\nPhy-ID6    X          SIO\nPhy-ID7    SIO        X\n",
        [("Phy-ID6", 6, None, {"Phy-ID6": "X", "Phy-ID7": "SIO"}), ("Phy-ID7", 7, None, {"Phy-ID6": "SIO", "Phy-ID7": "X"})],
        id="A3 in a container: physical ids, no CPUs",
    ),
    pytest.param(
        "    NPU0      NPU1      CPU Affinity\n"
        "    NPU0      X         UB        0-63,128-191   \n"
        "    NPU1      UB        X         0-63, 128-191\n",
        [("NPU0", 0, "0-63,128-191", {"NPU0": "X", "NPU1": "UB"}), ("NPU1", 1, "0-63,128-191", {"NPU0": "UB", "NPU1": "X"})],
        id="A5 on x86: header not indented, several ranges, one with a blank",
    ),
    pytest.param("NPU32768   CPU Affinity\nNPU32768   X   7\n", [("NPU32768", 32768, "7", {"NPU32768": "X"})], id="one NPU, one CPU"),
    pytest.param("Phy-ID3\nPhy-ID3 X\n", [("Phy-ID3", 3, None, {"Phy-ID3": "X"})], id="one die, no CPUs"),
    pytest.param(
        "NPU0 NPU1 CPU Affinity\nNPU0 X HCCS xx-xx\nNPU1 HCCS NA\n",
        [("NPU0", 0, None, {"NPU0": "X", "NPU1": "HCCS"}), ("NPU1", 1, None, {"NPU0": "HCCS", "NPU1": "NA"})],
        id="no cpulist in the affinity column, a complete row whose own link is unknown",
    ),
    pytest.param(
        "NPU0 NPU1 NPU2 CPU Affinity\nNPU0 X HCCS 0-7\nNPU1 X SYS 8-15\nNPU2 SYS SYS X 5-2\nNPU3\n",
        [
            ("NPU0", 0, "0-7", {"NPU0": "X", "NPU1": "HCCS"}),
            ("NPU1", 1, "8-15", {}),
            ("NPU2", 2, None, {"NPU0": "SYS", "NPU1": "SYS", "NPU2": "X"}),
        ],
        id="rows one link short: a shifted row has no links; a backward range is not a cpulist",
    ),
    pytest.param("NPU5 X HCCS 0-3\n", [("NPU5", 5, "0-3", {})], id="without header the columns are unknown"),
]


@pytest.mark.parametrize("text, rows", TOPOLOGIES)
def test_topo(text, rows):
    assert parse_topo(text) == [dict(zip(("label", "id", "affinity", "links"), row)) for row in rows]


# key : value texts ------------------------------------------------------------------------------------------------

BOARDS = [
    pytest.param(
        "\tNPU ID                         : 4\n\tProduct Name                   : IT99\n\tModel                          : NA\n"
        "\tSoftware Version               : 25.5.0\n\tFirmware Version               : 7.8.0.1\n"
        "\tPCIe Bus Info                  : 0000:C2:00.0\n\tChip Count                     : 1\n",
        (4, None, "0000:c2:00.0", None, "25.5.0", "7.8.0.1"),
        id="card",
    ),
    pytest.param(
        "prompt# npu-smi info -t board -i 3 -c 1\nNPU ID  : 3\nNPU Name : 9392\nChip ID : 1\nChip Name : Ascend910\n"
        "PCIe Bus Info : 0000:9F:00.0\nFirmware Version : NA\n",
        (3, 1, "0000:9f:00.0", "Ascend910", None, None),
        id="die, pasted without tabs",
    ),
    pytest.param("NPU ID: 1\nPCIe Bus Info: NA\nSoftware Version: 1.2\n", (1, None, None, None, "1.2", None), id="no blank before colons"),
    pytest.param(
        "NPU ID : 8\nSoftware Version : 1\nNPU ID : 9\nFirmware Version : 2\nSoftware Version : 2\n",
        (8, None, None, None, "1", None),
        id="an older tool answers for all cards",
    ),
]


@pytest.mark.parametrize("text, values", BOARDS)
def test_board(text, values):
    assert parse_board(text) == dict(zip(("card", "chip", "pci", "chip_name", "software_version", "firmware_version"), values))


LISTS = [
    pytest.param(
        "\tTotal Count                    : 3\n\n\tNPU ID                         : 32\n\tProduct Name                   : x\n"
        "\tChip Count                     : 2\n\n\tNPU ID                         : -1\n\tChip Count                     : 1\n\n"
        "\tNPU ID                         : 224\n",
        {"total": 3, "cards": [{"card": 32, "chips": 2}, {"card": 224, "chips": None}]},
        id="a dead card counts but has no id",
    ),
    pytest.param("Card Count : 1\nNPU ID : 6\nChip Count : 4\n", {"total": 1, "cards": [{"card": 6, "chips": 4}]}, id="310"),
    pytest.param("NPU ID : 6\n", {"total": None, "cards": [{"card": 6, "chips": None}]}, id="beginning cut off"),
]


@pytest.mark.parametrize("text, expected", LISTS)
def test_list(text, expected):
    assert parse_list(text) == expected


DEVICE_SHARES = [
    pytest.param(
        "\tNPU ID                         : 3\n\tChip Count                     : 2\n\n"
        "\tDevice-share Status            : True\n\tChip ID                        : 0\n\n"
        "\tDevice-share Status            : False\n\tChip ID                        : 1\n",
        [(3, 0, True), (3, 1, False)],
        id="the chip id ends a section",
    ),
    pytest.param(
        "NPU ID : 3\nChip Count : 2\nChip ID : 0\nDevice-share Status : True\nChip ID : 1\nDevice-share Status : False\n",
        [(3, 0, True), (3, 1, False)],
        id="310: the chip id begins a section",
    ),
    pytest.param(
        "limiter : attached\nNPU ID : 4\nDevice-share Status : False\nChip ID : 0\nNPU ID : 9\nDevice-share Status : True\nChip ID : 0\n",
        [(4, 0, False), (9, 0, True)],
        id="all cards in one text, after a log line",
    ),
    pytest.param("\tDevice-share Status            : True\n", [(None, None, True)], id="one chip was asked for"),
    pytest.param("NPU ID : 1\nDevice-share Status : False\n", [(1, None, False)], id="A5: cards without chips"),
    pytest.param("Device-share Status: odd\n", [(None, None, None)], id="a word nobody knows"),
]


@pytest.mark.parametrize("text, rows", DEVICE_SHARES)
def test_device_share(text, rows):
    assert parse_device_share(text) == [dict(zip(("card", "chip", "enabled"), row)) for row in rows]


SECTIONS = [
    pytest.param(
        "limiter : attached\n\tNPU ID                         : 3\n\tChip Count                     : 1\n\n"
        "\tHealth                         : OK\n\tChip ID                        : 0\n\n"
        "\tHealth                         : Alarm\n\tChip Name                      : MCU\n",
        [(3, 0, {"Health": "OK"})],
        id="the controller's health is not a chip's",
    ),
    pytest.param(
        "NPU ID : 3\nChip Count : 1\nChip ID : 0\nChip Name : Ascend\nTemperature(C) : 40\nChip Name : mcu\nTemperature(C) : 38\n",
        [(3, 0, {"Chip Name": "Ascend", "Temperature(C)": "40"})],
        id="sections that begin with their chip",
    ),
    pytest.param(
        "\tHealth Status                  : Critical\n\tError Code                     : 80E01801\n"
        "\tError Information              : NA: a:b\n",
        [(None, None, {"Health Status": "Critical", "Error Code": "80E01801", "Error Information": "NA: a:b"})],
        id="one chip: values as printed, colons inside",
    ),
    pytest.param(
        "NPU ID : 0\nHBM Capacity(MB) : 98304\nNPU ID : 1\nHBM Capacity(MB) : 98304\n",
        [(0, None, {"HBM Capacity(MB)": "98304"}), (1, None, {"HBM Capacity(MB)": "98304"})],
        id="A5: cards without chips",
    ),
    pytest.param(
        "NPU ID : 0\nChip Count : 2\nHealth : OK\nChip ID : 0\nHealth : War",
        [(0, 0, {"Health": "OK"})],
        id="cut: whose health the last one is, nobody knows",
    ),
    pytest.param("NPU ID : 0\nChip Count : 1\n", [], id="a card that reports nothing"),
]


@pytest.mark.parametrize("text, rows", SECTIONS)
def test_key_values(text, rows):
    assert parse_key_values(text) == [dict(zip(("card", "chip", "values"), row)) for row in rows]


@pytest.mark.parametrize("mode, restored", [("Enable", True), ("Disable", False)])
def test_recover(mode, restored):
    assert parse_recover("log line\n\tDevice-share config recover mode : %s\n" % mode) is restored


# vNPUs ------------------------------------------------------------------------------------------------------------

TEMPLATES = """\
+------------------------------------------------------------------------------------------+
|NPU instance template info is:                                                            |
|Name                AICORE    Memory%-5sAICPU     VPC            VENC           JPEGD     |
|                               GB                 PNGD           VDEC           JPEGE     |
|==========================================================================================|
|vir03_1c_8g         3         8         1         2              0              8         |
|                                                  0              1              2         |
+------------------------------------------------------------------------------------------+
|vir06               6         16        NA        NA             NA             NA        |
|                                                  NA             NA             NA        |
+------------------------------------------------------------------------------------------+
"""


@pytest.mark.parametrize("unit", ["", "(GB)"])
def test_template_info(unit):
    assert parse_template_info(TEMPLATES % unit) == [
        {"name": "vir03_1c_8g", "aicore": 3, "memory_gib": 8, "aicpu": 1},
        {"name": "vir06", "aicore": 6, "memory_gib": 16, "aicpu": None},
    ]


VNPU_HEADER = "|  Vnpu ID  |  Vgroup ID     |  Container ID  |  Status  |  Template Name       |\n"
VNPUS = [
    pytest.param(
        "| NPU resource static info as follow:                                           |\n"
        "| Format:Free/Total                   NA: Currently, query is not supported.    |\n"
        "| Total number of vnpu: 2                                                       |\n"
        + VNPU_HEADER
        + "|  116      |  0              |  ffffffffffff  |  1       |  vir03               |\n+------+\n"
        "|  117      |  NA            |  -             |  0       |  NA                  |\n",
        [(116, 0, "ffffffffffff", 1, "vir03"), (117, None, None, 0, None)],
        id="rows wider than the header",
    ),
    pytest.param("| Total number of vnpu: 0      |\n" + VNPU_HEADER, [], id="none, with a header"),
    pytest.param("| Format: NA: Currently, query is not supported. |\n| Total number of vnpu: 0      |\n", [], id="none, without"),
]


@pytest.mark.parametrize("text, rows", VNPUS)
def test_vnpu_info(text, rows):
    assert parse_vnpu_info(text) == [dict(zip(("vnpu_id", "vgroup_id", "container_id", "status", "template"), row)) for row in rows]


# Errors -----------------------------------------------------------------------------------------------------------

PROMPT = "There are security risks when opening device sharing.\nAre you sure you want to continue setting?(Y/N)\n"
ERRORS = [
    ("unavailable", "DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n", "dcmi module init"),
    ("unavailable", "npu get board type failed. ret is -9005\n", "npu get board type failed"),
    ("unavailable", "There is no NPU card on this server.\n", "There is no NPU card"),
    ("unavailable", "bash: npu-smi: command not found\n", "command not found"),
    ("unavailable", "npu-smi: error while loading shared libraries: libdcmi.so: cannot open shared object file\n", "shared libraries"),
    ("busy", "dcmi model initialized failed, because the device is used. ret is -8020\n", "because the device is used"),
    ("unsupported", "This device does not support querying topo.\n", "does not support querying topo"),
    ("unsupported", "NPU is working in SMP mode, does not support querying ecc.\n", "SMP mode"),
    ("unsupported", "This command cannot be executed on a VM.\n", "cannot be executed on a VM"),
    ("permission", "This command can be executed only by the root user.\n", "only by the root user"),
    ("permission", "Operation not permitted, only root user on physical machine can call this api.\n", "Operation not permitted"),
    ("invalid", "Invalid card id.\nError parameter of -i\nUsage: npu-smi info <watch|-t type>\n", "'Invalid card id.'"),
    ("invalid", "\nThis command must input card id.\n\nOptions:\n       -i %d          Card ID\n", "must input card id"),
    ("invalid", "This command does not support entering card id.\n", "does not support entering"),
    ("invalid", "Error parameter of -t\nUsage: npu-smi info\n  -t type   type: board, topo\n", "Error parameter of -t"),
    ("invalid", "Command or option is not found.\nUsage: npu-smi <Command|-h|-v> [Options...]\n", "not found"),
    ("aborted", PROMPT, "(Y/N)"),
]


@pytest.mark.parametrize("kind, text, words", ERRORS)
@pytest.mark.parametrize("parse", PARSERS)
def test_every_parser_knows_the_errors_of_the_tool(parse, kind, text, words):
    with pytest.raises(NpuSmiError, match=re.escape(words)) as raised:
        parse(text)
    assert raised.value.kind == kind
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("status", [0, 1, 187, 203, None])
@pytest.mark.parametrize("kind, text, words", ERRORS)
def test_the_text_counts_before_the_exit_status(kind, text, words, status):
    assert classify_error(text, status) == {"error": kind}


STATUSES = {
    None: [0, None],
    "unavailable": [187, 211, 191, 127, -9],
    "busy": [172, 203, 196, 195],
    "invalid": [215],
    "permission": [214],
    "aborted": [200],
    "unsupported": [217],
}


@pytest.mark.parametrize("status, kind", [(status, kind) for kind, statuses in STATUSES.items() for status in statuses])
def test_the_exit_status_tells_where_the_text_is_silent(status, kind):
    text = PROMPT + "\tStatus                         : Fail\n\tMessage                        : Failed to set chip device-share\n"
    assert classify_error(text, status) == {"error": kind}


CODES = {
    "unavailable": [-8001, -8005],
    "permission": [-8002, -9002],
    "aborted": [-8016, -9016],
    "busy": [-8017, -8020, -9013],
    "unsupported": [-8255, -9255],
    "invalid": [-9001, -9007],
}


@pytest.mark.parametrize("code, kind", [(code, kind) for kind, codes in CODES.items() for code in codes])
def test_the_code_tells_where_the_words_do_not(code, kind):
    assert classify_error("npu call failed. ret is %d\n" % code) == {"error": kind}
    assert classify_error("", code & 0xFF) == {"error": kind}


NOT_ERRORS = [
    "",
    PROMPT + "\tStatus                         : OK\n\tMessage                        : Set chip device-share successfully\n",
    "Setting device sharing for single chip is not allowed for this product, all chips keep the same status!\n\tStatus : OK\n",
    "| Format:Free/Total     NA: Currently, query is not supported.    |\n",
    A2,
]


@pytest.mark.parametrize("text", NOT_ERRORS)
def test_what_is_no_error_is_not_taken_for_one(text):
    assert classify_error(text, 0) == {"error": None}


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text, begin", [("", "no output"), ("+---+\n\n  hello, world\n", "hello, world")])
def test_a_text_nobody_knows_is_refused_by_its_first_line(parse, text, begin):
    with pytest.raises(ValueError, match=r"^npu-smi info.*begins with '%s'; run the command on the host to see why$" % begin) as raised:
        parse(text)
    assert not isinstance(raised.value, NpuSmiError)


WHOLE_TEXTS = [A2, A3, DUO, A5, OLD_310, TEMPLATES] + [
    parameters.values[0] for table in (MAPPINGS, TOPOLOGIES, BOARDS, LISTS, DEVICE_SHARES, SECTIONS, VNPUS) for parameters in table
]


@pytest.mark.parametrize("parse", PARSERS)
def test_a_text_cut_anywhere_is_read_or_refused(parse):
    for text in WHOLE_TEXTS:
        for end in range(0, len(text), 7):
            try:
                parse(text[:end])
                parse(text[end:])
            except ValueError as error:
                assert str(error)


SPLIT = "| AICORE    Memory    AICPU |\n|            GB |\n|=====|\n| 5/20      16/64     3/7 |\n"
SINGLE_WORDS = [
    (parse_vnpu_cores, SPLIT, 20),
    (parse_vnpu_mode, "\tvnpu-mode                      : docker\n", "docker"),
    (parse_vnpu_mode, "\tvnpu-mode                      : vm\n", "vm"),
    (parse_vnpu_recover, "VNPU config recover mode : Enable\n", "enable"),
    (parse_vnpu_recover, "\tVNPU config recover mode : Disable\n", "disable"),
    (parse_phyid_remap, "Chip Phy-ID     :3\nNPU ID     :2\nChip ID    :1\n", {"card": 2, "chip": 1, "logic_id": None, "phy_id": 3}),
]


@pytest.mark.parametrize("parse, text, found", SINGLE_WORDS)
def test_answers_about_splitting_and_numbers(parse, text, found):
    assert parse(text) == found
    with pytest.raises(NpuSmiError, match="does not support"):
        parse("This device does not support querying it.\n")
    with pytest.raises(ValueError, match="run the command on the host to see why"):
        parse("something else\n")

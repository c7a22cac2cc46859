# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import re
import textwrap

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi, _nvidia_smi
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import NpuSmiError, classify_error, parse_info
from ansible_collections.npu.affinity.plugins.module_utils._smi.tables import damaged_rows

PARSERS = [function for name, function in vars(_npu_smi).items() if name.startswith("parse_")]
OF_NVIDIA = [_nvidia_smi.parse_nvidia_topo, _nvidia_smi.parse_nvidia_csv]

with open(os.path.join(os.path.dirname(__file__), "smi_answers.json"), encoding="utf-8") as _file:
    ANSWERS = {
        parser: [pytest.param("\n".join(answer["text"]), answer["found"], id=claim) for claim, answer in answers.items()]
        for parser, answers in json.load(_file).items()
    }
"""For each parser answers of the tools, and what is found in them."""
ANSWERS_OF_ALL = [
    pytest.param(parser, *case.values, id="%s: %s" % (parser, case.id)) for parser, cases in ANSWERS.items() for case in cases
]
FORMS_OF_INFO = ANSWERS["parse_info"][:5]
A2, A3, DUO, A5, OLD_310 = (case.values[0] for case in FORMS_OF_INFO)
A2_CHIPS = FORMS_OF_INFO[0].values[1]["chips"]


@pytest.mark.parametrize("parser, text, found", ANSWERS_OF_ALL)
def test_what_is_found_in_an_answer(parser, text, found):
    assert (getattr(_npu_smi, parser, None) or getattr(_nvidia_smi, parser))(text) == found


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
@pytest.mark.parametrize("text, found", FORMS_OF_INFO)
def test_info_survives_what_pasting_and_logging_do_to_it(text, found, damage):
    assert parse_info(damage(text)) == found


def without_lines(text, *numbers):
    return "".join(line for number, line in enumerate(text.splitlines(True)) if number not in numbers)


WITHOUT_MEMORY = dict(A2_CHIPS[0], memory_used_mib=None, memory_total_mib=None)
HALVES = A2.replace("| 0                         | 0000:C1:00.0", "...\n| 0                         | 0000:C1:00.0")
PARTS = {
    "a chip whose second line is missing is left out": (without_lines(A2, 8), A2_CHIPS[1:]),
    "a second line without the first belongs to nobody": (without_lines(A2, 7), A2_CHIPS[1:]),
    "dots stand for left out lines, so the halves around them are different chips": (HALVES, A2_CHIPS[1:]),
    "no HBM: the DDR is not taken for it": (A2.replace("2811 / 32768", "NA"), [WITHOUT_MEMORY, A2_CHIPS[1]]),
    "no DDR: the HBM is still the last": (A2.replace("0    / 0          2811", "NA                 2811"), A2_CHIPS),
    "a line cut before the HBM": (A2.replace("          2811 / 32768         |", ""), [WITHOUT_MEMORY, A2_CHIPS[1]]),
    "a damaged card id": (A2.replace("| 2     910B4 ", "| x     910B4 "), A2_CHIPS[1:]),
}


@pytest.mark.parametrize("text, chips", PARTS.values(), ids=PARTS)
def test_info_yields_the_chips_that_can_be_read(text, chips):
    assert parse_info(text)["chips"] == chips


CUT = {
    "a row cut short": (A3, A3.replace("| 3     Ascend910           | OK            |", "| 3     Ascend910", 1)),
    "a heading that lost a bar": (A2, A2.replace("| Health        | Power", "| Health")),
    "a heading that lost its bus": (A2, A2.replace("| Bus-Id        | AICore", "| AICore")),
    "a heading that is another word": (A2, A2.replace("Health", "He")),
    "a chip without its second line": (A2, without_lines(A2, 8)),
    "an answer that ends within a chip": (DUO, DUO[: DUO.rindex("| 1       1")]),
    "a process cut short": (A5, A5[: A5.index("333")]),
}


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


@pytest.mark.parametrize("whole, text", CUT.values(), ids=CUT)
def test_damaged_rows_are_named(whole, text):
    assert text != whole and damaged_rows(whole) == []
    assert all(line in map(str.strip, text.splitlines()) for line in damaged_rows(text)) and damaged_rows(text)


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


FAILED = PROMPT + "\tStatus                         : Fail\n\tMessage                        : Failed to set chip device-share\n"
SINGLE = "Setting device sharing for single chip is not allowed for this product, all chips keep the same status!\n\tStatus : OK\n"
STATUSES = {
    # kind: statuses that tell it where the text is silent, and codes that tell it where the words do not
    None: ([0, None], []),
    "unavailable": ([187, 211, 191, 127, -9], [-8001, -8005]),
    "busy": ([172, 203, 196, 195], [-8017, -8020, -9013]),
    "invalid": ([215], [-9001, -9007]),
    "permission": ([214], [-8002, -9002]),
    "aborted": ([200], [-8016, -9016]),
    "unsupported": ([217], [-8255, -9255]),
}
KINDS = [(text, status, kind) for kind, text, _words in ERRORS for status in (0, 1, 187, 203, None)]
KINDS += [(FAILED, status, kind) for kind, (statuses, _codes) in STATUSES.items() for status in statuses]
KINDS += [("npu call failed. ret is %d\n" % code, None, kind) for kind, (_statuses, codes) in STATUSES.items() for code in codes]
KINDS += [("", code & 0xFF, kind) for kind, (_statuses, codes) in STATUSES.items() for code in codes]
KINDS += [
    (text, 0, None)
    for text in ("", FAILED.replace("Fail", "OK"), SINGLE, "| Format:Free/Total     NA: Currently, query is not supported. |\n", A2)
]


@pytest.mark.parametrize("text, status, kind", KINDS)
def test_the_text_tells_an_error_and_else_code_and_status(text, status, kind):
    assert classify_error(text, status) == {"error": kind}


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text, begin", [("", "no output"), ("+---+\n\n  hello, world\n", "hello, world")])
def test_a_text_nobody_knows_is_refused_by_its_first_line(parse, text, begin):
    with pytest.raises(ValueError, match=r"^npu-smi info.*begins with '%s'; run the command on the host to see why$" % begin) as raised:
        parse(text)
    assert not isinstance(raised.value, NpuSmiError)


@pytest.mark.parametrize("parse", OF_NVIDIA)
@pytest.mark.parametrize("text", ["No devices were found\n", "NVIDIA-SMI has failed: no NVIDIA driver.\n"])
def test_an_error_of_nvidia_smi_is_refused_by_its_first_line(parse, text):
    with pytest.raises(ValueError, match="^nvidia-smi .* begins with '%s'$" % text.strip()):
        parse(text)

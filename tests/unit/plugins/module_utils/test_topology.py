# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
from itertools import zip_longest

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._smi.errors import UNSUPPORTED
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import find
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import text_digest
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from tests.fakes.workers import Tree

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
PCI = "/sys/bus/pci/devices"
NPU_SMI = "/usr/local/sbin/npu-smi"
AT_ONCE = ["info", "info -m", "info -t topo"]
NVIDIA_SMI = "/usr/bin/nvidia-smi"

# One host of every kind, small: four NUMA nodes with six CPUs each. NPU order is not bus order.
A2 = [(0, 0, "", "910B3", "0000:c1:00.0", 3), (1, 0, "", "910B3", "0000:81:00.0", 2)]
A2 += [(2, 0, "", "910B3", "0000:01:00.0", 0), (3, 0, "", "910B3", "0000:41:00.0", 1)]
A3 = [(4, 0, 0, "Ascend910", "0000:9d:00.0", 2), (4, 1, 1, "Ascend910", "0000:9f:00.0", 2)]
A3 += [(7, 0, 2, "Ascend910", "0000:91:00.0", 3), (7, 1, 3, "Ascend910", "0000:93:00.0", 3)]
DUO = [(2, 0, 0, "310P3", "0000:01:00.0", 0), (2, 1, 1, "310P3", "0000:01:00.0", 0)]
DUO += [(5, 0, 2, "310P3", "0000:81:00.0", 2), (5, 1, 3, "310P3", "0000:81:00.0", 2)]
SECOND_COLUMN = {"a2": "", "a3": "Phy-ID", "310p": "Device"}
DEVICE_ID = {"a2": "0xd802", "a3": "0xd803", "310p": "0xd500"}


def function(pci, vendor, device, kind, node):
    return {
        "%s/%s/%s" % (PCI, pci, name): text for name, text in zip(("class", "vendor", "device", "numa_node"), (kind, vendor, device, node))
    }


def machine(chips=(), family="a2"):
    """Return the files of the host."""
    files = {CPU + "/online": "0-23", CPU + "/present": "0-23", NODE + "/online": "0-3"}
    for node in range(4):
        files["%s/node%d/cpulist" % (NODE, node)] = "%d-%d" % (6 * node, 6 * node + 5)
        files["%s/node%d/meminfo" % (NODE, node)] = "Node %d MemTotal: 8388608 kB" % node
        files["%s/node%d/distance" % (NODE, node)] = " ".join("10" if other == node else "20" for other in range(4))
    for _card, _chip, _second, _name, pci, node in chips:
        files.update(function(pci, "0x19e5", DEVICE_ID[family], "0x120000", node))
    return files


def info(chips, family="a2", processes=()):
    """Return the text of ``npu-smi info``."""
    hbm = "" if family == "310p" else " HBM-Usage(MB)"
    lines = ["+----+", "| npu-smi 25.5.1   Version: 25.5.0 |", "+----+"]
    lines += ["| NPU Name | Health | Power(W) Temp(C) Hugepages-Usage(page) |"]
    lines += ["| Chip %s | Bus-Id | AICore(%%) Memory-Usage(MB)%s |" % (SECOND_COLUMN[family], hbm), "+====+"]
    for card, chip, second, name, pci, _node in chips:
        usage = "0 1000 / 44280" if family == "310p" else "0 0 / 0 3400 / 65536"
        lines += ["| %s %s | OK | 90.0 38 0 / 0 |" % (card, name), "| %s %s | %s | %s |" % (chip, second, pci.upper(), usage)]
    lines += ["+====+", "| NPU Chip | Process id | Process name | Process memory(MB) |", "+====+"]
    lines += ["| %d %d | 4711 | python | 30780 |" % process for process in processes] or ["| No running processes found in NPU 0 |"]
    return "\n".join(lines) + "\n"


def mapping(chips, family="a2"):
    """Return the text of ``npu-smi info -m``, with the board controller's row after every card."""
    rows = ["NPU ID  Chip ID  Chip Logic ID  %sChip Name" % ("Chip Phy-ID  " if family == "a3" else "")]
    for number, (card, chip, second, name, _pci, _node) in enumerate(chips):
        phy = "%s  " % second if family == "a3" else ""
        rows.append("%d  %d  %d  %s%s" % (card, chip, number, phy, name if name.startswith("Ascend") else "Ascend " + name))
        if number + 1 == len(chips) or chips[number + 1][0] != card:
            rows.append("%d  %d  -  %sMcu" % (card, chip + 1, "-  " if family == "a3" else ""))
    return "".join("\t%s\n" % row for row in rows)


def topo(labels):
    """Return the text of ``npu-smi info -t topo`` for ``{label: affinity}``; affinity None leaves out the column."""
    head = list(labels) + ([] if None in labels.values() else ["CPU Affinity"])
    lines = ["\t   " + "  ".join(head)]
    for label, affinity in labels.items():
        lines.append("  ".join([label] + ["X" if other == label else "HCCS" for other in labels] + ([affinity] if affinity else [])))
    return "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n"


def topo_of(chips, family="a2"):
    """Return that of these chips; an A3 on Arm prints no affinity."""
    if family == "a3":
        return topo({"Phy-ID%d" % chip[2]: None for chip in chips})
    return topo({"NPU%d" % chip[0]: "%d-%d" % (6 * chip[5], 6 * chip[5] + 5) for chip in chips})


def answers_of(chips, family="a2", processes=()):
    return {"info": info(chips, family, processes), "info -m": mapping(chips, family), "info -t topo": topo_of(chips, family)}


def gathered(tree, answers=(), chips=A2, family="a2", files=(), processes=((1, 0),), **options):
    """Gather a host of these chips, whose npu-smi has other ``answers`` than it should; paths in problems begin at the host's root."""
    tree.write(dict(machine(chips, family), **dict(files)))
    tree.tool(NPU_SMI, dict(answers_of(chips, family, processes), **dict(answers)))
    facts = gather(tree.host, **options)
    facts["problems"] = [problem.replace(tree.root, "") for problem in facts["problems"]]
    return facts


def boards(*answers):
    return {"info -t board -i %d -c 0" % card: answer for card, answer in enumerate(answers)}


def said(problems, words):
    """Return the words, if each is in the problem of its place; a problem that does not have them stands in their place."""
    return [word if word in problem else problem for problem, word in zip_longest(problems, words, fillvalue="nothing else")]


def column(facts, *keys):
    """Return a column of the NPUs, of several keys in tuples."""
    rows = [tuple(npu[key] for key in keys) for npu in facts["npus"]]
    return rows if len(keys) > 1 else [value for (value,) in rows]


def test_a_healthy_a2_host(tree):
    facts = gathered(tree)
    assert facts["problems"] == []
    ids = {"kind": "npu", "id": 1, "card": 1, "chip": 0, "phy_id": None, "name": "910B3", "family": "a2", "pci": "0000:81:00.0"}
    device = {"device": {"number": None, "file": None, "known_by": "unknown"}, "driver": None, "parts": [], "device_share": None}
    assert facts["npus"][1] == {**ids, **device, "numa": 2, "affinity": "12-17", "memory_mib": 65536, "busy": True}
    assert column(facts, "numa", "busy") == [(3, False), (2, True), (0, False), (1, False)]
    assert facts["driver"] == {"version": "25.5.0", "npu_smi": "25.5.1"}
    assert (facts["schema"], facts["kubelet"], facts["applied"]) == (1, None, None)


LEFT = [A2[0], *A2[2:]]
"""The A2 host that lost its NPU 1: logic ids close up, and the device files have a gap."""
GAP, FULL, CLOSED = ((0, 2, 3), (0, 1, 2, 3), (0, 1, 2))
INTERRUPTS = {pci: number for (*_ids, pci, _node), number in zip(LEFT, GAP)}
UDEVIDS = "bdf udevid add_id\n%s" % "".join("%s %d %d\n" % (pci[5:], number, 9) for pci, number in INTERRUPTS.items())
OLD_UDEVIDS = "".join("%s ---> %d\n" % (pci[5:], number) for pci, number in INTERRUPTS.items())
REMAP = "".join("%-30s:%%d\n" % key for key in ("Chip Physical ID", "Chip Logic ID", "NPU ID", "Chip ID"))
REMAPS = {"info -t phyid-remap -p %d" % phy: REMAP % (phy, logic, phy, 0) for logic, phy in enumerate(GAP)}
LOST_FILE = "NPU 2: its device file /dev/davinci3 does not exist."
CONTRADICTED = "NPU 2: its device file is davinci3 by sysfs and davinci7 by interrupts; the first is taken."
TWICE = "Several NPUs have the number 2 of a device file, so the files of these NPUs are unknown."
REGISTERS = {
    # story: device files, interrupts' numbers by function, sysfs, npu-smi, numbers, how they are known, problems
    "interrupts tell": (GAP, INTERRUPTS, "", {}, [0, 2, 3], "interrupts", []),
    "sysfs tells": (GAP, {}, UDEVIDS, {}, [0, 2, 3], "sysfs", []),
    "an older driver's sysfs tells": (GAP, {}, OLD_UDEVIDS, {}, [0, 2, 3], "sysfs", []),
    "npu-smi where nothing else tells": (GAP, {}, "", REMAPS, [0, 2, 3], "npu-smi", []),
    "no files, as in an archive": ((), INTERRUPTS, "", {}, [0, 2, 3], "interrupts", []),
    "all silent and a gap": (GAP, {}, "", {}, [None] * 3, "unknown", []),
    "all silent and a file too many": (FULL, {}, "", {}, [None] * 3, "unknown", []),
    "all silent and no file": ((), {}, "", {}, [None] * 3, "unknown", []),
    "all silent, and files count up as logic ids do": (CLOSED, {}, "", {}, [0, 1, 2], "unknown", []),
    "a file is missing": ((0, 2), INTERRUPTS, "", {}, [0, 2, 3], "interrupts", [LOST_FILE]),
    "sources contradict each other": (GAP, {**INTERRUPTS, "0000:41:00.0": 7}, UDEVIDS, {}, [0, 2, 3], "sysfs", [CONTRADICTED]),
    "two have one number": (GAP, {**INTERRUPTS, "0000:41:00.0": 2}, "", {}, [0, None, None], "interrupts unknown unknown", [TWICE]),
}


@pytest.mark.parametrize("there, interrupts, sysfs, answers, numbers, known_by, problems", REGISTERS.values(), ids=REGISTERS)
def test_the_register_says_each_device_file_and_how_it_is_known(tree, there, interrupts, sysfs, answers, numbers, known_by, problems):
    files = {"/dev/davinci%d" % number: "" for number in there}
    files.update({"%s/%s/msi_irqs/%d" % (PCI, pci, 100 + number): "msix" for number, pci in enumerate(interrupts)})
    names = "".join("%d: 0 ITS-MSI 0 Edge trs-mbox-%d-0\n" % (100 + at, number) for at, number in enumerate(interrupts.values()))
    files["/proc/interrupts"] = "     CPU0\n" + names
    for _card, _chip, _second, _name, pci, _node in LEFT:
        files["%s/%s/uevent" % (PCI, pci)] = "DRIVER=devdrv_device_driver\n"
        files.update({"%s/%s/devdrv_sysfs_bdf_to_devid" % (PCI, pci): sysfs} if sysfs else {})
    facts = gathered(tree, answers, LEFT, files=files)
    names = [None if number is None else "/dev/davinci%d" % number for number in numbers]
    known = known_by.split() if " " in known_by else [known_by] * 3
    assert column(facts, "device") == [{"number": row[0], "file": row[1], "known_by": row[2]} for row in zip(numbers, names, known)]
    assert column(facts, "id", "card", "phy_id", "numa") == [(0, 0, numbers[0], 3), (1, 2, numbers[1], 0), (2, 3, numbers[2], 1)]
    assert column(facts, "driver") == ["devdrv_device_driver"] * 3
    assert facts["problems"] == problems
    asked = [call for call in tree.calls(NPU_SMI) if "phyid-remap" in call]
    assert len(asked) == (len(there) if answers else min(1, len(there)) * (None in numbers or known_by == "unknown"))


@pytest.mark.parametrize("chip, ids", [("4 1", [1]), ("7 0", [2]), ("4", [0, 1])], ids=["a die", "another card", "a whole card"])
def test_a_process_of_npu_smi_uses_the_npus_of_its_row(tree, chip, ids):
    table = info(A3, "a3", processes=[(4, 1)]).replace("| 4 1 | 4711", "| %s | 4711" % chip)
    if " " not in chip:
        table = table.replace("| NPU Chip | Process id", "| NPU | Process id")
    (user,) = gathered(tree, {"info": table}, A3, "a3", {"/proc/4711/cgroup": "0::/system.slice/llm.service"})["users"]
    assert (user["name"], user["npus"]) == ("llm.service", [{"kind": "npu", "id": number} for number in ids])


def test_three_calls_suffice_and_device_share_adds_one_per_card(tree):
    gathered(tree)
    assert sorted(tree.calls(NPU_SMI)) == AT_ONCE
    gather(tree.host, device_share=True)
    assert tree.calls(NPU_SMI)[6:] == ["info -t device-share -i %d" % card for card in range(4)]


def test_facts_are_plain_json_and_nothing_is_written(tree):
    before = gathered(tree)
    listing = sorted(os.walk(tree.root))
    facts = gather(tree.host)
    assert json.loads(json.dumps(facts)) == facts == before
    assert sorted(os.walk(tree.root)) == listing


NO_TOOL = "npu-smi was not found in /usr/local/Ascend/driver/tools, /usr/local/sbin, /usr/local/bin below , but the host has %s."
NO_PROGRAM = "The command '%s', named for npu-smi, does not exist or is not executable."
NO_WORDS = "The command ''unbalanced', named for npu-smi, cannot be split into words: No closing quotation."
WITHOUT_TOOL = {
    # story: files, the command that is named, CPUs online, problems
    "a host without accelerators has no problem": (machine(), None, "0-23", []),
    "a tree without sysfs": ({}, None, "", ["No CPU is online by /sys/devices/system/cpu/online."]),
    "NPUs on the bus": (machine(A2), None, "0-23", [NO_TOOL % "0000:01:00.0, 0000:41:00.0, 0000:81:00.0, 0000:c1:00.0"]),
    "device nodes only": (dict(machine(), **{"/dev/davinci0": ""}), None, "0-23", [NO_TOOL % "davinci0"]),
    "a file that is not there": (machine(), "/nowhere/npu-smi", "0-23", [NO_PROGRAM % "/nowhere/npu-smi"]),
    "a name that is not on PATH": (machine(), "no-such-npu-smi --flag", "0-23", [NO_PROGRAM % "no-such-npu-smi --flag"]),
    "a quote that does not end": (machine(), "'unbalanced", "0-23", [NO_WORDS]),
}


@pytest.mark.parametrize("files, named, online, problems", WITHOUT_TOOL.values(), ids=WITHOUT_TOOL)
def test_a_host_without_npu_smi_has_a_problem_if_it_has_npus(tree, files, named, online, problems):
    facts = gather(tree.write(files), npu_smi=named)
    assert (facts["npus"], facts["driver"], facts["cpus"]["online"]) == ([], {"version": None, "npu_smi": None}, online)
    assert [problem.replace(tree.root, "") for problem in facts["problems"]] == problems


def test_a_named_command_may_have_several_words(tree):
    program = tree.tool("/opt/replay", {"node-17 " + words: answer for words, answer in answers_of(A2).items()})
    facts = gather(tree.write(machine(A2)), npu_smi="%s node-17" % program)
    assert (column(facts, "id"), facts["problems"]) == ([0, 1, 2, 3], [])


def test_a_tool_that_prints_without_end_is_a_problem(tree):
    program = tree.tool("/opt/endless", {})
    with open(program, "w") as file:
        file.write("#!/bin/sh\nexec yes '| 0 910B3'\n")
    problems = gather(tree.write(machine(A2)), npu_smi=program)["problems"]
    assert "'%s info' printed more than 8 MiB and was killed." % program in problems


def share(*answers):
    return {"info -t device-share -i %d" % card: answer for card, answer in enumerate(answers)}


A5_INFO = """\
| npu-smi 25.6.rc1  Version: 25.6.rc1 |
| NPU ID | Name | Health | Power(W) Temp(C) Hugepages-Usage(page) |
| | | Bus-Id | NPU Util(%) Memory-Usage(MB) HBM-Usage(MB) |
| 0 | Ascend950DT | OK | 394.0 46 0 / 0 |
| | | NA | 0 0 / 0 90129 / 98304 |
| 1 | Ascend950DT | OK | 394.0 46 0 / 0 |
| | | NA | 0 0 / 0 90129 / 98304 |
| NPU ID | Process id | Process name | Process memory(MB) |
| 1 | 305 | worker | 84315 |
"""
A5_MAPPING = "NPU ID  Slot ID  Chip ID  Chip Phy-ID  Chip Name\n0  0  0  0  Ascend950DT\n1  1  0  1  Ascend950DT\n"
A5 = {"info": A5_INFO, "info -m": A5_MAPPING, "info -t topo": topo({"NPU0": "0-5", "NPU1": "6-11"})}
A5.update({"info -t board -i %d" % card: "\tNPU ID : %d\n\tPCIe Bus Info : NA\n" % card for card in (0, 1)})
OF_A5 = {"id": [0, 1], "phy_id": [0, 1], "family": ["a5"] * 2, "pci": [None] * 2, "affinity": ["0-5", "6-11"], "busy": [False, True]}
TWO_CHIPS = (
    "\tNPU ID : 2\n\tChip Count : 2\n\n\tDevice-share Status : True\n\tChip ID : 0\n\n\tDevice-share Status : False\n\tChip ID : 1\n"
)
OF_DUO = {"affinity": ["0-5", "0-5", "12-17", "12-17"], "device_share": [True, False, None, None], "busy": [False] * 3 + [True]}
INSIDE = [(6, 0, 12, "Ascend910", "0000:9d:00.0", 2), (6, 1, 13, "Ascend910", "0000:9f:00.0", 2)]
LABELS = {"info -t topo": topo({"Phy-ID13": "12-17", "Phy-ID12": "12-17", "Phy-ID0": "0-5"})}
OF_A3 = {"card": [4, 4, 7, 7], "chip": [0, 1, 0, 1], "phy_id": [0, 1, 2, 3], "affinity": [None] * 4, "numa": [2, 2, 3, 3]}
SOFT = [(0, 0, 0, "Ascend910", "0000:9d:00.0", 2), (0, 1, 0, "Ascend910", "0000:9d:00.0", 2)]
ALL_UNAVAILABLE = dict.fromkeys(AT_ONCE, {"rc": 187, "text": "dcmi module initialize failed. ret is -8005\n"})
ALL_BUSY = dict.fromkeys(AT_ONCE, {"rc": 172, "text": "dcmi model initialized failed, because the device is used. ret is -8020\n"})
NO_TOPO = {"rc": 191, "text": "npu get device pcie info failed. ret is -8001\n"}
DEAD = {"info": info(A2[:3]), "info -m": mapping(A2[:3]) + "\t-1  0  -  Mcu\n", "info -t topo": NO_TOPO}
SHARED_ID = "NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  Ascend 910B3\n1  0  0  Ascend 910B3\n2  0  2  Ascend 910B3\n"
CUT = {"info": info(A2).replace("| 1 910B3 | OK | 90.0 38 0 / 0 |", "| 1 910B3")}
BOARDS = boards(*["\tNPU ID : %d\n\tChip ID : 0\n\tPCIe Bus Info : %s\n" % (chip[0], chip[4].upper()) for chip in A2])
OF_BOARDS = {"pci": [chip[4] for chip in A2], "name": ["910B3"] * 4, "numa": [3, 2, 0, 1], "memory_mib": [None] * 4, "busy": [None] * 4}
AS_ON_NODE_0 = {"info -t topo": topo({"NPU%d" % card: "0-5" for card in range(4)})}
NO_NODE = {"%s/%s/numa_node" % (PCI, chip[4]): -1 for chip in A2}
GUESS = "NPU 0-3: the kernel has no NUMA node for it (numa_node is -1), and npu-smi prints CPU affinity 0-5, which is a guess."
OTHER_TOPO = {"info -t topo": topo_of(A2).replace("12-17", "6-11")}
CONTRADICTION = "NPU 1: npu-smi prints CPU affinity 6-11, but sysfs says NUMA node 2, whose CPUs are 12-17."
UNLISTED = "NPUs at %s are on the PCI bus and not listed by npu-smi."
ALL_UNLISTED = UNLISTED % "0000:01:00.0, 0000:41:00.0, 0000:81:00.0, 0000:c1:00.0"
NOT_THERE = "/sys/bus/pci/devices does not have: 0000:01:00.0, 0000:41:00.0, 0000:81:00.0, 0000:c1:00.0."
TWO_OF_ONE = "NPU 0-1: all have PCI function 0000:9d:00.0, so only one of them is a separate device."
OF_TWO = ["logic id 0 to card 0 chip 0 and card 1 chip 0", "card 1 chip 0 and card 3 chip 0, but 'info -m' has no", "NPUs at"]
ONE_DEAD = ["lists 1 NPU(s) with NPU ID -1", "status 191", "NPU at 0000:41:00.0 is on the PCI bus and not listed by npu-smi."]
CUT_ROW = ["is cut short, or lacks its other line or its heading: '| 1 910B3'.", "info -t board -i 1 -c 0'", "NPU at 0000:81:00.0 is on"]
SHARED = {"device_share": True}
TOLD = {
    # story: answers of npu-smi, what else is special about the host, columns, words of each problem
    "A3 dies have physical ids, and no affinity on Arm": ({}, {"chips": A3, "family": "a3"}, OF_A3, []),
    "labels in a container are no logic ids": (LABELS, {"chips": INSIDE, "family": "a3"}, {"id": [0, 1], "affinity": ["12-17"] * 2}, []),
    "chips of a Duo card share a function and a row of the topology": (
        {"info -t device-share -i 2": TWO_CHIPS, "info -t device-share -i 5": "This device does not support querying device-share.\n"},
        {"chips": DUO, "family": "310p", "processes": [(5, 1)], **SHARED},
        OF_DUO,
        [],
    ),
    "an A5 has its NPU id as logic id and maybe no function": (A5, {"chips": ()}, OF_A5, []),
    "soft sharing shows a die twice": ({}, {"chips": SOFT, "family": "a3"}, {"id": [0, 1], "chip": [0, 1], "phy_id": [0, 0]}, [TWO_OF_ONE]),
    "a damaged row of info": (CUT, {}, {"name": ["910B3"] * 4, "memory_mib": [65536, None, 65536, 65536]}, CUT_ROW),
    "no driver": (ALL_UNAVAILABLE, {}, {"id": []}, ["npu-smi info' ended with status 187", "-8005", ALL_UNLISTED]),
    "held by a container": (ALL_BUSY, {}, {"id": []}, ["because the device is used. ", "-8020", ALL_UNLISTED]),
    "boards tell what info would have told": ({"info": "", **BOARDS}, {}, OF_BOARDS, ["npu-smi info' ended with status 0"]),
    "data with a status": (
        {"info": {"rc": 3, "text": info(A2)}},
        {},
        {"id": [0, 1, 2, 3]},
        ["info' printed data, but ended with status 3."],
    ),
    "a dead NPU breaks the topology": (DEAD, {}, {"id": [0, 1, 2], "numa": [3, 2, 0], "affinity": [None] * 3}, ONE_DEAD),
    "a part of the bus": (answers_of(A2[2:]), {}, {"id": [0, 1], "card": [2, 3]}, [UNLISTED % "0000:81:00.0, 0000:c1:00.0"]),
    "one logic id for two chips": ({"info -m": SHARED_ID}, {}, {"id": [0, 2], "card": [0, 2]}, OF_TWO),
    "a broken cpulist": (
        {},
        {"files": {CPU + "/present": "0-x"}},
        {"id": [0, 1, 2, 3]},
        ["present: '0-x'", "No CPU is", "possible: '0-x'"],
    ),
    "no NUMA node is not node 0": (AS_ON_NODE_0, {"files": NO_NODE}, {"numa": [None] * 4, "affinity": ["0-5"] * 4}, [GUESS]),
    "npu-smi and sysfs contradict each other": (OTHER_TOPO, {}, {"affinity": ["18-23", "6-11", "0-5", "6-11"]}, [CONTRADICTION]),
    "NPUs that sysfs does not have": (answers_of(A2), {"chips": ()}, {"family": ["a2"] * 4, "numa": [None] * 4}, [NOT_THERE]),
    "cards that are gone": (share(*[{"rc": 208, "text": "Invalid card id.\n"}] * 4), SHARED, {"id": [0, 1, 2, 3]}, ["'Invalid card"] * 4),
    "a device share without words": (share(*[{"rc": 210}] * 4), SHARED, {"device_share": [None] * 4}, ["'no output'"] * 4),
}


@pytest.mark.parametrize("answers, host, columns, words", TOLD.values(), ids=TOLD)
def test_what_can_be_read_of_a_host_counts_and_the_rest_is_told(tree, answers, host, columns, words):
    facts = gathered(tree, answers, **host)
    assert {name: column(facts, name) for name in columns} == columns
    assert said(facts["problems"], words) == words


def test_offline_cpus_are_no_contradiction(tree):
    facts = gathered(tree, files={CPU + "/online": "0-19,22-23"})
    assert (facts["problems"], facts["cpus"]["offline"]) == ([], "20-21")
    assert (facts["numa"][3]["cpus"], facts["npus"][0]["affinity"]) == ("18-19,22-23", "18-23")


def test_an_npu_that_only_the_bus_has_is_told_with_what_it_is(tree):
    assert gathered(tree, answers_of(A2[:3]))["unlisted"] == [{"pci": "0000:41:00.0", "family": "a2", "numa": 1}]


def test_the_driver_version_comes_from_its_file_if_npu_smi_fails(tree):
    file = {"/usr/local/Ascend/driver/version.info": "package_version=25.5.1\nVersion=25.5.1\nascendhal_version=7.35.23"}
    facts = gathered(tree, ALL_UNAVAILABLE, files=file)
    assert facts["driver"] == {"version": "25.5.1", "npu_smi": None}


@pytest.mark.parametrize(
    "refused, times, step",
    [
        ("This command cannot be executed on a VM or container.", 1, "npu-smi does that on the physical machine only."),
        ("This device does not support querying it.", 2, "this product or driver version cannot do it."),  # the topology, and the boards
    ],
)
def test_what_cannot_work_on_a_machine_is_said_once(tree, refused, times, step):
    without_bus = info([chip[:4] + ("", 0) for chip in A2])
    facts = gathered(tree, {"info": without_bus, "info -t topo": refused + "\n", **boards(*[refused + "\n"] * 4)})
    told = [problem for problem in facts["problems"] if refused in problem]
    assert [problem.endswith(step) and UNSUPPORTED in problem for problem in told] == [True] * times
    assert len(tree.calls(NPU_SMI)) > len(AT_ONCE)


NO_ANSWER = {"sleep": 30}


def test_npu_smi_that_hangs(tree):
    tree.host = Host(tree.root, timeout=4)
    facts = gathered(tree, {"info": NO_ANSWER, "info -m": NO_ANSWER})
    assert facts["npus"] == []
    assert "did not answer within 4 s" in facts["problems"][0]
    assert facts["silent"] == {"npu": "npu-smi did not answer 'info' and 'info -m' in time."}
    assert sorted(tree.calls(NPU_SMI)) == AT_ONCE


def test_after_a_hanging_query_no_card_is_queried_for_its_share(tree):
    tree.host = Host(tree.root, timeout=4)
    facts = gathered(tree, {"info -t device-share -i 1": NO_ANSWER}, device_share=True)
    assert tree.calls(NPU_SMI)[3:] == ["info -t device-share -i 0", "info -t device-share -i 1"]
    assert "Device share of card 2-3 was not queried, because npu-smi did not answer before." in facts["problems"]


def test_the_first_board_that_hangs_is_the_last_one_asked(tree):
    tree.host = Host(tree.root, timeout=4)
    facts = gathered(tree, {"info": NO_ANSWER, "info -t board -i 0 -c 0": NO_ANSWER})
    assert column(facts, "id", "pci") == [(number, None) for number in range(4)]
    assert tree.calls(NPU_SMI)[3:] == ["info -t board -i 0 -c 0"]


NOBODY = {"rc": 191, "text": "This device does not support querying topo.\n"}
TWINS = DUO[:2] + DUO[:1] + [(5, 1, 0, "310P3", "0000:81:00.0", 2)]
DIES = topo({"Phy-ID2": None, "Phy-ID3": None})
COUNTED = "the order of npu-smi info"
ALL_OF_A2 = "card 0 chip 0 and card 1 chip 0 and card 2 chip 0 and card 3 chip 0 are not"
FALLBACKS = {
    # story: family, chips, topology, processes, logic ids, words of what is said about them
    "the Device column is the logic id": ("310p", DUO, topo({"NPU2": "0-5"}), (), [0, 1, 2, 3], ["the column Device"]),
    "unless it repeats itself": ("310p", TWINS, NOBODY, (), [], ["left out"]),
    "physical ids without a gap are": ("a3", A3, NOBODY, (), [0, 1, 2, 3], ["the physical ids"]),
    "rows of the topology": ("a2", A2, topo_of(A2), [(1, 0)], [0, 1, 2, 3], [COUNTED]),
    "with gaps in the NPU IDs": ("a2", LEFT, topo_of(A2), (), [0, 1, 2], [COUNTED]),
    "of dies, by physical id": ("a3", A3[2:], DIES, (), [0, 1], [COUNTED]),
    "of some": ("a2", A2, topo({"NPU2": "0-5"}), (), [2], ["of card 0 chip 0 and card 1 chip 0 and card 3 chip 0 are not", COUNTED]),
    "no topology: those with a process": ("a2", A2, NOBODY, [(1, 0), (3, 0)], [1, 3], ["of card 0 chip 0 and card 2", COUNTED]),
    "nothing runs either": ("a2", A2, NOBODY, (), [], [ALL_OF_A2]),
}


@pytest.mark.parametrize("family, chips, topology, processes, ids, words", FALLBACKS.values(), ids=FALLBACKS)
def test_without_info_m_logic_ids_follow_the_published_fallbacks(tree, family, chips, topology, processes, ids, words):
    facts = gathered(tree, {"info -t topo": topology, "info -m": {"rc": 210, "text": ""}}, chips, family, processes=processes)
    assert column(facts, "id", "pci") == [(number, chips[number][4]) for number in ids]
    assert "info -m' ended with status 210" in facts["problems"][0]
    assert said([problem for problem in facts["problems"] if "logic id" in problem.lower()], words) == words


NAMES = {"a2": ("910B2C", "910B4-1"), "910": ("910A", "910B", "910ProB"), "310p": ("310P3", "310Pvir01"), "310": ("310B4", "MiniD")}
FAMILIES = [
    # name of the chip, PCI device id, family, what is doubtful
    ("910Z9", "0xd802", "a2", ["its PCI device id says a2"]),
    ("910Z9", "0xd899", None, ["its PCI device id is unknown, too"]),
    ("910B3", "0xd803", "a3", []),
    ("Ascend950DT", "0xd899", "a5", []),
    *((name, "0xd899", family, []) for family, names in NAMES.items() for name in names),
]


@pytest.mark.parametrize("name, device, family, doubt", FAMILIES)
def test_the_family_comes_from_the_pci_device_id_or_the_name(tree, name, device, family, doubt):
    facts = gathered(tree, (), [A2[0][:3] + (name,) + A2[0][4:]], files={"%s/0000:c1:00.0/device" % PCI: device})
    assert column(facts, "family", "name", "numa") == [(family, name, 3)]
    assert said(facts["problems"], doubt) == doubt


GPU_CSV = (
    "index, uuid, pci.bus_id, name, memory.total [MiB]\n"
    "1, GPU-b, 00000000:81:00.0, NVIDIA L40S, 46068 MiB\n0, GPU-a, 00000000:01:00.0, NVIDIA L40S, 46068 MiB\n"
)
GPU_QUERY = "--query-gpu=index,uuid,pci.bus_id,name,memory.total --format=csv"
FIRST, SECOND, THIRD = "0000:01:00.0", "0000:81:00.0", "0000:a1:00.0"


def with_gpus(tree, nodes, answer=GPU_CSV):
    tree.write(machine())
    for pci, node in nodes.items():
        tree.write(function(pci, "0x10de", "0x26b9", "0x030200", node))
    if answer is not None:
        tree.tool(NVIDIA_SMI, {GPU_QUERY: answer})
    return gather(tree.host)


def test_gpus_of_a_mixed_fleet(tree):
    facts = with_gpus(tree, {FIRST: 0, SECOND: 2})
    assert facts["problems"] == []
    assert column(facts, "kind", "family", "id", "pci", "numa") == [("gpu", "gpu", 0, FIRST, 0), ("gpu", "gpu", 1, SECOND, 2)]
    both = gathered(tree, (), A2[:1])
    assert column(both, "kind", "id") == [("npu", 0), ("gpu", 0), ("gpu", 1)], "NPUs come first, and ids coincide"
    assert set(facts["npus"][0]) == set(both["npus"][0])


LOST_GPU = {"rc": 15, "text": GPU_CSV + "Unable to determine the device handle, lost\n"}
GPUS = {
    # story: NUMA nodes of the GPUs on the bus, what nvidia-smi answers, ids, words of the problem
    "the tool is missing": ({FIRST: 0}, None, [], ["nvidia-smi was not found"]),
    "the tool fails": ({FIRST: 0}, {"rc": 9, "text": "NVIDIA-SMI has failed\n"}, [], ["status 9"]),
    "a GPU has another driver": (dict.fromkeys([FIRST, SECOND, THIRD], 0), GPU_CSV, [0, 1], ["nvidia-smi does not list: %s." % THIRD]),
    "a GPU is lost": ({FIRST: 0}, LOST_GPU, [0, 1], ["status 15"]),
}


@pytest.mark.parametrize("nodes, answer, ids, words", GPUS.values(), ids=GPUS)
def test_gpus_that_are_not_told(tree, nodes, answer, ids, words):
    facts = with_gpus(tree, nodes, answer)
    assert (column(facts, "id"), said(facts["problems"], words)) == (ids, words)


def test_the_plan_in_force_omits_what_the_next_does_not_need(tree):
    npu = {"id": 0, "kind": "npu", "chip": 0, "pci": "0000:c1:00.0", "pool": "18-23", "irq": "18-19", "main": "20-21", "acl": "22"}
    npu.update(release="23", mems="3", slice="npu-0.slice")
    values = {"strategy": "topo_affinity", "requested": "auto", "cpus": "0-23", "housekeeping": "", "lost": [], "poll": "1-17"}
    plan = dict(values, schema=1, quality={}, npus=[dict(npu, picture="...")], warnings=["w"])
    facts = gather(tree.write({**machine(), "/etc/npu-affinity/plan.json": json.dumps(plan)}))
    assert (facts["applied"], facts["problems"]) == (dict(values, npus=[npu]), [])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"npus": 5}', '{"npus": [5]}', "null"])
def test_a_broken_plan_is_a_problem(tree, text):
    facts = gather(tree.write({**machine(), "/etc/npu-affinity/plan.json": text}))
    assert facts["applied"] is None
    assert facts["problems"][0].startswith("/etc/npu-affinity/plan.json is no")


def test_the_drop_ins_of_services_that_a_bind_wrote(tree):
    ours, folder = "# Managed by npu.affinity\n[Service]\nSlice=npu-0.slice", "/etc/systemd/system/"
    tree.write({folder + "a@0.service.d/50-npu-affinity.conf": ours, folder + "b.service.d/10-mine.conf": "[Service]\n"})
    tree.write({**machine(), folder + "system.slice.d/50-npu-affinity.conf": ours})
    assert gather(tree.host)["drop_ins"] == {"a@0.service": text_digest(ours)}


def test_the_affinity_of_the_calling_process_changes_nothing():
    before = gather(Host("/"), npu_smi="true", nvidia_smi="true")["cpus"]
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert gather(Host("/"), npu_smi="true", nvidia_smi="true")["cpus"] == before
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_program_of_the_session_alone_is_told_from_others(tmp_path, monkeypatch):
    session, usual = (str(tmp_path / folder) for folder in ("session", "usual"))
    for folder in (session, usual):
        os.mkdir(folder)
        Tree(folder).tool("/npu-smi", {})
    monkeypatch.setenv("PATH", session)
    found = [find(Host(), None, "npu-smi", folders, [], []) for folders in ([usual], [])]
    assert [(tool.argv, tool.session) for tool in found] == [([usual + "/npu-smi"], False), ([session + "/npu-smi"], True)]

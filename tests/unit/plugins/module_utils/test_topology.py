# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._smi.errors import UNSUPPORTED
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import find
from ansible_collections.npu.affinity.plugins.module_utils._state.history.digest import text_digest
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather

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


def machine(chips=(), family="a2", numa=None):
    """Return the files of the host; ``numa`` replaces the NUMA node of all PCI functions."""
    files = {CPU + "/online": "0-23", CPU + "/present": "0-23", NODE + "/online": "0-3"}
    for node in range(4):
        files["%s/node%d/cpulist" % (NODE, node)] = "%d-%d" % (6 * node, 6 * node + 5)
        files["%s/node%d/meminfo" % (NODE, node)] = "Node %d MemTotal: 8388608 kB" % node
        files["%s/node%d/distance" % (NODE, node)] = " ".join("10" if other == node else "20" for other in range(4))
    for _card, _chip, _second, _name, pci, node in chips:
        folder = "%s/%s/" % (PCI, pci)
        files.update({folder + "class": "0x120000", folder + "vendor": "0x19e5", folder + "device": DEVICE_ID[family]})
        files[folder + "numa_node"] = node if numa is None else numa
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


A2_TOPO = topo({"NPU0": "18-23", "NPU1": "12-17", "NPU2": "0-5", "NPU3": "6-11"})
A2_ANSWERS = {"info": info(A2, processes=[(1, 0)]), "info -m": mapping(A2), "info -t topo": A2_TOPO}
UNAVAILABLE = {"rc": 187, "text": "dcmi module initialize failed. ret is -8005\n"}
BUSY = {"rc": 172, "text": "dcmi model initialized failed, because the device is used. ret is -8020\n"}
TOPO_191 = {"rc": 191, "text": "npu get device pcie info failed. ret is -8001\n"}


def a2(tree, **changed):
    """Gather the A2 host; a keyword replaces an answer: ``info_m={...}``, ``info_t_topo="..."``."""
    tree.write(machine(A2))
    tree.tool(NPU_SMI, dict(A2_ANSWERS, **{name.replace("_m", " -m").replace("_t_", " -t "): answer for name, answer in changed.items()}))
    return gather(tree.host)


def host_of(tree, chips, topology, family="a2", processes=(), device_share=False, **more):
    """Gather a host of these chips; a keyword that is left adds an answer or replaces one."""
    tree.write(machine(chips, family))
    answers = {"info": info(chips, family, processes), "info -m": mapping(chips, family), "info -t topo": topology}
    tree.tool(NPU_SMI, {**answers, **more})
    return gather(tree.host, device_share=device_share)


def column(facts, key):
    return [npu[key] for npu in facts["npus"]]


def test_a_healthy_a2_host(tree):
    facts = a2(tree)
    assert facts["problems"] == []
    assert facts["npus"][1] == {
        "kind": "npu",
        "id": 1,
        "card": 1,
        "chip": 0,
        "phy_id": None,
        "name": "910B3",
        "family": "a2",
        "pci": "0000:81:00.0",
        "numa": 2,
        "affinity": "12-17",
        "memory_mib": 65536,
        "device_share": None,
        "busy": True,
        "device": {"number": None, "file": None, "known_by": "unknown"},
        "driver": None,
        "parts": [],
    }
    assert column(facts, "numa") == [3, 2, 0, 1]
    assert column(facts, "busy") == [False, True, False, False]
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
REGISTERS = [
    # story, device files, interrupts' numbers by function, sysfs, npu-smi, numbers, how they are known, problems
    ("interrupts tell", GAP, INTERRUPTS, "", {}, [0, 2, 3], "interrupts", []),
    ("sysfs tells", GAP, {}, UDEVIDS, {}, [0, 2, 3], "sysfs", []),
    ("an older driver's sysfs tells", GAP, {}, OLD_UDEVIDS, {}, [0, 2, 3], "sysfs", []),
    ("npu-smi where nothing else tells", GAP, {}, "", REMAPS, [0, 2, 3], "npu-smi", []),
    ("no files, as in an archive", (), INTERRUPTS, "", {}, [0, 2, 3], "interrupts", []),
    ("all silent and a gap", GAP, {}, "", {}, [None] * 3, "unknown", []),
    ("all silent and a file too many", FULL, {}, "", {}, [None] * 3, "unknown", []),
    ("all silent and no file", (), {}, "", {}, [None] * 3, "unknown", []),
    ("all silent, and files count up as logic ids do", CLOSED, {}, "", {}, [0, 1, 2], "unknown", []),
    ("a file is missing", (0, 2), INTERRUPTS, "", {}, [0, 2, 3], "interrupts", ["NPU 2: its device file /dev/davinci3 does not exist."]),
    (
        "sources contradict each other",
        GAP,
        {**INTERRUPTS, "0000:41:00.0": 7},
        UDEVIDS,
        {},
        [0, 2, 3],
        "sysfs",
        ["NPU 2: its device file is davinci3 by sysfs and davinci7 by interrupts; the first is taken."],
    ),
    (
        "two NPUs have one number",
        GAP,
        {**INTERRUPTS, "0000:41:00.0": 2},
        "",
        {},
        [0, None, None],
        "interrupts unknown unknown",
        ["Several NPUs have the number 2 of a device file, so it tells the file of none of them."],
    ),
]


@pytest.mark.parametrize(
    "files, interrupts, sysfs, answers, numbers, known_by, problems", [row[1:] for row in REGISTERS], ids=[row[0] for row in REGISTERS]
)
def test_the_register_says_each_device_file_and_how_it_is_known(tree, files, interrupts, sysfs, answers, numbers, known_by, problems):
    tree.write({"/dev/davinci%d" % number: "" for number in files})
    tree.write({"%s/%s/msi_irqs/%d" % (PCI, pci, 100 + number): "msix" for number, pci in enumerate(interrupts)})
    names = "".join("%d: 0 ITS-MSI 0 Edge trs-mbox-%d-0\n" % (100 + at, number) for at, number in enumerate(interrupts.values()))
    tree.write({"/proc/interrupts": "     CPU0\n" + names})
    tree.write({"%s/%s/uevent" % (PCI, pci): "DRIVER=devdrv_device_driver\n" for *_ids, pci, _node in LEFT})
    tree.write({"%s/%s/devdrv_sysfs_bdf_to_devid" % (PCI, pci): sysfs for *_ids, pci, _node in LEFT if sysfs})
    facts = host_of(tree, LEFT, topo({"NPU0": "18-23", "NPU2": "0-5", "NPU3": "6-11"}), **answers)
    assert column(facts, "card") == [0, 2, 3]
    assert (column(facts, "phy_id"), [npu["device"]["number"] for npu in facts["npus"]]) == (numbers, numbers)
    assert [npu["device"]["file"] for npu in facts["npus"]] == [None if number is None else "/dev/davinci%d" % number for number in numbers]
    assert [npu["device"]["known_by"] for npu in facts["npus"]] == (known_by.split() if " " in known_by else [known_by] * 3)
    assert column(facts, "driver") == ["devdrv_device_driver"] * 3
    assert facts["problems"] == problems
    asked = [call for call in tree.calls(NPU_SMI) if "phyid-remap" in call]
    assert len(asked) == (len(files) if answers else min(1, len(files)) * (None in numbers or known_by == "unknown"))


@pytest.mark.parametrize("chip, ids", [("4 1", [1]), ("7 0", [2]), ("4", [0, 1])], ids=["a die", "another card", "a whole card"])
def test_a_process_of_npu_smi_uses_the_npus_of_its_row(tree, chip, ids):
    table = info(A3, "a3", processes=[(4, 1)]).replace("| 4 1 | 4711", "| %s | 4711" % chip)
    if " " not in chip:
        table = table.replace("| NPU Chip | Process id", "| NPU | Process id")
    tree.write(dict(machine(A3, "a3"), **{"/proc/4711/cgroup": "0::/system.slice/llm.service"}))
    tree.tool(
        NPU_SMI, {"info": table, "info -m": mapping(A3, "a3"), "info -t topo": topo({"Phy-ID%d" % number: None for number in range(4)})}
    )
    (user,) = gather(tree.host)["users"]
    assert (user["name"], user["npus"]) == ("llm.service", [{"kind": "npu", "id": number} for number in ids])


def test_three_calls_suffice_and_device_share_adds_one_per_card(tree):
    a2(tree)
    assert sorted(tree.calls(NPU_SMI)) == AT_ONCE
    gather(tree.host, device_share=True)
    assert tree.calls(NPU_SMI)[6:] == ["info -t device-share -i %d" % card for card in range(4)]


def test_facts_are_plain_json_and_nothing_is_written(tree):
    before = a2(tree)
    listing = sorted(os.walk(tree.root))
    facts = gather(tree.host)
    assert json.loads(json.dumps(facts)) == facts == before
    assert sorted(os.walk(tree.root)) == listing


def test_a3_dies_have_physical_ids_and_no_affinity_on_arm(tree):
    facts = host_of(tree, A3, topo({"Phy-ID%d" % number: None for number in range(4)}), "a3")
    assert facts["problems"] == []
    assert [(npu["id"], npu["card"], npu["chip"], npu["phy_id"]) for npu in facts["npus"]] == [
        (0, 4, 0, 0),
        (1, 4, 1, 1),
        (2, 7, 0, 2),
        (3, 7, 1, 3),
    ]
    assert (set(column(facts, "family")), set(column(facts, "affinity"))) == ({"a3"}, {None})
    assert column(facts, "numa") == [2, 2, 3, 3]


def test_the_labels_of_a_container_are_not_its_logic_ids(tree):
    chips = [(6, 0, 12, "Ascend910", "0000:9d:00.0", 2), (6, 1, 13, "Ascend910", "0000:9f:00.0", 2)]
    facts = host_of(tree, chips, topo({"Phy-ID13": "12-17", "Phy-ID12": "12-17", "Phy-ID0": "0-5"}), "a3")
    assert (column(facts, "id"), column(facts, "phy_id"), column(facts, "affinity")) == ([0, 1], [12, 13], ["12-17", "12-17"])


def test_chips_of_a_duo_card_share_a_function_and_a_topology_row(tree):
    share = (
        "\tNPU ID : %d\n\tChip Count : 2\n\n\tDevice-share Status : True\n\tChip ID : 0\n\n\tDevice-share Status : False\n\tChip ID : 1\n"
    )
    shares = {"info -t device-share -i %d" % card: share % card for card in (2, 5)}
    facts = host_of(tree, DUO, topo({"NPU2": "0-5", "NPU5": "12-17"}), "310p", [(5, 1)], True, **shares)
    assert facts["problems"] == []
    assert column(facts, "family") == ["310p"] * 4
    assert column(facts, "affinity") == ["0-5", "0-5", "12-17", "12-17"]
    assert column(facts, "device_share") == [True, False, True, False]
    assert column(facts, "busy") == [False, False, False, True]


def test_an_a5_has_its_npu_id_as_logic_id_and_maybe_no_function(tree):
    table = "\n".join(
        ["| npu-smi 25.6.rc1  Version: 25.6.rc1 |", "| NPU ID | Name | Health | Power(W) Temp(C) Hugepages-Usage(page) |"]
        + ["| | | Bus-Id | NPU Util(%) Memory-Usage(MB) HBM-Usage(MB) |"]
        + ["| %d | Ascend950DT | OK | 394.0 46 0 / 0 |\n| | | NA | 0 0 / 0 90129 / 98304 |" % card for card in (0, 1)]
        + ["| NPU ID | Process id | Process name | Process memory(MB) |", "| 1 | 305 | worker | 84315 |"]
    )
    rows = "NPU ID  Slot ID  Chip ID  Chip Phy-ID  Chip Name\n" + "".join("%d  %d  0  %d  Ascend950DT\n" % (n, n, n) for n in (0, 1))
    tree.write(machine())
    board = "\tNPU ID                         : %d\n\tPCIe Bus Info                  : NA\n"
    answers = {"info": table, "info -m": rows, "info -t topo": topo({"NPU0": "0-5", "NPU1": "6-11"})}
    answers.update({"info -t board -i %d" % card: board % card for card in (0, 1)})
    tree.tool(NPU_SMI, answers)
    facts = gather(tree.host)
    assert facts["problems"] == []
    assert (column(facts, "id"), column(facts, "phy_id"), column(facts, "family")) == ([0, 1], [0, 1], ["a5", "a5"])
    assert (column(facts, "pci"), column(facts, "affinity"), column(facts, "busy")) == ([None, None], ["0-5", "6-11"], [False, True])
    assert tree.calls(NPU_SMI)[3:] == ["info -t board -i 0", "info -t board -i 1"]


def test_a_host_without_accelerators_has_no_npus_and_no_problem(tree):
    facts = gather(tree.write(machine()))
    assert (facts["npus"], facts["problems"], facts["driver"]) == ([], [], {"version": None, "npu_smi": None})


def test_a_tree_without_sysfs_says_so(tree):
    facts = gather(tree.host)
    assert (facts["cpus"]["online"], facts["numa"], facts["npus"]) == ("", [], [])
    assert facts["problems"] == ["No CPU is online by %s/sys/devices/system/cpu/online." % tree.root]


def test_a_broken_cpulist_is_a_problem_and_not_a_crash(tree):
    tree.write(machine(A2))
    tree.write({CPU + "/present": "0-x"})
    tree.tool(NPU_SMI, A2_ANSWERS)
    facts = gather(tree.host)
    assert any("present: '0-x'" in problem for problem in facts["problems"])
    assert column(facts, "id") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "story, files, words",
    [
        ("NPUs on the bus", machine(A2), "0000:01:00.0, 0000:41:00.0, 0000:81:00.0, 0000:c1:00.0"),
        ("device nodes only", dict(machine(), **{"/dev/davinci0": ""}), "davinci0"),
    ],
)
def test_npu_smi_is_missing_where_there_are_npus(tree, story, files, words):
    facts = gather(tree.write(files))
    assert (facts["npus"], len(facts["problems"])) == ([], 1)
    assert "npu-smi was not found" in facts["problems"][0]
    assert words in facts["problems"][0], story


@pytest.mark.parametrize("named", ["/nowhere/npu-smi", "no-such-npu-smi --flag", "'unbalanced"])
def test_a_named_command_that_is_none_is_a_problem(tree, named):
    facts = gather(tree.write(machine()), npu_smi=named)
    assert len(facts["problems"]) == 1
    assert named in facts["problems"][0]


def test_a_named_command_may_have_several_words(tree):
    tree.write(machine(A2))
    program = tree.tool("/opt/replay", {"node-17 " + words: answer for words, answer in A2_ANSWERS.items()})
    facts = gather(tree.host, npu_smi="%s node-17" % program)
    assert (column(facts, "id"), facts["problems"]) == ([0, 1, 2, 3], [])


def test_damaged_rows_of_info_are_problems_and_the_others_count(tree):
    text = info(A2).replace("| 1 910B3 | OK | 90.0 38 0 / 0 |", "| 1 910B3")
    facts = a2(tree, info=text)
    assert column(facts, "name") == ["910B3", "910B3", "910B3", "910B3"] and column(facts, "memory_mib") == [65536, None, 65536, 65536]
    assert "A row of npu-smi info is cut short, or lacks its other line or its heading: '| 1 910B3'." in facts["problems"]


def test_a_tool_that_prints_without_end_is_a_problem(tree):
    tree.write(machine(A2))
    program = tree.tool("/opt/endless", {})
    with open(program, "w") as file:
        file.write("#!/bin/sh\nexec yes '| 0 910B3'\n")
    problems = gather(tree.host, npu_smi=program)["problems"]
    assert "'%s info' printed more than 8 MiB and was killed." % program in problems


@pytest.mark.parametrize("story, answer, word", [("no driver", UNAVAILABLE, "-8005"), ("held by a container", BUSY, "-8020")])
def test_npu_smi_that_cannot_start(tree, story, answer, word):
    facts = a2(tree, info=answer, info_m=answer, info_t_topo=answer)
    assert facts["npus"] == []
    assert word in facts["problems"][0], story
    assert "0000:c1:00.0" in facts["problems"][-1]
    assert sorted(tree.calls(NPU_SMI)) == AT_ONCE


def test_the_driver_version_comes_from_its_file_if_npu_smi_fails(tree):
    tree.write({"/usr/local/Ascend/driver/version.info": "package_version=25.5.1\nVersion=25.5.1\nascendhal_version=7.35.23"})
    assert a2(tree, info=UNAVAILABLE, info_m=UNAVAILABLE)["driver"] == {"version": "25.5.1", "npu_smi": None}


@pytest.mark.parametrize(
    "refused, times, step",
    [
        ("This command cannot be executed on a VM or container.", 1, "npu-smi does that on the physical machine only."),
        ("This device does not support querying it.", 2, "this product or driver version cannot do it."),  # the topology, and the boards
    ],
)
def test_what_cannot_work_on_a_machine_is_said_once(tree, refused, times, step):
    boards = {"info -t board -i %d -c 0" % card: refused + "\n" for card in range(4)}
    facts = host_of(tree, A2, refused + "\n", info=info([chip[:4] + ("", 0) for chip in A2]), **boards)
    said = [problem for problem in facts["problems"] if refused in problem]
    assert [problem.endswith(step) and UNSUPPORTED in problem for problem in said] == [True] * times
    assert len(tree.calls(NPU_SMI)) > len(AT_ONCE)


def test_npu_smi_that_hangs(tree):
    tree.host = Host(tree.root, timeout=4)
    facts = a2(tree, info={"sleep": 30}, info_m={"sleep": 30})
    assert facts["npus"] == []
    assert "did not answer within 4 s" in facts["problems"][0]
    assert facts["silent"] == {"npu": "npu-smi did not answer 'info' and 'info -m' in time."}
    assert sorted(tree.calls(NPU_SMI)) == AT_ONCE


def test_after_a_hanging_query_no_card_is_queried_for_its_share(tree):
    tree.host = Host(tree.root, timeout=4)
    a2(tree, **{"info_t_device-share -i 1": {"sleep": 30}})
    facts = gather(tree.host, device_share=True)
    assert tree.calls(NPU_SMI)[6:] == ["info -t device-share -i 0", "info -t device-share -i 1"]
    assert "Device share of card 2-3 was not queried, because npu-smi did not answer before." in facts["problems"]


def test_the_first_board_that_hangs_is_the_last_one_asked(tree):
    tree.host = Host(tree.root, timeout=4)
    facts = a2(tree, info={"sleep": 30}, **{"info_t_board -i 0 -c 0": {"sleep": 30}})
    assert (column(facts, "id"), column(facts, "pci")) == ([0, 1, 2, 3], [None] * 4)
    assert tree.calls(NPU_SMI)[3:] == ["info -t board -i 0 -c 0"]


def test_info_fails_and_the_boards_tell_what_it_would_have_told(tree):
    board = "\tNPU ID                         : %d\n\tChip ID                        : 0\n\tPCIe Bus Info                  : %s\n"
    boards = {"info_t_board -i %d -c 0" % row[0]: board % (row[0], row[4].upper()) for row in A2}
    facts = a2(tree, info="", **boards)
    assert column(facts, "pci") == [row[4] for row in A2]
    assert (column(facts, "name"), column(facts, "numa")) == (["910B3"] * 4, [3, 2, 0, 1])
    assert (column(facts, "memory_mib"), column(facts, "busy")) == ([None] * 4, [None] * 4)
    assert len(facts["problems"]) == 1
    assert "/npu-smi info'" in facts["problems"][0]


def test_log_lines_before_the_output_are_skipped(tree):
    noise = "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\n[INFO limiter] registered\n"
    plain = a2(tree)
    noisy = a2(
        tree, **{name: noise + text for name, text in (("info", A2_ANSWERS["info"]), ("info_m", mapping(A2)), ("info_t_topo", A2_TOPO))}
    )
    assert noisy == plain


@pytest.mark.parametrize("name", ["info", "info_m", "info_t_topo"])
@pytest.mark.parametrize("text", ["This device does not support querying X.\n", "", "\0\x1b[31m|||\n", "Killed\n"])
def test_exit_status_0_with_a_text_that_is_no_answer(tree, name, text):
    facts = a2(tree, **dict({"info_t_board -i %d -c 0" % card: "" for card in range(4)}, **{name: text}))
    words = {"info": "npu-smi info'", "info_m": "npu-smi info -m'", "info_t_topo": "npu-smi info -t topo'"}[name]
    assert any(words in problem for problem in facts["problems"])
    assert column(facts, "id") == [0, 1, 2, 3]


def test_data_with_an_exit_status_is_used_and_told(tree):
    facts = a2(tree, info={"rc": 3, "text": A2_ANSWERS["info"]})
    assert column(facts, "id") == [0, 1, 2, 3]
    assert [problem.rpartition("'")[2] for problem in facts["problems"]] == [" printed data, but ended with status 3."]


def test_a_dead_npu_breaks_the_topology_but_others_are_reported(tree):
    dead = mapping(A2[:3]) + "\t-1  0  -  Mcu\n"
    facts = a2(tree, info=info(A2[:3]), info_m=dead, info_t_topo=TOPO_191)
    assert (column(facts, "id"), column(facts, "numa"), column(facts, "affinity")) == ([0, 1, 2], [3, 2, 0], [None] * 3)
    assert any("NPU ID -1" in problem for problem in facts["problems"])
    assert any("status 191" in problem for problem in facts["problems"])
    assert "NPU at 0000:41:00.0 is on the PCI bus and not listed by npu-smi." in facts["problems"]
    assert facts["unlisted"] == [{"pci": "0000:41:00.0", "family": "a2", "numa": 1}]


def test_a_card_off_the_bus_renumbers_logic_ids_but_not_npu_ids(tree):
    facts = host_of(tree, [A2[0]] + A2[2:], topo({"NPU0": "18-23", "NPU2": "0-5", "NPU3": "6-11"}))
    assert facts["problems"] == []
    assert (column(facts, "id"), column(facts, "card"), column(facts, "numa")) == ([0, 1, 2], [0, 2, 3], [3, 0, 1])


def test_a_container_that_sees_a_part_of_the_bus(tree):
    facts = a2(tree, info=info(A2[2:]), info_m=mapping(A2[2:]), info_t_topo=topo({"NPU2": "0-5", "NPU3": "6-11"}))
    assert (column(facts, "id"), column(facts, "card")) == ([0, 1], [2, 3])
    assert facts["problems"] == ["NPUs at 0000:81:00.0, 0000:c1:00.0 are on the PCI bus and not listed by npu-smi."]


def test_soft_sharing_shows_a_die_twice(tree):
    chips = [(0, 0, 0, "Ascend910", "0000:9d:00.0", 2), (0, 1, 0, "Ascend910", "0000:9d:00.0", 2)]
    facts = host_of(tree, chips, topo({"Phy-ID0": None}), "a3")
    assert [(npu["id"], npu["card"], npu["chip"], npu["phy_id"]) for npu in facts["npus"]] == [(0, 0, 0, 0), (1, 0, 1, 0)]
    assert facts["problems"] == ["NPU 0-1: all have PCI function 0000:9d:00.0, so only one of them is a separate device."]


def test_one_logic_id_for_two_chips(tree):
    twice = "NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  Ascend 910B3\n1  0  0  Ascend 910B3\n2  0  2  Ascend 910B3\n"
    facts = a2(tree, info_m=twice)
    assert [(npu["id"], npu["card"]) for npu in facts["npus"]] == [(0, 0), (2, 2)]
    assert "logic id 0 to card 0 chip 0 and card 1 chip 0" in facts["problems"][0]
    assert any("card 3 chip 0" in problem and "no logic id" in problem for problem in facts["problems"])


NOBODY = {"rc": 191, "text": "This device does not support querying topo.\n"}


@pytest.mark.parametrize(
    "story, family, chips, topology, processes, ids, words",
    [
        ("the Device column is the logic id", "310p", DUO, topo({"NPU2": "0-5"}), (), [0, 1, 2, 3], ["the column Device"]),
        ("unless it repeats itself", "310p", DUO[:2] + DUO[:1] + [(5, 1, 0, "310P3", "0000:81:00.0", 2)], NOBODY, (), [], ["left out"]),
        ("physical ids without a gap are", "a3", A3, NOBODY, (), [0, 1, 2, 3], ["the physical ids"]),
        ("rows of the topology", "a2", A2, A2_TOPO, [(1, 0)], [0, 1, 2, 3], ["the order of npu-smi info"]),
        ("with gaps in the NPU IDs", "a2", [A2[0], *A2[2:]], A2_TOPO, (), [0, 1, 2], ["the order of npu-smi info"]),
        ("of dies, by physical id", "a3", A3[2:], topo({"Phy-ID2": None, "Phy-ID3": None}), (), [0, 1], ["the order of npu-smi info"]),
        ("of some", "a2", A2, topo({"NPU2": "0-5"}), (), [2], ["of card 0 chip 0 and card 1 chip 0 and card 3 chip 0 are not", "order"]),
        ("no topology: those with a process", "a2", A2, NOBODY, [(1, 0), (3, 0)], [1, 3], ["of card 0 chip 0 and card 2", "order"]),
        ("nothing runs either", "a2", A2, NOBODY, (), [], ["card 0 chip 0 and card 1 chip 0 and card 2 chip 0 and card 3 chip 0 are not"]),
    ],
)  # fmt: skip
def test_without_info_m_logic_ids_follow_the_published_fallbacks(tree, story, family, chips, topology, processes, ids, words):
    facts = host_of(tree, chips, topology, family, processes, **{"info -m": {"rc": 210, "text": ""}})
    assert column(facts, "id") == ids, story
    assert column(facts, "pci") == [chips[number][4] for number in ids]
    assert "info -m' ended with status 210" in facts["problems"][0]
    told = [problem for problem in facts["problems"] if "logic id" in problem.lower()]
    assert len(told) == len(words) and all(word in problem for word, problem in zip(words, told))


def test_offline_cpus_are_no_contradiction(tree):
    tree.write(machine(A2))
    tree.write({CPU + "/online": "0-19,22-23"})
    tree.tool(NPU_SMI, A2_ANSWERS)
    facts = gather(tree.host)
    assert facts["problems"] == []
    assert (facts["cpus"]["offline"], facts["numa"][3]["cpus"], facts["npus"][0]["affinity"]) == ("20-21", "18-19,22-23", "18-23")


def test_a_numa_node_of_minus_1_is_not_node_0(tree):
    tree.write(machine(A2, numa=-1))
    guess = topo({"NPU%d" % card: "0-5" for card in range(4)})
    tree.tool(NPU_SMI, dict(A2_ANSWERS, **{"info -t topo": guess}))
    facts = gather(tree.host)
    assert (column(facts, "numa"), column(facts, "affinity")) == ([None] * 4, ["0-5"] * 4)
    assert len(facts["problems"]) == 1
    assert facts["problems"][0].startswith("NPU 0-3: the kernel has no NUMA node")


def test_npu_smi_and_sysfs_contradict_each_other(tree):
    facts = a2(tree, info_t_topo=A2_TOPO.replace("12-17", "6-11"))
    assert (facts["npus"][1]["numa"], facts["npus"][1]["affinity"]) == (2, "6-11")
    assert facts["problems"] == ["NPU 1: npu-smi prints CPU affinity 6-11, but sysfs says NUMA node 2, whose CPUs are 12-17."]


@pytest.mark.parametrize(
    "name, device, family, doubt",
    [
        ("910Z9", "0xd802", "a2", "its PCI device id says a2"),
        ("910Z9", "0xd899", None, "does not tell either"),
        ("910B2C", "0xd899", "a2", None),
        ("910B4-1", "0xd899", "a2", None),
        ("910A", "0xd899", "910", None),
        ("910B", "0xd899", "910", None),
        ("910ProB", "0xd899", "910", None),
        ("310P3", "0xd899", "310p", None),
        ("310Pvir01", "0xd899", "310p", None),
        ("310B4", "0xd899", "310", None),
        ("MiniD", "0xd899", "310", None),
        ("Ascend950DT", "0xd899", "a5", None),
        ("910B3", "0xd803", "a3", None),
    ],
)
def test_the_family_comes_from_the_pci_device_id_or_the_name(tree, name, device, family, doubt):
    host_of(tree, [A2[0][:3] + (name,) + A2[0][4:]], topo({"NPU0": "18-23"}))
    facts = gather(tree.write({"%s/0000:c1:00.0/device" % PCI: device}))
    assert (column(facts, "family"), column(facts, "name"), column(facts, "numa")) == ([family], [name], [3])
    assert facts["problems"] == ([] if doubt is None else [facts["problems"][0]])
    assert doubt is None or doubt in facts["problems"][0]


def test_npus_that_sysfs_does_not_have(tree):
    tree.write(machine())
    tree.tool(NPU_SMI, A2_ANSWERS)
    facts = gather(tree.host)
    assert (column(facts, "family"), column(facts, "numa")) == (["a2"] * 4, [None] * 4)
    assert len(facts["problems"]) == 1
    assert "does not have: 0000:01:00.0, 0000:41:00.0" in facts["problems"][0]


@pytest.mark.parametrize(
    "story, answer, problems",
    [
        ("a product that cannot", "This device does not support querying device-share.\n", 0),
        ("a card that is gone", {"rc": 208, "text": "Invalid card id.\n"}, 4),
        ("no words at all", {"rc": 210}, 4),
    ],
)
def test_device_share_that_is_not_told(tree, story, answer, problems):
    a2(tree, **{"info_t_device-share -i %d" % card: answer for card in range(4)})
    facts = gather(tree.host, device_share=True)
    assert (column(facts, "device_share"), len(facts["problems"])) == ([None] * 4, problems), story


GPU_CSV = (
    "index, uuid, pci.bus_id, name, memory.total [MiB]\n"
    "1, GPU-b, 00000000:81:00.0, NVIDIA L40S, 46068 MiB\n0, GPU-a, 00000000:01:00.0, NVIDIA L40S, 46068 MiB\n"
)
GPU_QUERY = "--query-gpu=index,uuid,pci.bus_id,name,memory.total --format=csv"


def with_gpus(tree, nodes):
    files = machine()
    for pci, node in nodes.items():
        folder = "%s/%s/" % (PCI, pci)
        files.update({folder + "class": "0x030200", folder + "vendor": "0x10de", folder + "device": "0x26b9", folder + "numa_node": node})
    tree.write(files)


def test_gpus_of_a_mixed_fleet(tree):
    with_gpus(tree, {"0000:01:00.0": 0, "0000:81:00.0": 2})
    tree.tool(NVIDIA_SMI, {GPU_QUERY: GPU_CSV})
    facts = gather(tree.host)
    assert facts["problems"] == []
    assert [(gpu["kind"], gpu["family"], gpu["id"], gpu["pci"], gpu["numa"]) for gpu in facts["npus"]] == [
        ("gpu", "gpu", 0, "0000:01:00.0", 0),
        ("gpu", "gpu", 1, "0000:81:00.0", 2),
    ]
    assert set(facts["npus"][0]) == set(a2(tree)["npus"][0])


def test_npus_come_before_gpus_and_ids_coincide(tree):
    with_gpus(tree, {"0000:01:00.0": 0, "0000:81:00.0": 2})
    tree.tool(NVIDIA_SMI, {GPU_QUERY: GPU_CSV})
    assert [(npu["kind"], npu["id"]) for npu in host_of(tree, A2[:1], topo({"NPU0": "18-23"}))["npus"]] == [
        ("npu", 0),
        ("gpu", 0),
        ("gpu", 1),
    ]


@pytest.mark.parametrize(
    "story, nodes, answer, ids, word",
    [
        ("the tool is missing", {"0000:01:00.0": 0}, None, [], "nvidia-smi was not found"),
        ("the tool fails", {"0000:01:00.0": 0}, {"rc": 9, "text": "NVIDIA-SMI has failed\n"}, [], "status 9"),
        (
            "a GPU is bound to another driver",
            dict.fromkeys(["0000:01:00.0", "0000:81:00.0", "0000:a1:00.0"], 0),
            GPU_CSV,
            [0, 1],
            "0000:a1:00.0",
        ),
        ("no NUMA node", {"0000:01:00.0": -1, "0000:81:00.0": -1}, GPU_CSV, [0, 1], "GPU 0-1"),
        (
            "a GPU is lost",
            {"0000:01:00.0": 0},
            {"rc": 15, "text": GPU_CSV + "Unable to determine the device handle, lost\n"},
            [0, 1],
            "status 15",
        ),
    ],
)
def test_gpus_that_are_not_told(tree, story, nodes, answer, ids, word):
    with_gpus(tree, nodes)
    if answer is not None:
        tree.tool(NVIDIA_SMI, {GPU_QUERY: answer})
    facts = gather(tree.host)
    assert column(facts, "id") == ids, story
    assert len(facts["problems"]) == 1
    assert word in facts["problems"][0]


def test_the_plan_in_force_omits_what_the_next_does_not_need(tree):
    npu = {
        "id": 0,
        "kind": "npu",
        "chip": 0,
        "pci": "0000:c1:00.0",
        "pool": "18-23",
        "irq": "18-19",
        "main": "20-21",
        "acl": "22",
        "release": "23",
    }
    npu.update({"mems": "3", "slice": "npu-0.slice"})
    values = {"strategy": "topo_affinity", "requested": "auto", "cpus": "0-23", "housekeeping": "", "lost": [], "poll": "1-17"}
    plan = dict(values, schema=1, quality={})
    tree.write(machine())
    tree.write({"/etc/npu-affinity/plan.json": json.dumps(dict(plan, npus=[dict(npu, picture="...")], warnings=["w"]))})
    facts = gather(tree.host)
    assert (facts["applied"], facts["problems"]) == (dict(values, npus=[npu]), [])


def test_the_drop_ins_of_services_that_a_bind_wrote(tree):
    tree.write(machine())
    ours, folder = "# Managed by npu.affinity\n[Service]\nSlice=npu-0.slice", "/etc/systemd/system/"
    tree.write({folder + "a@0.service.d/50-npu-affinity.conf": ours, folder + "b.service.d/10-mine.conf": "[Service]\n"})
    tree.write({folder + "system.slice.d/50-npu-affinity.conf": ours})
    assert gather(tree.host)["drop_ins"] == {"a@0.service": text_digest(ours)}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"npus": 5}', '{"npus": [5]}', "null"])
def test_a_broken_plan_is_a_problem(tree, text):
    tree.write(machine())
    facts = gather(tree.write({"/etc/npu-affinity/plan.json": text}))
    assert facts["applied"] is None
    assert facts["problems"][0].startswith("/etc/npu-affinity/plan.json is no")


def test_the_affinity_of_the_calling_process_changes_nothing():
    before = gather(Host("/"), npu_smi="true", nvidia_smi="true")["cpus"]
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert gather(Host("/"), npu_smi="true", nvidia_smi="true")["cpus"] == before
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_program_of_the_session_alone_is_told_from_others(tmp_path, monkeypatch):
    for folder in ("session", "usual"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "npu-smi").write_text("#!/bin/sh\n")
        (tmp_path / folder / "npu-smi").chmod(0o755)
    session, usual = (str(tmp_path / folder) for folder in ("session", "usual"))
    monkeypatch.setenv("PATH", session)
    found = [find(Host(), None, "npu-smi", folders, [], []) for folders in ([usual], [])]
    assert [(tool.argv, tool.session) for tool in found] == [([usual + "/npu-smi"], False), ([session + "/npu-smi"], True)]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for npu-smi that lives in a simulated host's tree and answers for that host.

It finds the tree from its own place in it, reads ``/simulator/machine.json`` there, takes NUMA nodes and CPUs from the tree's sysfs,
and keeps device share and hard vNPUs in ``/run/npu-smi``, ``/etc/device_share.cfg`` and ``/etc/vnpu.cfg`` of the tree. Texts, argument
checks, order of checks and exit statuses are those of the published tool (hicann/driver, ``npucli`` and ``dcmi``) on the queries that the
project runs. The help texts are short. Every call appends its arguments to ``/var/log/npu-smi-calls.log``.

``faults`` in the description (all optional, read at every call):

error      -8005 or -8020: every command fails so, as without driver or when another container holds the device
sleep      seconds to wait before anything else (a controller that does not answer)
log_lines  lines printed before every answer, as driver and limiter libraries do
answers    {"info -m": {"text": ..., "status": 0}}: what to print for exactly these arguments instead
           {"info -m": {"sleep": 600}}: it does not answer
dead       [NPU IDs]: there on the bus and without an answer
lost       ["NPU ID:chip"]: a chip that is gone while the PCI function that it shares with others is there; logic ids close up
busy       [NPU IDs, or "NPU ID:chip"]: a container holds it, device share cannot be changed; [id of a hard vNPU]: it cannot be destroyed
user       an uid; other than 0 is refused where the tool wants root (the variable NPU_SMI_UID wins)
container  true: a plain container; [physical ids]: a plain container that sees only these
vm         true: a virtual machine's guest

A card whose PCI function is missing from the tree's sysfs has dropped off the bus: logic ids close up, NPU IDs stay.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys

DESCRIPTION = "simulator/machine.json"
CALLS = "var/log/npu-smi-calls.log"
SHARE_STATE = "run/npu-smi/share.json"
SHARE_CONFIG = "etc/device_share.cfg"
INSTALL_INFO = "etc/ascend_install.info"

UNSUPPORTED, INVALID, NOT_ROOT, INNER, BUSY, ABORTED, TOPO_FAILED = 217, 215, 214, 211, 203, 200, 191
NO_DRIVER = {
    -8005: "dcmi module initialize failed. ret is -8005",
    -8020: "dcmi model initialized failed, because the device is used. ret is -8020",
}

ROOT_ONLY = "This command can be executed only by the root user."
NOT_PERMITTED = "Operation not permitted, only root user on physical machine or on physical privilege container can call this api."
SHARE_RISK = "There are security risks when opening device sharing, Please ensure that only a single user uses the chip."
WHOLE_CARD = (
    "Setting device sharing for single chip is not allowed for this product, "
    "all chips belong to the npu card will keep same device-share status!\n"
    "There are security risks when enabling or disabling the device sharing, "
    "Please ensure that only a single user operating the card at the same time."
)
RECOVER_RISK = (
    "Device share config recover will be allowed when opening device share enable, "
    "Please ensure that the custom code is secure and trustworthy."
)
QUESTION = "Are you sure you want to continue setting?(Y/N)"

MAIN_HELP = "Usage: npu-smi <Command|-h|-v> [Options...]\n\nnpu-smi Command:\n\tinfo            Queries\n\tset             Settings"
INFO_HELP = (
    "Usage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]\n\nOptions:\n"
    "       -i %d          Card ID\n       -c %d          Chip ID"
)
SET_HELP = "Usage: npu-smi set <-h|-t type> [Options...]"
SHARE_HELP = (
    "Usage: npu-smi set -t device-share [Options...]\n\nOptions:\n       -i %d          Card ID\n       -c %d          Chip ID\n"
    "       -d %d          Enable value, only can input 0 or 1"
)
RECOVER_HELP = (
    "Usage: npu-smi set -t device-share-cfg-recover [Options...]\n\nOptions:\n"
    "       -d %d          Persistence config recover mode, only can input 0 or 1"
)

NOT_SIMULATED = {"flash", "sensors", "temp", "volt", "ecc", "ip", "work-mode", "pcie-err"}
NOT_SIMULATED |= {"memory", "usages", "health", "common", "power", "product", "proc-mem"}
SHARE = "device-share"
RECOVER = "device-share-cfg-recover"
REMAP = "phyid-remap"
SUPPORTED_ON = {SHARE: {"310", "310p", "a2", "a3", "a5"}, RECOVER: {"310p", "a2", "a3"}}
SPLIT_QUERIES = {"vnpu-mode", "vnpu-cfg-recover", "info-vnpu", "template-info"}
SPLIT_SETTINGS = {"vnpu-mode", "vnpu-cfg-recover", "create-vnpu", "destroy-vnpu"}
TEMPLATES = {
    # name, AI cores, memory in GB, AI CPUs
    "310p": [("vir01", 1, 3, 1), ("vir02", 2, 6, 2), ("vir04", 4, 12, 4)],
    "910": [("vir02", 2, 2, 1), ("vir04", 4, 4, 1), ("vir08", 8, 8, 3), ("vir16", 16, 16, 7)],
    "a2": [("vir05_1c_16g", 5, 16, 1), ("vir10_3c_32g", 10, 32, 3)],
}
"""Templates by family; an A2 with 24 AI cores, or with 32 GB, has others. A3 lists those of A2, and refuses to create any."""
TEMPLATES_24_CORES = [("vir06_1c_16g", 6, 16, 1), ("vir12_3c_32g", 12, 32, 3)]
TEMPLATES_32_GB = [("vir05_1c_8g", 5, 8, 1), ("vir10_3c_16g", 10, 16, 3), ("vir10_3c_16g_nm", 10, 16, 3), ("vir10_4c_16g_m", 10, 16, 4)]
AI_CORES = {"310p": (8, 7), "910": (30, 14), "a2": (20, 7), "a3": (20, 7)}
SPLIT_STATE = "run/npu-smi/vnpus.json"
SPLIT_CONFIG = "etc/vnpu.cfg"
SPLIT_START, SPLIT_END = "[vnpu-config start]", "[vnpu-config end]"
WITH_MCU = {"310", "310p", "a2", "a3"}
BEFORE_A2 = {"310", "310p", "910"}
PCI_DEVICE = {"310": "0xD100", "310p": "0xD500", "910": "0xD801", "a2": "0xD802", "a3": "0xD803", "a5": "0xD806"}


class Stop(Exception):
    """Ends the program with an exit status, after a last text (none when empty)."""

    def __init__(self, status, text=""):
        super().__init__(text)
        self.status = status
        self.text = text


def field(key, value):
    print("\t%-30s : %s" % (key, value))


class Chip:
    def __init__(self, entry, logic, family):
        self.family = family
        self.cores = (24, 7) if entry["name"] in ("910B1", "910B2", "910B2C") else AI_CORES.get(family)
        self.card = entry["card"]
        self.chip = entry["chip"]
        self.phy = entry["phy"]
        self.bdf = entry["bdf"]
        self.name = entry["name"]
        self.memory = entry["memory_mib"]
        self.health = entry["health"]
        self.logic = logic
        self.used = 3008 + 4 * entry["phy"]
        self.temperature = 36 + entry["phy"] % 8
        self.power = "%.1f" % (84 + 0.6 * self.phy)

    @property
    def bus_id(self):
        return self.bdf.upper()


class Machine:
    """The description, the tree around it, and the NPUs that this caller can see."""

    def __init__(self, root):
        self.root = root
        with open(self.path(DESCRIPTION)) as file:
            self.description = json.load(file)
        self.faults = self.description["faults"]
        self.family = self.description["family"]
        self.arm = self.description["architecture"] == "aarch64"
        self.newest = self.description["layout"] == "newest"
        container = self.faults.get("container", False)
        self.container = bool(container)
        self.mcu = self.family in WITH_MCU
        lost = self.faults.get("lost", [])
        there = [entry for entry in self.description["chips"] if "%d:%d" % (entry["card"], entry["chip"]) not in lost]
        on_bus = [entry for entry in there if os.path.exists(self.path(self.device(entry["bdf"])))]
        seen = [entry for entry in on_bus if not isinstance(container, list) or entry["phy"] in container]
        self.partial_card = self.family == "a3" and bool({e["card"] for e in seen} & {e["card"] for e in on_bus if e not in seen})
        dead = set(self.faults.get("dead", []))
        self.dead = dead
        self.board = list(dict.fromkeys(entry["card"] for entry in seen))
        self.chips = [Chip(entry, logic, self.family) for logic, entry in enumerate(seen) if entry["card"] not in dead]
        self.cards = {}
        for chip in self.chips:
            self.cards.setdefault(chip.card, []).append(chip)

    def path(self, path):
        return os.path.join(self.root, path)

    @staticmethod
    def device(bdf):
        return "sys/bus/pci/devices/" + bdf

    def read(self, path):
        with open(self.path(path)) as file:
            return file.read().strip()

    def node(self, chip):
        return int(self.read(self.device(chip.bdf) + "/numa_node"))

    def affinity(self, chip):
        """The CPUs of the function's node; like the tool, no node counts as node 0."""
        return self.read("sys/devices/system/node/node%d/cpulist" % max(self.node(chip), 0))

    def is_root(self):
        return int(os.environ.get("NPU_SMI_UID", self.faults.get("user", 0))) == 0

    def is_busy(self, chip):
        return bool({str(chip.card), "%d:%d" % (chip.card, chip.chip)} & {str(held) for held in self.faults.get("busy", [])})

    def processes(self, chip):
        return [entry for entry in self.description["processes"] if (entry["card"], entry["chip"]) == (chip.card, chip.chip)]

    def topo_label(self, chip):
        return "Phy-ID%d" % chip.phy if self.family == "a3" else "NPU%d" % chip.card

    def type_and_name(self, chip):
        if self.family == "310":
            return "%-30s" % "MiniD"
        return chip.name if self.family in ("a3", "a5") else "Ascend " + chip.name


# --- the table of `npu-smi info` ------------------------------------------------------------------------------------


class Layout:
    """One release's table: cell widths, where the second and third value of the last cell start, and the widths of used amounts."""

    def __init__(self, cells, columns, process_cells, pages=6, used=5, hbm=6, banner=24):
        self.cells = cells
        self.columns = columns
        self.process_cells = process_cells
        self.pages, self.used, self.hbm = pages, used, hbm
        self.banner = banner

    def row(self, *texts):
        print("|%s|" % "|".join((" " + text).ljust(width) for text, width in zip(texts, self.cells)))

    def process_row(self, *texts):
        print("|%s|" % "|".join((" " + text).ljust(width) for text, width in zip(texts, self.process_cells)))

    def line(self, text):
        print("|%s|" % (" " + text).ljust(self.width))

    @property
    def width(self):
        return sum(self.cells) + len(self.cells) - 1

    def frame(self, sign):
        print("+%s+" % "+".join(sign * width for width in self.cells))

    def plain_frame(self):
        print("+%s+" % ("-" * self.width))

    def last(self, first, second, third):
        return first.ljust(self.columns[0]) + second.ljust(self.columns[1]) + third


HBM_99 = Layout([27, 15, 53], (12, 18), [27, 15, 26, 26])
HBM_98 = Layout([27, 15, 52], (12, 18), [27, 15, 26, 25], pages=5, hbm=5)
HBM_93 = Layout([22, 15, 52], (12, 18), [22, 15, 26, 25], pages=5, hbm=5)
HBM_116 = Layout([27, 15, 70], (21, 24), [27, 15, 20, 23, 25], pages=5, hbm=5, banner=35)
DDR_106 = Layout([31, 17, 54], (13, 18), [31, 17, 26, 27], banner=40)
DDR_80 = Layout([19, 17, 40], (18, 0), [], banner=28)
A5_116 = Layout([8, 18, 15, 70], (22, 25), [27, 15, 20, 23, 25], used=6, banner=40)
A5_99 = Layout([8, 18, 15, 53], (12, 18), [27, 15, 26, 26], banner=40)

LAYOUTS = {
    ("newest", "a5"): A5_116,
    ("release", "a5"): A5_99,
    ("wide", "a3"): HBM_116,
    ("release", "910"): HBM_93,
    ("release", "a2"): HBM_98,
    ("release", "a3"): HBM_98,
    ("release", "310"): DDR_80,
}


def usage(used, total, width):
    return "%-*s/ %s" % (width, used, total)


def print_table(machine):
    family = machine.family
    ddr = family in ("310", "310p")
    layout = LAYOUTS.get((machine.description["layout"], family)) or (DDR_106 if ddr else HBM_99)
    with_pages = layout is not DDR_80
    layout.plain_frame()
    layout.line("npu-smi %-*s Version: %s" % (layout.banner, machine.description["npu_smi"], machine.description["version"]))
    layout.frame("-")
    pages = "Hugepages-Usage(page)" if with_pages else ""
    if family == "a5":
        layout.row("NPU ID", "Name", "Health", layout.last("Power(W)", "Temp(C)", pages))
        layout.row("", "", "Bus-Id", layout.last("NPU Util(%)", "Memory-Usage(MB)", "HBM-Usage(MB)"))
    else:
        indent = 8 if ddr else 6
        second = {"a3": "Phy-ID", "310": "Device", "310p": "Device"}.get(family, "")
        memory = layout.last("AICore(%)", "Memory-Usage(MB)", "" if ddr else "HBM-Usage(MB)")
        layout.row("NPU".ljust(indent) + "Name", "Health", layout.last("Power(W)", "Temp(C)", pages))
        layout.row(("Chip".ljust(indent) + second).rstrip(), "Bus-Id", memory)
    layout.frame("=")
    for chips in machine.cards.values():
        for chip in chips:
            print_chip(machine, layout, chip)
            if chip is not chips[-1]:
                layout.frame("-") if ddr else layout.plain_frame()
        print_card_end(layout)
    print_processes(machine, layout)


def print_card_end(layout):
    if layout is A5_116:
        print("+%s+%s+%s+" % ("=" * 27, "=" * 15, "=" * 70))
    else:
        layout.frame("=")


def print_chip(machine, layout, chip):
    family = machine.family
    power = {"310": "12.8", "310p": "NA"}.get(family, "-" if family == "a3" and chip.chip else chip.power)
    pages = usage(0, 15 if family == "310p" else 0, layout.pages) if layout is not DDR_80 else ""
    state = layout.last(power, str(chip.temperature), pages)
    if family in ("310", "310p"):
        layout.row("%-8d%s" % (chip.card, chip.name), chip.health, state)
        layout.row("%-8d%d" % (chip.chip, chip.logic), chip.bus_id, layout.last("0", usage(chip.used, chip.memory, layout.used), ""))
        return
    ddr = usage(2777, 15039, layout.used) if family == "910" else usage(0, 0, layout.used)
    amounts = layout.last("0", ddr, usage(chip.used, chip.memory, layout.hbm))
    if family == "a5":
        layout.row(str(chip.card), chip.name, chip.health, state)
        layout.row("", "", chip.bus_id, amounts)
        return
    layout.row("%-6d%s" % (chip.card, chip.name), chip.health, state)
    layout.row("%-6d%d" % (chip.chip, chip.phy) if family == "a3" else str(chip.chip), chip.bus_id, amounts)


def print_processes(machine, layout):
    if not layout.process_cells:
        return
    in_container = len(layout.process_cells) == 5
    words = ["Process id", "Process name", "Process memory(MB)"] + ["Process id in container"] * in_container
    if machine.family == "a5":
        layout.process_row("NPU ID", *words)
        print_card_end(layout)
    else:
        layout.frame("-")
        layout.process_row("NPU     Chip", *words)
        layout.frame("=")
    for card, chips in machine.cards.items():
        found = [(chip, process) for chip in chips for process in machine.processes(chip)]
        for chip, process in found:
            where = str(card) if machine.family == "a5" else "%-8d%d" % (card, chip.chip)
            values = [str(process["pid"]), process["comm"][:15], str(process["memory_mib"])] + ["NA"] * in_container
            layout.process_row(where, *values)
        if not found:
            layout.line("No running processes found in NPU %d" % card)
        print_card_end(layout)
    if not machine.container and "Driver_Install_Status=complete" not in machine.read(INSTALL_INFO):
        print("[WARNING]The driver package may not be completely installed, which may cause function abnormal. Please reinstall it.")


# --- info -m, -t topo ------------------------------------------------------------------------------------------------


def print_mapping(machine):
    if not machine.board:
        print("There is no NPU card on this server.")
        return

    def row(*values):
        print("\t" + " ".join("%-30s" % value for value in values[:-1]) + " " + values[-1])

    if machine.family == "a5":
        row("NPU ID", "Slot ID", "Chip ID", "Chip Phy-ID", "%-30s" % "Chip Name")
        for chip in machine.chips:
            row(chip.card, chip.card, chip.chip, chip.phy, machine.type_and_name(chip))
        return
    a3 = machine.family == "a3"
    no_ids = ["-", "-"] if a3 else ["-"]
    row("NPU ID", "Chip ID", "Chip Logic ID", *(["Chip Phy-ID"] if a3 else []), "%-30s" % "Chip Name")
    for card in machine.board:
        if card in machine.dead:
            row(-1, 0, *no_ids, "%-30s" % "Mcu")
            continue
        for chip in machine.cards[card]:
            row(card, chip.chip, *([chip.logic, chip.phy] if a3 else [chip.logic]), machine.type_and_name(chip))
        if machine.mcu:
            row(card, len(machine.cards[card]), *no_ids, "%-30s" % "Mcu")


def link(machine, one, other):
    """The relation that the tool prints between two different NPUs. ``mesh``: how many cards are linked directly; None: all."""
    mesh = machine.description["mesh"]
    together = mesh is None or one.card // mesh == other.card // mesh
    if machine.family == "a3":
        return "SIO" if one.card == other.card else "HCCS_SW"
    if machine.family == "a2":
        return "HCCS" if together else "SYS"
    if machine.family == "a5":
        return "UB" if mesh is not None and together else "SYS"
    return "PHB" if machine.node(one) == machine.node(other) else "SYS"


def print_topo(machine):
    family = machine.family
    if machine.faults.get("vm"):
        raise Stop(0, "This command cannot be executed on a VM.")
    if machine.dead.intersection(machine.board):
        raise Stop(TOPO_FAILED)
    if family in BEFORE_A2 and not machine.arm:
        raise Stop(0, "This device does not support querying topo.")
    shown = machine.chips if family == "a3" else [chips[0] for chips in machine.cards.values()]
    with_affinity = machine.description["affinity"]
    if with_affinity is None:
        with_affinity = not (machine.arm and family in ("a3", "a5"))
    nics = ["NIC%d" % index for index in range(4)] if machine.newest else []
    labels = [machine.topo_label(chip) for chip in shown]
    head = "".join("%-11s" % label for label in labels) + "".join("%-12s" % nic for nic in nics)
    print("\t   " + head + ("CPU Affinity" if with_affinity else ""))
    for chip, label in zip(shown, labels):
        cells = ["X" if chip is other else link(machine, chip, other) for other in shown] + ["NA"] * len(nics)
        print("%-11s" % label + "".join("%-11s" % cell for cell in cells) + (machine.affinity(chip) if with_affinity else ""))
    for nic in nics:
        cells = ["NA"] * len(shown) + ["X" if nic == other else "NA" for other in nics]
        print("%-11s" % nic + "".join("%-11s" % cell for cell in cells))
    if nics:
        print()
        for nic in nics:
            print("%s: " % nic)
    print("\nLegend:\n")
    stop = "." if machine.newest else ""
    print("  X    = Self")
    print("  SYS  = Path traversing PCIe and NUMA nodes. Nodes are connected through SMP, such as QPI, UPI.")
    print("  PHB  = Path traversing PCIe and the PCIe host bridge of a CPU.")
    if family not in BEFORE_A2:
        print("  PIX  = Path traversing a single PCIe switch" + stop)
        print("  PXB  = Path traversing multiple PCIe switches" + stop)
    if family != "a5":
        print("  HCCS = Connection traversing HCCS.")
    if family in ("a3", "a5"):
        print("  SIO  = Path traversing the SIO bus" + stop)
        print("  UB   = Connection traversing UB." if family == "a5" else "  HCCS_SW = Connection traversing HCCS through a switch" + stop)
    print("  NA   = Unknown relationship.")


# --- key : value queries ----------------------------------------------------------------------------------------------


def board_of_card(machine, chips):
    first = chips[0]
    family = machine.family
    rows = [("NPU ID", first.card)]
    if family != "910":
        rows += [("Product Name", "SIM" + family.upper())]
        rows += [("NPU Name", first.name), ("Chip Name", first.name), ("Chip Version", "V1")] if family == "a5" else []
        rows += [("Model", "NA"), ("Manufacturer", "Huawei"), ("Serial Number", "SIM%09d" % first.card)]
    rows += [("Software Version", machine.description["version"]), ("Firmware Version", "7.8.0.2.212"), ("Compatibility", "OK")]
    rows += [("Board ID", "0x%02x" % {"a2": 0x33, "a3": 0xB0, "310p": 0xB1, "910": 0x24}.get(family, 0x1B))]
    rows += [("Main Board ID", "0x18" if family == "a3" else "0x68(1P)")] if family in ("a3", "a5") else []
    rows += [("PCB ID", "A"), ("BOM ID", 1), ("PCIe Bus Info", first.bus_id), ("Slot ID", first.card), ("Class ID", "NA")]
    rows += [("PCI Vendor ID", "0x19E5"), ("PCI Device ID", PCI_DEVICE[family])]
    rows += [("Subsystem Vendor ID", "0x0200"), ("Subsystem Device ID", "0x0100"), ("Chip Count", len(chips))]
    rows += [("Chip Fault", 0)] if family == "310p" else []
    rows += [("DDie ID", die_id(1)), ("Chip Position ID", 0)] if family == "a5" else []
    return rows


def die_id(number):
    return " ".join("%08X" % (number << 16 | part) for part in range(5))


def board_of_chip(machine, chip):
    family = machine.family
    rows = [("NPU ID", chip.card)] + ([("NPU Name", "9392")] if family == "a3" else [])
    rows += [("Chip ID", chip.chip)] + ([("Chip Type", "Ascend")] if family != "a3" else [])
    rows += [("Chip Name", chip.name), ("Chip Version", "V1"), ("Board ID", "0x33")]
    if family in ("310", "310p"):
        rows += [("Die ID", die_id(chip.phy))]
    else:
        rows += [("PCB ID", "NA"), ("BOM ID", 1), ("VDie ID", die_id(chip.phy)), ("NDie ID", die_id(0))]
    return rows + [("Chip Position ID", chip.chip), ("PCIe Bus Info", chip.bus_id), ("Firmware Version", "7.8.0.2.212")]


def board_of_mcu(card, number):
    rows = [("NPU ID", card), ("Chip ID", number), ("Chip Name", "MCU"), ("Board ID", "0x33"), ("PCB ID", "NA"), ("BOM ID", 1)]
    return rows + [("Chip Position ID", number), ("Firmware Version", "23.3.2")]


def print_rows(rows):
    for key, value in rows:
        field(key, value)


def print_remap(machine, options):
    """A physical id in other terms. There is no blank behind these colons."""
    text = options.get("-p", "")
    chip = next((chip for chip in machine.chips if str(chip.phy) == text), None)
    if chip is None:
        raise Stop(INVALID, "Error parameter of -p\n" + INFO_HELP)
    if machine.family == "a5":
        rows = [("Chip Phy-ID", chip.phy), ("NPU ID", chip.card), ("Slot ID", chip.card), ("Chip ID", chip.chip)]
    else:
        rows = [("Chip Physical ID", chip.phy), ("Chip Logic ID", chip.logic), ("NPU ID", chip.card), ("Chip ID", chip.chip)]
    for key, value in rows:
        print("%-30s:%d" % (key, value))


# --- device share -----------------------------------------------------------------------------------------------------


class Shares:
    """Which chips are shared, until the next reboot."""

    def __init__(self, machine):
        self._path = machine.path(SHARE_STATE)
        try:
            with open(self._path) as file:
                self._on = set(json.load(file))
        except FileNotFoundError:
            self._on = set()

    @staticmethod
    def _key(chip):
        return "%d:%d" % (chip.card, chip.chip)

    def enabled(self, chip):
        return self._key(chip) in self._on

    def set(self, chip, value):
        (self._on.add if value else self._on.discard)(self._key(chip))
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        replace(self._path, json.dumps(sorted(self._on)), 0o644)


def replace(path, text, mode):
    temporary = "%s.%d" % (path, os.getpid())
    with open(temporary, "w") as file:
        file.write(text)
    os.chmod(temporary, mode)
    os.replace(temporary, path)


START = "[device-share-config start]"
END = "[device-share-config end]"
RECORD = re.compile(r"npu-smi set -t device-share -i (\d+) -c (\d+) -d ([01])$")


class Recovery:
    """``/etc/device_share.cfg`` with the faults that the real program has: see :meth:`record`."""

    def __init__(self, machine):
        self._path = machine.path(SHARE_CONFIG)
        try:
            with open(self._path) as file:
                self.lines = file.read().splitlines()
        except FileNotFoundError:
            self._write(["device-share-recover:disable", START, END])

    def _write(self, lines):
        self.lines = lines
        replace(self._path, "".join(line + "\n" for line in lines), 0o600)

    @property
    def enabled(self):
        return "device-share-recover:enable" in self.lines

    def switch(self, value):
        """Switching off also drops the recorded lines, but only those before the first end mark."""
        lines, started, ended = [], False, False
        for line in self.lines:
            ended = ended or line == END
            if line.startswith("device-share-recover:"):
                lines.append("device-share-recover:%s" % ("enable" if value else "disable"))
            elif value or ended or not started:
                lines.append(line)
            started = started or line == START
        self._write(lines)

    def record(self, chip, value):
        """Record one setting while recovery is on. A failure to do so is silent.

        Lines are meant to be in ascending order, a recorded chip's line to be replaced. The real program goes on deciding after it has
        put its line in: each later line is copied and then decided about once more, so an insertion before other lines or a
        replacement repeats lines and end marks. A line that is there already, or one that does not match, ends it without a write.
        """
        if not self.enabled:
            return
        new = "npu-smi set -t device-share -i %d -c %d -d %d" % (chip.card, chip.chip, value)
        lines, started, ended, done = [], False, False, False
        for line in self.lines:
            if done:
                lines.append(line)
            ended = ended or line == END
            replaces = inserts = False
            if started and ended:
                inserts = True
            elif started:
                match = RECORD.match(line)
                if line == new or not match:
                    return
                place = int(match.group(1)), int(match.group(2))
                replaces = place == (chip.card, chip.chip)
                inserts = place > (chip.card, chip.chip)
            if replaces or inserts:
                lines.append(new)
                done = True
            if not replaces:
                lines.append(line)
            started = started or line == START
        self._write(lines)


def ask(text):
    """Ask on standard output; the first word on standard input must be y or Y. There is no option to skip the question."""
    print(text)
    print(QUESTION)
    sys.stdout.flush()
    answer = ""
    for line in sys.stdin:
        answer = line.strip()
        if answer:
            break
    if answer not in ("Y", "y"):
        raise Stop(ABORTED)


def print_share(machine, chips, chip):
    """Print a chip's status, or a card's: a head, then the status of each chip and, on most products behind it, its id."""
    shares = Shares(machine)
    if chip:
        field("Device-share Status", shares.enabled(chip))
        return
    field("NPU ID", chips[0].card)
    if machine.family == "a5":
        field("Device-share Status", shares.enabled(chips[0]))
        return
    field("Chip Count", len(chips))
    print()
    for one in chips:
        rows = [("Device-share Status", shares.enabled(one)), ("Chip ID", one.chip)]
        print_rows(rows[::-1] if machine.family == "310" else rows)
        print()


def set_share(machine, chips, chip, is_mcu, value):
    one_chip_of_a3 = machine.family == "a3" and chip
    if one_chip_of_a3:
        ask(WHOLE_CARD)
    elif value:
        ask(SHARE_RISK)
    if is_mcu:
        raise Stop(UNSUPPORTED, "This device does not support setting device-share.")
    level = "chip" if chip else "card"
    if machine.container:
        print(NOT_PERMITTED)
        report(NOT_ROOT, "Failed to set %s device-share" % level)
    shares = Shares(machine)
    targets = [chip] if chip and not one_chip_of_a3 else chips
    recovery = Recovery(machine) if machine.family in SUPPORTED_ON[RECOVER] else None
    for one in targets:
        if shares.enabled(one) != value and machine.is_busy(one):
            card_text = "The card %d is occupied by Docker. Please release the device first." % one.card
            report(BUSY, "Failed to set chip device-share" if chip else card_text)
        shares.set(one, value)
        if recovery and (not chip or one is chip):
            recovery.record(one, value)
    report(0, "Set chip device-share successfully" if chip else "The device-share is set successfully.")


def print_recovery(machine, options):
    if "-i" in options:
        raise Stop(INVALID, "This command does not support entering card id.\n" + INFO_HELP)
    if machine.container:
        raise Stop(0, NOT_PERMITTED)
    print("\tDevice-share config recover mode : %s" % ("Enable" if Recovery(machine).enabled else "Disable"))


def set_recovery(machine, value):
    if value:
        ask(RECOVER_RISK)
    if machine.container:
        raise Stop(0, NOT_PERMITTED)
    Recovery(machine).switch(value)
    report(0, "The device-share config recover mode %s is set successfully." % ("Enable" if value else "Disable"))


# --- hard vNPUs -------------------------------------------------------------------------------------------------------


class Split:
    """The hard vNPUs of a host and their mode until the next reboot, and the file from which the driver restores them."""

    def __init__(self, machine):
        self._machine = machine
        self._path, self._config = machine.path(SPLIT_STATE), machine.path(SPLIT_CONFIG)
        try:
            with open(self._path) as file:
                state = json.load(file)
        except FileNotFoundError:
            state = {"mode": "docker", "parts": {}}
        self.mode, self.parts = state["mode"], {int(number): part for number, part in state["parts"].items()}
        try:
            with open(self._config) as file:
                self.lines = file.read().splitlines()
        except FileNotFoundError:
            self.lines = ["vnpu_config_recover:enable", SPLIT_START, SPLIT_END]

    @property
    def recovers(self):
        return self.lines[0] == "vnpu_config_recover:enable"

    def of(self, chip):
        return {number: part for number, part in sorted(self.parts.items()) if (number - 100) // 16 == chip.phy}

    def save(self):
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        replace(self._path, json.dumps({"mode": self.mode, "parts": self.parts}), 0o644)
        replace(self._config, "".join(line + "\n" for line in self.lines), 0o600)

    def add(self, chip, number, template, group):
        self.parts[number] = {"template": template, "group": group, "container": "0" * 12}
        if self.recovers:
            words = "npu-smi set -t create-vnpu -i %d -c %d -f %s -v %d" % (chip.card, chip.chip, template, number)
            self.lines.insert(-1, "%d:%d:%s" % (chip.phy, number, words))
        with open(self._machine.path("dev/vdavinci%d" % number), "w"):
            pass
        self.save()

    def remove(self, number):
        del self.parts[number]
        self.lines = [line for line in self.lines if line.split(":")[1:2] != [str(number)]]
        os.unlink(self._machine.path("dev/vdavinci%d" % number))
        self.save()

    def recover(self, value):
        self.lines = [
            "vnpu_config_recover:%s" % ("enable" if value else "disable"),
            *(self.lines[1:] if value else (SPLIT_START, SPLIT_END)),
        ]
        self.save()


def templates_of(chip):
    family = "a2" if chip.family == "a3" else chip.family
    if family == "a2" and chip.cores[0] == 24:
        return TEMPLATES_24_CORES
    return TEMPLATES_32_GB if family == "a2" and chip.memory <= 32768 else TEMPLATES[family]


def free_of(machine, chip):
    """Return what is left of a chip: AI cores, GB of memory, AI CPUs, each with the total."""
    sizes = {name: size for name, *size in templates_of(chip)}
    taken = [sizes[part["template"]] for part in Split(machine).of(chip).values()]
    total = [chip.cores[0], chip.memory // 1024, chip.cores[1]]
    return [(all_of_it - sum(size[place] for size in taken), all_of_it) for place, all_of_it in enumerate(total)]


def print_templates(machine, chip):
    width = 90
    print("+%s+" % ("-" * width))
    print("|%s|" % "NPU instance template info is:".ljust(width))
    print("|%s|" % "Name                AICORE    Memory    AICPU     VPC            VENC           JPEGD".ljust(width))
    print("|%s|" % "                               GB                 PNGD           VDEC           JPEGE".ljust(width))
    print("|%s|" % ("=" * width))
    for name, cores, memory, cpus in templates_of(chip):
        print("|%s|" % ("%-20s%-10d%-10d%-10d%-15d%-15d%d" % (name, cores, memory, cpus, 2, 0, 6)).ljust(width))
        print("|%s|" % ("%50s%-15d%-15d%d" % ("", 0, 0, 1)).ljust(width))
        print("+%s+" % ("-" * width))


def print_split(machine, chip):
    def line(text):
        print("| %s|" % text.ljust(78))

    def frame():
        print("+%s+" % ("-" * 79))

    parts = Split(machine).of(chip)
    cells = ["%d/%d" % pair for pair in free_of(machine, chip)] + ["NA/NA"] * 6
    frame()
    line("NPU resource static info as follow:")
    line("Format:Free/Total                   NA: Currently, query is not supported.")
    line("AICORE    Memory    AICPU    VPC    VENC    VDEC    JPEGD    JPEGE    PNGD")
    line("           GB")
    print("|%s|" % ("=" * 79))
    line("%-10s%-10s%-9s%-7s%-8s%-8s%-9s%-9s%s" % tuple(cells))
    frame()
    line("Total number of vnpu: %d" % len(parts))
    frame()
    if parts or not machine.newest:
        line(" Vnpu ID  |  Vgroup ID     |  Container ID  |  Status  |  Template Name")
        frame()
    for number, part in parts.items():
        line(
            " %-8d|  %-14s|  %s  |  %-8d|  %s" % (number, part["group"], part["container"], part["container"] != "0" * 12, part["template"])
        )
        frame()


def query_split(machine, kind, options):
    if machine.family not in AI_CORES:
        raise Stop(0, "This device does not support querying %s." % kind)
    if kind == "vnpu-mode":
        field("vnpu-mode", Split(machine).mode)
    elif kind == "vnpu-cfg-recover":
        print("VNPU config recover mode : %s" % ("Enable" if Split(machine).recovers else "Disable"))
    else:
        chips = pick_card(machine, options, INFO_HELP)
        chip, _is_mcu = pick_chip(machine, chips, options, INFO_HELP)
        if chip is None:
            raise Stop(INVALID, "Error parameter of -c\n" + INFO_HELP)
        (print_templates if kind == "template-info" else print_split)(machine, chip)


def set_split(machine, kind, options):
    """No command asks a question. Several refusals end with 0, and success does not say which id a vNPU got."""
    if machine.family not in AI_CORES or (machine.family == "a3" and kind == "create-vnpu"):
        raise Stop(
            UNSUPPORTED if machine.family == "a3" else 0,
            "" if machine.family == "a3" else "This device does not support setting %s." % kind,
        )
    if machine.faults.get("vm") or machine.container:
        raise Stop(0, "This command cannot be executed on a VM or container.")
    split = Split(machine)
    if kind in ("vnpu-mode", "vnpu-cfg-recover"):
        value = pick_value(options, SET_HELP)
        if kind == "vnpu-cfg-recover":
            split.recover(value)
            report(0, "The VNPU config recover mode %s is set successfully." % ("Enable" if value else "Disable"))
        if split.parts and split.mode != ("vm" if value else "docker"):
            report(INNER, "The vNPU(s) in another mode already exist. Destroy them before switching the mode")
        split.mode = "vm" if value else "docker"
        split.save()
        report(0, "Set vnpu %s mode success" % split.mode)
    if split.mode != "docker":
        raise Stop(0, "The vnpu is not in docker mode, does not support setting %s" % kind)
    chips = pick_card(machine, options, SET_HELP)
    chip, _is_mcu = pick_chip(machine, chips, options, SET_HELP)
    if chip is None:
        raise Stop(INVALID, "Error parameter of -c\n" + SET_HELP)
    (create_part if kind == "create-vnpu" else destroy_part)(machine, split, chip, options)


def create_part(machine, split, chip, options):
    if "-f" not in options:
        raise Stop(INVALID, "Must input parameter of -f.")
    sizes = {name: size for name, *size in templates_of(chip)}
    most = 8 if machine.family == "310p" else 16
    ids = range(100 + 16 * chip.phy, 100 + 16 * chip.phy + most)
    number = int(options["-v"]) if "-v" in options else next((number for number in ids if number not in split.parts), None)
    if options["-f"] not in sizes or number not in ids or number in split.parts:
        report(INNER, "create vnpu failed.")
    for word, (free, _total), size in zip(("cores", "Memory", "AICPU"), free_of(machine, chip), sizes[options["-f"]]):
        if size > free:
            report(UNSUPPORTED, "Insufficient number of %s available." % word)
    if machine.processes(chip):
        report(INNER, "create vnpu failed.")
    split.add(chip, number, options["-f"], options.get("-g", "0"))
    report(0, "Create vnpu success")


def destroy_part(machine, split, chip, options):
    number = int(options.get("-v", -1))
    if number not in split.of(chip):
        raise Stop(INVALID, "Error parameter of -v.")
    if split.parts[number]["container"] != "0" * 12 or str(number) in {str(held) for held in machine.faults.get("busy", [])}:
        report(INNER, "destroy vnpu %d failed." % number)
    split.remove(number)
    report(0, "Destroy vnpu %d success" % number)


def report(status, message):
    field("Status", "Fail" if status else "OK")
    field("Message", message)
    raise Stop(status)


# --- command line -----------------------------------------------------------------------------------------------------


def options_of(words, help_text):
    """Return ``{"-t": type, "-i": card ...}``. An unknown option, or one without its value, ends the program."""
    options, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help", "-m"):
            options[word] = True
        elif word in ("-t", "-i", "-c", "-d", "-f", "-g", "-p", "-v") and rest:
            options[word] = rest.pop(0)
        else:
            raise Stop(INVALID, "Error parameter of %s\n%s" % (word, help_text))
    return options


def pick_card(machine, options, help_text):
    text = options["-i"]
    if text.isdigit() and int(text) in machine.cards:
        return machine.cards[int(text)]
    raise Stop(INVALID, "Invalid card id.\nError parameter of -i\n" + help_text)


def pick_chip(machine, chips, options, help_text):
    """Return the chip (None without ``-c``) and whether ``-c`` names the board controller."""
    text = options.get("-c")
    if text is None:
        return None, False
    if text.isdigit() and int(text) < len(chips):
        return chips[int(text)], False
    if machine.mcu and text == str(len(chips)):
        return None, True
    raise Stop(INVALID, "Invalid chip id.\nError parameter of -c\n" + help_text)


def run_info(machine, words):
    options = options_of(words, INFO_HELP)
    if "-h" in options or "--help" in options:
        print(INFO_HELP)
    elif "-m" in options:
        print_mapping(machine)
    elif "-t" not in options:
        print_table(machine)
    else:
        run_query(machine, options["-t"], options)


def run_query(machine, kind, options):
    if kind == RECOVER and not machine.is_root():
        raise Stop(0, ROOT_ONLY)
    if kind in NOT_SIMULATED or machine.family not in SUPPORTED_ON.get(kind, {machine.family}):
        raise Stop(0, "This device does not support querying %s." % kind)
    if kind in SPLIT_QUERIES:
        query_split(machine, kind, options)
        return
    if kind not in QUERIES:
        raise Stop(INVALID, "Error parameter of -t\n" + INFO_HELP)
    if kind == "topo":
        print_topo(machine)
    elif kind == RECOVER:
        print_recovery(machine, options)
    elif kind == REMAP:
        print_remap(machine, options)
    else:
        run_card_query(machine, kind, options)


def run_card_query(machine, kind, options):
    if "-i" not in options:
        if machine.newest:
            raise Stop(INVALID, "\nThis command must input card id.\n\n" + INFO_HELP)
        for card in machine.cards:
            run_card_query(machine, kind, dict(options, **{"-i": str(card)}))
        return
    if machine.family == "a5" and "-c" in options:
        raise Stop(INVALID, "This device does not support input parameter of -c.")
    chips = pick_card(machine, options, INFO_HELP)
    chip, is_mcu = pick_chip(machine, chips, options, INFO_HELP)
    if kind == "board" and is_mcu:
        print_rows(board_of_mcu(chips[0].card, len(chips)))
    elif is_mcu:
        raise Stop(0, "This device does not support querying %s." % kind)
    else:
        CARD_QUERIES[kind](machine, chips, chip)


CARD_QUERIES = {
    "board": lambda machine, chips, chip: print_rows(board_of_chip(machine, chip) if chip else board_of_card(machine, chips)),
    SHARE: print_share,
}
QUERIES = {"topo", RECOVER, REMAP}.union(CARD_QUERIES)


def run_set(machine, words):
    options = options_of(words, SET_HELP)
    if "-h" in options or "--help" in options:
        raise Stop(0, SET_HELP)
    kind = options.get("-t")
    if kind in SPLIT_SETTINGS:
        if not machine.is_root():
            raise Stop(NOT_ROOT, ROOT_ONLY)
        set_split(machine, kind, options)
    if kind not in SUPPORTED_ON:
        raise Stop(INVALID, "Error parameter of -t\n" + SET_HELP)
    if not machine.is_root():
        raise Stop(NOT_ROOT, ROOT_ONLY)
    if machine.faults.get("vm"):
        raise Stop(0, "This command cannot be executed on a VM.")
    if machine.family not in SUPPORTED_ON[kind]:
        raise Stop(0, "This device does not support setting %s." % kind)
    if kind == RECOVER:
        if "-i" in options:
            raise Stop(INVALID, "This command does not support entering card id.\n" + RECOVER_HELP)
        set_recovery(machine, pick_value(options, RECOVER_HELP))
    if "-i" not in options:
        raise Stop(INVALID, "This command must input card id.\n" + SHARE_HELP)
    if machine.family == "a5" and "-c" in options:
        raise Stop(INVALID, "This device does not support input parameter of -c.")
    chips = pick_card(machine, options, SHARE_HELP)
    chip, is_mcu = pick_chip(machine, chips, options, SHARE_HELP)
    set_share(machine, chips, chip, is_mcu, pick_value(options, SHARE_HELP))


def pick_value(options, help_text):
    value = options.get("-d")
    if value is None:
        raise Stop(INVALID, "Must input parameter of -d.\n" + help_text)
    if value not in ("0", "1"):
        raise Stop(INVALID, "Error parameter of -d\n" + help_text)
    return value == "1"


def run(root, words):
    machine = Machine(root)
    faults = machine.faults
    answer = faults.get("answers", {}).get(" ".join(words))
    seconds = (answer or faults).get("sleep")
    if seconds:
        import time

        time.sleep(seconds)
    for line in faults.get("log_lines", []):
        print(line)
    if answer is not None:
        raise Stop(answer["status"], answer["text"])
    if not words:
        raise Stop(INVALID, MAIN_HELP)
    if words[0] not in ("info", "set", "-h", "--help", "-v"):
        raise Stop(INNER, "Command or option is not found.\n" + MAIN_HELP)
    if "error" in faults:
        raise Stop(faults["error"] & 0xFF, NO_DRIVER[faults["error"]])
    if machine.partial_card:
        raise Stop(INNER, "npu get board type failed. ret is -9005")
    if words[0] in ("-h", "--help"):
        raise Stop(0, MAIN_HELP)
    if words[0] == "-v":
        raise Stop(0, "npu-smi version: " + machine.description["npu_smi"])
    (run_info if words[0] == "info" else run_set)(machine, words[1:])


def main(root, words):
    """Answer one call for the tree at ``root`` on standard output and return the exit status."""
    with open(os.path.join(root, CALLS), "a") as calls:
        calls.write(" ".join(words) + "\n")
    try:
        run(root, words)
    except Stop as stop:
        if stop.text:
            print(stop.text)
        return stop.status
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    tools = os.path.dirname(os.path.abspath(__file__))
    sys.exit(main(tools[: -len("/usr/local/Ascend/driver/tools")], sys.argv[1:]))

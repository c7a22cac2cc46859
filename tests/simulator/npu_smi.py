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

import collections
import json
import os
import signal
import sys
import time

DESCRIPTION = "simulator/machine.json"
CALLS = "var/log/npu-smi-calls.log"
SHARE_STATE, SHARE_CONFIG = "run/npu-smi/share.json", "etc/device_share.cfg"
SPLIT_STATE, SPLIT_CONFIG = "run/npu-smi/vnpus.json", "etc/vnpu.cfg"
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
QUESTION = "Are you sure you want to continue setting?(Y/N)"
NOT_COMPLETE = "[WARNING]The driver package may not be completely installed, which may cause function abnormal. Please reinstall it."

MAIN_HELP = "Usage: npu-smi <Command|-h|-v> [Options...]\n\nnpu-smi Command:\n\tinfo            Queries\n\tset             Settings"
ONE_CHIP = " [Options...]\n\nOptions:\n       -i %d          Card ID\n       -c %d          Chip ID"
INFO_HELP = "Usage: npu-smi info <watch|proc|-h|-m|-l|-t type>" + ONE_CHIP
SET_HELP = "Usage: npu-smi set <-h|-t type> [Options...]"
SHARE_HELP = "Usage: npu-smi set -t device-share" + ONE_CHIP + "\n       -d %d          Enable value, only can input 0 or 1"
SHARE, REMAP = "device-share", "phyid-remap"
SHARED_ON, RECORDED_ON = {"310", "310p", "a2", "a3", "a5"}, {"310p", "a2", "a3"}
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
SPLIT_START, SPLIT_END = "[vnpu-config start]", "[vnpu-config end]"
SHARE_START, SHARE_END = "[device-share-config start]", "[device-share-config end]"
NOBODY = "0" * 12
WITH_MCU = {"310", "310p", "a2", "a3"}
BEFORE_A2 = {"310", "310p", "910"}


class Stop(Exception):
    """Ends the program with an exit status, after a last text (none when empty)."""

    def __init__(self, status, text=""):
        super().__init__(text)
        self.status = status
        self.text = text


def field(key, value):
    print("\t%-30s : %s" % (key, value))


def report(status, message):
    field("Status", "Fail" if status else "OK")
    field("Message", message)
    raise Stop(status)


def text_of(path, default):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return default


def replace(path, text, mode):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = "%s.%d" % (path, os.getpid())
    with open(temporary, "w") as file:
        file.write(text)
    os.chmod(temporary, mode)
    os.replace(temporary, path)


class Chip:
    """A chip with the fields of its entry in the description: card, chip, phy, bdf, name, memory_mib, health."""

    def __init__(self, entry, family):
        vars(self).update(entry)
        self.family = family
        self.cores = (24, 7) if self.name in ("910B1", "910B2", "910B2C") else AI_CORES.get(family)
        self.used = 3008 + 4 * self.phy
        self.temperature = str(36 + self.phy % 8)
        self.power = "%.1f" % (84 + 0.6 * self.phy)
        self.key = "%d:%d" % (self.card, self.chip)
        self.bus_id = self.bdf.upper()
        self.device = "sys/bus/pci/devices/" + self.bdf


class Machine:
    """The description, the tree around it, and the NPUs that this caller can see."""

    def __init__(self, root):
        self.root = root
        self.description = json.loads(self.read(DESCRIPTION))
        self.faults = self.description["faults"]
        self.family = self.description["family"]
        self.arm = self.description["architecture"] == "aarch64"
        self.newest = self.description["layout"] == "newest"
        container = self.faults.get("container", False)
        self.container = bool(container)
        self.mcu = self.family in WITH_MCU
        there = [Chip(entry, self.family) for entry in self.description["chips"]]
        there = [chip for chip in there if chip.key not in self.faults.get("lost", []) and os.path.exists(self.path(chip.device))]
        seen = [chip for chip in there if not isinstance(container, list) or chip.phy in container]
        self.partial_card = self.family == "a3" and bool({chip.card for chip in seen} & {chip.card for chip in there if chip not in seen})
        self.dead = set(self.faults.get("dead", []))
        self.board = list(dict.fromkeys(chip.card for chip in seen))
        self.chips = []
        self.cards = {}
        for logic, chip in enumerate(seen):
            chip.logic = logic
            if chip.card not in self.dead:
                self.chips.append(chip)
                self.cards.setdefault(chip.card, []).append(chip)

    def path(self, path):
        return os.path.join(self.root, path)

    def read(self, path):
        with open(self.path(path)) as file:
            return file.read().strip()

    def node(self, chip):
        return int(self.read(chip.device + "/numa_node"))

    def affinity(self, chip):
        """The CPUs of the function's node; like the tool, no node counts as node 0."""
        return self.read("sys/devices/system/node/node%d/cpulist" % max(self.node(chip), 0))

    def is_root(self):
        return int(os.environ.get("NPU_SMI_UID", self.faults.get("user", 0))) == 0

    def is_busy(self, *names):
        return bool({str(held) for held in self.faults.get("busy", [])}.intersection(map(str, names)))

    def processes(self, chip):
        return [entry for entry in self.description["processes"] if (entry["card"], entry["chip"]) == (chip.card, chip.chip)]

    def type_and_name(self, chip):
        if self.family == "310":
            return "%-30s" % "MiniD"
        return chip.name if self.family in ("a3", "a5") else "Ascend " + chip.name


# --- the table of `npu-smi info` ------------------------------------------------------------------------------------

Layout = collections.namedtuple("Layout", "cells columns process_cells pages used hbm banner")
"""One release's table: cell widths, where the second and third value of the last cell start, and the widths of used amounts."""
HBM_99 = Layout([27, 15, 53], (12, 18), [27, 15, 26, 26], 6, 5, 6, 24)
HBM_98 = Layout([27, 15, 52], (12, 18), [27, 15, 26, 25], 5, 5, 5, 24)
DDR_106 = Layout([31, 17, 54], (13, 18), [31, 17, 26, 27], 6, 5, 6, 40)
DDR_80 = Layout([19, 17, 40], (18, 0), [], 6, 5, 6, 28)
A5_116 = Layout([8, 18, 15, 70], (22, 25), [27, 15, 20, 23, 25], 6, 6, 6, 40)
A5_END = [27, 15, 70]
LAYOUTS = {("newest", "a5"): A5_116, ("release", "a2"): HBM_98, ("release", "310"): DDR_80}


def row(cells, *texts):
    print("|%s|" % "|".join((" " + text).ljust(width) for text, width in zip(texts, cells)))


def frame(cells, sign="-"):
    print("+%s+" % "+".join(sign * width for width in cells))


def whole(layout):
    """The width of all cells as that of one."""
    return [sum(layout.cells) + len(layout.cells) - 1]


def last(layout, first, second, third):
    return first.ljust(layout.columns[0]) + second.ljust(layout.columns[1]) + third


def usage(used, total, width):
    return "%-*s/ %s" % (width, used, total)


def print_table(machine):
    family = machine.family
    ddr = family in ("310", "310p")
    layout = LAYOUTS.get((machine.description["layout"], family)) or (DDR_106 if ddr else HBM_99)
    end = A5_END if layout is A5_116 else layout.cells
    frame(whole(layout))
    versions = machine.description["npu_smi"], machine.description["version"]
    row(whole(layout), "npu-smi %-*s Version: %s" % (layout.banner, *versions))
    frame(layout.cells)
    pages = "Hugepages-Usage(page)" if layout is not DDR_80 else ""
    if family == "a5":
        row(layout.cells, "NPU ID", "Name", "Health", last(layout, "Power(W)", "Temp(C)", pages))
        row(layout.cells, "", "", "Bus-Id", last(layout, "NPU Util(%)", "Memory-Usage(MB)", "HBM-Usage(MB)"))
    else:
        indent = 8 if ddr else 6
        second = {"a3": "Phy-ID", "310": "Device", "310p": "Device"}.get(family, "")
        memory = last(layout, "AICore(%)", "Memory-Usage(MB)", "" if ddr else "HBM-Usage(MB)")
        row(layout.cells, "NPU".ljust(indent) + "Name", "Health", last(layout, "Power(W)", "Temp(C)", pages))
        row(layout.cells, ("Chip".ljust(indent) + second).rstrip(), "Bus-Id", memory)
    frame(layout.cells, "=")
    for chips in machine.cards.values():
        for chip in chips:
            print_chip(family, layout, chip)
            if chip is not chips[-1]:
                frame(layout.cells if ddr else whole(layout))
        frame(end, "=")
    if layout.process_cells:
        print_processes(machine, layout, end)


def print_chip(family, layout, chip):
    power = {"310": "12.8", "310p": "NA"}.get(family, "-" if family == "a3" and chip.chip else chip.power)
    pages = usage(0, 15 if family == "310p" else 0, layout.pages) if layout is not DDR_80 else ""
    state = last(layout, power, chip.temperature, pages)
    amount = usage(chip.used, chip.memory_mib, layout.used if family in ("310", "310p") else layout.hbm)
    if family in ("310", "310p"):
        row(layout.cells, "%-8d%s" % (chip.card, chip.name), chip.health, state)
        row(layout.cells, "%-8d%d" % (chip.chip, chip.logic), chip.bus_id, last(layout, "0", amount, ""))
        return
    amounts = last(layout, "0", usage(2777, 15039, layout.used) if family == "910" else usage(0, 0, layout.used), amount)
    if family == "a5":
        row(layout.cells, str(chip.card), chip.name, chip.health, state)
        row(layout.cells, "", "", chip.bus_id, amounts)
        return
    row(layout.cells, "%-6d%s" % (chip.card, chip.name), chip.health, state)
    row(layout.cells, "%-6d%d" % (chip.chip, chip.phy) if family == "a3" else str(chip.chip), chip.bus_id, amounts)


def print_processes(machine, layout, end):
    in_container = len(layout.process_cells) == 5
    words = ["Process id", "Process name", "Process memory(MB)"] + ["Process id in container"] * in_container
    if machine.family == "a5":
        row(layout.process_cells, "NPU ID", *words)
    else:
        frame(layout.cells)
        row(layout.process_cells, "NPU     Chip", *words)
    frame(end, "=")
    for card, chips in machine.cards.items():
        found = [(chip, process) for chip in chips for process in machine.processes(chip)]
        for chip, process in found:
            where = str(card) if machine.family == "a5" else "%-8d%d" % (card, chip.chip)
            values = [str(process["pid"]), process["comm"][:15], str(process["memory_mib"])] + ["NA"] * in_container
            row(layout.process_cells, where, *values)
        if not found:
            row(whole(layout), "No running processes found in NPU %d" % card)
        frame(end, "=")
    if not machine.container and "Driver_Install_Status=complete" not in machine.read(INSTALL_INFO):
        print(NOT_COMPLETE)


# --- info -m, -t topo ------------------------------------------------------------------------------------------------


def print_mapping(machine):
    def line(*values):
        print("\t" + " ".join("%-30s" % value for value in values[:-1]) + " " + values[-1])

    a3 = machine.family == "a3"
    if not machine.board:
        print("There is no NPU card on this server.")
    elif machine.family == "a5":
        line("NPU ID", "Slot ID", "Chip ID", "Chip Phy-ID", "%-30s" % "Chip Name")
        for chip in machine.chips:
            line(chip.card, chip.card, chip.chip, chip.phy, machine.type_and_name(chip))
    else:
        no_ids = ["-", "-"] if a3 else ["-"]
        line("NPU ID", "Chip ID", "Chip Logic ID", *(["Chip Phy-ID"] if a3 else []), "%-30s" % "Chip Name")
        for card in machine.board:
            chips = machine.cards.get(card, [])
            for chip in chips:
                line(card, chip.chip, *([chip.logic, chip.phy] if a3 else [chip.logic]), machine.type_and_name(chip))
            if card in machine.dead:
                line(-1, 0, *no_ids, "%-30s" % "Mcu")
            elif machine.mcu:
                line(card, len(chips), *no_ids, "%-30s" % "Mcu")


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
    labels = ["Phy-ID%d" % chip.phy if family == "a3" else "NPU%d" % chip.card for chip in shown]
    head = "".join("%-11s" % label for label in labels) + "".join("%-12s" % nic for nic in nics)
    print("\t   " + head + ("CPU Affinity" if with_affinity else ""))
    rows = []
    for chip, label in zip(shown, labels):
        cells = ["X" if chip is other else link(machine, chip, other) for other in shown] + ["NA"] * len(nics)
        rows.append((label, cells, machine.affinity(chip) if with_affinity else ""))
    rows += [(nic, ["NA"] * len(shown) + ["X" if nic == other else "NA" for other in nics], "") for nic in nics]
    for label, cells, affinity in rows:
        print("".join("%-11s" % cell for cell in (label, *cells)) + affinity)
    if nics:
        print("\n" + "\n".join("%s: " % nic for nic in nics))
    print("\nLegend:\n\n  X    = Self")
    print("  PHB  = Path traversing PCIe and the PCIe host bridge of a CPU.")
    print("  NA   = Unknown relationship.")


# --- key : value queries ----------------------------------------------------------------------------------------------


def print_board(machine, chips, chip):
    """Of the rows of the published tool those that are read. The address of a card is that of its first chip."""
    if chip:
        rows = [("NPU ID", chip.card), ("Chip ID", chip.chip), ("Chip Name", chip.name)]
        rows += [("PCIe Bus Info", chip.bus_id), ("Firmware Version", "7.8.0.2.212")]
    else:
        rows = [("NPU ID", chips[0].card), ("Software Version", machine.description["version"]), ("Firmware Version", "7.8.0.2.212")]
        rows += [("PCIe Bus Info", chips[0].bus_id), ("Chip Count", len(chips))]
    for key, value in rows:
        field(key, value)


def print_remap(machine, options):
    """A physical id in other terms. There is no blank behind these colons."""
    chip = next((chip for chip in machine.chips if str(chip.phy) == options.get("-p", "")), None)
    if chip is None:
        raise Stop(INVALID, "Error parameter of -p\n" + INFO_HELP)
    rows = [("Chip Physical ID", chip.phy), ("Chip Logic ID", chip.logic), ("NPU ID", chip.card), ("Chip ID", chip.chip)]
    if machine.family == "a5":
        rows = [("Chip Phy-ID", chip.phy), ("NPU ID", chip.card), ("Slot ID", chip.card), ("Chip ID", chip.chip)]
    for key, value in rows:
        print("%-30s:%d" % (key, value))


# --- device share -----------------------------------------------------------------------------------------------------


def shared(machine):
    """Which chips are shared, until the next reboot."""
    return set(json.loads(text_of(machine.path(SHARE_STATE), "[]")))


def record(machine, chip, value):
    """Note a setting in the file of the driver's own recovery if that is on. A missing file is made. Nothing reads it."""
    path = machine.path(SHARE_CONFIG)
    lines = text_of(path, "device-share-recover:disable\n%s\n%s\n" % (SHARE_START, SHARE_END)).splitlines()
    if "device-share-recover:enable" in lines:
        lines.insert(lines.index(SHARE_END), "npu-smi set -t device-share -i %d -c %d -d %d" % (chip.card, chip.chip, value))
    replace(path, "".join(line + "\n" for line in lines), 0o600)


def ask(text):
    """Ask on standard output; the first word on standard input must be y or Y. There is no option to skip the question."""
    print(text + "\n" + QUESTION)
    sys.stdout.flush()
    answers = (line.strip() for line in sys.stdin)
    if next(filter(None, answers), "") not in ("Y", "y"):
        raise Stop(ABORTED)


def print_share(machine, chips, chip):
    """Print a chip's status, or a card's: a head, then the status of each chip and, on most products behind it, its id."""
    on = shared(machine)
    if not chip:
        field("NPU ID", chips[0].card)
    if chip or machine.family == "a5":
        field("Device-share Status", (chip or chips[0]).key in on)
        return
    field("Chip Count", len(chips))
    print()
    for one in chips:
        rows = [("Device-share Status", one.key in on), ("Chip ID", one.chip)]
        for key, value in rows[::-1] if machine.family == "310" else rows:
            field(key, value)
        print()


def set_share(machine, chips, chip, is_mcu, value):
    one_chip_of_a3 = machine.family == "a3" and chip
    if one_chip_of_a3 or value:
        ask(WHOLE_CARD if one_chip_of_a3 else SHARE_RISK)
    if is_mcu:
        raise Stop(UNSUPPORTED, "This device does not support setting device-share.")
    if machine.container:
        print(NOT_PERMITTED)
        report(NOT_ROOT, "Failed to set %s device-share" % ("chip" if chip else "card"))
    on = shared(machine)
    for one in [chip] if chip and not one_chip_of_a3 else chips:
        if (one.key in on) != value and machine.is_busy(one.card, one.key):
            card_text = "The card %d is occupied by Docker. Please release the device first." % one.card
            report(BUSY, "Failed to set chip device-share" if chip else card_text)
        (on.add if value else on.discard)(one.key)
        replace(machine.path(SHARE_STATE), json.dumps(sorted(on)), 0o644)
        if machine.family in RECORDED_ON and (not chip or one is chip):
            record(machine, one, value)
    report(0, "Set chip device-share successfully" if chip else "The device-share is set successfully.")


# --- hard vNPUs -------------------------------------------------------------------------------------------------------


class Split:
    """The hard vNPUs of a host and their mode until the next reboot, and the file from which the driver restores them."""

    def __init__(self, machine):
        self._machine = machine
        self._path, self._config = machine.path(SPLIT_STATE), machine.path(SPLIT_CONFIG)
        state = json.loads(text_of(self._path, '{"mode": "docker", "parts": {}}'))
        self.mode, self.parts = state["mode"], {int(number): part for number, part in state["parts"].items()}
        self.lines = text_of(self._config, "vnpu_config_recover:enable\n%s\n%s\n" % (SPLIT_START, SPLIT_END)).splitlines()

    @property
    def recovers(self):
        return self.lines[0] == "vnpu_config_recover:enable"

    def of(self, chip):
        return {number: part for number, part in sorted(self.parts.items()) if (number - 100) // 16 == chip.phy}

    def save(self):
        replace(self._path, json.dumps({"mode": self.mode, "parts": self.parts}), 0o644)
        replace(self._config, "".join(line + "\n" for line in self.lines), 0o600)

    def add(self, chip, number, template, group):
        self.parts[number] = {"template": template, "group": group, "container": NOBODY}
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
        kept = self.lines[1:] if value else (SPLIT_START, SPLIT_END)
        self.lines = ["vnpu_config_recover:%s" % ("enable" if value else "disable"), *kept]
        self.save()


def templates_of(chip):
    family = "a2" if chip.family == "a3" else chip.family
    if family == "a2" and chip.cores[0] == 24:
        return TEMPLATES_24_CORES
    return TEMPLATES_32_GB if family == "a2" and chip.memory_mib <= 32768 else TEMPLATES[family]


def free_of(machine, chip):
    """Return what is left of a chip: AI cores, GB of memory, AI CPUs, each with the total."""
    sizes = {name: size for name, *size in templates_of(chip)}
    taken = [sizes[part["template"]] for part in Split(machine).of(chip).values()]
    total = [chip.cores[0], chip.memory_mib // 1024, chip.cores[1]]
    return [(all_of_it - sum(size[place] for size in taken), all_of_it) for place, all_of_it in enumerate(total)]


def print_templates(machine, chip):
    def line(text):
        print("|%s|" % text.ljust(90))

    frame([90])
    line("NPU instance template info is:")
    line("Name                AICORE    Memory    AICPU     VPC            VENC           JPEGD")
    line("                               GB                 PNGD           VDEC           JPEGE")
    line("=" * 90)
    for name, cores, memory, cpus in templates_of(chip):
        line("%-20s%-10d%-10d%-10d%-15d%-15d%d" % (name, cores, memory, cpus, 2, 0, 6))
        line("%50s%-15d%-15d%d" % ("", 0, 0, 1))
        frame([90])


def print_split(machine, chip):
    def lines(*texts):
        for text in texts:
            row([79], text)
        frame([79])

    parts = Split(machine).of(chip)
    cells = ["%d/%d" % pair for pair in free_of(machine, chip)] + ["NA/NA"] * 6
    frame([79])
    row([79], "NPU resource static info as follow:")
    row([79], "Format:Free/Total                   NA: Currently, query is not supported.")
    row([79], "AICORE    Memory    AICPU    VPC    VENC    VDEC    JPEGD    JPEGE    PNGD")
    row([79], "           GB")
    print("|%s|" % ("=" * 79))
    lines("%-10s%-10s%-9s%-7s%-8s%-8s%-9s%-9s%s" % tuple(cells))
    lines("Total number of vnpu: %d" % len(parts))
    if parts or not machine.newest:
        lines(" Vnpu ID  |  Vgroup ID     |  Container ID  |  Status  |  Template Name")
    for number, part in parts.items():
        held = part["container"]
        lines(" %-8d|  %-14s|  %s  |  %-8d|  %s" % (number, part["group"], held, held != NOBODY, part["template"]))


def query_split(machine, kind, options):
    if machine.family not in AI_CORES:
        raise Stop(0, "This device does not support querying %s." % kind)
    if kind == "vnpu-mode":
        field("vnpu-mode", Split(machine).mode)
    elif kind == "vnpu-cfg-recover":
        print("VNPU config recover mode : %s" % ("Enable" if Split(machine).recovers else "Disable"))
    else:
        (print_templates if kind == "template-info" else print_split)(machine, pick_one(machine, options, INFO_HELP))


def set_split(machine, kind, options):
    """No command asks a question. Several refusals end with 0, and success does not say which id a vNPU got."""
    if machine.family == "a3" and kind == "create-vnpu":
        raise Stop(UNSUPPORTED)
    if machine.family not in AI_CORES:
        raise Stop(0, "This device does not support setting %s." % kind)
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
    (create_part if kind == "create-vnpu" else destroy_part)(machine, split, pick_one(machine, options, SET_HELP), options)


def create_part(machine, split, chip, options):
    if "-f" not in options:
        raise Stop(INVALID, "Must input parameter of -f.")
    sizes = {name: size for name, *size in templates_of(chip)}
    first = 100 + 16 * chip.phy
    ids = range(first, first + (8 if machine.family == "310p" else 16))
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
    if split.parts[number]["container"] != NOBODY or machine.is_busy(number):
        report(INNER, "destroy vnpu %d failed." % number)
    split.remove(number)
    report(0, "Destroy vnpu %d success" % number)


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


def pick(machine, options, help_text):
    """Return the chips of the card, the chip (None without ``-c``) and whether ``-c`` names the board controller."""
    card, text = options["-i"], options.get("-c")
    if not card.isdigit() or int(card) not in machine.cards:
        raise Stop(INVALID, "Invalid card id.\nError parameter of -i\n" + help_text)
    chips = machine.cards[int(card)]
    if text is None:
        return chips, None, False
    if text.isdigit() and int(text) < len(chips):
        return chips, chips[int(text)], False
    if machine.mcu and text == str(len(chips)):
        return chips, None, True
    raise Stop(INVALID, "Invalid chip id.\nError parameter of -c\n" + help_text)


def pick_one(machine, options, help_text):
    _chips, chip, _is_mcu = pick(machine, options, help_text)
    if chip is None:
        raise Stop(INVALID, "Error parameter of -c\n" + help_text)
    return chip


def pick_value(options, help_text):
    value = options.get("-d")
    if value is None:
        raise Stop(INVALID, "Must input parameter of -d.\n" + help_text)
    if value not in ("0", "1"):
        raise Stop(INVALID, "Error parameter of -d\n" + help_text)
    return value == "1"


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
    if kind == SHARE and machine.family not in SHARED_ON:
        raise Stop(0, "This device does not support querying %s." % kind)
    if kind in SPLIT_QUERIES:
        query_split(machine, kind, options)
    elif kind == "topo":
        print_topo(machine)
    elif kind == REMAP:
        print_remap(machine, options)
    elif kind in ("board", SHARE):
        run_card_query(machine, kind, options)
    else:
        raise Stop(INVALID, "Error parameter of -t\n" + INFO_HELP)


def run_card_query(machine, kind, options):
    if "-i" not in options:
        if machine.newest:
            raise Stop(INVALID, "\nThis command must input card id.\n\n" + INFO_HELP)
        for card in machine.cards:
            run_card_query(machine, kind, dict(options, **{"-i": str(card)}))
        return
    if machine.family == "a5" and "-c" in options:
        raise Stop(INVALID, "This device does not support input parameter of -c.")
    chips, chip, is_mcu = pick(machine, options, INFO_HELP)
    if is_mcu:
        raise Stop(0, "This device does not support querying %s." % kind)
    (print_board if kind == "board" else print_share)(machine, chips, chip)


def run_set(machine, words):
    options = options_of(words, SET_HELP)
    if "-h" in options or "--help" in options:
        raise Stop(0, SET_HELP)
    kind = options.get("-t")
    if kind not in SPLIT_SETTINGS and kind != SHARE:
        raise Stop(INVALID, "Error parameter of -t\n" + SET_HELP)
    if not machine.is_root():
        raise Stop(NOT_ROOT, ROOT_ONLY)
    if kind in SPLIT_SETTINGS:
        set_split(machine, kind, options)
    if machine.faults.get("vm"):
        raise Stop(0, "This command cannot be executed on a VM.")
    if machine.family not in SHARED_ON:
        raise Stop(0, "This device does not support setting %s." % kind)
    if "-i" not in options:
        raise Stop(INVALID, "This command must input card id.\n" + SHARE_HELP)
    if machine.family == "a5" and "-c" in options:
        raise Stop(INVALID, "This device does not support input parameter of -c.")
    chips, chip, is_mcu = pick(machine, options, SHARE_HELP)
    set_share(machine, chips, chip, is_mcu, pick_value(options, SHARE_HELP))


def run(root, words):
    machine = Machine(root)
    faults = machine.faults
    answer = faults.get("answers", {}).get(" ".join(words))
    time.sleep((answer or faults).get("sleep") or 0)
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

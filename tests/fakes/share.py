# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host whose npu-smi is the simulated one, faults included."""

import json
import os
import pathlib
import sys

from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.sharing import Shares
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.values import Step

SIMULATOR = pathlib.Path(__file__).parents[1] / "simulator" / "npu_smi.py"
FAMILIES = {
    # family: (chip name, chips per card, NPU IDs)
    "a2": ("910B3", 1, [0, 1, 2]),
    "a2 with 10 cards": ("910B2C", 1, range(10)),
    "a3": ("Ascend910", 2, [0, 4]),
    "310p": ("310P3", 2, [2, 5]),
    "910": ("910A", 1, [0, 1]),
    "a5": ("Ascend950DT", 1, [0, 1]),
}


class Box:
    """A tree with a working npu-smi and little else."""

    def __init__(self, root, kind):
        self.root = root
        name, chips, cards = FAMILIES[kind]
        self.description = {"family": kind.split()[0], "architecture": "aarch64", "version": "25.5.1", "npu_smi": "25.5.1"}
        self.description.update({"layout": "newest", "mesh": None, "affinity": None, "processes": [], "faults": {}, "chips": []})
        for card in cards:
            for chip in range(chips):
                entry = {"card": card, "chip": chip, "name": name, "memory_mib": 65536, "health": "OK"}
                entry["phy"] = len(self.description["chips"])
                entry["bdf"] = "0000:%02x:00.0" % (entry["phy"] + 1)
                (root / "sys/bus/pci/devices" / entry["bdf"]).mkdir(parents=True)
                self.description["chips"].append(entry)
        for folder in ("etc", "run/npu-smi", "var/log", "simulator", "usr/local/Ascend/driver/tools"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "usr/local/Ascend/driver/version.info").write_text("Version=25.5.1\npackage_version=25.5.1\n")
        program = root / "usr/local/Ascend/driver/tools/npu-smi"
        program.write_text("#!%s -IS\n%s" % (os.path.realpath(sys.executable), SIMULATOR.read_text()))
        program.chmod(0o755)
        self.faults()
        self.program = str(program)
        self.host = Host(str(root), 60)
        self.forget_calls()

    def faults(self, **faults):
        self.description["faults"] = faults
        (self.root / "simulator/machine.json").write_text(json.dumps(self.description))

    @property
    def shared(self):
        """The chips that are shared, as the simulated driver keeps them: ``card:chip``."""
        path = self.root / "run/npu-smi/share.json"
        return json.loads(path.read_text()) if path.exists() else []

    @property
    def calls(self):
        return (self.root / "var/log/npu-smi-calls.log").read_text().splitlines()

    @property
    def sets(self):
        return [call for call in self.calls if call.startswith("set")]

    def forget_calls(self):
        (self.root / "var/log/npu-smi-calls.log").write_text("")

    def by_hand(self, words):
        """Switch device share without the collection."""
        return self.host.run([self.program, "set", "-t", "device-share", *words.split()], "Y\n")

    def share(self, *chosen, **options):
        self.forget_calls()
        return share(self.host, *chosen, **options)


def wanted(*chosen, **more):
    """What a desired state has of device share on some cards or chips, or all."""
    return {"npus": list(chosen), "ignore_busy": False, "npu_smi": "", "timeout": 60, "wait": 0, **more}


def share(host, *chosen, check=False, values=None, **more):
    """Bind device share of a host, and return the step that did."""
    step = Step(host, values or Shares(), wanted(*chosen, **more))
    step.look(check)
    if not check:
        step.run()
        step.finish()
    return step

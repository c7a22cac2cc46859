# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every feature that sets values of a running host, killed and refused at every step of all that changes them."""

import contextlib
import io
import os
import re
import shutil
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._apply.apply import Application
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import traces
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Result
from ansible_collections.npu.affinity.plugins.module_utils._kernel.hugepages import path_of
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import PATH as LOCK
from ansible_collections.npu.affinity.plugins.module_utils._state.previous import PATH as RECORD
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes import kernel as fakes
from tests.fakes.kernel import FIRST, add_device, add_function, names_of
from tests.fakes.machine import Killed, Steps
from tests.fakes.share import Box, wanted as shares_of
from tests.fakes.states import a_state
from tests.simulator import npu_smi

POLICY = "/sys/devices/system/cpu/cpufreq/policy%d/scaling_governor"
NIC = "0000:7d:00.0"


class Kernel(fakes.Kernel):
    """Each write to it is a step. Its new huge pages are free."""

    interrupt = staticmethod(lambda: None)

    def run(self, argv, stdin="", timeout=None):
        """Answer as npu-smi does, in this process."""
        assert argv[0].endswith("/npu-smi")
        if argv[1] == "set":
            self.interrupt()
        output = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
            patch.setattr("sys.stdin", io.StringIO(stdin))
            return Result(argv, npu_smi.main(self.root, argv[1:]), output.getvalue())

    def set_attribute(self, path, value):
        self.interrupt()
        if path.endswith("nr_hugepages"):
            free = path.replace("nr_", "free_")
            super().set_attribute(free, str(self.read_number(free) + int(value) - self.read_number(path)))
        super().set_attribute(path, value)


def with_settings(host):
    for path in ("/proc/sys/vm/swappiness", *(POLICY % number for number in range(3))):
        host.put(path, "60" if "swap" in path else "schedutil")


def with_pages(host):
    for node in range(3):
        for name in ("nr", "free", "surplus"):
            host.put(path_of(2048, node).replace("nr_", f"{name}_"), "0" if name == "surplus" else "10")


def with_npu(host):
    add_function(host, FIRST, 2752, names_of(0, cq=2))
    add_device(host, 0)


def with_nic(host):
    add_function(host, NIC, 900, [f"hns3-0000:7d:00.0-TxRx-{number}" for number in range(4)])
    host.put(f"/sys/bus/pci/devices/{NIC}/class", "0x020000")


def with_cards(host):
    Box(Path(host.root), "310p")
    host.put("/etc/device_share.cfg", "device-share-recover:enable\n[device-share-config start]\n[device-share-config end]")
    host.run(["/npu-smi", *["set", "-t", "device-share", "-i", "2", "-c", "0", "-d", "1"]], "Y\n")


def plan_of(pool, irq):
    return {"schema": 1, "npus": [{"id": 0, "pci": FIRST, "pool": pool, "irq": irq}]}


ROWS = {
    # what the host has, the first and another bind, and where the values lie
    "tuning": (
        with_settings,
        {"live": {"tuning": {"governor": "performance", "swappiness": 0}}},
        {"live": {"tuning": {"governor": "powersave"}}},
        r"/proc/sys/|.*/scaling_governor",
    ),
    "hugepages": (
        with_pages,
        {"live": {"hugepages": {"size": 2048, "nodes": {"0": 40, "1": 60}}}},
        {"live": {"hugepages": {"size": 2048, "nodes": {"1": 20, "2": 30}}}},
        r".*/nr_hugepages",
    ),
    "irq": (
        with_npu,
        {"plan": plan_of("24-35", "24-25"), "live": {"irq": "fail"}},
        {"plan": plan_of("0-11", "0-1"), "live": {"irq": "fail"}},
        r".*/smp_affinity_list|.*/cpumask",
    ),
    "nic": (
        with_nic,
        {"live": {"nic": {"mode": "near", "functions": {NIC: "0-3"}}}},
        {"live": {"nic": {"mode": "near", "functions": {NIC: "8-9"}}}},
        r".*/smp_affinity_list",
    ),
    "device_share": (
        with_cards,
        {"live": {"device_share": shares_of()}},
        {"live": {"device_share": shares_of({"card": 2, "chip": 1}, {"card": 5, "chip": 0})}},
        r"/run/npu-smi/share.json|/etc/device_share.cfg",
    ),
}
AFTER_ALL = ("irq", "nic")
"""What comes after the transaction, and is tried again by units instead of being taken back."""


def apply(name, given):
    """Return what applies the state of a feature; the feature is absent where nothing is given."""
    presence = {"features": {name: "present" if given else "absent"}}
    absent = {} if given else traces([name], {})
    state = a_state(**{"plan": None, "live": {}, **given}, **presence, absent=absent)

    def run(host):
        done = Application(host, state, Choices(), lambda state: []).carry_out()
        if done.failure:
            raise ValueError(done.failure)

    return run


def undo(host):
    failed = unbind(host).failed
    if failed:
        raise ValueError("; ".join(failed))


# what has been applied before, and what is done
CHANGES = {
    "first bind": ("", "first"),
    "second bind": ("first", "other"),
    "off": ("first", "off"),
    "rollback": ("first other", "first"),
    "unbind": ("first", "unbind"),
}


class Story:
    """A host on which some states of a feature have been applied, and the change that is to come."""

    def __init__(self, folder, name, change):
        prepare, first, other, values = ROWS[name]
        self.ways = {"first": apply(name, first), "other": apply(name, other), "off": apply(name, {}), "unbind": undo}
        self.values = re.compile(values)
        self.folder = folder
        (folder / "host/run").mkdir(parents=True)
        self.host = Kernel(str(folder / "host"))
        self.host.put("/sys/devices/system/cpu/online", "0-47")
        self.host.put("/etc/hostname", "host")
        prepare(self.host)
        self.original, self.fresh = self.found(self.host), set(self.texts(self.host))
        earlier, change = CHANGES[change]
        for way in earlier.split():
            self.ways[way](self.host)
        self.before = self.found(self.host)
        self.change = self.ways[change]
        straight = self.twin("straight")
        self.change(straight)
        self.after = self.found(straight)
        assert self.after != self.before

    def twin(self, name):
        root = str(self.folder / str(name))
        shutil.copytree(self.host.root, root, symlinks=True)
        return Kernel(root)

    def found(self, host):
        """The values of a host, and the record."""
        return {path: text for path, text in self.texts(host).items() if path == RECORD or self.values.match(path)}

    @staticmethod
    def texts(host):
        paths = [os.path.join(folder, name) for folder, _folders, names in os.walk(host.root) for name in names]
        texts = {path[len(host.root) :]: open(path).read() for path in paths}  # noqa: SIM115
        return {path: text for path, text in texts.items() if path != LOCK and "/history/" not in path}

    def assert_unbound(self, host, step):
        """Assert that an unbind leads back to the beginning."""
        undo(host)
        assert self.found(host) == self.original and set(self.texts(host)) == self.fresh, step


@pytest.fixture
def steps(monkeypatch):
    return Steps(monkeypatch)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ROWS)
def test_a_change_killed_at_any_step_is_finished_by_the_next(tmp_path, steps, name, change):
    story = Story(tmp_path, name, change)
    for step, host in steps.endings(story.twin, Killed(), story.change, least=3):
        other = Kernel(shutil.copytree(host.root, f"{host.root}-undone"))
        story.change(host)
        assert story.found(host) == story.after, step
        story.assert_unbound(other, step)
        story.assert_unbound(host, step)


ERRORS = [OSError(1, "Operation not permitted"), IndexError("list index out of range"), RecursionError("too deep")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ROWS)
def test_a_change_refused_at_any_step_is_taken_back(tmp_path, steps, name, change, error):
    story = Story(tmp_path, name, change)
    for step, host in steps.endings(story.twin, error, story.change, least=3):
        if steps.refused and not (change == "unbind" or name in AFTER_ALL):
            assert story.found(host) == story.before, step
        if steps.refused:
            story.change(host)
        assert story.found(host) == story.after, step
        story.assert_unbound(host, step)

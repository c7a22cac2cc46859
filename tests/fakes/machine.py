# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running machine that was bound and is to be what it was before, also when a run is killed or a step fails."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import shutil

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import UNCHANGEABLE
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host, Result
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import binding
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import PATH as LOCK
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import settings, unit_of
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import slice_path
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from tests.fakes.changes import VENDOR, state
from tests.fakes.kernel import bind as bind_interrupts
from tests.fakes.share import share as share_chips
from tests.fakes.systemd import a_request, MARK, UNITS, ModelledSystemd, a_file, slice_text

FUNCTION = "0000:c1:00.0"
VENDOR_UNITS = "/usr/lib/systemd/system"
CGROUPS = "/sys/fs/cgroup"
IRQBALANCE = "irqbalance.service"
WANTS = UNITS + "/multi-user.target.wants"
CHANGES_SOMETHING = {"daemon-reload", "start", "stop", "restart", "enable", "disable", "set-property", "reset-failed"}


class Killed(BaseException):
    """The end of a run that no handler sees."""


class Machine(ModelledSystemd):
    """A machine with systemd, a kernel that keeps narrow sets narrow, one NPU function, irqbalance and three services.

    systemd knows what the last ``daemon-reload`` read (``loaded``). A slice that is stopped takes along what requires it.
    """

    def __init__(self, root):
        ModelledSystemd.__init__(self, root)
        self.loaded = {}
        self.lost = []
        self.restarted = []
        self.read_at_start = {}
        self.states = {}
        self.interrupt = lambda: None
        for unit in ("inside", "outside", "between"):
            self.put("%s/%s.service" % (UNITS, unit), "[Service]\nExecStart=/bin/true\n")
        self.put("%s/%s" % (VENDOR_UNITS, IRQBALANCE), "[Service]\n[Install]\nWantedBy=multi-user.target\n")
        os.makedirs(self.path(WANTS))
        os.symlink("../../../.." + VENDOR_UNITS + "/" + IRQBALANCE, self.path("%s/%s" % (WANTS, IRQBALANCE)))
        for folder in ("/etc/udev/rules.d", "/run/systemd"):
            os.makedirs(self.path(folder))
        for folder in ("", "/system.slice"):
            self.put(CGROUPS + folder + "/cpuset.cpus.effective", "0-7")
            self.put(CGROUPS + folder + "/cpuset.mems.effective", "0-1")
        self.put("/bin/sh", "")
        os.chmod(self.path("/bin/sh"), 0o755)
        self.put("/proc/interrupts", "      CPU0\n" + "".join("%5d: 0 MSI %d Edge %s\n" % row for row in self.vectors()))
        for irq, _number, _name in self.vectors():
            self.put("/sys/bus/pci/devices/%s/msi_irqs/%d" % (FUNCTION, irq), "msix")
            self.put("/proc/irq/%d/smp_affinity_list" % irq, "0-3\n")
        self.put("/sys/devices/virtual/workqueue/dev0_sq_send_wq/cpumask", "ff\n")
        for unit in ("outside.service", IRQBALANCE):
            self.begin(unit)
        self.running |= {"between.service", "system.slice"}

    @staticmethod
    def vectors():
        return [(irq, irq, name) for irq, name in enumerate(["trs-mbox-0-0", binding.SQ, binding.CQ, binding.CQ], 60)]

    def home(self, unit):
        values = self.loaded.get(unit, {})
        return slice_path(unit) if unit.endswith(".slice") else "%s/%s" % (slice_path(values.get("Slice", "system.slice")), unit)

    def begin(self, unit):
        """Start a unit with a process, where its slice is now."""
        self.running.add(unit)
        self.states[unit] = self.home(unit)
        folder = self.states[unit]
        while folder != "/":
            self.put(CGROUPS + folder + "/cgroup.events", "populated 1\nfrozen 0")
            folder = posixpath.dirname(folder)

    def set_attribute(self, path, value):
        self.interrupt()
        Host.set_attribute(self, path, value)

    def run(self, argv, stdin="", timeout=None):
        if argv[0] != "systemctl":
            if argv[1] == "set":
                self.interrupt()
            return Host.run(self, argv, stdin, timeout)
        self.calls.append(" ".join(argv[1:]))
        verb, names = argv[1], [word for word in argv[2:] if not word.startswith("-")]
        if verb in CHANGES_SOMETHING:
            self.interrupt()
        if verb == "is-active":
            return Result(argv, 0, "\n".join("active" if unit in self.running else "inactive" for unit in names))
        if verb == "show":
            return Result(argv, 0, "\n\n".join(self.shown(name) for name in self.matching(names)))
        getattr(self, "do_" + verb.replace("-", "_"))(names)
        return Result(argv, 0, "")

    def matching(self, names):
        return [unit for name in names for unit in (sorted(fnmatch.filter(self.running, name)) if "*" in name else [name])]

    def shown(self, unit):
        values = dict(self.loaded.get(unit, {}), Id=unit, ActiveState="active" if unit in self.running else "inactive")
        values["RequiredBy"] = " ".join(other for other, its in sorted(self.loaded.items()) if its.get("Slice") == unit)
        values["ControlGroup"] = self.states.get(unit, "")
        return "\n".join("%s=%s" % pair for pair in values.items())

    def do_daemon_reload(self, _names):
        files = ["%s/%s" % (UNITS, name) for name in self.names(UNITS, "*.*") if not name.endswith((".d", ".wants"))]
        for folder in (UNITS, "/run/systemd/system.control"):
            for name in self.names(folder, "*.d"):
                files += ["%s/%s/%s" % (folder, name, inner) for inner in self.names("%s/%s" % (folder, name), "*.conf")]
        self.loaded = {}
        for path in files:
            unit = unit_of(path.replace("/run/systemd/system.control", UNITS))
            if unit:
                self.loaded.setdefault(unit, {}).update(settings(self.read(path)))
        for unit in sorted(self.running):
            if self.follows("daemon-reload", unit, CGROUPS + self.states.get(unit, self.home(unit))):
                self.follow(unit)

    def follow(self, unit):
        """The kernel takes a set from systemd; it never gives an empty one, and a set stays narrow (systemd issue 43846)."""
        folder = CGROUPS + self.states.get(unit, self.home(unit))
        if unit.endswith(".slice"):
            self.inherit(folder)
        for key, kind in (("AllowedCPUs", "cpus"), ("AllowedMemoryNodes", "mems")):
            if self.loaded.get(unit, {}).get(key):
                for name in ("cpuset." + kind, "cpuset.%s.effective" % kind):
                    self.put("%s/%s" % (folder, name), compress(expand(self.loaded[unit][key])))

    def inherit(self, folder):
        """A new group has the sets of the one around it."""
        if folder == CGROUPS:
            return
        self.inherit(posixpath.dirname(folder))
        for kind in ("cpus", "mems"):
            name = "cpuset.%s.effective" % kind
            if not self.exists("%s/%s" % (folder, name)):
                self.put("%s/%s" % (folder, name), self.read("%s/%s" % (posixpath.dirname(folder), name)))

    def do_start(self, names):
        for unit in names:
            self.running.add(unit)
            if unit.endswith(".slice") and not self.exists(CGROUPS + self.home(unit) + "/cgroup.events"):
                self.put(CGROUPS + self.home(unit) + "/cgroup.events", "populated 0\nfrozen 0")
            self.follow(unit)

    def do_stop(self, names):
        for unit in self.matching(names):
            self.running.discard(unit)
            taken = [other for other, values in self.loaded.items() if values.get("Slice") == unit and other in self.running]
            self.lost += taken
            self.running.difference_update(taken)
            if unit.endswith(".slice"):
                shutil.rmtree(self.path(CGROUPS + slice_path(unit)), ignore_errors=True)

    def do_restart(self, names):
        self.restarted += names
        self.read_at_start.update((unit, dict(self.loaded.get(unit, {}))) for unit in names)

    def do_enable(self, names):
        for unit in names:
            file = next(folder for folder in (UNITS, VENDOR_UNITS) if self.exists("%s/%s" % (folder, unit)))
            for target in settings(self.read("%s/%s" % (file, unit))).get("WantedBy", "").split():
                link = self.path("%s/%s.wants/%s" % (UNITS, target, unit))
                os.makedirs(os.path.dirname(link), exist_ok=True)
                if not os.path.lexists(link):
                    os.symlink("%s/%s" % (file, unit), link)

    def do_disable(self, names):
        for wants in self.names(UNITS, "*.wants"):
            for unit in names:
                if self.exists("%s/%s/%s" % (UNITS, wants, unit)):
                    os.unlink(self.path("%s/%s/%s" % (UNITS, wants, unit)))

    def do_set_property(self, names):
        unit, values = names[0], settings("\n".join(names[1:]))
        for key, value in values.items():
            self.put("/run/systemd/system.control/%s.d/50-%s.conf" % (unit, key), "[Unit]\n%s=%s\n" % (key, value))
        self.loaded.setdefault(unit, {}).update(values)
        self.follow(unit)
        self.interrupt()  # a run can end before it removes the drop-in

    def do_reset_failed(self, _names):
        """Nothing fails here."""

    def effective(self, unit):
        folder = CGROUPS + self.states.get(unit, self.home(unit))
        return self.read(folder + "/cpuset.cpus.effective"), self.read(folder + "/cpuset.mems.effective")


def snapshot(root):
    """Everything that a bind can touch, without the live sets, which the tests ask about themselves."""
    return state(root, (*VENDOR, CGROUPS))


PLAN = {"npus": [{"id": 0, "pci": FUNCTION, "pool": "0-3", "irq": "0-1"}]}
POLICY = UNITS + "/irqbalance.service.d/50-npu-affinity-irq.conf"
FILES_OF_SLICES = [
    a_file("/etc/npu-affinity/plan.json", previous.dump("Managed by npu.affinity: the plan in force.", PLAN)),
    a_file(UNITS + "/npu.slice", slice_text("0-3") + "[Install]\nWantedBy=multi-user.target\n"),
    a_file(UNITS + "/npu-0.slice", slice_text("0-3")),
    a_file(UNITS + "/npu-1.slice", slice_text("2-3")),
    a_file(UNITS + "/system.slice.d/50-npu-affinity.conf", MARK + "[Slice]\nAllowedCPUs=4-7\n"),
] + [
    a_file("%s/%s.service.d/50-npu-affinity.conf" % (UNITS, unit), MARK + "[Service]\nSlice=%s\n" % home)
    for unit, home in (("inside", "npu-0.slice"), ("outside", "npu-1.slice"), ("between", "npu-1.slice"))
]
FILES_OF_IRQ = [
    a_file(UNITS + "/npu-affinity-irq.service", MARK + "[Service]\n[Install]\nWantedBy=multi-user.target\n"),
    a_file(UNITS + "/npu-affinity-irq@.service", MARK + "[Service]\n"),
    a_file(UNITS + "/npu-affinity-irq.timer", MARK + "[Timer]\n[Install]\nWantedBy=timers.target\n"),
    a_file("/etc/udev/rules.d/90-npu-affinity.rules", MARK),
    a_file("/usr/local/lib/npu-affinity/npu_affinity.zip", MARK),
]
FILES_OF_POLICY = [
    a_file("/usr/local/lib/npu-affinity/irqbalance-policy", "#!/bin/sh\n" + MARK),
    a_file("/etc/npu-affinity/irqbalance.env", MARK),
    a_file(POLICY, MARK + "[Service]\nEnvironmentFile=/etc/npu-affinity/irqbalance.env\n"),
]


def run_roles(machine, irqbalance="policy", share=False, files=FILES_OF_SLICES, **choices):
    """What the roles do to a host."""
    slices = [posixpath.basename(entry["path"]) for entry in files if entry["path"].endswith(".slice")]
    owned = [UNITS + "/npu.slice", UNITS + "/npu-*.slice", UNITS + "/*.service.d/50-npu-affinity.conf"]
    apply(machine, a_request(files=files, owned=owned, enabled=["npu.slice"], started=slices, **choices))
    assert bind_interrupts(machine, PLAN).failed == []
    policy = FILES_OF_POLICY if irqbalance == "policy" else []
    request = a_request(
        files=FILES_OF_IRQ + policy,
        owned=[entry["path"] for entry in FILES_OF_POLICY],
        enabled=["npu-affinity-irq.service", "npu-affinity-irq.timer"],
        started=["npu-affinity-irq.timer"],
        stopped=[IRQBALANCE] if irqbalance == "stop" else [],
        restarted=[{"unit": IRQBALANCE, "files": [POLICY]}],
    )
    apply(machine, request)
    if share:
        share_chips(machine)


def bind(machine, irqbalance="policy", share=False, files=()):
    """What the roles do to a host, then one service started in its slice, and the boot units run once."""
    run_roles(machine, irqbalance, share, FILES_OF_SLICES + list(files))
    machine.begin("inside.service")
    machine.put(UNCHANGEABLE, "{}")
    machine.calls.clear()
    machine.restarted.clear()


class Steps:
    """Everything that changes a machine, counted: commands, attributes, and files below its root. Ends a run at a step.

    The lock ends with its process, and is left out."""

    def __init__(self, monkeypatch):
        self.root = None
        self.last = None
        self.count = 0
        self.error = None
        self.finished = self.refused = False
        for name in ("rename", "unlink", "rmdir", "symlink"):
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))

    def counted(self, function):
        def call(*arguments, **options):
            path = str(arguments[-1])
            if self.root and path.startswith(self.root) and not path.startswith((self.root + CGROUPS, self.root + LOCK)):
                self.step()
            return function(*arguments, **options)

        return call

    def step(self):
        self.count += 1
        if self.count == self.last:
            raise self.error

    def run(self, machine, last, error, function, *arguments):
        """Run a function and return whether it ended before its step ``last``."""
        self.root, self.last, self.count, self.error = machine.root, last, 0, error
        self.sentences, self.refused = [], False
        machine.interrupt = self.step
        try:
            self.sentences = getattr(function(machine, *arguments), "failed", [])
        except (Killed, Exception) as ended:
            self.sentences, self.refused = [str(ended)] if str(ended) else [], True
        finally:
            self.root = None
            machine.interrupt = lambda: None
        return self.count < last

    def endings(self, twin, error, function, *arguments, least=4):
        """Yield ``(step, machine)`` for each step at which a run can end, ended there, and at last for the run that does not.

        ``twin``: makes the machine of a number. A run has more than ``least`` steps.
        """
        for last in range(1, 500):
            machine = twin(last)
            self.finished = self.run(machine, last, error, function, *arguments)
            yield "step %d" % last, machine
            if self.finished:
                break
            shutil.rmtree(machine.root)
        assert least < last < 499

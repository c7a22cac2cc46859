# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tree with a modelled systemd, and what a bind writes there."""

import os
import posixpath

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host, Result
from ansible_collections.npu.affinity.plugins.module_utils._state.files import states_of
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import settings
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import slice_path
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request

MARK = "# Managed by npu.affinity: changes are overwritten.\n"
UNITS = "/etc/systemd/system"
SLICE = UNITS + "/npu-0.slice"


def slice_text(cpus, mems="0"):
    return MARK + "[Slice]\nAllowedCPUs=%s\nAllowedMemoryNodes=%s\n" % (cpus, mems)


def a_file(path, content):
    return {"path": path, "content": content, "mode": "0644"}


def a_request(files=(), **more):
    return Request(states_of(files), **more)


def texts(tmp_path):
    found = {}
    for folder, _folders, files in os.walk(str(tmp_path)):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.islink(path) or name == "previous.json":
                continue
            with open(path) as file:
                found["/" + os.path.relpath(path, str(tmp_path))] = file.read()
    return found


class ModelledSystemd(Host):
    """A running machine in a folder: systemctl follows unit files as systemd 252 was observed to (see the lab).

    Stands in for a booted systemd, which no unit test has; the lab runs the same code against the real one. Where a reload does not
    ``reapply``, a set that changed is left to set-property, as systemd 256 and 257 do.
    """

    live = True
    reapplies = True

    def __init__(self, root, online="0-7"):
        os.makedirs(root, exist_ok=True)
        Host.__init__(self, root)
        self.calls = []
        self.online = set(expand(online))
        self.running = set()
        self.put("/sys/devices/system/cpu/online", online)
        self.put("/sys/devices/system/node/has_memory", "0-1")

    def path(self, path):
        return self.root + path

    def put(self, path, text):
        target = self.path(path)
        os.makedirs(posixpath.dirname(target), exist_ok=True)
        with open(target, "w") as file:
            file.write(text)

    def run(self, argv, stdin="", timeout=None):
        self.calls.append(" ".join(argv[1:]))
        verb, arguments = argv[1], [word for word in argv[2:] if not word.startswith("-")]
        if verb == "is-active":
            return Result(argv, 0, "\n".join("active" if unit in self.running else "inactive" for unit in arguments))
        if verb == "start":
            self.running.update(arguments)
        if verb == "stop":
            self.running.difference_update(arguments)
        if verb == "set-property":
            self.grant(arguments[0], dict(self.configured(arguments[0]), **settings("\n".join(arguments[1:]))))
        if verb in ("daemon-reload", "start"):
            for unit in self.running:
                if self.follows(verb, unit, "/sys/fs/cgroup" + slice_path(unit)):
                    self.grant(unit, settings(self.read("%s/%s" % (UNITS, unit))))
        return Result(argv, 0, "")

    def configured(self, unit):
        folder = "/sys/fs/cgroup" + slice_path(unit)
        texts = {key: self.read("%s/cpuset.%s" % (folder, kind)) for key, kind in (("AllowedCPUs", "cpus"), ("AllowedMemoryNodes", "mems"))}
        return {key: text for key, text in texts.items() if text}

    def follows(self, verb, unit, folder):
        """Whether systemd writes the sets of a unit into its group: always when it starts, and when its group gets a cpuset."""
        return self.reapplies or verb == "start" or not self.exists(folder + "/cpuset.cpus")

    def grant(self, unit, values):
        folder = "/sys/fs/cgroup" + slice_path(unit)
        if not values.get("AllowedCPUs") and self.exists(folder + "/cpuset.cpus.effective"):
            return
        wanted = set(expand(values.get("AllowedCPUs", ""))) & self.online
        if wanted or not values.get("AllowedCPUs"):
            self.put(folder + "/cpuset.cpus", values.get("AllowedCPUs", ""))
        self.put(folder + "/cpuset.mems", values.get("AllowedMemoryNodes", ""))
        self.put(folder + "/cpuset.cpus.effective", compress(wanted or self.online))
        self.put(folder + "/cpuset.mems.effective", values.get("AllowedMemoryNodes", "0-1"))
        if not self.exists(folder + "/cgroup.events"):
            self.put(folder + "/cgroup.events", "populated 0\nfrozen 0")


def live_request(cpus, mems="0", **more):
    return a_request(
        files=[a_file(SLICE, slice_text(cpus, mems))],
        owned=[UNITS + "/npu-*.slice"],
        started=["npu-0.slice"],
        expected=[{"unit": "npu-0.slice", "cpus": cpus, "mems": mems}],
        **more,
    )

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The running kernel with a plan, settings and device files of its own: what watches processes sees these."""

import fcntl
import json
import os
import tempfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.threads.feature import SETTINGS
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN

CPUS = sorted(os.sched_getaffinity(0))
MINORS = (5, 7)
"""/dev/zero and /dev/full, which open everywhere, stand in for devices."""


class Watched(Host):
    """Two NPUs: main threads of the first have the first CPU, those of the second and ``acl_thread`` of the first the last one."""

    live = True

    def __init__(self, root):
        Host.__init__(self, str(root))
        for folder in ("etc/npu-affinity", "dev", "run"):
            (root / folder).mkdir(parents=True)
        for number, minor in enumerate(MINORS):
            os.mknod(str(root / "dev" / ("davinci%d" % number)), 0o020666, os.makedev(1, minor))
        roles = ({"main": compressed(CPUS[:1]), "acl": compressed(CPUS[-1:])}, {"main": compressed(CPUS[-1:])})
        alike = {"kind": "npu", "pci": "", "pool": compressed(CPUS)}
        npus = [dict(role, **alike, id=number, phy_id=number, slice="npu-%d.slice" % number) for number, role in enumerate(roles)]
        (root / PLAN[1:]).write_text(json.dumps({"npus": npus}))
        self.settings = root / SETTINGS[1:]
        self.settings.write_text(json.dumps({"processes": [{"npus": [0, 1], "devices": True}], "patterns": {}}))

    def path(self, path):
        return self.root + path if path.startswith(("/etc", "/dev", "/run")) else path


def compressed(cpus):
    return ",".join(map(str, cpus))


def one_at_a_time(kind, root):
    """Yield the only machine of its time: it watches all processes, those of a test in another process, too."""
    with open(os.path.join(tempfile.gettempdir(), "npu-affinity-test-watch"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield kind(root)
        except PermissionError:
            pytest.skip("only root can make device files")

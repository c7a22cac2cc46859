# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints what must hold in a guest at any moment, in the middle of a bind too, and does not, as JSON. Shares no code with the collection.

    {wrong: [sentence], left: [path], processes: [command line]}

``left`` are files that were being written when somebody was killed, which are wrong only after a whole run; ``processes`` are the
collection's.
"""

import glob
import json
import os
import re
import subprocess
import time
import zipfile

GROUPS = "/sys/fs/cgroup/npu.slice"
OURS = [
    "/etc/systemd/system/**/*npu*",
    "/etc/npu-affinity/**",
    "/etc/udev/rules.d/*npu*",
    "/etc/tmpfiles.d/*npu*",
    "/usr/local/lib/npu-affinity/**",
]
PATIENCE = 60
NAME = re.compile("npu[-_]affinity")


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def empty_sets():
    for folder, _folders, _names in os.walk(GROUPS):
        for kind in ("cpus", "mems"):
            path = "%s/cpuset.%s.effective" % (folder, kind)
            if os.path.exists(path) and not read(path).strip():
                yield "%s is empty" % path


def whole(path):
    """Whether a file of the collection was written to its end."""
    if path.endswith(".zip"):
        return zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None
    text = read(path)
    if path.endswith(".json"):
        try:
            json.loads(text)
        except ValueError:
            return False
    return text.endswith("\n")


def ours():
    paths = {path for pattern in OURS for path in glob.glob(pattern, recursive=True)}
    return sorted(path for path in paths if os.path.isfile(path) and not os.path.islink(path))


def left():
    folders = ["/etc", "/usr/local", "/run"]
    return [
        os.path.join(at, name)
        for top in folders
        for at, _folders, names in os.walk(top)
        for name in names
        if name.startswith(".npu-affinity-")
    ]


def processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        line = read("/proc/%s/cmdline" % pid).replace("\0", " ").strip()
        if NAME.search(line) and not line.startswith("/usr/sbin/irqbalance"):
            yield line


def state_of_irqbalance():
    """Its state, when it is not just being restarted."""
    for _second in range(PATIENCE):
        command = ["systemctl", "is-active", "irqbalance"]
        state = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, check=False).stdout.strip()
        if state not in ("activating", "deactivating"):
            break
        time.sleep(1)
    return state


def wrong():
    found = list(empty_sets()) + ["%s is not whole" % path for path in ours() if not whole(path)]
    state = state_of_irqbalance()
    return found + ["irqbalance is %s" % state] * (state != "active")


print(json.dumps({"wrong": wrong(), "left": left(), "processes": sorted(processes())}))

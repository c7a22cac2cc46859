# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints what the kernel of a guest says about processes in containers, as JSON. Shares no code with the collection.

It finds them by the last word of their command, ``by-<form>``:

    {by-docker: {pid, cpus, mems, group, group_cpus, group_mems, visible, nodes: [name], opens: [name]}}

``cpus`` and ``mems`` are those of the process, ``group_...`` those of its control group; ``nodes`` are the NPUs' below its ``/dev``, and
``opens`` those of the host that a process of its control group may open.
"""

import json
import os
import re

SHOWN = re.compile("davinci|devmm_svm|hisi_hdc")


def read(path):
    with open(path) as file:
        return file.read()


def named():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = read("/proc/%s/cmdline" % pid).split("\0")[:-1]
        except OSError:
            continue
        if len(words) > 2 and os.path.basename(words[0]) == "sh" and words[-1].startswith("by-"):
            yield words[-1], pid


def may_open(folder, node):
    """Whether a process may open a device node of the host when it has moved to a control group."""
    pid = os.fork()
    if pid == 0:
        try:
            with open(folder + "/cgroup.procs", "w") as file:
                file.write("0")
            os.close(os.open("/dev/" + node, os.O_RDONLY))
        except PermissionError:
            os._exit(1)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def look(pid):
    status, environment = read("/proc/%s/status" % pid), read("/proc/%s/environ" % pid)
    group = read("/proc/%s/cgroup" % pid).strip().partition("0::")[2]
    folder = "/sys/fs/cgroup" + group
    cpus, mems = (re.search(r"^%s_allowed_list:\s*(\S+)" % key, status, re.MULTILINE).group(1) for key in ("Cpus", "Mems"))
    visible = re.search(r"(?:^|\0)ASCEND_RT_VISIBLE_DEVICES=([^\0]*)", environment)
    return {
        "pid": int(pid),
        "cpus": cpus,
        "mems": mems,
        "group": group,
        "group_cpus": read(folder + "/cpuset.cpus.effective").strip(),
        "group_mems": read(folder + "/cpuset.mems.effective").strip(),
        "visible": visible and visible.group(1),
        "nodes": sorted(filter(SHOWN.match, os.listdir("/proc/%s/root/dev" % pid))),
        "opens": [node for node in sorted(filter(SHOWN.match, os.listdir("/dev"))) if may_open(folder, node)],
    }


print(json.dumps({name: look(pid) for name, pid in named()}))

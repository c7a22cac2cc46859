# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a pod of one container in a guest as the kubelet does, by CRI, and prints the container: ``python3 - POD DEVICE PROGRAM SECONDS``.

These seconds lie between its creation and its start. Debian has no crictl: the calls are made by the client in the installed host code.
"""

import os
import sys
import time

sys.path.insert(0, "/usr/local/lib/npu-affinity/npu_affinity.zip")
from npu_affinity._host.grpc import call, decoded, encoded

SOCKET = "/run/containerd/containerd.sock"
IMAGE = "docker.io/library/infer:latest"
NETWORK_OF_NODE = {1: encoded({1: 2})}
PARENT = "kubepods-besteffort-pod%s.slice" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "/kubepods/besteffort/pod%s"
"""Of systemd's driver and of cgroupfs."""


def ask(method, fields):
    return decoded(call(SOCKET, "/runtime.v1.RuntimeService/" + method, encoded(fields), 280))


def start(name, device, program, seconds):
    linux = encoded({1: PARENT % name, 2: encoded(NETWORK_OF_NODE)})
    pod = encoded({1: encoded({1: name, 2: name, 3: "default"}), 3: "/var/log/pods", 8: linux})
    sandbox = ask("RunPodSandbox", {1: pod})[1][0].decode()
    words = encoded({3: "/bin/sh"}) + encoded({4: "-c"}) + encoded({4: program}) + encoded({4: "by-" + name})
    container = encoded({1: encoded({1: "worker"}), 2: encoded({1: IMAGE})}) + words
    container += encoded({8: encoded({1: device, 2: device, 3: "rwm"}), 15: encoded({2: encoded({})})})
    made = ask("CreateContainer", {1: sandbox, 2: container, 3: pod})[1][0].decode()
    time.sleep(seconds)
    ask("StartContainer", {1: made})
    return made


print(start(*sys.argv[1:4], float(sys.argv[4])))

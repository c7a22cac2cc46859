# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where systemd looks for the files of a unit, below a folder of a test."""

from __future__ import annotations

import os

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host

ETC, RUN, USR = "/etc/systemd/system/", "/run/systemd/system/", "/usr/lib/systemd/system/"
UNIT = "a-b@1.service"
OURS = ETC + UNIT + ".d/50-npu-affinity.conf"


def host_with(root, files):
    for path, text in files.items():
        target = str(root) + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w") as file:
            file.write(text)
    return Host(str(root))

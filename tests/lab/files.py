# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints everything below the folders of a guest that a bind or its undo could touch, as JSON.

{path: [mode, owner, group, SHA-256 of a file | target of a link | "folder"]}
"""

import hashlib
import json
import os
import stat

FOLDERS = ["/etc", "/usr/local", "/run/systemd/system.control", "/run/systemd/transient", "/run/npu-affinity"]


def state(path):
    try:
        found = os.lstat(path)
    except FileNotFoundError:  # such as the lock of a unit that has just ended
        return None
    if stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(found.st_mode):
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
    else:
        content = "folder"
    return [oct(found.st_mode), found.st_uid, found.st_gid, content]


paths = ["/run/" + name for name in os.listdir("/run") if "npu" in name]
for top in FOLDERS:
    for folder, folders, files in os.walk(top):
        paths += [os.path.join(folder, name) for name in folders + files]
states = {path: state(path) for path in paths}
print(json.dumps({path: found for path, found in states.items() if found}))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python imports this at its start when its folder is on the path. One that reads its program, a module, hands that over to ``server.py``.

What it hands over is what a process has: folder, environment, input and outputs. It ends as the process ends that did the work. Where
``MODULE_PYTHON`` names a command, only Python that was started by it hands anything over. Without a server, Python goes on by itself.
"""

import os
import sys

SERVER = os.environ.get("MODULE_SERVER", "")
PYTHON = os.environ.get("MODULE_PYTHON", sys.executable)


def hand_over(path):
    import _socket  # socket itself takes longer than all the rest

    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(path)
    request = os.fsencode("\0".join([os.getcwd(), *(f"{name}={value}" for name, value in os.environ.items())]))
    descriptors = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in (0, 1, 2))
    server.sendmsg([b"%8d" % len(request), request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    os._exit((server.recv(1) or b"\xff")[0])


if os.path.exists(SERVER) and sys.orig_argv == [PYTHON]:
    hand_over(SERVER)

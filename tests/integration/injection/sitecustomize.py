# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python imports this at its start when its folder is on the path. It ends or slows modules, or takes their disk away, at chosen steps.

A step is anything that changes the tree ``FAULT_ROOT``: a file opened for writing, renamed or removed, a folder or link made, a setting
of npu-smi. The steps of all modules on a host are counted in the file ``FAULT_COUNT``. At each of the steps ``FAULT_AT``, separated by
commas, the module is killed (``FAULT_HOW`` is ``killed``), or the step alone fails with ENOSPC (``once``); or from the step on writing to
/etc and /usr fails with the error of that name, such as ``ENOSPC``. With ``slow`` every step waits a little before it, so that modules
that run at once get into each other's way.
"""

import errno
import os
import signal
import sys
import time

ROOT, COUNT, HOW, STEPS = (os.environ.pop("FAULT_" + name, "") for name in ("ROOT", "COUNT", "HOW", "AT"))  # not for its children
AT = [int(step) for step in STEPS.split(",") if step]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
GIVES_ROOM = {"os.rename", "os.remove", "os.rmdir"}
CHANGES = GIVES_ROOM | {"os.mkdir", "os.symlink"}


def changed_path(event, arguments):
    """The path below the tree that an event is about to change, or None."""
    if event == "subprocess.Popen":
        words = [str(word) for word in arguments[1]]
        return words[0] if "set" in words[1:2] else None
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
        return None
    if event != "open" and event not in CHANGES:
        return None
    paths = [os.fsdecode(value) for value in arguments[:2] if isinstance(value, (str, bytes, os.PathLike))]
    return next((path for path in paths if path.startswith(ROOT + "/")), None)


def inject(event, arguments):
    path = changed_path(event, arguments)
    if path is None:
        return
    descriptor = os.open(COUNT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b".")
    step = os.fstat(descriptor).st_size
    os.close(descriptor)
    if HOW == "killed" and step in AT:
        os.kill(os.getpid(), signal.SIGKILL)
    elif HOW == "once" and step in AT:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    elif HOW == "slow":
        time.sleep(0.005)
    elif HOW.startswith("E") and step >= AT[0] and event not in GIVES_ROOM and path.startswith((ROOT + "/etc/", ROOT + "/usr/")):
        number = getattr(errno, HOW)
        raise OSError(number, os.strerror(number), path)


if ROOT:
    sys.addaudithook(inject)

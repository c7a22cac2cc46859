# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One program at a time changes a host: modules, boot units, the instances that udev starts, and timers alike.

The lock is an flock(2) on a file below the host's root, so the kernel releases it when its holder ends, however it ends. The file
names its holder, and is removed with the lock. Standard library only, and nothing heavy: boot units start this many times.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from typing import Iterator

from . import plan_file
from .._host.host import Host
from .._base.outside import shown

PATH = "/run/npu-affinity.lock"
LIMIT = 180
"""Seconds to wait for another program. A call of npu-smi that hangs, or a kubelet that starts slowly, ends before."""
_PAUSE = 0.1
_UMASK = 0o022
"""What the commands that a run starts, such as ``systemctl --root enable``, make is readable whatever the umask of root."""


class Busy(ValueError):
    """Another program holds the lock; the text says which, and since when."""


@contextlib.contextmanager
def changing(host: Host, program: str, check: bool = False) -> Iterator[None]:
    """Hold the lock of a host while ``program`` (a name for those who wait) changes it; nothing is taken or written with ``check``.

    The process has the usual umask meanwhile. First, previous.json and the plan in force are looked at: nobody changes a host whose state
    before the first bind cannot be restored, or that a newer version bound. Raises ``ValueError`` with a sentence for that, and
    :class:`Busy` when another program did not end within :data:`LIMIT` seconds.
    """
    if check:
        _validate_record(host)
        yield
        return
    made, umask = _missing(host), os.umask(_UMASK)
    try:
        descriptor = _acquire(host, program)
        try:
            _validate_record(host)
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(host.path(PATH))  # those who wait have it open, and look again
                for folder in made:
                    os.rmdir(folder)
            os.close(descriptor)
    finally:
        os.umask(umask)


def holder(host: Host) -> str | None:
    """Return which program changes a host at the moment, and since when; None where none does, or for who may not look."""
    try:
        descriptor = os.open(host.path(PATH), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _holder_in(descriptor)
    finally:
        os.close(descriptor)


def _validate_record(host: Host) -> None:
    plan_file.refuse_newer_plan(host)
    if host.exists(plan_file.RECORD):
        from . import previous  # a program that is only started needs nothing of what it imports

        previous.recorded(host)


def _missing(host: Host) -> list[str]:
    """Return the folders that the file needs and a bare tree does not have, innermost first."""
    folder, missing = os.path.dirname(host.path(PATH)), []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _acquire(host: Host, program: str) -> int:
    path, deadline = host.path(PATH), time.monotonic() + LIMIT
    while True:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            if os.path.islink(path) or os.path.lexists(path) and not os.path.isfile(path):
                raise ValueError("%s is not a file: remove or rename it, and run again" % PATH)
            if _was_taken_along(error, os.path.dirname(path)) and time.monotonic() < deadline:
                continue
            raise ValueError("%s cannot be written (%s); run as root (become: true)" % (PATH, error.strerror or error))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("%s is not a file: remove or rename it, and run again" % PATH)
            if _taken(descriptor, path):
                started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
                os.ftruncate(descriptor, 0)
                os.write(descriptor, ("%s (process %d) since %s" % (program, os.getpid(), started)).encode())
                return descriptor
            holder = _holder_in(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() >= deadline:
            raise Busy(
                "%s is changing this host, and did not end within %s s of waiting (it holds %s). Nothing was changed; run again after "
                "it has ended, or stop it if it hangs" % (holder, LIMIT, PATH)
            )
        time.sleep(_PAUSE)


def _holder_in(descriptor: int) -> str:
    return shown(os.pread(descriptor, 200, 0).decode("utf-8", "replace")) or "another program"


def _was_taken_along(error: OSError, folder: str) -> bool:
    """Whether a holder made the folder for its own lock, or removed it, between the steps that make it here."""
    if not isinstance(error, FileExistsError):
        return isinstance(error, FileNotFoundError)
    try:
        return stat.S_ISDIR(os.stat(folder).st_mode)
    except OSError as other:
        return isinstance(other, FileNotFoundError)


def _taken(descriptor: int, path: str) -> bool:
    """Whether the lock is ours now: a holder that ended may have taken the file away that was opened."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False

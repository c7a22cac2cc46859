# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that the kernel lets nobody write to, root included: mounted read-only, or forbidden by a policy that access(2) does not ask."""

import ctypes
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

_KERNEL = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18
_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_MAKE_REG, _PATH_BENEATH = 1 << 8, 1


def confined(confine, place, function):
    """Call a function in a thread that is confined, as only it is."""
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(confine, os.fsencode(str(place))).result()
        except OSError as error:
            pytest.skip(f"needs root and a kernel with Landlock: {error}")
        return thread.submit(function).result()


def read_only(place):
    """Mount a folder read-only."""
    _succeed(_KERNEL.unshare(_CLONE_NEWNS))
    _succeed(_KERNEL.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    _succeed(_KERNEL.mount(place, place, None, _MS_BIND, None))
    _succeed(_KERNEL.mount(None, place, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY, None))


def forbidden(place):
    """Let files be made next to a folder, and none in it."""
    rules = ctypes.create_string_buffer(struct.pack("Q", _MAKE_REG))
    ruleset = _succeed(_KERNEL.syscall(_CREATE_RULESET, rules, 8, 0))
    for other in os.scandir(os.path.dirname(place)):
        if other.path != place and other.is_dir():
            rule = struct.pack("=Qi", _MAKE_REG, os.open(other.path, os.O_PATH))
            _succeed(_KERNEL.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.create_string_buffer(rule), 0))
    _succeed(_KERNEL.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _succeed(_KERNEL.syscall(_RESTRICT_SELF, ruleset, 0))


def _succeed(status):
    if status < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses")
    return status

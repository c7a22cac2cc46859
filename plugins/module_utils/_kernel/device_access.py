# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices the cgroup of a process may open, in a form that can be compared before and after a change. Reads only.

On cgroup v1 that is a list of rules. On v2 programs decide: the kernel has a digest (*tag*) of the instructions of each, bpf(2). A program
that was replaced by the same one has the same tag.
"""

from __future__ import annotations

import ctypes
import os
import struct

from .._host.host import Host
from .machine import CGROUPS
from .processes import control_groups

_CALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280}
_QUERY, _BY_ID, _INFO = 16, 13, 15
_DEVICE, _EFFECTIVE = 6, 1
"""BPF_CGROUP_DEVICE, and the flag for programs of the groups around it, too."""
_MOST = 64


def device_access(host: Host, pid: int) -> tuple[str, ...]:
    """Return what decides on devices for the group of a process. Raises ``ValueError`` where that is unknown."""
    paths = {controller: path for controllers, path in control_groups(host, pid) for controller in controllers.split(",")}
    if "devices" in paths:
        text = host.text("%s/devices%s/devices.list" % (CGROUPS, paths["devices"]))
        if text is None:
            raise ValueError("which devices process %d may open is not known: its devices.list is missing" % pid)
        return tuple(sorted(text.splitlines()))
    if "" in paths:
        return _tags(host.path(CGROUPS + paths[""]))
    raise ValueError("which devices process %d may open is not known: it has ended" % pid)


def _tags(folder: str) -> tuple[str, ...]:
    """Return the tags of the programs that decide on devices for a group of cgroup v2."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            ids = (ctypes.c_uint32 * _MOST)()
            asked = ctypes.create_string_buffer(struct.pack("=IIIIQI", place, _DEVICE, _EFFECTIVE, 0, ctypes.addressof(ids), _MOST), 64)
            _bpf(_QUERY, asked)
            return tuple(sorted(_tag(number) for number in ids[: struct.unpack_from("=I", asked, 24)[0]]))
        finally:
            os.close(place)
    except OSError as error:
        raise ValueError("which devices the group %s lets its processes open is not known (bpf: %s)" % (folder, error.strerror))


def _tag(number: int) -> str:
    program = _bpf(_BY_ID, ctypes.create_string_buffer(struct.pack("=III", number, 0, 0), 64))
    try:
        info = ctypes.create_string_buffer(16)  # type, id, tag
        _bpf(_INFO, ctypes.create_string_buffer(struct.pack("=IIQ", program, len(info), ctypes.addressof(info)), 64))
        return info.raw[8:16].hex()
    finally:
        os.close(program)


def _bpf(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    """Call bpf(2), which fills in its attributes. Raises ``OSError``."""
    number = _CALLS.get(os.uname().machine)
    if number is None:
        raise OSError(0, "its number is not known on %s" % os.uname().machine)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), ctypes.c_int(command), attributes, ctypes.c_uint(len(attributes)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)

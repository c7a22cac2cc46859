# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs and the memory policy of this process, which the program that it executes inherits: sched_setaffinity(2), set_mempolicy(2)."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection

from ..._base.cpulist import compress, expand

FIRST_WITH_MANY = (5, 15)
_REASONS = {errno.EPERM: "a seccomp profile denies set_mempolicy", errno.EINVAL: "this process may use none of them"}
POLICIES = {"preferred": 1, "bind": 2, "preferred-many": 5}
_SYSCALLS = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}
"""The number of set_mempolicy, for which Python and the C library have no function."""
_POSSIBLE = "/sys/devices/system/cpu/possible"
_BITS = 64


def set_cpus(wanted: Collection[int], name: str) -> tuple[set[int], str]:
    """Give this process CPUs, whatever mask it inherited, and return those that it got, and a warning if they are fewer.

    The mask that asks for all possible CPUs gets those of the cpuset, and follows it from then on (:mod:`_kernel.masks`). Raises
    ``ValueError`` where the cpuset has none of the wanted ones; the inherited mask is then restored.
    """
    inherited = os.sched_getaffinity(0)
    try:
        with open(_POSSIBLE) as file:
            possible = expand(file.read())
    except OSError:
        possible = list(range(1024))
    try:
        os.sched_setaffinity(0, possible)
    except OSError as error:
        raise ValueError("this process may not set its CPUs: %s" % error.strerror)
    granted = os.sched_getaffinity(0)
    usable = granted & set(wanted)
    if not usable:
        os.sched_setaffinity(0, inherited)
        text = "this process may use CPUs %s only, of which none is among CPUs %s of %s: its cgroup or container has other ones"
        raise ValueError(text % (compress(granted), compress(wanted), name))
    if usable != granted:
        os.sched_setaffinity(0, usable)
    if len(usable) == len(wanted):
        return usable, ""
    return usable, "CPUs %s of %s are offline or not in the cpuset of this process" % (compress(set(wanted) - usable), name)


def set_memory(policy: str, nodes: Collection[int]) -> tuple[str, str]:
    """Set the memory policy of this process, and return the policy that was set, '' for none, and a warning.

    Without one, memory comes from the node of the CPU that first writes to it. PREFERRED_MANY needs Linux 5.15; PREFERRED takes one node.
    """
    number = _set(policy, nodes)
    if number == errno.EINVAL and policy == "preferred-many" and _kernel_version() < FIRST_WITH_MANY:
        if len(nodes) > 1:
            return "", ""
        policy = "preferred"
        number = _set(policy, nodes)
    if not number:
        return policy, ""
    why = _REASONS.get(number) or os.strerror(number)
    return "", "no memory policy for nodes %s (%s): memory follows the CPUs" % (compress(nodes), why)


def _kernel_version() -> tuple[int, ...]:
    parts = os.uname().release.replace("-", ".").split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


def _set(policy: str, nodes: Collection[int]) -> int:
    """Return the error number of a call of set_mempolicy, 0 if there was none."""
    import ctypes

    syscall = _SYSCALLS.get(os.uname().machine)
    if syscall is None:
        return errno.ENOSYS
    bits = sum(1 << node for node in nodes)
    words = bits.bit_length() // _BITS + 1
    mask = (ctypes.c_ulong * words)(*[bits >> _BITS * word & (1 << _BITS) - 1 for word in range(words)])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(syscall), ctypes.c_int(POLICIES[policy]), mask, ctypes.c_ulong(words * _BITS + 1)) == 0:
        return 0
    return ctypes.get_errno()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SELinux labels of written files. Confined programs such as systemd, udev and irqbalance cannot read a file with the wrong label."""

from __future__ import annotations

import contextlib
import os
from typing import Iterable

from .._host.host import Host

ATTRIBUTE = "security.selinux"
_ON = "/sys/fs/selinux/enforce"
_PROGRAM = "restorecon"
_FOLDERS = ("/usr/sbin", "/sbin")


def inherit(host: Host, descriptor: int, target: str) -> None:
    """Give an open file the label of the file that it will replace. A new file keeps the label that the kernel derives from its folder."""
    if host.exists(_ON) and os.path.isfile(target) and not os.path.islink(target):
        with contextlib.suppress(OSError):
            os.setxattr(descriptor, ATTRIBUTE, os.getxattr(target, ATTRIBUTE))


def restore(host: Host, paths: Iterable[str]) -> None:
    """Give files and folders the labels that the policy of the running machine has for their paths, in one call of restorecon.

    Without that program, files keep the labels of :func:`inherit`. Raises ``ValueError`` or ``CommandError`` where a label cannot be set.
    """
    there = sorted({path for path in paths if host.exists(path)})
    program = host.find_program(_PROGRAM, _FOLDERS) if host.live and there and host.exists(_ON) else None
    if program is None:
        return
    result = host.run([program, *there])
    if result.rc != 0:
        raise ValueError(
            "'%s %s' ended with status %d: %s; run it by hand, correct what it reports, and run again"
            % (_PROGRAM, " ".join(there), result.rc, result.output.strip())
        )

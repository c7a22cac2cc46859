# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line in the journal of systemd for everything that changed a host, with fields that can be searched for.

``journalctl NPU_AFFINITY_ACTION=rebind`` finds them. The text goes to journald's own socket (systemd.io/JOURNAL_NATIVE_PROTOCOL), because
boot units need nothing but Python.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Sequence

from .._base.outside import shown
from .._base.version import VERSION

if TYPE_CHECKING:
    from .._base.documents import Run
    from .._host.host import Host

SOCKET = "/run/systemd/journal/socket"
MESSAGE_ID = "7b7a5b2e0f6c4f0d9a4f6f2f3d1c8e55"
"""What all these lines have in common, whatever they say."""
_MOST_CHANGES = 200
_NOTICE, _WARNING = "5", "4"
_SECONDS = 2


def log_change(
    host: Host,
    action: str,
    author: str,
    what: str,
    lines: Sequence[str] = (),
    reason: str = "",
    history: int | None = None,
    run: Run | None = None,
) -> None:
    """Write a line, except below another root, whose machine does not run. Nothing fails where there is no journald.

    ``action``: bind, rebind, stop, rollback or unbind; ``author``: who began it, a person on the controller or one of our programs;
    ``what``: what was done, in few words; ``lines``: one for everything that changed; ``history``: the id of the entry that was made;
    ``run``: the run that it belongs to.
    """
    if not host.live:
        return
    import socket  # for those who write nothing its import would be the longest part of a run

    what, author, reason = shown(what), shown(author), shown(reason)
    sentence = "%s%s: %s%s" % (action, " by " + author if author else "", what, ": " + reason if reason else "")
    priority = _WARNING if action == "stop" else _NOTICE
    line = {"MESSAGE": sentence, "MESSAGE_ID": MESSAGE_ID, "PRIORITY": priority, "SYSLOG_IDENTIFIER": "npu-affinity"}
    ours = {"ACTION": action, "AUTHOR": author, "REASON": reason, "RUN": shown(run["id"]) if run else "", "VERSION": VERSION}
    ours["CHANGES"] = "\n".join(map(shown, lines[:_MOST_CHANGES]))
    ours["HISTORY"] = "" if history is None else str(history)
    line.update(("NPU_AFFINITY_" + name, value) for name, value in ours.items() if value)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SECONDS)
        sender.sendto(b"".join(_field(name, value.encode("utf-8", "replace")) for name, value in line.items()), host.path(SOCKET))


def _field(name: str, value: bytes) -> bytes:
    if b"\n" in value:
        return name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
    return name.encode() + b"=" + value + b"\n"

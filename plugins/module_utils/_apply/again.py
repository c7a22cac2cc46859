# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state in force of a host, applied once more in check mode: what that would change, and what it would leave as it should not be.

Module ``gather`` runs this from the installed host code, so it need not send what applies a state.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .._features.feature import Choices
from .._host.host import CommandError, Host
from .apply import Application
from .comparison import comparison
from .._state.host_code import files_of

if TYPE_CHECKING:
    from .._base.documents import AppliedState, Comparison, NotCompared, Topology
    from .._host.installed import HostCode


def again(root: str, state: AppliedState, topology: Topology, archive: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return ``differs``, ``compared`` and ``remarks`` as module ``gather`` returns them, and warnings. ``archive`` is the
    installed one, which a bind would install."""
    host = Host(root, 90)
    code = functools.partial(files_of, archive=archive.decode("utf-8", "surrogateescape"))
    applied = Application(host, state, Choices(), code, check=True).carry_out()
    differs = [applied.failure] if applied.failure else applied.diff().told() + applied.waits()
    compared = _compared(host, topology, code) if not differs else None
    return {"differs": differs, "compared": compared, "remarks": applied.remarks()}, applied.sentences()


def _compared(host: Host, topology: Topology, code: HostCode) -> Comparison | NotCompared | None:
    """Return the comparison of a host on which a bind would change nothing; None where nothing differs and all work is placed."""
    known = {"npus": topology["npus"], "users": topology.get("users") or [], "silent": topology.get("silent") or {}}
    try:
        found = comparison(host, {"topology": known, "must_be_bound": False}, None, code)
    except (OSError, ValueError, CommandError) as error:
        return {"msg": str(error)}
    return found if found["drift"] or found["outside"] else None

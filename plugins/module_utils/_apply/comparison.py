# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has, compared with its state in force, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, cast

from .._drift.in_force import compare, drift_of
from .._features.parts import applied
from .._state.history.difference import difference

if TYPE_CHECKING:
    from .._base.documents import AppliedState, Comparison
    from .._host.host import Host
    from .._host.installed import HostCode
    from .._state.history.in_force import InForce


def comparison(
    host: Host, asked: Mapping[str, Any], desired: AppliedState | None, host_code: HostCode | None, history: InForce | None = None
) -> Comparison:
    """Return what module ``binding_info`` returns. ``asked``: its options ``topology`` and ``must_be_bound``; ``desired``: the state whose
    changes it lists; ``history``: what the host has, where that was read already.

    Raises ``OSError``, ``ValueError`` or ``CommandError`` for what could not be compared.
    """
    compared = compare(host, asked["topology"], asked["must_be_bound"], host_code, history)
    findings, known = compared.findings, compared.known
    return {
        "bound": compared.bound,
        "changes": difference(applied(desired), known.state) if desired and known.state else [],
        "drift": drift_of(host, compared),
        "checked": findings.checked,
        "outside": findings.outside,
        "outside_sentence": compared.outside,
        "remarks": findings.remarks,
        "last_change": cast("Any", known.entries[-1].header()) if known.state else None,
    }

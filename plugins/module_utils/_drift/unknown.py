# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a record of a host does not tell is neither as expected nor drift."""

from __future__ import annotations

from .._host.host import Host
from .._state.plan_file import PATH as PLAN
from .._base.findings import Findings, coded
from .codes import KINDS


def leave_out_unknown(host: Host, findings: Findings) -> None:
    """Take out the comparisons for which something was missing, and say so. Raises ``ValueError`` when nothing certain is left to say."""
    unknown = host.unknown
    if not unknown:
        return
    from .._host.recorded import kinds_of  # for an archive only

    if PLAN in unknown:
        raise ValueError("whether this host is bound is not known: the archive does not have %s" % PLAN)
    kinds = kinds_of(unknown, KINDS)
    findings.drift = [finding for finding in findings.drift if finding.kind not in kinds]
    findings.checked = {kind: names for kind, names in findings.checked.items() if kind not in kinds}
    said = host.untold()
    if kinds and not findings.drift:
        left = ", ".join(kind for kind in KINDS if kind in kinds)
        raise ValueError(
            "whether this host is as planned is not known, because these could not be compared: %s. %s" % (left, " ".join(said))
        )
    findings.remarks += coded("NPU_FACTS_INCOMPLETE", said)

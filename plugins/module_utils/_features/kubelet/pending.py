# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet waits for whose change was bound, and whose node is not drained yet. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._base.findings import coded
from ..._host.host import Host
from ..comparing import Comparing
from . import drop_in

if TYPE_CHECKING:
    from ..._base.documents import KubeletLive


def compare(comparing: Comparing, wanted: KubeletLive | None) -> None:
    """Note a change that is pending, which is not drift."""
    comparing.findings.pending = pending(comparing.host, wanted)
    comparing.findings.remarks += coded("NPU_KUBELET_PENDING", comparing.findings.pending)


def pending(host: Host, wanted: KubeletLive | None) -> list[str]:
    """Return a sentence on the change that is pending, or none where it was made; ``wanted`` is None where the drop-in is to be removed."""
    path = wanted["path"] if wanted else next(iter(drop_in.installed(host)), None)
    if path is None:
        return []
    try:
        change = drop_in.look(host, path, wanted["content"] if wanted else None)
    except ValueError as error:
        return ["the pending change of the kubelet cannot be made: %s" % error]
    return [sentence(change)] if change.needed else []


def sentence(change: drop_in.Change) -> str:
    made = "; ".join(change.differences) or change.path
    return "the kubelet's change is pending: %s; bind with npu_affinity_kubelet_restart: true to drain the node and make it" % made

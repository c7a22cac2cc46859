# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a desired state to what a host is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._features.device_share.switching import RECOVER
from .._features.vnpu.layout import layout_of
from .verify import Wanted

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry


def wanted_by(state: AppliedState | None) -> Wanted:
    """Return what a host is compared with by a desired state; None: by its plan alone."""
    if not state:
        return Wanted()
    live = state["live"]
    kubelet = live.get("kubelet")
    of_kubelet: list[FileEntry] = []
    if kubelet:
        of_kubelet.append({"path": kubelet["path"], "content": kubelet["content"]})
    share, layout = live.get("device_share"), live.get("vnpu")
    return Wanted(
        files=[*state["files"], *of_kubelet],
        owned=state.get("owned", ()),
        enabled=state.get("enabled", ()),
        started=state.get("started", ()),
        stopped=state.get("stopped", ()),
        programs=state.get("programs", ()),
        binding=dict(live.get("slices", {}), expected=state.get("expected", ())),
        interrupts=state["features"].get("irq") == "present",
        irq_failure="warn" if live.get("irq") == "warn" else "fail",
        device_share=share and dict(share, recover=RECOVER[share["recover"]]),
        threads=live.get("threads"),
        tuning={name: value for name, value in (live.get("tuning") or {}).items() if value is not None},
        hugepages=live.get("hugepages"),
        nic=live.get("nic"),
        layout=layout and layout_of(layout),
        soft_split=state.get("soft_split"),
        pending=state.get("pending", {}),
    )

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a desired state to what a host is compared with: the same for module binding_info, and on the host itself.

This module is private to the collection.
"""

from __future__ import annotations

from typing import Any, Mapping

from .._device_share.switching import RECOVER
from .._vnpu_layout import layout_of
from .verify import Wanted

_LISTS = ("files", "owned", "enabled", "started", "stopped", "programs")
_AS_GIVEN = _LISTS + ("binding", "interrupts", "irq_failure", "topology", "npu_smi", "must_be_bound", "threads", "soft_split")
NOTHING: dict[str, Any] = dict(
    dict.fromkeys(("topology", "npu_smi", "threads", "soft_split", "device_share", "vnpu_layout", "tuning")),
    binding={},
    interrupts=True,
    irq_failure="fail",
    must_be_bound=False,
    **{name: [] for name in _LISTS},
)
"""The options of module binding_info that say what is compared, with their defaults."""


def wanted_by(state: Mapping[str, Any] | None, options: Mapping[str, Any] | None = None) -> Wanted:
    """Return what a host is compared with by a desired state and options; None for a state: by the options alone."""
    options = NOTHING if options is None else options
    given = dict(options)
    if state:
        live = state["live"]
        given.update((key, options[key] + state[key]) for key in _LISTS)
        kubelet = live.get("kubelet") or {}
        if kubelet.get("compared"):
            given["files"] = given["files"] + [{"path": kubelet["path"], "content": kubelet["content"]}]
        given.update(
            binding=options["binding"] or dict(live.get("slices", {}), expected=state["expected"]),
            interrupts=options["interrupts"] and state["features"].get("irq") == "present",
            irq_failure="warn" if live.get("irq") == "warn" else options["irq_failure"],
            device_share=options["device_share"] or live.get("device_share"),
            threads=options["threads"] or live.get("threads"),
            tuning=options["tuning"] or live.get("tuning"),
            vnpu_layout=options["vnpu_layout"] or live.get("vnpu"),
            soft_split=options["soft_split"] or state["soft_split"],
        )
    share = given["device_share"]
    return Wanted(
        device_share=share and dict(share, recover=RECOVER[share["recover"]]),
        layout=given["vnpu_layout"] and layout_of(given["vnpu_layout"]),
        tuning={name: value for name, value in (given["tuning"] or {}).items() if value is not None},
        **{name: given[name] for name in _AS_GIVEN},
    )

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature vnpu: directories and files for soft split of NPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..._state import sections
from ..._state.step import Check
from ..feature import Choices, Comparing, Feature, later

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..._state.step import LiveStep

_MODE = re.compile(r"[0-7]{1,4}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def _step(host: Host, state: AppliedState, choices: Choices) -> LiveStep | None:
    live = state["live"]
    if live.get("vnpu"):
        step: LiveStep = later("vnpu.layout:SoftSplit")(host, live["vnpu"], choices)
        return step
    return Check(later("vnpu.soft_split:require"), host, state["soft_split"]) if live.get("slices") and state.get("soft_split") else None


def _compare(comparing: Comparing) -> None:
    if comparing.wanted.live.get("vnpu") or comparing.wanted.soft_split:
        later("vnpu.soft_split:compare")(comparing)


def _check(data: dict[str, Any]) -> None:
    sections.check_paths(data["folders"])
    for path, mode in data["modes"].items():
        sections.check_path(path)
        if not _MODE.match(mode):
            raise ValueError("'%s' has the permissions %r" % (path, mode))
    for path, digests in data["files"].items():
        sections.check_path(path)
        if not isinstance(digests, list) or not all(_DIGEST.match(digest) for digest in digests):
            raise ValueError("'%s' has no checksums" % path)


FEATURE = Feature(
    "vnpu",
    effect="installs what the soft split needs",
    sections={"vnpu": _check},
    step=_step,
    first=True,
    restore=later("vnpu.layout:Restore"),
    compare=_compare,
    compared=1,
)

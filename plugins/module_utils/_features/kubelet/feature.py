# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature kubelet: a drop-in of the kubelet's configuration, which a drained node gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._state import sections
from ..feature import Choices, Comparing, Feature, later

if TYPE_CHECKING:
    from ..._base.documents import AppliedState, FileEntry
    from ..._host.host import Host
    from ..._state.step import LiveStep

SECTION = "kubelet"
"""The section of previous.json: ``{path, folders}`` of our drop-in; ``renamed`` has further paths while one takes the place of another."""


def _step(host: Host, state: AppliedState, choices: Choices) -> LiveStep | None:
    presence = state["features"].get("kubelet")
    if presence is None or presence == "absent" and not later("kubelet.drop_in:installed")(host):
        return None
    step: LiveStep = later("kubelet.step:Kubelet")(host, state["live"].get("kubelet"), presence == "present", choices.kubelet_wait)
    return step


def _compare(comparing: Comparing) -> None:
    if "kubelet" in comparing.wanted.pending:
        later("kubelet.step:compare")(comparing, comparing.wanted.pending["kubelet"])


def _placed(state: AppliedState) -> list[FileEntry]:
    wanted = state["live"].get("kubelet")
    return [{"path": wanted["path"], "content": wanted["content"]}] if wanted else []


def _check(data: dict[str, Any]) -> None:
    sections.check_path(data["path"])
    sections.check_paths(data["folders"])
    sections.check_paths(data.get("renamed", []))


FEATURE = Feature(
    "kubelet",
    effect="configures the kubelet",
    live={"path": str, "content": str},
    sections={SECTION: _check},
    step=_step,
    restore=later("kubelet.step:Restore"),
    undone_by_step=True,
    compare=_compare,
    compared=1,
    placed=_placed,
)

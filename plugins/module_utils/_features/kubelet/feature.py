# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature kubelet: a drop-in of the kubelet's configuration, which a drained node gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._state import sections
from ..feature import Choices, Feature
from .places import SECTION

if TYPE_CHECKING:
    from ..._base.documents import AppliedState, FileEntry
    from ..._host.host import Host
    from ..._state.release import Release
    from ..comparing import Comparing
    from .step import Kubelet


def _step(host: Host, state: AppliedState, choices: Choices) -> Kubelet | None:
    presence = state["features"].get("kubelet")
    if presence == "absent":
        from .drop_in import installed

        presence = presence if installed(host) else None
    if presence is None:
        return None
    from .step import Kubelet

    return Kubelet(host, state["live"].get("kubelet"), presence == "present", choices.kubelet_wait)


def _release() -> type[Release]:
    from .step import Release

    return Release


def _compare(comparing: Comparing) -> None:
    if "kubelet" in comparing.wanted.pending:
        from .step import compare

        compare(comparing, comparing.wanted.pending["kubelet"])


def _placed(state: AppliedState) -> list[FileEntry]:
    wanted = state["live"].get("kubelet")
    return [{"path": wanted["path"], "content": wanted["content"]}] if wanted else []


def _check(data: dict[str, Any]) -> None:
    sections.check_path(data["path"])
    sections.check_paths(data["folders"])
    sections.check_paths(data.get("renamed", []))


FEATURE = Feature(
    "kubelet",
    live={"path": str, "content": str},
    sections={SECTION: _check},
    step=_step,
    release=_release,
    undone_by_step=True,
    compare=_compare,
    compared=1,
    placed=_placed,
)

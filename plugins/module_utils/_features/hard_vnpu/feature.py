# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature hard_vnpu: the hard vNPUs into which the driver splits NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from ..value_feature import value_feature

if TYPE_CHECKING:
    from ..._state.release import Release
    from ..comparing import Comparing
    from .splitting import HardVnpus


def _kind() -> HardVnpus:
    from .splitting import HardVnpus

    return HardVnpus()


def _release() -> Callable[..., Release]:
    from ..._state.values import Release
    from .splitting import HardVnpus

    return lambda host, outcome, options: Release(HardVnpus(options.npu_smi), host, outcome, options)


def _compare(comparing: Comparing) -> None:
    wanted: Any = comparing.wanted.live
    if wanted.get("hard_vnpu"):
        from .splitting import compare

        compare(comparing, wanted["hard_vnpu"])


FEATURE = value_feature(
    "hard_vnpu",
    {},
    "An NPU has other hard vNPUs than planned.",
    kind=_kind,
    live={"values": {str: str}, "npu_smi": str, "timeout": int},
    release=_release,
    compare=_compare,
)

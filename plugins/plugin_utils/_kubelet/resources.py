# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names under which device plugins offer NPUs and GPUs to pods.

Sources: Ascend/mind-cluster@22bb3d98, ``component/ascend-common/api/default_name.go``; NVIDIA/k8s-device-plugin. HAMi's device plugin has
names of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

RESOURCES = {
    "910": "huawei.com/Ascend910",
    "a2": "huawei.com/Ascend910",
    "a3": "huawei.com/Ascend910",
    "a5": "huawei.com/npu",
    "310p": "huawei.com/Ascend310P",
    "310": "huawei.com/Ascend310",
    "gpu": "nvidia.com/gpu",
}


def resource_of(families: Iterable[str | None]) -> str | None:
    """Return the name for NPUs of these families, None where a family is not known. ``ValueError``: they have several names."""
    names = {RESOURCES.get(family or "") for family in families}
    if None in names or not names:
        return None
    if len(names) > 1:
        raise ValueError(f"resource: the NPUs are offered as {', '.join(sorted(filter(None, names)))}; name the one that is wanted")
    return names.pop()

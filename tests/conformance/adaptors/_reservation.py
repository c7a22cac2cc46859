# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a managed Kubernetes service takes away from a node's CPUs before any pod runs.

Source: Open Telekom Cloud, "Cloud Container Engine", page cce_10_0178, which is that of Huawei Cloud CCE as well.
"""

from __future__ import annotations

TEN_THOUSANDTHS = (600, 100, 50, 50)
"""Of the first, second, third and fourth CPU; counted in whole numbers, so that sums stay exact."""
OF_EVERY_OTHER = 25


def cce_cpu_reservation(cpus: int) -> dict[str, float | int]:
    """Return what CCE reserves on a node with that many CPUs.

    ``reserved_cores`` is the fraction; with the static CPU manager kubelet rounds it up to the whole CPUs of
    ``static_policy_reserved_cpus`` and takes the lowest whole cores. Raises ``ValueError`` for less than one CPU.
    """
    if cpus < 1:
        raise ValueError(f"cpus: a node has at least 1 CPU, got {cpus}; give the number of its online CPUs")
    reserved = sum(TEN_THOUSANDTHS[:cpus]) + OF_EVERY_OTHER * max(0, cpus - len(TEN_THOUSANDTHS))
    return {"reserved_cores": reserved / 10000, "static_policy_reserved_cpus": -(-reserved // 10000)}

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release of the kubelet knows an option of its CPU manager or topology manager, and behind which feature gate.

A kubelet does not start with an option that it does not know, or whose gate is off. Alpha options share one gate, which is off by default,
and beta options another, which is on. Sources: Kubernetes ``pkg/kubelet/cm/{cpumanager,topologymanager}/policy_options.go`` and KEPs 2625,
2902, 3327, 3545, 4176, 4540, 4622 and 5109.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet.version import release

Release = tuple[int, int]
NEVER: Release = (1 << 16, 0)


class Stages(NamedTuple):
    """The first releases in which an option was alpha, beta and stable."""

    alpha: Release
    beta: Release = NEVER
    stable: Release = NEVER


CPU_MANAGER = {
    "full-pcpus-only": Stages((1, 22), (1, 23), (1, 33)),
    "distribute-cpus-across-numa": Stages((1, 23), (1, 33)),
    "align-by-socket": Stages((1, 25)),
    "distribute-cpus-across-cores": Stages((1, 31)),
    "strict-cpu-reservation": Stages((1, 32), (1, 33), (1, 35)),
    "prefer-align-cpus-by-uncorecache": Stages((1, 32), (1, 34), (1, 36)),
}
TOPOLOGY_MANAGER = {
    "prefer-closest-numa-nodes": Stages((1, 26), (1, 28), (1, 32)),
    "max-allowable-numa-nodes": Stages((1, 31), (1, 33), (1, 35)),
}


def knows(option: str, known: Mapping[str, Stages], kubelet: Mapping[str, Any]) -> bool:
    return _current(kubelet) >= known[option].alpha


def needed(name: str, options: Iterable[str], known: Mapping[str, Stages], prefix: str, kubelet: Mapping[str, Any]) -> dict[str, bool]:
    """Return the feature gates that options need. ``name`` is what the user calls them, ``prefix`` how the names of the gates begin.

    A kubelet of unknown version is taken for a current one. Raises ``ValueError`` for an option that the kubelet does not know, or whose
    gate its own configuration switches off.
    """
    version, current = kubelet.get("version"), _current(kubelet)
    gates = {}
    for option in options:
        stages = known[option]
        if not knows(option, known, kubelet):
            raise ValueError(
                f"{name}: {option} came with Kubernetes {_told(stages.alpha)}, and the kubelet is {version}, which would not start with "
                "it; leave it out, or update the kubelet first"
            )
        if current < stages.beta:
            gates[f"{prefix}PolicyAlphaOptions"] = True
        elif current < stages.stable and (kubelet.get("feature_gates") or {}).get(f"{prefix}PolicyBetaOptions") == "false":
            raise ValueError(
                f"{name}: {option} is beta in Kubernetes {version or 'of today'}, and the kubelet's configuration switches feature gate "
                f"{prefix}PolicyBetaOptions off; remove that, or leave the option out"
            )
    return gates


def _current(kubelet: Mapping[str, Any]) -> Release:
    version = kubelet.get("version")
    return release(version) if version else (NEVER[0] - 1, 0)


def _told(first: Release) -> str:
    return ".".join(map(str, first))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The features of the collection: the only list of them."""

# mypy: disable-error-code="no-redef"
# ruff: noqa: F401, F811

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from .._state import sections as _sections
from .adopt.feature import FEATURE as ADOPT
from .device_share.feature import FEATURE as DEVICE_SHARE
from .feature import Feature
from .hard_vnpu.feature import FEATURE as HARD_VNPU
from .hugepages.feature import FEATURE as HUGEPAGES
from .irq.feature import FEATURE as IRQ
from .kubelet.feature import FEATURE as KUBELET
from .metrics.feature import FEATURE as METRICS
from .nic.feature import FEATURE as NIC
from .slices.feature import FEATURE as SLICES
from .threads.feature import FEATURE as THREADS
from .tuning.feature import FEATURE as TUNING
from .vnpu.feature import FEATURE as VNPU

if TYPE_CHECKING:  # what features name with ``later``: Ansible and _apply/runtime.py pack what is imported
    from .adopt import choosing, watching, work
    from .device_share import sharing
    from .hard_vnpu import splitting
    from .hugepages import pages
    from .irq import binding, drift
    from .kubelet import drop_in, step
    from .metrics import textfile
    from .nic import queues
    from .slices import drift, lending
    from .threads import step, watching
    from .vnpu import layout, soft_split

FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (HARD_VNPU, VNPU, SLICES, IRQ, NIC, DEVICE_SHARE, ADOPT, THREADS, TUNING, HUGEPAGES, METRICS, KUBELET)
}
"""By the names of their roles, in the order in which a bind applies them; an unbind undoes them in the reverse order."""

for _feature in FEATURES.values():
    _sections.CHECKS.update(_feature.sections)
    _sections.LIVE["%s?" % _feature.name] = _feature.live
    _sections.EFFECTS[_feature.name] = _feature.effect


def require_known(names: Iterable[str]) -> None:
    """Raise ``ValueError`` with those that are no features."""
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise ValueError("%s is not a feature: use %s" % (" and ".join(unknown), ", ".join(sorted(FEATURES))))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host fails after it was compared."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible")

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import OLD_PROCESS
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import NAMED, failure


def compared(number, cause="manual change", **changes):
    drift = [{"cause": cause, "code": "NPU_FILE_CHANGED", "sentence": f"file {place}"} for place in range(number)]
    found = {"bound": True, "drift": drift, "checked": {"files": ["/f"] * 9}, "muted": {}, "drift_fails": True, "workloads_fail": False}
    return {**found, **changes}


@pytest.mark.parametrize(
    "verified, after_bind, why",
    [
        (compared(0), True, ""),
        (compared(2), False, "2 of 9 compared objects differ"),
        (compared(2), True, "2 of 9 compared objects differ: file 0; file 1"),
        (compared(NAMED + 2), True, "7 of 9 compared objects differ: file 0; file 1; file 2; file 3; file 4; and 2 more"),
        (compared(2, OLD_PROCESS), True, ""),
        (compared(2, OLD_PROCESS), False, "2 of 9 compared objects differ"),
        (compared(2, drift_fails=False), True, ""),
        (compared(2, muted={"NPU_FILE_CHANGED": "until 2027-01-01"}), True, ""),
        ({"msg": "no plan.json", "drift_fails": True}, True, "no plan.json"),
    ],
)
def test_the_reason_for_which_a_compared_host_fails(verified, after_bind, why):
    assert failure(verified, after_bind) == why

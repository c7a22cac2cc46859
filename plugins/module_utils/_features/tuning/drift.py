# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the host. Reads only."""

from __future__ import annotations

from typing import Mapping

from ..._base.findings import EDIT, Cause, coded
from ..comparing import Comparing
from . import host_settings


def compare(comparing: Comparing, settings: Mapping[str, str | int | None]) -> None:
    """Compare the settings of the host, except for those that are left as they are."""
    host, findings = comparing.host, comparing.findings
    wanted = {name: value for name, value in settings.items() if value is not None}
    for setting, value in sorted(wanted.items()):
        found: dict[str, list[str]] = {}
        for path in host_settings.places(host, setting):
            found.setdefault(host_settings.value_of(host, path), []).append(path)
        if set(found) <= {str(value)}:
            findings.same("tuning", setting)
            continue
        number = sum(map(len, found.values()))
        shown = ["%s (%d of %d)" % (text, len(found[text]), number) if len(found) > 1 else text for text in sorted(found)]
        cause = Cause(EDIT, "set by hand, or by another program such as TuneD")
        findings.differs("tuning", setting, str(value), ", ".join(shown), cause)
    findings.remarks += coded("NPU_NO_EFFECT", host_settings.missing(host, wanted))

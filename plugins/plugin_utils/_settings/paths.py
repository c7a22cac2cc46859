# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that name files on the controller. Relative ones begin in the folder where the user started Ansible."""

from __future__ import annotations

import os
import re
from typing import Any

_OF_PLAYBOOKS = ("plan_file", "reviewed", "measures", "archives")
_OF_REPORTS = ("reports", "report", "report_from", "report_runs")
LABEL = "npu_affinity_measure_label"
ON_CONTROLLER = {f"npu_affinity_{name}" for name in _OF_PLAYBOOKS + _OF_REPORTS}


def placed(name: str, value: Any) -> Any:
    """Return the value of a setting, with absolute paths if it names files on the controller."""
    if name not in ON_CONTROLLER or not value:
        return value
    return [absolute(path) for path in value] if isinstance(value, list) else absolute(value)


def checked_label(value: str, setting: str) -> None:
    """Raise ``ValueError`` for the name of a measurement that would be a file in another directory."""
    if not re.fullmatch(r"([\w-][\w. -]*)?", value):
        raise ValueError(f"{setting}: expected a name of letters, digits, dots, blanks and hyphens, such as housekeeping; got {value!r}")


def absolute(path: str) -> str:
    return os.path.join(os.environ.get("PWD") or os.getcwd(), path.strip())

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that collections have in common: ``pipx run --spec antsibull-nox nox``. What is checked is in antsibull-nox.toml.

``make test-core`` has the same checks with pinned versions, and all tests.
"""

from __future__ import annotations

import sys

import nox

try:
    import antsibull_nox
except ImportError:
    sys.exit("nox needs antsibull-nox in the same Python environment: pip install nox antsibull-nox")

antsibull_nox.load_antsibull_nox_toml()

if __name__ == "__main__":
    nox.main()

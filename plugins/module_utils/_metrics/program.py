# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m npu_affinity._metrics``: what units run.

This module is private to the collection.
"""

from __future__ import annotations

from .writing import main

if __name__ == "__main__":
    raise SystemExit(main())

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let every Python that a test starts record the lines of plugins that it executes. ``record.py`` puts this folder on PYTHONPATH."""

import os
import sys

if "MUTATION_LINES" in os.environ and hasattr(sys, "monitoring"):
    sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from lines import Lines

    del sys.path[1]
    Lines(os.environ["MUTATION_LINES"]).watch()

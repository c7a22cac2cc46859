# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A desired state of a few parts, as tests of modules write it down."""

LISTS = ("files", "owned", "enabled", "started", "stopped", "released", "restarted", "expected", "programs")


def a_state(plan=None, live=None, **parts):
    """Return a state that wants no feature by name, so that what others own is left alone."""
    empty = {"schema": 1, "features": {}, "hardware": {}, "absent": {}, "notes": {}, "soft_split": "", "python": "", "runtime": False}
    return {**empty, **{name: [] for name in LISTS}, "plan": plan, "live": live or {}, **parts}

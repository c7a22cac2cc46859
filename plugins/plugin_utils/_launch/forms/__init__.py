# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms in which a workload is launched, one file each; a new file in this folder is a new form.

A form says in ``OPTIONS`` which options it takes, and writes its text in ``recipe``.

This package is private to the collection.
"""

from __future__ import annotations

from typing import Protocol, cast

from ansible_collections.npu.affinity.plugins.plugin_utils._discovery import modules_of
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload


class Form(Protocol):
    """What every file of this folder has."""

    OPTIONS: frozenset[str]

    def recipe(self, workload: Workload, options: Options) -> Recipe:
        """Return the text and what the user has to know about it. ``ValueError`` where this form cannot work."""


FORMS = {name: cast(Form, module) for name, module in modules_of(__name__).items()}

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms in which a workload is launched: one file each, and those that are one command (``commands.py``).

A form says in ``OPTIONS`` which options it takes, and writes its text in ``recipe``. A new file in this folder is a new form.

This package is private to the collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from ansible_collections.npu.affinity.plugins.plugin_utils._discovery import modules_of
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.commands import COMMANDS
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload


class Form(Protocol):
    """What every form has."""

    @property
    def OPTIONS(self) -> frozenset[str]:
        """Return the names of the options that the form takes."""

    def recipe(self, workload: Workload, options: Options) -> Recipe:
        """Return the text and what the user has to know about it. ``ValueError`` where this form cannot work."""


_FILES = {name: cast(Form, module) for name, module in modules_of(__name__).items()}
FORMS: Mapping[str, Form] = dict(sorted({**_FILES, **COMMANDS}.items()))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages with one file for each strategy or form: a new file is a new one."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def modules_of(package: str) -> dict[str, ModuleType]:
    """Return the modules of a package by name, except for those whose name begins with an underscore."""
    folders = importlib.import_module(package).__path__
    names = sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_"))
    return {name: importlib.import_module(f"{package}.{name}") for name in names}

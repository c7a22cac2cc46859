# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host code that boot units run, as texts to be installed: one truth for the modules and for the time without Ansible.

Installed as package ``npu_affinity`` it needs nothing but Python: ``_irq``, ``_device_share``, ``_processes`` and ``_tuning`` are its
programs.

This module is private to the collection.
"""

from __future__ import annotations

import pkgutil

from . import (
    _affinity,
    _cpu,
    _cpulist,
    _device_share,
    _files,
    _holders,
    _host,
    _interrupts,
    _irq,
    _npu_smi,
    _npu_smi_errors,
    _npu_smi_tables,
    _npus,
    _pci,
    _previous,
    _processes,
    _share_plan,
    _share_recovery,
    _share_tool,
    _smi_text,
    _tasks,
    _tool,
    _tuning,
)

_MODULES = (
    _affinity,
    _cpu,
    _cpulist,
    _device_share,
    _files,
    _holders,
    _host,
    _interrupts,
    _irq,
    _npu_smi,
    _npu_smi_errors,
    _npu_smi_tables,
    _npus,
    _pci,
    _previous,
    _processes,
    _share_plan,
    _share_recovery,
    _share_tool,
    _smi_text,
    _tasks,
    _tool,
    _tuning,
)
"""The programs and everything that they import, transitively. Ansible sends along with a module only what it finds imported."""

FOLDER = "/usr/local/lib/npu-affinity/npu_affinity"
FILES = ("__init__.py",) + tuple(module.__name__.rpartition(".")[2] + ".py" for module in _MODULES)
FIRST_LINE = "# %s: changes are overwritten.\n" % _files.MARKER


def sources():
    """Return ``{file name: text}`` of :data:`FILES`, each with a first line that says whose file it is.

    They are read from where this module came from, be that a folder or the archive that Ansible sends to a host.
    """
    texts = {}
    for name in FILES:
        text = pkgutil.get_data(__package__, name).decode("utf-8")
        texts[name] = text if text.startswith(FIRST_LINE) else FIRST_LINE + text
    return texts

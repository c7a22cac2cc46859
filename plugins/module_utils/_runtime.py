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

from ._files import MARKER

FILES = (
    "__init__.py",
    "_affinity.py",
    "_cpu.py",
    "_cpulist.py",
    "_device_share.py",
    "_files.py",
    "_holders.py",
    "_host.py",
    "_interrupts.py",
    "_irq.py",
    "_lock.py",
    "_npu_smi.py",
    "_npu_smi_errors.py",
    "_npu_smi_tables.py",
    "_npus.py",
    "_pci.py",
    "_plan_file.py",
    "_previous.py",
    "_processes.py",
    "_sections.py",
    "_share_plan.py",
    "_share_recovery.py",
    "_share_tool.py",
    "_smi_text.py",
    "_tasks.py",
    "_tool.py",
    "_tuning.py",
)
"""The programs and everything that they import, transitively."""
FOLDER = "/usr/local/lib/npu-affinity/npu_affinity"
FIRST_LINE = "# %s: changes are overwritten.\n" % MARKER


def sources():
    """Return ``{file name: text}`` of :data:`FILES`, each with a first line that says whose file it is.

    They are read from where this module came from, be that a folder or the archive that Ansible sends to a host.
    """
    texts = {}
    for name in FILES:
        text = pkgutil.get_data(__package__, name).decode("utf-8")
        texts[name] = text if text.startswith(FIRST_LINE) else FIRST_LINE + text
    return texts


def _sent_along():
    """Is never called: Ansible sends along with a module what import statements name, wherever they stand, and this loads none of it."""
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
        _lock,
        _npu_smi,
        _npu_smi_errors,
        _npu_smi_tables,
        _npus,
        _pci,
        _plan_file,
        _previous,
        _processes,
        _sections,
        _share_plan,
        _share_recovery,
        _share_tool,
        _smi_text,
        _tasks,
        _tool,
        _tuning,
    )

    return (
        _affinity,
        _cpu,
        _cpulist,
        _device_share,
        _files,
        _holders,
        _host,
        _interrupts,
        _irq,
        _lock,
        _npu_smi,
        _npu_smi_errors,
        _npu_smi_tables,
        _npus,
        _pci,
        _plan_file,
        _previous,
        _processes,
        _sections,
        _share_plan,
        _share_recovery,
        _share_tool,
        _smi_text,
        _tasks,
        _tool,
        _tuning,
    )

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms of filter launch: those of a host, which its command npu-affinity has, too, and those for Kubernetes."""

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._launch import forms as on_host
from ansible_collections.npu.affinity.plugins.module_utils._launch import launching
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import forms

FORMS = {**on_host.FORMS, **forms.FORMS}


def launch(entry: Any, form: str, **options: Any) -> str:
    """Return the text of a form, see :func:`launching.launch`."""
    return launching.launch(entry, form, forms=FORMS, **options)

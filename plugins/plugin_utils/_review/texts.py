# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a fleet as two files to review and commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._review import file
from ansible_collections.npu.affinity.plugins.plugin_utils._review.markdown import markdown


def review_file(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Return the text for programs, ``json``, and the text for people, ``md``, by the variables that a run left of each host."""
    hosts = file.collect(variables, names)
    return {"json": file.text(file.document(hosts)), "md": markdown(hosts)}

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the collection, as galaxy.yml has it, which no host has, and that of its files on hosts."""

from __future__ import annotations

import json

VERSION = "1.0.0"
SCHEMA = 1
"""Of the files that a bind keeps on a host. Those of a newer schema are refused."""


class Newer(ValueError):
    """A newer version of the collection wrote it."""


def refuse_newer(title: str, document: object) -> None:
    """Raise :class:`Newer` for a document of a newer schema than ours. Older ones are read; one without a number has the first."""
    schema = document.get("schema", SCHEMA) if isinstance(document, dict) else SCHEMA
    if not isinstance(schema, int) or isinstance(schema, bool) or schema > SCHEMA:
        raise Newer(
            "%s was written by a newer version of npu.affinity: it has schema %s, and version %s reads schemas up to %d. Nothing was "
            "changed. Use that version or a newer one: ansible-galaxy collection install npu.affinity --upgrade"
            % (title, json.dumps(schema), VERSION, SCHEMA)
        )

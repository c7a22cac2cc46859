# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks for those whose fingers type ``nox``: each session is the target of the Makefile with the same name.

The targets keep an environment of their own in ``.venv``, with pinned versions, so the sessions need none.
"""

from __future__ import annotations

import nox

nox.options.sessions = ["test"]
PARTS = ("style", "types", "docs", "licence", "unit", "properties", "integration", "sanity", "package")
REST = ("docs-site", "long", "browser", "molecule", "matrix", "lab")
TARGETS = ("test", "test-all", "lint", *PARTS, *REST)


def session_of(target: str) -> None:
    @nox.session(name=target, venv_backend="none")
    def run(session: nox.Session) -> None:
        session.run("make", target, external=True)


for name in TARGETS:
    session_of(name)

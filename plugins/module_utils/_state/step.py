# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a transaction does before and after its files: each feature with something of this kind has a :class:`Step`."""

from __future__ import annotations

from typing import Any


class Step:
    """One part of a transaction besides its files and units.

    ``title`` names it in a sentence, in the plural, where there can be something to undo. ``warnings`` are sentences for the user.
    """

    title = ""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    @property
    def changed(self) -> bool:
        """Whether something was changed, or after :meth:`look` whether something would be."""
        raise NotImplementedError

    @property
    def needed(self) -> bool:
        """Whether the transaction runs because of this step, even if nothing else differs."""
        return self.changed

    @property
    def held(self) -> bool:
        """Whether nothing is applied at all, because the controller does something first."""
        return False

    def look(self, check: bool) -> None:
        """Find out without a write what differs, in check mode also what to report. Raises ``ValueError`` for what is unsafe."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Record what the other parts of the transaction may change. It comes before the first write."""

    def run(self) -> None:
        """Change the host. Raises ``ValueError`` where that cannot be done wholly."""
        raise NotImplementedError

    def undo(self) -> None:
        """Restore what :meth:`run` changed, also where it did not end. Raises ``ValueError`` with what could not be restored."""
        raise NotImplementedError

    def finish(self) -> None:
        """Forget what only :meth:`undo` needs: all steps have succeeded."""


class LiveStep(Step):
    """A step that sets what a feature wants of the running host.

    ``key``: under which a module returns its result; ``disruptive``: whether it can disturb workloads; ``remarks``: sentences for the end
    of each bind, until what they are about is gone.
    """

    key = ""
    disruptive = True

    def __init__(self) -> None:
        Step.__init__(self)
        self.remarks: list[str] = []

    def result(self) -> Any:
        """Return what a module returns of the step, as plain data."""
        raise NotImplementedError

    def lines(self) -> dict[str, list[str]]:
        """Return the lines of the diff by their title."""
        raise NotImplementedError

    def pending(self) -> list[str]:
        """Return what waits for something that the controller does first."""
        return []

    def unsettled(self) -> list[str]:
        """Return what the host itself completes later."""
        return []

    def complete(self) -> None:
        """Do what takes long and cannot be undone, after the transaction. Raises ``ValueError`` with what failed."""


class Check(LiveStep):
    """A step that looks whether the host has what a feature needs, and changes nothing."""

    title = "requirements"

    @property
    def changed(self) -> bool:
        return False

    def run(self) -> None:
        """Nothing."""

    def undo(self) -> None:
        """Nothing was changed."""

    def result(self) -> None:
        return None

    def lines(self) -> dict[str, list[str]]:
        return {}

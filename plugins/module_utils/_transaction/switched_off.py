# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier binds did for features that are absent, undone wholly or not at all, as the first part of a transaction."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Sequence, TypeVar

from .._host.host import CommandError, Host
from .._state import previous
from .._state.release import Options
from .._state.step import Step
from .unbind import Report, Unbinding

T = TypeVar("T")


class SwitchedOff(Step):
    """The absent features of a desired state that have left something on the host."""

    def __init__(self, host: Host, npu_smi: str | None, move_memory: bool, features: Sequence[str]) -> None:
        Step.__init__(self)
        self.title = "features that were to be switched off (%s)" % ", ".join(features)
        self.report = _Strict(previous.recorded(host))
        self._unbinding = Unbinding(host, self.report, Options(npu_smi, move_memory=move_memory), features, strict=True)

    @property
    def changed(self) -> bool:
        return self.report.changed

    @property
    def needed(self) -> bool:
        """Whatever is left, and be it a section of previous.json."""
        return True

    def sentences(self) -> list[str]:
        """Return the warnings of all that was undone."""
        return self.report.warnings + [sentence for part in self.report.releases.values() for sentence in part.warnings()]

    def look(self, check: bool) -> None:
        with _named():
            self._unbinding.look()
            if check:
                self._unbinding.finish_releases(check=True)
                self.report.require_all()

    def run(self) -> None:
        with _named():
            self._unbinding.carry_out()
            self._unbinding.finish_releases(check=False)
            self.report.require_all()

    def undo(self) -> None:
        self._unbinding.take_back()

    def finish(self) -> None:
        self._unbinding.finish(check=False)


class _Strict(Report):
    """An unbind that ends with the first step that fails."""

    def attempt(self, section: str | None, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    def leave(self, section: str | None, sentence: str) -> None:
        raise ValueError(sentence)

    def require_all(self) -> None:
        failures = self.failed + [sentence for part in self.releases.values() for sentence in part.failures()]
        if failures:
            raise ValueError("; ".join(failures))


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except (CommandError, OSError, ValueError) as error:
        raise ValueError("what is switched off could not all be unbound: %s" % error)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of hosts, for whatever reads those of a whole fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class ReadOnce(Mapping[str, Any]):
    """The variables of a host. Each is read from ``hostvars`` once, which walks through all of a fact at every access."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._variables[name]
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

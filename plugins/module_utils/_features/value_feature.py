# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A feature that sets values of a running host: all that is not its own is done by the engine (:mod:`_state.values`)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Sequence

from .._host.installed import UNIT_FOLDER
from .._state.value_kind import Setting, Values
from .feature import Choices, Feature

if TYPE_CHECKING:
    from typing import Callable, Mapping

    from .._base.documents import AppliedState
    from .._base.findings import Code
    from .._host.host import Host
    from .._state.release import Release
    from .._state.values import Step
    from .comparing import Comparing


def value_feature(
    name: str, settings: Mapping[str, Setting], meaning: str, by_whom: str = "", kind: Callable[[], Values] | None = None, **more: Any
) -> Feature:
    """Return a feature that sets files of the kernel, or other values that ``kind()`` returns.

    ``meaning``: of drift, which ``by_whom`` explains; ``more``: what differs of :class:`Feature`.
    """
    values = kind or functools.partial(Values, name, settings)

    def step(host: Host, state: AppliedState, choices: Choices) -> Step | None:
        from .._state.values import Step

        live: Any = state["live"]
        return None if live.get(name) is None else Step(host, values(), live[name])

    def release() -> Callable[..., Release]:
        from .._state.values import Release

        return functools.partial(Release, values())

    def program(argv: Sequence[str]) -> int:
        from .._state.values import main

        return main(values(), argv)

    def compare(comparing: Comparing) -> None:
        live: Any = comparing.wanted.live
        if live.get(name):
            from .._state.values import compare

            compare(comparing.findings, comparing.host, values(), live[name], by_whom)

    own: dict[str, Any] = {
        "settings": tuple(settings),
        "owned": ("/etc/npu-affinity/%s.json" % name, "%s/%s" % (UNIT_FOLDER, service(name))),
        "sections": {name: lambda recorded: values().check(recorded)},
        "programs": (service(name).replace(".service", "*"),),
        "release": release,
        "compare": compare,
        "compared": -1,
        "codes": lambda: code(name, meaning),
        "step": step,
        "program": program,
    }
    return Feature(name, **{**own, **more})


def service(name: str) -> str:
    """Return the unit that sets the values of a feature at boot."""
    return "npu-affinity-%s.service" % name.replace("_", "-")


def code(name: str, meaning: str) -> dict[str, Code]:
    """Return the code of values of a feature that are not as planned."""
    from .._base.findings import Code

    return {"NPU_%s_CHANGED" % name.upper(): Code(meaning, kinds=[name])}

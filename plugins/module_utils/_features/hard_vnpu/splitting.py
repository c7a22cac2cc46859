# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Split NPUs into hard vNPUs by npu-smi, and judge by what it then lists: success names no id, and several refusals end with status 0.

Keys are ``<NPU ID>:<chip>``, with values such as ``148 vir05_1c_16g, 149 vir10_3c_32g``, and the two switches of the whole host: for what
vNPUs are (``vnpu-mode``), and whether the driver restores them after a reboot (``vnpu-cfg-recover``). Commands, texts and ids:
hicann/driver ``npu_set.c``, ``npu_chip_set.c`` and ``dcmi_virtual_intf.c``.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, TypeVar

from ..._base.findings import UNREADABLE, Cause
from ..._base.outside import require_shape
from ..._host.host import Host
from ..._npu_smi import find_error, parse_vnpu_info, parse_vnpu_mode, parse_vnpu_recover
from ..._smi.tool import Command, Refusal
from ..._smi.text import first_line
from ..._state import previous
from ..._state.value_kind import Change, Values
from ..._state.values import Restore, compare as compare_values

if TYPE_CHECKING:
    from ..._state.step import Options, Outcome
    from ..feature import Comparing

T = TypeVar("T")
NAME = "hard_vnpu"
MODE, RECOVER = "vnpu-mode", "vnpu-cfg-recover"
NONE = "none"
_SWITCHES = {MODE: ("docker", "vm"), RECOVER: ("disable", "enable")}
"""The values of each switch, by the number that sets it."""
_KEY = re.compile(r"(\d{1,9}):(\d{1,9})\Z")
_PART = re.compile(r"(\d{1,9}) ([\w.-]{1,64}|\?)\Z")
_MESSAGE = re.compile(r"^\s*Message\s*:\s*(.*\S)", re.MULTILINE)
_BY_WHOM = "created or destroyed by hand or by another manager such as MindCluster, or the driver did not restore them after a reboot"
_WAIT, _PAUSE = 120, 5
"""Seconds in which a driver that is loaded at boot may begin to answer."""


def parts_of(value: str) -> dict[int, str]:
    """Return ``{id: template}`` of a value."""
    matches = [_PART.match(text) for text in value.split(", ")] if value != NONE else []
    return {int(match.group(1)): match.group(2) for match in matches if match}


def value_of(parts: Mapping[int, str]) -> str:
    """Return the value of vNPUs, ``{id: template}``, by ascending ids."""
    return ", ".join("%d %s" % (number, template) for number, template in sorted(parts.items())) or NONE


class HardVnpus(Values):
    """The hard vNPUs of NPUs. Those of others on the same NPU stay, and keep ours from being created."""

    def __init__(self, npu_smi: str | None = None) -> None:
        Values.__init__(self, NAME, {}, "hard vNPUs")
        self._npu_smi = npu_smi
        self._timeout: float | None = None
        self._command: Command | None = None
        self._asked: set[str] = set()
        self._until = 0.0

    def wanted(self, host: Host, live: Mapping[str, Any]) -> dict[str, str]:
        require_shape(live, {"values": {str: str}, "npu_smi": str, "timeout": int}, "it")
        for key, value in live["values"].items():
            self.check_value(key, [value])
        self._npu_smi, self._timeout = live["npu_smi"] or self._npu_smi, live["timeout"]
        self._asked = set(live["values"])
        return dict(live["values"])

    def check_value(self, key: str, values: Sequence[str]) -> None:
        for value in values:
            if not (value in _SWITCHES[key] if key in _SWITCHES else _KEY.match(key) and value_of(parts_of(value)) == value):
                raise ValueError("'%s: %s' is neither the hard vNPUs of an NPU nor a switch of the driver" % (key, value))

    def read(self, host: Host, key: str) -> str | None:
        if key in _SWITCHES:
            return self._ask(host, parse_vnpu_mode if key == MODE else parse_vnpu_recover, "-t", key)
        card, _colon, chip = key.partition(":")
        try:
            rows = self._ask(host, parse_vnpu_info, "-t", "info-vnpu", "-i", card, "-c", chip)
        except Refusal as error:
            if error.kind == "invalid":  # there is no such card
                return None
            raise
        return value_of({row["vnpu_id"]: row["template"] or "?" for row in rows})

    def write(self, host: Host, key: str, value: str) -> str:
        if key in _SWITCHES:
            settings = [["-t", key, "-d", str(_SWITCHES[key].index(value))]]
        else:
            (card, _colon, chip), now, wanted = key.partition(":"), parts_of(self.read(host, key) or NONE), parts_of(value)
            of_chip = ("-i", card, "-c", chip)
            unwanted = sorted(number for number in now if now[number] != wanted.get(number))
            missing = sorted(number for number in wanted if now.get(number) != wanted[number])
            settings = [["-t", "destroy-vnpu", *of_chip, "-v", str(number)] for number in unwanted]
            settings += [["-t", "create-vnpu", *of_chip, "-f", wanted[number], "-v", str(number)] for number in missing]
        answers = [self._set(host, *words) for words in settings]
        listed = self.read(host, key)
        if listed != value:
            why = next(filter(None, answers), "npu-smi reported no error")
            raise ValueError("%s: wanted %s, and npu-smi lists %s (%s)" % (self.label(host, key)[0], value, listed, why))
        return value

    def require(self, host: Host, wanted: Mapping[str, str]) -> None:
        """Refuse NPUs that have vNPUs of others, who would create theirs again or destroy ours."""
        for key in sorted(self._asked - set(_SWITCHES)):
            foreign = self._foreign(host, key, self.read(host, key) or NONE, wanted[key])
            if foreign:
                raise ValueError(
                    "%s: %s is not managed by npu.affinity. Give the NPU to one manager: destroy it (npu-smi set -t destroy-vnpu), or name "
                    "another NPU in npu_affinity_vnpus" % (self.label(host, key)[0], value_of(foreign))
                )

    def possible(self, host: Host, key: str, before: str, wanted: str) -> str:
        if key in _SWITCHES:
            return wanted
        if self._until and self.read(host, RECOVER) == "enable":  # at boot, the driver restores them by itself
            return before
        return value_of({**self._foreign(host, key, before, wanted), **parts_of(wanted)})

    def _foreign(self, host: Host, key: str, before: str, wanted: str) -> dict[int, str]:
        """Return the vNPUs that are neither wanted, nor were there before the first bind, nor are of a bind."""
        entry = previous.recorded(host).get(NAME, {}).get(key, {"original": NONE, "given": []})
        ours = {part for value in (wanted, entry["original"], *entry["given"]) for part in parts_of(value).items()}
        return dict(set(parts_of(before).items()) - ours)

    def planned(self, host: Host, changes: list[Change], check: bool) -> list[Change]:
        """Destroy before the mode is changed, and create after that."""
        return sorted(
            changes, key=lambda change: (1, change.key) if change.key in _SWITCHES else (0 if change.after == NONE else 2, change.key)
        )

    def unreached(self, key: str, original: str, value: str, since: str) -> list[str]:
        return ["%s: %s stays, because npu.affinity did not create it (before %s: %s)" % (self.label(None, key)[0], value, since, original)]

    def retry(self, boot: bool = False) -> None:
        self._until = time.monotonic() + _WAIT if boot else 0.0

    def label(self, host: Host | None, key: str) -> tuple[str, str, int]:
        match = _KEY.match(key)
        return ("hard vNPUs of NPU ID %s, chip %s" % match.groups() if match else key), "", 1

    def _tool(self, host: Host) -> Command:
        if self._command is None:
            self._command = Command(host, self._npu_smi, self._timeout, budget=math.inf)
        return self._command

    def _ask(self, host: Host, parse: Callable[[str], T], *words: str) -> T:
        while True:
            try:
                return self._tool(host).ask(parse, *words)
            except Refusal as error:
                if error.kind != "unavailable" or time.monotonic() > self._until:
                    raise
                time.sleep(_PAUSE)

    def _set(self, host: Host, *words: str) -> str:
        """Return what npu-smi said against a setting, as far as that can be told from success; '' for nothing."""
        result = self._tool(host).run(["set", *words])
        if "success" in result.output.lower():
            return ""
        error, message = find_error(result.output, result.rc), _MESSAGE.search(result.output)
        return message.group(1) if message else str(error) if error else first_line(result.output)


def restore(host: Host, outcome: Outcome, options: Options) -> Restore:
    return Restore(HardVnpus(options.npu_smi), host, outcome, options)


def compare(comparing: Comparing, live: Mapping[str, Any]) -> None:
    try:
        compare_values(comparing.findings, comparing.host, HardVnpus(comparing.wanted.npu_smi), live, _BY_WHOM)
    except ValueError as error:
        cause = Cause(UNREADABLE, "it did not answer; run 'npu-smi info'")
        comparing.findings.differs(NAME, "hard vNPUs", "as planned", str(error), cause)

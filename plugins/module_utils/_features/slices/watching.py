# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the watcher that lends CPUs of idle pools to the system, and takes them back when work starts."""

from __future__ import annotations

import time
from ..._base.cpulist import compress
from ..._base.outside import say
from ..._host.host import CommandError, Host
from ..._kernel.process_events import Ends
from ..._state import lock
from ..watching import Births, Watching
from .lending import Gifts, Holders, Lending, alone, decided, give, given, holders, lending, take_all
from .feature import HOUSEKEEPING


class Housekeeping(Watching):
    """Changes the slices of the system alone. A transaction lends nothing meanwhile, and what it changes is lent by the next look."""

    def __init__(self, host: Host) -> None:
        Watching.__init__(self, host)
        self.gifts = Gifts()
        self._ends = Ends(host)
        self._is_lending = False

    @property
    def descriptor(self) -> int:
        return self._ends.descriptor

    @property
    def is_urgent(self) -> bool:
        return self._is_lending

    def look(self) -> bool:
        self.again = not self._follow(None)
        return self.host.exists(HOUSEKEEPING)

    def concerns(self, group: str) -> bool:
        return self._is_lending and ("/npu.slice" in group or "/gpu.slice" in group)

    def born(self, births: Births) -> bool:
        pids = [pid for pid, threads in births.items() if threads is None]
        return self._is_lending and bool(pids) and not self._follow(pids)

    def announced(self) -> bool:
        return bool(self._ends.read())

    def end(self) -> None:
        """Take back what is lent: nobody would when work starts."""
        with alone(self.host) as is_alone:
            if is_alone:
                take_all(self.host)

    def _follow(self, pids: list[int] | None) -> bool:
        """Take back what processes hold, with None what all hold, and then give the rest. Return whether that was done."""
        try:
            loan = lending(self.host)
            if loan is None:
                self._is_lending = False
                self._ends.watch([])
                return True
            holding = holders(self.host, loan.plan, pids)
            if pids is None:
                self._ends.watch(holding)
            elif not holding:
                return True
            with alone(self.host) as is_alone:
                if is_alone:
                    self._change(loan, holding, is_all=pids is None)
                return is_alone
        except (CommandError, OSError, ValueError) as error:
            self._say(["The CPUs of the system do not follow the workloads: %s" % error], pids is None)
            return False

    def _change(self, loan: Lending, holding: Holders, is_all: bool) -> None:
        now, has, held = time.monotonic(), given(self.host), loan.held(holding)
        may_give = is_all and not self.gifts.are_over(now) and lock.holder(self.host) is None
        wanted = decided(loan.sets, has, held, may_give)
        if any(cpus - has[unit] for unit, cpus in wanted.items()):
            self.gifts.note(now)
        self._is_lending = True  # also where a part of the changes fails
        give(self.host, wanted)
        self._is_lending = any({**has, **wanted}[unit] - loan.sets.floor for unit in has)
        for unit, cpus in wanted.items():
            pids = sorted(pid for pid, pools in holding.items() if pools & (has[unit] - cpus))
            why = " (for process %s%s)" % (", ".join(map(str, pids[:3])), ", …" if len(pids) > 3 else "") if pids else ""
            say("%s: CPUs %s -> %s%s" % (unit, compress(has[unit]), compress(cpus), why))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the timer on a host where another program moves interrupts: it stops, and says who that is."""

from __future__ import annotations

import json
import os
import time

import pytest
from test_verify import lines

from ansible_collections.npu.affinity.plugins.module_utils._transaction import unbind
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices, Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import affinities, binding, rebinds
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.irqbalance import POLICY, UNKNOWN, suspect
from tests.fakes.kernel import FIRST, PLAN_OF_TWO, SECOND, affinity, two_functions

MINUTES = 60
UNIT = "/etc/systemd/system/"
GROUP = "/sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs"
CQS = range(2754, 2770)
LEFT = (
    "was bound 4 times within an hour, moved again each time, and is left alone since 2026-11-22 09:46 UTC; the program that moves it is "
)


class Clock:
    now = 1795338400 - 9 * MINUTES  # 2026-11-22 08:57:40 UTC
    booted = now - 24 * 60 * MINUTES
    step = 0
    """By how much somebody, or NTP, set the wall clock."""

    def time(self):
        return self.now + self.step

    def clock_gettime(self, _clock):
        return self.now - self.booted

    def __getattr__(self, name):
        return getattr(__import__("time"), name)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A bound tree of 48 CPUs and two NPUs, with a clock of its own."""
    host = two_functions(tmp_path)
    host.put(binding.PLAN, json.dumps(PLAN_OF_TWO))
    host.clock = Clock()
    monkeypatch.setattr(rebinds, "time", host.clock)
    run(host)
    host.clock.now += 9 * MINUTES
    return host


def run(host, *arguments, limit=4):
    return FEATURE.program(["--root", host.root, "--rebind-limit", str(limit), *arguments])


def interrupts(host, check=False):
    step = FEATURE.step(host, {"live": {"irq": "fail"}, "plan": PLAN_OF_TWO}, Choices())
    step.look(check)
    return step


def move(host, irqs=CQS, cpus="7"):
    for irq in irqs:
        host.put("/proc/irq/%d/smp_affinity_list" % irq, cpus)


def fight(host, rounds, minutes=10, irqs=CQS, limit=4):
    """Let something move interrupts before each run of the timer, and return where the first is after each of them."""
    found = []
    for _round in range(rounds):
        host.clock.now += minutes * MINUTES
        move(host, irqs)
        assert run(host, limit=limit) == 0
        found.append(affinity(host, irqs[0]))
    return found


FIGHTS = {
    # story: rounds of the timer, minutes between them, limit, the CPU of an interrupt after each
    "the default": (7, 10, 4, ["25"] * 4 + ["7"] * 3),
    "another limit": (8, 10, 6, ["25"] * 6 + ["7"] * 2),
    "no limit": (7, 10, 0, ["25"] * 7),
    "once is enough": (3, 10, 1, ["25", "7", "7"]),
    "seldom moved": (7, 25, 4, ["25"] * 7),
}


@pytest.mark.parametrize("rounds, minutes, limit, found", FIGHTS.values(), ids=FIGHTS)
def test_the_timer_stops_after_some_times_within_an_hour(host, rounds, minutes, limit, found):
    host.clock.now += 60 * MINUTES
    assert fight(host, rounds, minutes, limit=limit) == found


@pytest.mark.parametrize("minutes", [0, 30, -30])
def test_the_first_bind_counts_as_one_whatever_the_clock_does(host, minutes):
    found = []
    for _round in range(4):
        host.clock.step += minutes * MINUTES
        found += fight(host, 1)
    assert found == ["25"] * 3 + ["7"]


def test_only_what_is_fought_over_is_left(host):
    fight(host, 6)
    counts = host.read(rebinds.REBINDS)
    interrupts(host, check=True)
    assert host.read(rebinds.REBINDS) == counts, "a check neither counts nor forgets"
    move(host, [2753, 3010])
    run(host)
    assert [affinity(host, irq) for irq in (2753, 2754, 3010)] == ["24", "7", "1"]
    run(host, "--pci", SECOND)
    assert fight(host, 1) == ["7"], "another function's driver was loaded"


def test_abandoned_interrupts_are_reported_and_noted_once(host, capsys, monkeypatch):
    logged = []
    monkeypatch.setattr(affinities, "log_change", lambda _host, *change: logged.append(change))
    fight(host, 5)
    before = os.stat(host.path(rebinds.REBINDS)).st_mtime_ns
    capsys.readouterr()
    fight(host, 1)
    sentence = "NPU 0 (%s): IRQ 2754-2769 %s %s" % (FIRST, CQ, LEFT)
    assert capsys.readouterr().out == sentence + UNKNOWN + "\n"
    assert os.stat(host.path(rebinds.REBINDS)).st_mtime_ns == before
    ((author, what, (line,), reason),) = [rest for action, *rest in logged if action == "stop"]
    assert (author, what, reason) == (binding.PROGRAM, "16 objects are no longer restored", UNKNOWN)
    assert line.startswith(sentence)


def test_counts_of_an_earlier_boot_do_not_count(host):
    fight(host, 3)
    host.put("/proc/sys/kernel/random/boot_id", "another")
    assert fight(host, 4) == ["25"] * 4


def boot(host):
    os.unlink(host.path(rebinds.REBINDS))
    run(host)


BEGINNINGS = {
    "bind": lambda host: interrupts(host).complete(),
    "driver load": lambda host: run(host, "--pci", FIRST),
    "boot": boot,
    "limit taken away": lambda host: run(host, limit=0),
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_what_begins_anew(host, begin):
    fight(host, 6)
    begin(host)
    assert affinity(host, 2754) == "25"
    assert fight(host, 3) == ["25"] * 3
    interrupts(host).complete()
    assert not host.exists(rebinds.REBINDS), "a bind that finds all in place"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x": 1}', '{"x": {"y": {"since": 1}}}'])
def test_a_file_of_counts_that_is_none_costs_nothing(host, text):
    host.put(rebinds.REBINDS, text)
    assert fight(host, 1) == ["25"]


def test_verify_says_that_it_is_fought_over_and_by_whom(host):
    put(host, irqbalance())
    fight(host, 6)
    (said,) = lines(verify(host, Wanted())[1])
    assert said.startswith("NPU 0 cq_update_irq: expected CPUs 25, found CPUs 7 (IRQ 2754-2769); likely fought over: it was bound 4 times ")
    assert "the program that moves it is likely irqbalance: it runs without a policy for the NPUs; bind when that is settled [" in said
    move(host, CQS, "25")
    assert lines(verify(host, Wanted())[1]) == [], "it is in place"
    unbind.unbind(host)
    assert not host.exists("/run/npu-affinity")


def irqbalance(policy=None, arguments=""):
    return {
        GROUP: "901",
        "/proc/901/cmdline": "/usr/sbin/irqbalance\0--foreground\0" + arguments,
        UNIT + "irqbalance.service": "[Service]\nExecStart=/usr/sbin/irqbalance --foreground $OPTIONS",
        **({POLICY: policy} if policy else {}),
    }


def aged(seconds):
    start = (5000 - seconds) * os.sysconf("SC_CLK_TCK")
    stat = "901 (irqbalance) S 1 9 9 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0" % start
    return {"/proc/uptime": "5000.00 1.00", "/proc/901/stat": stat}


def put(host, files):
    for path, text in files.items():
        host.put(path, text)


TOLD = "#!/bin/sh\ncase */%s) echo ban=true ;; esac" % FIRST
BALANCING = irqbalance(TOLD, "--policyscript=" + POLICY)
OLDER = "likely irqbalance: it was started before its policy %s last changed" % POLICY
CURRENT = "likely irqbalance, although its policy excludes this function: 'systemctl"


def begins(host):
    """systemd starts the unit of irqbalance, which leaves a link. Times of files are rounded to ticks, and it takes two of them."""
    time.sleep(0.02)
    link = host.path("/run/systemd/units/invocation:irqbalance.service")
    os.makedirs(os.path.dirname(link))
    os.symlink("0" * 32, link)
    time.sleep(0.02)


SUSPECTS = {
    # files before systemd starts irqbalance, None if it does not, those after, and who is suspected
    "nothing": (None, {}, UNKNOWN),
    "irqbalance without a policy": (None, irqbalance(), "likely irqbalance: it runs without a policy for the NPUs"),
    "irqbalance older than its policy": (None, {**BALANCING, **aged(3000)}, OLDER),
    "irqbalance with its policy": (None, BALANCING, CURRENT),
    "by the clock of now, it began before its policy": ({**BALANCING, **aged(3000)}, {}, CURRENT),
    "by the clock of now, it began after its policy": ({}, {**BALANCING, **aged(1)}, OLDER),
}


@pytest.mark.parametrize("before, after, who", SUSPECTS.values(), ids=SUSPECTS)
def test_who_moves_interrupts(host, before, after, who):
    if before is not None:
        put(host, before)
        begins(host)
    put(host, after)
    assert suspect(host)(FIRST).startswith(who)


def test_verify_names_an_irqbalance_that_keeps_an_old_answer(host):
    """Its policy script was moved away and back while it ran: all looks right, and it moves interrupts after each bind."""
    put(host, {**BALANCING, **aged(3000)})
    os.rename(host.path(POLICY), host.path(POLICY) + ".away")
    os.rename(host.path(POLICY) + ".away", host.path(POLICY))
    move(host, [2755])
    (said,) = lines(verify(host, Wanted())[1])
    assert "; likely irqbalance: it was started before its policy %s last changed" % POLICY in said
    assert said.endswith("'systemctl restart irqbalance' makes it ask again [NPU_IRQBALANCE_ACTIVE]")

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One story of every feature that sets something: planned, bound, restarted, changed by hand, replaced, off, rolled back and unbound.

Each feature has a host of its own, and all of them go through the same runs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.fakes.changes import state, touched
from tests.fakes.small_host import UNITS, two_cards
from tests.simulator.generate import merge
from tests.simulator.proc import POLL_THREAD_PIDS
from tests.simulator.reboot import reboot, start_units

ETC = "/etc/npu-affinity/"
CONSEQUENCE = re.compile("/(var/log|simulator)/|.*/(previous.json|free_hugepages|smp_affinity)$")
"""The record of what was there, and what the simulated kernel and its tools write."""


class Story(NamedTuple):
    """What three binds set (``base``, ``on`` and ``other``), and what a host then has.

    ``shows`` is ``{path: text}`` of the running host, ``made`` are files that are there only while the feature is on, ``edited`` those of
    other features. What verify finds after a restart (``lost``) and after ``harm`` is ``{object: (expected, found, cause)}``.
    """

    on: dict
    other: dict
    shows: dict
    shows_other: dict
    harm: dict
    harmed: dict
    machine: str | dict = "i310_pro"
    base: dict = {}
    files: dict = {}
    made: set = set()
    edited: set = set()
    lost: dict = {}
    planned: str = ""
    lines: tuple = ()


PAGES = [f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages" for node in (0, 1)]
QUEUES = [f"/proc/irq/{irq}/smp_affinity_list" for irq in range(120, 124)]
NET = "/sys/bus/pci/devices/0000:33:00.0/net/eth0/queues/"
STEERED = {f"{NET}tx-{queue}/xps_cpus": f"00000000,0000000{1 << queue:x}" for queue in range(4)}
STEERED |= {f"{NET}rx-0/rps_cpus": "00000000,000000ff", f"{NET}rx-1/rps_cpus": "00000000,00000000"}
ETH0 = "queue interrupts of eth0 (0000:33:00.0)"
NEAR = {"npu_affinity_housekeeping": "2", "npu_affinity_nic": "near"}
SPREAD = dict(zip(QUEUES, ["0", "1", "32", "33"], strict=True))


def units(name, target="multi-user"):
    return {f"{UNITS}npu-affinity-{name}.service", f"{UNITS}{target}.target.wants/npu-affinity-{name}.service"}


IRQBALANCE = {"installed": True, "active": True, "unit": "debian", "options": ""}
A5 = merge(two_cards(0, 1), {"cpus": {"per_node": 32}, "irqbalance": IRQBALANCE, "npus": {"family": "a5", "name": "Ascend950DT"}})
CLUSTER = {"npu_affinity_strategy": "cluster"}
"""It leaves CPUs to the threads that poll."""
POLL_THREADS = [f"/proc/{pid}/status" for pid in POLL_THREAD_PIDS]


def polls(mask, cpus):
    """The status files of the threads of the kernel that poll for the whole host."""
    text = "Name:\tuvb_poll_window\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%d\nCpus_allowed:\t%s\nCpus_allowed_list:\t%s\n%s"
    return {f"/proc/{pid}/status": text % (pid, pid, mask, cpus, "Mems_allowed_list:\t0-1") for pid in POLL_THREAD_PIDS}


TIMER = ("npu-affinity-nic.timer", "timers.target.wants/npu-affinity-nic.timer")
STORIES = {
    "hugepages": Story(
        on={"npu_affinity_hugepages": {"node": {0: 100, 1: 200}}},
        other={"npu_affinity_hugepages": {"node": {0: 60}}},
        shows=dict(zip(PAGES, ["100", "200"], strict=True)),
        shows_other=dict(zip(PAGES, ["60", "0"], strict=True)),
        made={*units("hugepages", "basic"), ETC + "hugepages.json", "/run/npu-affinity/hugepages.json"},
        planned="Huge pages of 2 MiB: 100 (0.2 GiB, 127.8 GiB remain for other memory) on node 0; 200 (0.4 GiB",
        lines=("~ node 1: 0 -> 200 huge pages of 2 MiB",),
        lost={f"huge pages of 2 MiB on node {node}": (pages, "0", "manual change") for node, pages in enumerate(("100", "200"))},
        harm={PAGES[1]: "7"},
        harmed={"huge pages of 2 MiB on node 1": ("200", "7", "manual change")},
    ),
    "polling": Story(
        machine=A5,
        base={**CLUSTER, "npu_affinity_irq_enabled": False},
        on={**CLUSTER, "npu_affinity_irq_enabled": True},
        other={**CLUSTER, "npu_affinity_irq_enabled": True, "npu_affinity_interval": "1h"},
        shows=polls("00000000,ffffff00", "8-31"),
        shows_other=polls("00000000,ffffff00", "8-31"),
        made={*units("irq"), *(f"{UNITS}{folder}npu-affinity-irq.timer" for folder in ("", "timers.target.wants/"))},
        lost=dict.fromkeys(("uvb_poll_window", "uvb_poll_window #2"), ("CPUs 8-31", "CPUs 0-63", "driver reload")),
        harm={POLL_THREADS[1]: polls("00000000,00000080", "7")[POLL_THREADS[1]]},
        harmed={"uvb_poll_window #2": ("CPUs 8-31", "CPUs 7", "manual change")},
    ),
    "nic": Story(
        base={"npu_affinity_housekeeping": "2"},
        on=NEAR,
        other={**NEAR, "npu_affinity_housekeeping": "1"},
        files=STEERED,
        shows={**STEERED, **SPREAD},
        shows_other={**STEERED, **dict(zip(QUEUES, ["0", "32"] * 2, strict=True))},
        made={
            *units("nic"),
            *(f"{UNITS}{name}" for name in ("npu-affinity-nic@.service", *TIMER)),
            ETC + "nic.json",
            "/etc/udev/rules.d/91-npu-affinity-nic.rules",
        },
        planned="Network interrupts of eth0 (mlx5_core, 0000:33:00.0, node 0) go to CPUs 0-1,32-33.",
        edited={"/usr/local/lib/npu-affinity/irqbalance-policy"},
        lines=("4 queue interrupts 0-15,32-47 -> spread over 0-1,32-33", "*/0000:33:00.0) echo"),
        lost={ETH0: ("CPUs 0-1,32-33", "CPUs 0-15,32-47 (IRQ 120-123)", "irqbalance")},
        harm={QUEUES[1]: "5"},
        harmed={ETH0: ("CPUs 1", "CPUs 5 (IRQ 121)", "irqbalance")},
    ),
    "following": Story(
        base={"npu_affinity_housekeeping": "1"},
        on={"npu_affinity_housekeeping": "follow"},
        other={"npu_affinity_housekeeping": "follow:2"},
        shows={},
        shows_other={},
        made={*units("watch"), ETC + "housekeeping.json"},
        edited={ETC + "plan.json"},
        lines=("housekeeping.json  floor=0,16,32,48  most=1-15,17-31,33-47,49-63",),
        harm={f"{UNITS}npu-affinity-watch.service": None},
        harmed={f"{UNITS}npu-affinity-watch.service": ("a file", "no such file", "manual change")},
    ),
}


@pytest.mark.long
def test_every_feature_comes_drifts_goes_and_comes_back(fleet):
    hosts = fleet(**{name: story.machine for name, story in STORIES.items()})
    trees = {name: hosts.tree(name) for name in STORIES}
    for name, story in STORIES.items():
        write(trees[name], story.files)
    fresh = {name: state(tree) for name, tree in trees.items()}

    def run(playbook, part, *arguments, **variables):
        hosts.give({name: {**story.base, **getattr(story, part)} for name, story in STORIES.items()})
        return hosts.play(playbook, *arguments, npu_affinity_batches=["100%"], **variables)

    def succeed(*arguments, **variables):
        done = run(*arguments, **variables)
        assert done.status == 0, done.output
        return done

    succeed("bind", "base")
    before, without = shown(trees), {name: hosts.snapshot(name) for name in STORIES}
    assert [path for name, story in STORIES.items() for path, text in story.files.items() if before[name].get(path, text) != text] == []
    planned = " ".join(succeed("plan", "on", "-v").output.split())
    assert [story.planned for story in STORIES.values() if story.planned not in planned] == []
    predicted = succeed("bind", "on", "--check", "--diff")
    assert {name: hosts.snapshot(name) for name in STORIES} == without
    done = succeed("bind", "on")
    assert shown(trees) == {name: story.shows for name, story in STORIES.items()}
    for name, story in STORIES.items():
        would, did = ({key: result(of, name)[key] for key in ("changed", "files", "settings")} for of in (predicted, done))
        assert would == did and did["changed"] and all(line in str(predicted.diff(name)) for line in story.lines), name
        assert predicted.diff(name) == done.diff(name), name
        written = {path for path in touched(without[name], hosts.snapshot(name)) if not CONSEQUENCE.match(path)}
        moved = {path for path, text in story.shows.items() if text != before[name][path]}
        assert written == {ETC + "history/2.json"} | story.made | story.edited | moved, name
    succeed("verify", "on")

    for tree in trees.values():
        reboot(tree)
    lost = drift(run("verify", "on"), trees)
    assert lost == {name: story.lost for name, story in STORIES.items()}
    assert [unit for tree in trees.values() for unit in start_units(tree).values() if unit.returncode] == []
    assert shown(trees) == {name: story.shows for name, story in STORIES.items()}
    succeed("verify", "on")

    for name, story in STORIES.items():
        write(trees[name], story.harm)
    harmed = run("verify", "on")
    assert (harmed.status, drift(harmed, trees)) == (2, {name: story.harmed for name, story in STORIES.items()})
    succeed("bind", "other")
    assert shown(trees) == {name: story.shows_other for name, story in STORIES.items()}
    succeed("bind", "base")
    assert shown(trees) == before
    assert [path for name, story in STORIES.items() for path in story.made if (trees[name] / path[1:]).exists()] == []
    succeed("rollback", "other", npu_affinity_to="-1")
    assert shown(trees) == {name: story.shows_other for name, story in STORIES.items()}
    succeed("unbind", "other")
    for name, tree in trees.items():
        assert touched(fresh[name], state(tree)) == set(), name


def write(tree, files):
    """Write files of a line or more, and remove those that have no text."""
    for path, text in files.items():
        file = tree / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            file.unlink()
        else:
            file.write_text(f"{text}\n")


def shown(trees):
    """What hosts have at the paths of their rows: ``{host: {path: text}}``."""
    return {name: {path: (tree / path[1:]).read_text().strip() for path in STORIES[name].shows} for name, tree in trees.items()}


def result(run, host, action="host_files"):
    return next(entry for entry in run.of(host) if entry["action"].endswith(action))["result"]


def drift(run, hosts):
    """What verify found, ``{host: {object: (expected, found, cause)}}``, apart from the interrupts of NPUs, which a restart moves."""
    drifts = {host: result(run, host, "binding_info")["drift"] for host in hosts}
    rows = {host: {row["object"]: (row["expected"], row["found"], row["cause"]) for row in entries} for host, entries in drifts.items()}
    return {host: {name: row for name, row in of_host.items() if not name.startswith("NPU ")} for host, of_host in rows.items()}

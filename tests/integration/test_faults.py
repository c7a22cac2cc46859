# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules are killed, and disks fill up, at many moments of a bind. Whatever the moment: the next run finishes, and undo undoes it all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.test_fleet import UNITS
from tests.integration.test_unbind import state
from tests.integration.test_verify import MACHINE

STUMBLE = Path(__file__).parent / "stumble"
VARIABLES = {
    "npu_affinity_batches": ["100%"],
    "npu_affinity_device_share_enabled": True,
    "npu_affinity_housekeeping": "1",
    "npu_affinity_irqbalance": "stop",
    "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}],
}
RECORD = "/etc/npu-affinity/previous.json"
LOCK = "/run/npu-affinity.lock"
"""A killed run leaves the file; the lock itself ends with the process."""
MASKS = ("/smp_affinity", "/effective_affinity")
"""In a tree no kernel keeps them in step with the lists, which are what is read."""
HOSTS, MOMENTS = 5, 20


def steps_of(tree):
    count = Path(f"{tree}.steps")
    return count.stat().st_size if count.exists() else 0


def stumbling(hosts, moments):
    """Give hosts an interpreter that stumbles: ``{host: (how, steps)}``, see ``stumble/sitecustomize.py``; return ansible's arguments."""
    interpreters = {}
    for host, (how, steps) in moments.items():
        interpreter, tree = hosts.folder / f"python-{host}", hosts.tree(host)
        settings = {"ROOT": tree, "COUNT": f"{tree}.steps", "HOW": how, "AT": ",".join(map(str, steps))}
        words = " ".join(f"'STUMBLE_{name}={value}'" for name, value in settings.items())
        interpreter.write_text(f"#!/bin/sh\nexec env PYTHONPATH='{STUMBLE}' {words} '{sys.executable}' \"$@\"\n")
        interpreter.chmod(0o755)
        interpreters[host] = {"ansible_python_interpreter": str(interpreter)}
    inventory = hosts.folder / "stumbling.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": interpreters}}))
    return "-i", str(inventory), "--limit", ",".join(moments)


def compared(tree):
    return {path: found for path, found in state(tree).items() if not path.endswith(MASKS)}


def differing(one, other):
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def assert_whole(tree, before, after, when):
    """Assert that each file of a tree is as before or as after a whole bind, but for temporary ones, which nobody reads."""
    now = compared(tree)
    named = {path for path in now if "/.npu-affinity-" not in path and path not in (RECORD, LOCK)}
    assert [path for path in sorted(named) if now[path] not in (before.get(path), after.get(path))] == [], when
    assert before.keys() & after.keys() <= now.keys(), when


@pytest.fixture
def straight(fleet):
    """Equal hosts, the first of them bound in one go; with its states before and after, and the number of steps that it took."""
    hosts = fleet(straight=MACHINE, **{f"host{number}": MACHINE for number in range(HOSTS)})
    before = compared(hosts.tree("straight"))
    run = hosts.play("bind", *stumbling(hosts, {"straight": ("", [])}), **VARIABLES)
    assert run.status == 0, run.output
    return hosts, before, compared(hosts.tree("straight")), steps_of(hosts.tree("straight"))


def test_a_bind_that_is_killed_at_twenty_moments_is_finished_by_the_next_and_can_be_undone(straight):
    hosts, before, after, steps = straight
    assert steps > 100
    names = [host for host in hosts.hosts if host != "straight"]
    moments = {host: [1 + number * steps // MOMENTS for number in range(place, MOMENTS, HOSTS)] for place, host in enumerate(names)}
    arguments = stumbling(hosts, {host: ("killed", at) for host, at in moments.items()})
    killed = dict.fromkeys(names, 0)
    failed = names
    while failed:
        run = hosts.play("bind", *arguments, **VARIABLES)
        failed = [host for host in names if run.of(host, "failed")]
        for host in failed:
            killed[host] += 1
            assert_whole(hosts.tree(host), before, after, f"{host}, {steps_of(hosts.tree(host))} steps")
    assert sum(killed.values()) == MOMENTS, killed
    last = hosts.play("bind", **VARIABLES)
    assert last.status == 0, last.output
    for host in hosts.hosts:
        assert differing(compared(hosts.tree(host)), after) == [], host
    assert hosts.play("bind", **VARIABLES).changed("host0") == 0
    undone = hosts.play("unbind", **VARIABLES)
    assert undone.status == 0, undone.output
    for host in hosts.hosts:
        assert differing(compared(hosts.tree(host)), before) == [], host


def test_a_disk_that_is_full_or_read_only_from_any_moment_on_is_said_and_the_next_run_finishes(straight):
    hosts, before, after, steps = straight
    ways = [("EROFS", 1), ("ENOSPC", 8), ("ENOSPC", steps // 8), ("ENOSPC", steps // 3), ("ENOSPC", 2 * steps // 3)]
    for way, host in zip(ways, [host for host in hosts.hosts if host != "straight"], strict=True):
        run = hosts.play("bind", *stumbling(hosts, {host: (way[0], [way[1]])}), **VARIABLES)
        assert run.status != 0, way
        said = {"EROFS": "Read-only file system", "ENOSPC": "No space left on device"}[way[0]]
        assert said in run.failure(host) and "failed as well" not in run.failure(host), (way, run.failure(host))
        assert_whole(hosts.tree(host), before, after, way)
        assert not list(hosts.tree(host).rglob(".npu-affinity-*")), way
    last = hosts.play("bind", **VARIABLES)
    assert last.status == 0, last.output
    for host in hosts.hosts:
        assert differing(compared(hosts.tree(host)), after) == [], host


def test_what_somebody_edited_is_put_right_and_nothing_else_is_written(fleet):
    hosts = fleet(a2=MACHINE)
    assert hosts.play("bind", **VARIABLES).status == 0
    bound, tree = compared(hosts.tree("a2")), hosts.tree("a2")
    edited, removed = (UNITS + name for name in ("npu-1.slice", "npu-affinity-irq.timer"))
    (tree / edited[1:]).write_text((tree / edited[1:]).read_text().replace("AllowedCPUs=", "AllowedCPUs=0,"))
    (tree / removed[1:]).unlink()
    run = hosts.play("bind", **VARIABLES)
    assert run.status == 0, run.output
    assert run.files("a2") == ({edited, removed}, set())
    assert differing(compared(tree), bound) == []

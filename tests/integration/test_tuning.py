# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host settings are given to a fleet, drift, are taken back one by one and all at once."""

from __future__ import annotations

import pytest

from tests.integration.conftest import touched

SWAPPINESS, BALANCING = "/proc/sys/vm/swappiness", "/proc/sys/kernel/numa_balancing"
GOVERNORS = [f"/sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor" for number in (0, 1)]
HUGEPAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
BEFORE = {SWAPPINESS: "60", BALANCING: "1", HUGEPAGES: "madvise", GOVERNORS[0]: "schedutil", GOVERNORS[1]: "schedutil"}
UNIT = "/etc/systemd/system/npu-affinity-tuning.service"
LINK = "/etc/systemd/system/multi-user.target.wants/npu-affinity-tuning.service"
ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
TUNED = {
    **ALL_AT_ONCE,
    "npu_affinity_tuning": {"governor": "performance", "numa_balancing": 0, "transparent_hugepages": "never", "swappiness": 0},
}


@pytest.fixture
def hosts(fleet):
    """A host that has everything, and one that has swappiness alone."""
    hosts = fleet(server="i310_pro", guest="i310_pro")
    for host, paths in (("server", BEFORE), ("guest", [SWAPPINESS])):
        for path in paths:
            file = hosts.tree(host) / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(BEFORE[path] + "\n")
    return hosts


def values(hosts, host="server"):
    return {path: (hosts.tree(host) / path[1:]).read_text().strip() for path in BEFORE if (hosts.tree(host) / path[1:]).exists()}


def result(run, host, action="host_files"):
    return next(entry for entry in run.of(host) if entry["action"].endswith(action))["result"]


@pytest.mark.long
def test_settings_are_given_compared_taken_back_and_undone(hosts):
    fresh = {host: hosts.snapshot(host) for host in hosts.hosts}
    assert hosts.play("bind", **ALL_AT_ONCE).status == 0
    untuned = {host: hosts.snapshot(host) for host in hosts.hosts}
    assert values(hosts) == BEFORE

    predicted = hosts.play("bind", "--check", "--diff", **TUNED)
    assert predicted.status == 0, predicted.output
    assert {host: hosts.snapshot(host) for host in hosts.hosts} == untuned
    done = hosts.play("bind", **TUNED)
    assert done.status == 0, done.output
    for host in hosts.hosts:
        would, did = (result(run, host) for run in (predicted, done))
        assert would["changed"] and would["settings"] == did["settings"] and would["diff"] == did["diff"] and would["files"] == did["files"]
    assert values(hosts) == {SWAPPINESS: "0", BALANCING: "0", HUGEPAGES: "never", **dict.fromkeys(GOVERNORS, "performance")}
    assert values(hosts, "guest") == {SWAPPINESS: "0"}
    assert "this host has no governor to set" in done.output
    assert touched(untuned["server"], hosts.snapshot("server")) == {
        *BEFORE,
        UNIT,
        LINK,
        "/etc/npu-affinity/tuning.json",
        "/etc/npu-affinity/previous.json",
        "/etc/npu-affinity/history/2.json",
    }
    tuned = {host: hosts.snapshot(host) for host in hosts.hosts}
    again = hosts.play("bind", **TUNED)
    assert {host: again.changed(host) for host in hosts.hosts} == {"server": 0, "guest": 0}, again.output
    clean = hosts.play("verify", **TUNED)
    assert clean.status == 0, clean.output
    assert {host: hosts.snapshot(host) for host in hosts.hosts} == tuned

    (hosts.tree("server") / GOVERNORS[1][1:]).write_text("powersave\n")
    (hosts.tree("server") / UNIT[1:]).unlink()
    drifted = hosts.play("verify", "--limit", "server", **TUNED)
    assert drifted.status == 2
    drift = {entry["object"]: (entry["expected"], entry["found"]) for entry in result(drifted, "server", "binding_info")["drift"]}
    assert drift == {"governor": ("performance", "performance (1 of 2), powersave (1 of 2)"), UNIT: ("a file", "no such file")}

    assert hosts.play("bind", "--limit", "server", npu_affinity_tuning={"swappiness": 0}).status == 0
    assert values(hosts) == {**BEFORE, SWAPPINESS: "0"}
    assert (hosts.tree("server") / UNIT[1:]).exists()
    nothing = hosts.play("bind", "--limit", "server", npu_affinity_tuning={"swappiness": ""})
    assert nothing.status == 0, nothing.output
    assert values(hosts) == BEFORE
    assert not (hosts.tree("server") / UNIT[1:]).exists() and not (hosts.tree("server") / LINK[1:]).exists()

    assert hosts.play("bind", "--limit", "server", **TUNED).status == 0
    undone = hosts.play("unbind", **ALL_AT_ONCE)
    assert undone.status == 0, undone.output
    assert values(hosts) == BEFORE and values(hosts, "guest") == {SWAPPINESS: "60"}
    for host in hosts.hosts:
        left = hosts.snapshot(host).keys() ^ fresh[host].keys()
        assert {path for path in left if "npu-affinity" in path} == set()


def test_a_host_refusing_a_value_lists_its_own_and_keeps_all(hosts):
    for path in GOVERNORS:
        (hosts.tree("server") / path.replace("scaling_governor", "scaling_available_governors")[1:]).write_text("schedutil powersave\n")
    run = hosts.play("bind", "--limit", "server", **TUNED)
    assert run.status != 0
    assert "there is no governor performance; this host has schedutil, powersave" in run.output
    assert values(hosts) == BEFORE

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages by the playbooks: planned, refused, bound, compared, rolled back and switched off."""

from __future__ import annotations

import pytest

from tests.integration.conftest import touched
from tests.simulator.reboot import reboot

PATHS = [f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages" for node in (0, 1)]
UNIT, LINK = (f"/etc/systemd/system/{folder}npu-affinity-hugepages.service" for folder in ("", "basic.target.wants/"))
PAGES = {"npu_affinity_hugepages": {"node": {0: 100, 1: 200}}}
FEWER = {"npu_affinity_hugepages": {"node": {0: 60}}}


@pytest.fixture
def hosts(fleet):
    return fleet(server="i310_pro")


def counts(hosts):
    return [int((hosts.tree("server") / path[1:]).read_text()) for path in PATHS]


def result(run, action="host_files"):
    return next(entry for entry in run.of("server") if entry["action"].endswith(action))["result"]


def drift(run):
    return {entry["object"]: (entry["expected"], entry["found"], entry["cause"]) for entry in result(run, "binding_info")["drift"]}


@pytest.mark.long
def test_pages_are_planned_bound_compared_rolled_back_and_off(hosts):
    planned = hosts.play("plan", **PAGES)
    assert planned.status == 0 and counts(hosts) == [0, 0]
    said = " ".join(planned.output.split())
    assert "Huge pages of 2 MiB: 100 (0.2 GiB, 127.8 GiB remain for other memory) on node 0; 200 (0.4 GiB" in said
    refused = hosts.play("bind", npu_affinity_hugepages={"per_npu": 100000})
    assert refused.status and "must remain for other memory" in refused.output and counts(hosts) == [0, 0]

    assert hosts.play("bind").status == 0
    without = hosts.snapshot("server")
    predicted = hosts.play("bind", "--check", "--diff", **PAGES)
    assert predicted.status == 0 and hosts.snapshot("server") == without
    done = hosts.play("bind", **PAGES)
    assert done.status == 0 and counts(hosts) == [100, 200], done.output
    assert result(predicted)["diff"] == result(done)["diff"]
    assert "~ node 1: 0 -> 200 huge pages of 2 MiB" in str(result(done)["diff"])
    new = {f"/etc/npu-affinity/{name}" for name in ("hugepages.json", "previous.json", "history/2.json")}
    granted = "/run/npu-affinity/hugepages.json"
    free = [path.replace("nr_", "free_") for path in PATHS]
    assert touched(without, hosts.snapshot("server")) - set(free) == {
        *PATHS,
        UNIT,
        LINK,
        granted,
        *new,
    }
    assert hosts.play("bind", **PAGES).changed("server") == 0
    assert hosts.play("verify", **PAGES).status == 0

    reboot(hosts.tree("server"))
    assert counts(hosts) == [0, 0]
    drifted = hosts.play("verify", **PAGES)
    assert drifted.status == 2 and drift(drifted)["huge pages of 2 MiB on node 1"] == ("200", "0", "manual change")
    assert hosts.play("bind", **FEWER).status == 0 and counts(hosts) == [60, 0]
    assert hosts.play("rollback", npu_affinity_to="-1").status == 0 and counts(hosts) == [100, 200]
    off = hosts.play("bind")
    assert off.status == 0 and counts(hosts) == [0, 0]
    assert not any((hosts.tree("server") / path[1:]).exists() for path in (UNIT, granted, "/etc/npu-affinity/hugepages.json"))

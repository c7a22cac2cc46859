# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network interrupts by the playbooks: reported, bound, compared, switched off, rolled back and unbound."""

from __future__ import annotations

import pytest

QUEUES = range(120, 124)
FILES = [f"/etc/systemd/system/npu-affinity-nic{kind}" for kind in (".service", "@.service", ".timer", "-links.service")]
FILES += ["/etc/npu-affinity/nic.json", "/etc/udev/rules.d/91-npu-affinity-nic.rules"]
POLICY = "usr/local/lib/npu-affinity/irqbalance-policy"
BOTH = {"npu_affinity_housekeeping": "2"}
NEAR, REPORT = {**BOTH, "npu_affinity_nic": "near"}, {**BOTH, "npu_affinity_nic": "report"}
STEERING = {**BOTH, "npu_affinity_nic": "steering"}
SPREAD = ["0", "1", "32", "33"]
NET = "sys/bus/pci/devices/0000:33:00.0/net/eth0/queues"
FOUND = {f"tx-{queue}/xps_cpus": f"00000000,0000000{1 << queue:x}" for queue in range(4)}
FOUND |= {"rx-0/rps_cpus": "00000000,000000ff", "rx-1/rps_cpus": "00000000,00000000"}
EACH = ["00000000,0001fffd", "00000000,fffe0002", "0001fffd,00000000", "fffe0002,00000000"]
STEERED = {**FOUND, **{f"tx-{queue}/xps_cpus": mask for queue, mask in enumerate(EACH)}, "rx-0/rps_cpus": "00000003,00000003"}


@pytest.fixture
def hosts(fleet):
    hosts = fleet(server="i310_pro")
    for name, mask in FOUND.items():
        path = hosts.tree("server") / NET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{mask}\n")
    return hosts


def steering(hosts):
    return {name: (hosts.tree("server") / NET / name).read_text().strip() for name in FOUND}


def path(hosts, irq):
    return hosts.tree("server") / f"proc/irq/{irq}/smp_affinity_list"


def places(hosts):
    return [path(hosts, irq).read_text().strip() for irq in QUEUES]


def there(hosts):
    return [name for name in FILES if (hosts.tree("server") / name[1:]).exists()]


def result(run, action="host_files"):
    return next(entry for entry in run.of("server") if entry["action"].endswith(action))["result"]


@pytest.mark.long
def test_queues_are_reported_bound_compared_off_and_restored(hosts):
    before = places(hosts)
    assert hosts.play("bind", **BOTH).status == 0
    reported = hosts.play("bind", **REPORT)
    assert reported.status == 0 and places(hosts) == before and there(hosts) == []
    said = " ".join(hosts.play("plan", **NEAR).output.split())
    assert "Network interrupts of eth0 (mlx5_core, 0000:33:00.0, node 0) go to CPUs 0-1,32-33." in said
    assert "eth0 (mlx5_core, 0000:33:00.0, node 0): " not in said

    without = hosts.snapshot("server")
    predicted = hosts.play("bind", "--check", "--diff", **NEAR)
    assert predicted.status == 0 and hosts.snapshot("server") == without
    done = hosts.play("bind", **NEAR)
    assert done.status == 0 and places(hosts) == SPREAD and there(hosts) == FILES, done.output
    assert result(predicted)["diff"] == result(done)["diff"]
    assert f"4 queue interrupts {before[0]} -> spread over 0-1,32-33" in str(result(done)["diff"])
    assert "*/0000:33:00.0)" in (hosts.tree("server") / POLICY).read_text()
    assert hosts.play("bind", **NEAR).changed("server") == 0
    assert hosts.play("verify", **NEAR).status == 0

    path(hosts, 121).write_text("5\n")
    drifted = hosts.play("verify", **NEAR)
    (entry,) = result(drifted, "binding_info")["drift"]
    assert drifted.status == 2 and (entry["object"], entry["expected_cpus"]) == ("queue interrupts of eth0 (0000:33:00.0)", "1")
    assert steering(hosts) == FOUND
    assert hosts.play("bind", **STEERING).status == 0 and (steering(hosts), places(hosts)) == (STEERED, SPREAD)

    off = hosts.play("bind", **BOTH)
    assert off.status == 0 and (steering(hosts), places(hosts)) == (FOUND, before) and there(hosts) == []
    assert hosts.play("rollback", npu_affinity_to="-1", **BOTH).status == 0 and (steering(hosts), places(hosts)) == (STEERED, SPREAD)
    assert hosts.play("rollback", npu_affinity_to="-3", **BOTH).status == 0 and (steering(hosts), places(hosts)) == (FOUND, SPREAD)
    assert hosts.play("bind", **REPORT).status == 0 and (places(hosts), there(hosts)) == (before, [])
    assert hosts.play("rollback", npu_affinity_to="-1", **BOTH).status == 0 and places(hosts) == SPREAD
    assert hosts.play("unbind", npu_affinity_features="nic").status == 0
    assert (steering(hosts), places(hosts)) == (FOUND, before) and there(hosts) == []

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages: the kernel grants them by node, as far as memory allows; those in use stay; a boot gets the rest before services start."""

from __future__ import annotations

import pytest

from tests.lab.conftest import changes, drift, said, success
from tests.lab.shapes import DUO

PAGES = "/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"
UNIT = "npu-affinity-hugepages.service"
EACH = {"npu_affinity_hugepages": {"per_npu": 8}}
MANY = {"npu_affinity_hugepages": {"node": {0: 8, 1: 60}}}
HOLDER = """
import mmap, time
pages = mmap.mmap(-1, 6 << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
for page in range(6):
    pages[page << 21] = 1
open("/run/held", "w").close()
time.sleep(100000)
"""
HOLD = (
    "systemd-run --unit=holder taskset -c 0 python3 /root/holder.py && for second in $(seq 60); do [ -e /run/held ] && break; sleep 1; done"
)
FILL = "mkdir -p /mnt/full && mount -t tmpfs -o size=214m,mpol=bind:1 full /mnt/full && head -c 214m /dev/zero >/mnt/full/file"


def counts(machine):
    """The huge pages of the two nodes."""
    return [int(line) for line in machine.run(f"cat {PAGES}").split()]


def since_boot(machine, unit, when):
    return int(machine.run(f"systemctl show --value --property={when}TimestampMonotonic {unit}"))


@pytest.mark.architecture
def test_pages_are_granted_kept_in_use_and_complete_after_a_boot(lab, claims, tmp_path):
    """Small machine: huge pages of each node after a bind, with pages in use, with too little memory, after a reboot, and after unbind"""
    machine = lab.bound(DUO).machine
    claims.equal("huge pages before", counts(machine), [0, 0])
    claims.equal("exit status of a bind with 8 for each NPU", success(lab.play(machine, "bind", **EACH)), (0, ""))
    claims.equal("huge pages after it", counts(machine), [8, 8])
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **EACH)), (0, []))
    machine.run(f"cat >/root/holder.py <<'END'\n{HOLDER}\nEND\n{HOLD}")
    refused = lab.play(machine, "bind")
    claims.true("a bind without huge pages fails while 6 are in use", refused.status and "because processes use them" in said(refused))
    claims.equal("huge pages after it", counts(machine), [8, 8])
    machine.run(f"systemctl stop holder && {FILL}")
    run = lab.play(machine, "bind", **MANY)
    claims.equal("exit status of a bind with 60 on node 1, most of which a file takes", success(run), (0, ""))
    found = counts(machine)
    claims.true(f"huge pages after it: {found}", found[0] == 8 and found[1] < 60)
    claims.true("the run says how many there are", f"node 1: {found[1]} of 60 huge pages of 2 MiB" in said(run), run.output)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **MANY)), (0, []))
    wanted = (2, {"huge pages of 2 MiB on node 1": "memory shortage"})
    claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path, **MANY), wanted)
    machine.reboot()
    machine.await_idle("npu-affinity-*.service")
    claims.equal("huge pages after a reboot", counts(machine), [8, 60])
    first = since_boot(machine, UNIT, "InactiveEnter"), since_boot(machine, "basic.target", "ActiveEnter")
    claims.true(f"the unit ended before basic.target was reached: {first} µs", 0 < first[0] <= first[1])
    claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path, **MANY), (0, {}))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("huge pages after it", counts(machine), [0, 0])
    claims.equal("files that are left", machine.run("find /etc /run -name '*hugepages*' -path '*npu*'"), "")

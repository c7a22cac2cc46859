# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that another version of the collection bound: this one goes on with those of an older one, and refuses those of a newer one."""

from __future__ import annotations

import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.version import SCHEMA, VERSION
from tests import upgrade
from tests.fakes.changes import state, touched

VERSIONS = [path for path in sorted(upgrade.RECORDED.glob("*.txz")) if path.stem != VERSION]
ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
KEPT = {"/etc/vnpu.cfg"}
"""What the driver keeps, empty."""


@pytest.mark.parametrize("recorded", VERSIONS, ids=lambda path: path.stem)
def test_a_host_of_each_version_goes_on_with_this_one(recorded, tmp_path):
    hosts, before = upgrade.restored(recorded, tmp_path)
    hosts.succeed("verify")
    bound = hosts.succeed("bind", npu_affinity_housekeeping="2", **ALL_AT_ONCE)
    assert all(map(bound.changed, hosts.hosts)), bound.output
    hosts.succeed("rollback", npu_affinity_to="-1", **ALL_AT_ONCE)
    hosts.succeed("verify")
    hosts.succeed("unbind", **ALL_AT_ONCE)
    for host in hosts.hosts:
        assert touched(before[host], state(hosts.tree(host))) <= KEPT, host


def test_a_host_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path):
    hosts, _before = upgrade.restored(VERSIONS[-1], tmp_path)
    names = dict(zip(sorted(hosts.hosts), ("plan.json", "previous.json"), strict=True))
    for host, name in names.items():
        path = hosts.tree(host) / "etc/npu-affinity" / name
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": SCHEMA + 1}))
    for playbook, more in [("bind", ALL_AT_ONCE), ("rollback", {"npu_affinity_to": "2099-01-01", **ALL_AT_ONCE}), ("unbind", ALL_AT_ONCE)]:
        with hosts.untouched():
            run = hosts.play(playbook, **more)
        assert run.status != 0, run.output
        for host, name in names.items():
            assert f"/etc/npu-affinity/{name} was written by a newer version of npu.affinity: it has schema {SCHEMA + 1}" in run.failure(
                host
            )
            assert "Nothing was changed. Use that version or a newer one" in run.failure(host)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of services by the playbooks: planned, bound, compared, switched off, rolled back and unbound."""

from __future__ import annotations

import pytest

from tests.fakes.small_host import MACHINE, UNITS
from tests.integration.test_services import put, said

JEMALLOC = "/usr/lib64/libjemalloc.so.2"
DROP_IN = UNITS[1:] + "llm.service.d/50-npu-affinity.conf"
SERVICES = {"npu_affinity_services": [{"unit": "llm.service", "npus": [0]}]}
ON = {**SERVICES, "npu_affinity_environment": {"openmp": "yes", "task_queue": "true", "allocator": True}}
OWN = "[Service]\nExecStart=/usr/bin/llm\nEnvironment=TASK_QUEUE_ENABLE=2\n"


def variables(text):
    found = [line.partition("=")[2].partition("=") for line in text.splitlines() if line.startswith("Environment=")]
    return {name: value for name, _equals, value in found if name != "ASCEND_RT_VISIBLE_DEVICES"}


@pytest.mark.long  # seven playbooks
def test_variables_of_a_service_are_planned_bound_and_taken_back(fleet):
    hosts = fleet(server=MACHINE)
    tree = hosts.tree("server")
    put(tree, "/usr/lib/systemd/system/llm.service", OWN)
    put(tree, JEMALLOC, "")
    assert hosts.play("bind", **SERVICES).status == 0
    plain = (tree / DROP_IN).read_text()
    assert variables(plain) == {}

    planned = hosts.play("plan", **ON)
    assert planned.status == 0 and (tree / DROP_IN).read_text() == plain
    assert "sets TASK_QUEUE_ENABLE=2, which stays; npu_affinity_environment would set 1." in said(planned)
    bound = hosts.play("bind", **ON)
    assert bound.status == 0, bound.output
    fitted = (tree / DROP_IN).read_text()
    found = variables(fitted)
    assert found == {"OMP_NUM_THREADS": found["OMP_NUM_THREADS"], "OMP_PROC_BIND": "false", "LD_PRELOAD": JEMALLOC}
    assert f"# {found['OMP_NUM_THREADS']} CPUs of the pool for 1 process" in fitted
    assert hosts.play("bind", **ON).changed("server") == 0
    assert hosts.play("verify", **ON).status == 0

    (tree / DROP_IN).write_text(fitted.replace("OMP_PROC_BIND=false", "OMP_PROC_BIND=close"))
    assert hosts.play("verify", **ON).status == 2
    assert hosts.play("bind", **SERVICES).status == 0 and (tree / DROP_IN).read_text() == plain
    assert hosts.play("rollback", npu_affinity_to="-1").status == 0 and (tree / DROP_IN).read_text() == fitted
    assert hosts.play("unbind").status == 0 and not (tree / DROP_IN).exists()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that fit the workload of a service to its pool."""

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.variables import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.slices import drop_in_text
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work

JEMALLOC = "/usr/lib64/libjemalloc.so.2"
NPUS = [
    {"id": 0, "pci": "0000:c1:00.0", "pool": "144-167", "irq": "144-145", "mems": "6", "slice": "npu-0.slice"},
    {"id": 1, "pci": "0000:01:00.0", "pool": "0-11", "irq": "0-1", "mems": "0", "slice": "npu-1.slice"},
]
LOST = {**NPUS[1], "id": 2, "pci": "0000:02:00.0", "pool": "12-23", "slice": "npu-2.slice"}
PLAN = {"cpus": "0-191", "housekeeping": "", "npus": NPUS, "lost": [LOST], "violations": []}
GPU = {**PLAN, "npus": [{**NPUS[0], "kind": "gpu", "slice": "gpu-0.slice"}]}
ALL = {"openmp": True, "task_queue": True, "allocator": True}
UNIT = "vllm@0.service"


def topology(allocator=JEMALLOC, elsewhere=None, **machine):
    host = {"machine": {"architecture": "aarch64", "systemd": 249, "cgroup": "v2", **machine}, "kubelet": None, "npus": [], "problems": []}
    numa = [{"id": 0, "cpus": "0-23"}, {"id": 6, "cpus": "144-167"}]
    return {**host, "numa": numa, "allocator": allocator, "unit_environment": {UNIT: elsewhere or {}}}


def set_by_unit(name, value, wins=False):
    return {name: {"value": value, "file": "/etc/a.conf", "wins": wins}}


def variables(host, plan, switches, npus, engine=None):
    """Return the variables of the drop-in, except for those of devices, and the remarks."""
    service = {"unit": UNIT, "npus": npus, **({"engine": engine} if engine else {})}
    work = Work([service], environment={"visible_devices": False, **switches})
    (drop_in,) = binding(host, plan, work)["services"]
    return drop_in, list(remarks(host, plan, work, adopts=False, slices=True))


OPENMP = {"OMP_NUM_THREADS": "24", "OMP_PROC_BIND": "false"}
SET = [
    ("nothing is wanted", {}, PLAN, [0], {}),
    ("everything is off", dict.fromkeys(ALL, False), PLAN, [0], {}),
    ("everything is on", ALL, PLAN, [0], {**OPENMP, "TASK_QUEUE_ENABLE": "1", "LD_PRELOAD": JEMALLOC}),
    ("one process for each NPU", {"openmp": True}, PLAN, [0, 1], {"OMP_NUM_THREADS": "18", "OMP_PROC_BIND": "false"}),
    ("a lost NPU has no process", {"openmp": True}, PLAN, [0, 2], {"OMP_NUM_THREADS": "36", "OMP_PROC_BIND": "false"}),
    ("a GPU has no task queue", ALL, GPU, [0], {**OPENMP, "LD_PRELOAD": JEMALLOC}),
]


@pytest.mark.parametrize("switches, plan, npus, expected", [row[1:] for row in SET], ids=[row[0] for row in SET])
@pytest.mark.parametrize("cgroup", ["v2", "v1"])
def test_variables_fit_the_pool_of_a_service(switches, plan, npus, expected, cgroup):
    drop_in, sentences = variables(topology(cgroup=cgroup), plan, switches, npus)
    assert (drop_in["environment"], sentences) == (expected, [])


LEFT = "vllm@0.service: /etc/a.conf sets OMP_NUM_THREADS=10, which stays; npu_affinity_environment would set 24."
BINDS = "vllm@0.service: /etc/a.conf sets %s, which stays: OpenMP can then bind the program's threads itself; remove the variable there."
ELSEWHERE = [
    ("another value", set_by_unit("OMP_NUM_THREADS", "10"), None, {"OMP_PROC_BIND": "false"}, [LEFT]),
    ("another value in a file that wins", set_by_unit("OMP_NUM_THREADS", "10", True), None, {"OMP_PROC_BIND": "false"}, [LEFT]),
    ("the same value", set_by_unit("OMP_NUM_THREADS", "24"), None, {"OMP_PROC_BIND": "false"}, []),
    ("a binder", set_by_unit("OMP_PROC_BIND", "close"), None, {"OMP_NUM_THREADS": "24"}, [BINDS % "OMP_PROC_BIND=close"]),
    ("a binder that is off", set_by_unit("OMP_PROC_BIND", "FALSE"), None, {"OMP_NUM_THREADS": "24"}, []),
    ("places", set_by_unit("OMP_PLACES", "cores"), None, OPENMP, [BINDS % "OMP_PLACES=cores"]),
    ("a binder of GCC", set_by_unit("GOMP_CPU_AFFINITY", "0-3"), None, OPENMP, [BINDS % "GOMP_CPU_AFFINITY=0-3"]),
    ("a binder of LLVM", set_by_unit("KMP_AFFINITY", "compact"), None, OPENMP, [BINDS % "KMP_AFFINITY=compact"]),
    ("one that binds nothing", set_by_unit("KMP_AFFINITY", "verbose,none"), None, OPENMP, []),
    ("nothing, and the engine says the same", {}, "vllm_ascend", OPENMP, []),
]


@pytest.mark.parametrize("elsewhere, engine, expected, remarks", [row[1:] for row in ELSEWHERE], ids=[row[0] for row in ELSEWHERE])
def test_what_a_unit_sets_itself_stays_and_is_reported(elsewhere, engine, expected, remarks):
    drop_in, sentences = variables(topology(elsewhere=elsewhere), PLAN, {"openmp": True}, [0], engine)
    assert (drop_in["environment"], sentences) == (expected, remarks)


def test_binders_are_told_only_where_openmp_is_fitted():
    places = topology(elsewhere=set_by_unit("OMP_PLACES", "cores"))
    assert variables(places, PLAN, {"task_queue": True}, [0])[1] == []


def test_each_variable_has_its_reason_above_it_in_the_drop_in():
    drop_in, _remarks = variables(topology(), PLAN, ALL, [0])
    lines = drop_in_text(drop_in).splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith("Environment=")]
    assert len(places) == 4 and all(lines[place - 1].startswith("# ") for place in places)
    assert "# 24 CPUs of the pool for 1 process; a process would start 24 threads (OpenMP specification)." in lines


NO_LIBRARY = "npu_affinity_environment: the host has neither jemalloc nor tcmalloc, so LD_PRELOAD is not set."
NO_SERVICE = "npu_affinity_environment has no effect on this host"


def test_what_has_no_effect_on_a_host_is_reported():
    drop_in, sentences = variables(topology(allocator=None), PLAN, {"allocator": True}, [0])
    assert drop_in["environment"] == {} and sentences[0].startswith(NO_LIBRARY)
    (sentences,) = remarks(topology(allocator=None), PLAN, Work(environment=ALL), adopts=True, slices=True)
    assert sentences.startswith(NO_LIBRARY)
    not_looked_for = {key: value for key, value in topology().items() if key != "allocator"}
    assert list(remarks(not_looked_for, PLAN, Work(environment=ALL), adopts=True, slices=True)) == []
    (sentence,) = remarks(topology(), PLAN, Work(environment=ALL), adopts=False, slices=True)
    assert sentence.startswith(NO_SERVICE)
    assert list(remarks(topology(), PLAN, Work(), adopts=False, slices=True)) == []
    assert list(remarks(topology(), PLAN, Work(environment={"openmp": True}), adopts=True, slices=True)) == []

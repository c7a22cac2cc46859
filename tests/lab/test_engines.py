# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What filter ``launch`` writes, typed on a bound machine with Debian's container engines: does the program get its CPUs, memory and NPU?

One machine for all tests, which run in their order; the last reboots it.
"""

import json
import re
import time
from pathlib import Path

import pytest

from tests.lab.conftest import REPOSITORY, plan_of
from tests.lab.machine import PATIENCE
from tests.lab.shapes import ENGINES

SHAPE = ENGINES
CONTAINERS = (Path(__file__).parent / "containers.py").read_text()
OF_NPU_1 = ["davinci1", "davinci_manager", "devmm_svm", "hisi_hdc"]
OF_HOST = ["davinci0", *OF_NPU_1]
IN_CONTAINER = {"docker", "compose", "podman", "quadlet", "ctr"}
START_AT_BOOT = {"docker", "compose", "podman", "quadlet", "systemd"}
# The files of a driver that a real host has; a root filesystem of one program; and that as an image of each engine, for none can be pulled.
PREPARE = """
mkdir -p /usr/local/dcmi /usr/local/Ascend/driver/lib64
ln -sf /usr/local/Ascend/driver/tools/npu-smi /usr/local/bin/npu-smi
mkdir -p /run/rootfs/bin
cp /usr/bin/busybox /run/rootfs/bin/
for applet in sh sleep grep; do ln -s busybox /run/rootfs/bin/$applet; done
tar -C /run/rootfs -cf /run/rootfs.tar .
docker import /run/rootfs.tar infer
podman import --quiet /run/rootfs.tar infer
docker save --output /run/image.tar infer
ctr image import /run/image.tar
"""
DETACHED = ["--detach", "--restart=always", "--network=host"]
PROGRAM = "trap exit TERM; sleep 86400 & wait"
INSTALL = "\n[Install]\nWantedBy=multi-user.target\n"
SERVICE = f"[Service]\nExecStart=sh -c '{PROGRAM}' by-systemd\n{INSTALL}"
COMPOSE = "services: {by-compose: {restart: always, network_mode: host}}\n"


def options(form, **others):
    """With a program whose last word identifies it."""
    return {"name": f"by-{form}", "command": ["sh", "-c", PROGRAM, f"by-{form}"], **others}


OPTIONS = {
    "docker": options("docker", image="infer", arguments=DETACHED),
    "compose": options("compose", image="infer"),
    "podman": options("podman", image="infer", arguments=DETACHED),
    "quadlet": options("quadlet", image="localhost/infer", arguments=["--network=host"]),
    "ctr": options("ctr", image="docker.io/library/infer:latest", arguments=["--detach"]),
    "systemd_run": options("systemd_run"),
    "systemd": {"name": "by-systemd"},
}
START = {
    "docker": ("/run/by-docker", "sh /run/by-docker"),
    "compose": ("/run/by-compose.yml", "cd /run && docker-compose --file by-compose.yml --file by-override.yml up --detach"),
    "podman": ("/run/by-podman", "sh /run/by-podman && systemctl enable podman-restart"),
    "quadlet": ("/etc/containers/systemd/by-quadlet.container", "systemctl daemon-reload && systemctl start by-quadlet"),
    "ctr": ("/run/by-ctr", "sh /run/by-ctr"),
    "systemd_run": ("/run/by-systemd_run", "setsid sh /run/by-systemd_run </dev/null >/dev/null 2>&1 &"),
    "systemd": ("/etc/systemd/system/by-systemd.service.d/override.conf", "systemctl daemon-reload && systemctl enable --now by-systemd"),
}
"""Where the text of each form goes, and what its user types then."""
VERSIONS = {
    "docker": "docker version --format {{.Server.Version}}",
    "compose": "docker-compose version --short",
    "podman": "podman --version",
    "crun": "crun --version",
    "containerd": "ctr --version",
    "runc": "runc --version",
    "systemd": "systemctl --version",
}
MISFITS = [
    ("docker", "--cgroup-parent=npu1", 'cgroup-parent for systemd cgroup should be a valid slice named as "xxx.slice"'),
    ("podman", "--cgroup-parent=npu1", "did not receive systemd slice as cgroup parent"),
    ("docker", "--cgroup-parent=npu-1.slice --cpuset-cpus=0-99", "Requested CPUs are not available - requested 0-99, available: 0-11"),
    ("podman", "--cgroup-parent=npu-1.slice --cpuset-cpus=0-99", "Numerical result out of range"),
    ("docker", "--cgroup-parent=npu-1.slice --cpuset-cpus=4-8", "4-5"),
    ("podman", "--cgroup-parent=npu-1.slice --cpuset-cpus=4-8", "4-5"),
    ("docker", "--cgroup-parent=npu-1.slice --cpuset-cpus=8-9", "0-5"),
    ("podman", "--cgroup-parent=npu-1.slice --cpuset-cpus=8-9", "0-5"),
]


@pytest.fixture(scope="module")
def bound(lab):
    """``(the machine, bound and with images, its topology)``."""
    bound = lab.bound(SHAPE)
    (gathered,) = [entry["result"] for entry in bound.run.results if entry["action"] == "npu.affinity.gather"]
    bound.machine.run(f"set -e\n{PREPARE}")
    return bound.machine, gathered["ansible_facts"]["npu_affinity_topology"]


@pytest.fixture(scope="module")
def started(bound):
    """The machine with a program started by each form for NPU 1."""
    from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import launch  # slow, and others import this file

    machine, topology = bound
    machine.write("/run/by-override.yml", COMPOSE)
    machine.write("/etc/systemd/system/by-systemd.service", SERVICE)
    for form, (path, typed) in START.items():
        text = launch(npu(machine), form, topology=topology, **OPTIONS[form])
        machine.write(path, text + (INSTALL if form == "quadlet" else ""))
        machine.run(typed)
    return machine


def npu(machine):
    return plan_of(machine)["npus"][1]


def look(machine, forms):
    """What runs by each form, when it is these."""
    deadline = time.monotonic() + PATIENCE
    while set(found := json.loads(machine.run("python3 -", stdin=CONTAINERS))) != {f"by-{form}" for form in forms}:
        assert time.monotonic() < deadline, f"{sorted(found)} run, and not {sorted(forms)}"
        time.sleep(1)
    return {form: found[f"by-{form}"] for form in forms}


def in_their_places(claims, machine, found):
    """Claim that what forms started is where the plan wants it."""
    entry = npu(machine)
    for form, process in sorted(found.items()):
        inside = form in IN_CONTAINER
        claims.equal(
            f"{form}: Cpus_allowed_list, Mems_allowed_list", (process["cpus"], process["mems"]), (entry["pool"], entry["memory_nodes"])
        )
        claims.equal(
            f"{form}: effective sets of its group", (process["group_cpus"], process["group_mems"]), (entry["pool"], entry["memory_nodes"])
        )
        claims.true(f"{form}: group {process['group']}", process["group"].startswith(f"/npu.slice/{entry['slice']}/"))
        claims.equal(f"{form}: NPU that its environment names", process["visible"], "0" if inside else "1")
        claims.equal(f"{form}: device nodes that it sees", process["nodes"], OF_NPU_1 if inside else OF_HOST)
        claims.equal(f"{form}: device nodes that it may open", process["opens"], OF_NPU_1 if inside else OF_HOST)


def kept(before, after):
    """The forms whose program still runs."""
    return {form for form in before if before[form]["pid"] == after[form]["pid"]}


def test_what_each_form_starts(started, claims):
    """Container engines: a program started by each form for NPU 1"""
    in_their_places(claims, started, look(started, START))
    document = (REPOSITORY / "docs/workloads.md").read_text()
    for name, command in VERSIONS.items():
        version = re.search(r"\d+(\.\d+)?", started.run(command))[0]
        claims.true(f"docs/workloads.md says it of {name} {version}", f"{name} {version}" in document)


def test_after_a_reload_of_systemd(started, claims):
    """Container engines: systemctl daemon-reload"""
    before = look(started, START)
    started.run("systemctl daemon-reload")
    after = look(started, START)
    in_their_places(claims, started, after)
    claims.equal("what runs on", kept(before, after), set(START))


def test_after_the_engines_were_restarted(started, claims):
    """Container engines: each engine restarted"""
    before = look(started, START)
    started.run("systemctl restart containerd docker by-quadlet by-systemd && podman restart by-podman")
    after = look(started, START)
    in_their_places(claims, started, after)
    claims.equal("what runs on", kept(before, after), {"ctr", "systemd_run"})


def test_sets_that_do_not_fit(bound, claims):
    """Container engines: parents and CPU sets that do not fit the slice"""
    machine, _topology = bound
    for engine, flags, said in MISFITS:
        output = machine.run(f"{engine} run --rm --network=host {flags} infer grep Cpus_allowed_list /proc/self/status 2>&1 || true")
        claims.true(f"{engine} {flags}: {said}", said in output.partition("Cpus_allowed_list:")[2] or said in output, output)


def test_after_a_reboot(started, claims):
    """Container engines: a reboot"""
    started.reboot()
    in_their_places(claims, started, look(started, START_AT_BOOT))
    claims.equal("failed units", started.run("systemctl --failed --plain --no-legend").split(), [])

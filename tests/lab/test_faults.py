# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever goes wrong in the middle: the machine is as before or, after the next run, as planned, and never something else."""

import json
import random
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.lab.conftest import KILL_MODULES, changed_files, changes, kill, plan_of, success
from tests.lab.kernel import as_planned, words_of_irqbalance
from tests.lab.shapes import DUO
from tests.simulator.generate import generate

OTHER_PLAN = {"npu_affinity_cpus": "0-8,10-11", "npu_affinity_smt": "threads", "npu_affinity_replan": True}
UNITS = "/etc/systemd/system"
RECORD = ("/etc/npu-affinity", "/etc/npu-affinity/previous.json", "/run/npu-affinity.lock")
HISTORY = "/etc/npu-affinity/history"
CODE = "/usr/local/lib/npu-affinity/npu_affinity.zip"
GLOBS = f"{UNITS}/npu* {CODE} /etc/npu-affinity/plan.json /etc/udev/rules.d/*npu*"
COUNT = f"set -- {GLOBS}; n=0; for file; do [ ! -e $file ] || n=$((n + 1)); done"
"""Files of a bind that are there, in a shell's ``n``. Without a process, which would take 0.1 s."""
FILL = "fallocate -l $(df --output=avail -B 1 / | tail -n 1) /fill; dd if=/dev/zero of=/fill2 bs=64k; dd if=/dev/zero of=/fill3 bs=4k; sync"
SMALL = f"""
mkdir /run/small && mount -t tmpfs -o size=9M none /run/small && cp -a {UNITS}/. /run/small
used=$(df --output=used /run/small | tail -n 1) && mount -o remount,size=$((used + 4 * {{files}}))k /run/small
mount --bind /run/small {UNITS}
"""
READ_ONLY = "mount --bind /etc /etc && mount -o remount,bind,ro /etc"


def ours(files):
    """The machine's files that carry the collection's name, without the record, which grows, the history, which has the time, and /run.

    A killed bind leaves its lock there, and units count there what they moved.
    """
    wanted = {path: state for path, state in files.items() if "npu" in path and path not in RECORD}
    return {path: state for path, state in wanted.items() if not path.startswith((HISTORY, "/run/"))}


def counted(files):
    """How many of them the shell counts, too."""
    return sum(any(Path(path).match(pattern) for pattern in GLOBS.split()) for path in files)


def differing(files, others):
    paths = {path for path, _state in files.items() ^ others.items()} - set(RECORD)
    return sorted(path for path in paths if not path.startswith(HISTORY))


def sound(claims, machine, wanted):
    """Claim what must hold at any moment, in the middle of a bind too; ``wanted`` are the files after a whole one."""
    look = machine.look()
    sets = {name: (found["cpus"], found["mems"]) for name, found in look["slices"].items()}
    claims.true(f"no slice is without CPUs or memory nodes: {sets}", all(cpus and mems for cpus, mems in sets.values()))
    claims.equal("irqbalance", machine.run("systemctl is-active irqbalance || true").strip(), "active")
    found = {path: state for path, state in ours(machine.files()).items() if "/.npu-affinity-" not in path}
    half = [path for path, state in found.items() if state != wanted.get(path)]
    claims.equal(f"of {len(found)} files, those that are not as a whole bind writes them", half, [])


def as_bound(claims, machine, wanted):
    """Claim that the machine is as one that was bound in one go."""
    claims.equal("files that differ from those of one whole bind", differing(ours(machine.files()), wanted), [])
    as_planned(claims, machine, plan_of(machine))


def await_files(machine, count, then="true"):
    """Run a command in the guest as soon as so many files of a bind are there."""
    pause = "read -rt 0.1 -u 9 || true"  # a sleep would be a process
    machine.run(f"exec 9<> <(:); n=0; while [ $n -lt {count} ]; do {pause}; {COUNT}; done; {then}")


@pytest.fixture(scope="session")
def wanted(lab):
    """The files of a machine that was bound in one go."""
    return ours(lab.bound(DUO).machine.files())


@pytest.mark.core
def test_a_bind_that_is_killed_again_and_again(lab, claims, wanted):
    """Small machine: a bind is killed at random moments, along with what it runs on the machine, and run again"""
    machine, total = lab.fresh(DUO), counted(wanted)
    machine.run("systemctl start irqbalance")
    before = machine.files()
    seed = random.randrange(1000)
    claims.true(f"the moments are those of random seed {seed}", True)
    for count in sorted(random.Random(seed).sample(range(1, total), 2)) + [total]:
        run = lab.begin(machine, "bind")
        await_files(machine, count, KILL_MODULES)
        kill(*run)
        claims.true(f"killed with {machine.run(f'{COUNT}; echo $n').strip()} of {total} files there:", True)
        sound(claims, machine, wanted)
    claims.equal("exit status of the next bind", success(lab.play(machine, "bind")), (0, ""))
    as_bound(claims, machine, wanted)
    claims.true("irqbalance runs with the policy", "--policyscript=" in words_of_irqbalance(machine))
    claims.equal("exit status and changes of one more", changes(lab.play(machine, "bind")), (0, []))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("files that differ from before", differing(machine.files(), before), [])


def test_power_that_fails_in_the_middle(lab, claims, wanted):
    """Small machine: power fails in the middle of a bind, and comes back"""
    machine, total, seed = lab.fresh(DUO), counted(wanted), random.randrange(1000)
    machine.run("systemctl enable --now irqbalance && sync")
    count = random.Random(seed).randrange(3, total)
    claims.true(f"power fails with {count} of {total} files there (random seed {seed})", True)
    run = lab.begin(machine, "bind")
    await_files(machine, count)
    machine.cut_power()
    kill(*run)
    machine.await_idle("npu-affinity-irq*.service")
    claims.true(f"the boot finds {len(ours(machine.files()))} of {len(wanted)} files", True)
    sound(claims, machine, wanted)
    claims.equal("exit status of the next bind", success(lab.play(machine, "bind")), (0, ""))
    as_bound(claims, machine, wanted)
    unit = f"npu-affinity-irq@{plan_of(machine)['npus'][0]['pci']}.service"
    machine.run(f"mv {CODE} /root && ! systemctl start {unit} && mv /root/npu_affinity.zip {CODE}")
    claims.equal("a unit whose program was missing", machine.run(f"systemctl is-failed {unit}").strip(), "failed")
    claims.equal("exit status of the next bind", success(lab.play(machine, "bind")), (0, ""))
    claims.equal("the unit, which that bind ran again", machine.run(f"systemctl is-failed {unit} || true").strip(), "inactive")


def test_a_connection_that_is_cut_in_the_middle_of_a_batch(lab, claims, wanted, tmp_path):
    """Small machine: its network goes in the middle of a batch of two hosts"""
    machine = lab.fresh(DUO)
    machine.run("systemctl start irqbalance")
    generate("a2_4x48", tmp_path / "tree")
    other = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "npu_affinity_root": str(tmp_path / "tree")}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"other": other}}}))
    batch = ("-i", str(inventory)), {"npu_affinity_batches": ["100%"]}
    run = lab.begin(machine, "bind", *batch[0], **batch[1])
    await_files(machine, 3)
    machine.pull_network()
    cut = lab.ended(*run)
    machine.plug_network()
    claims.true("the run fails, and says that the machine is unreachable", cut.status != 0 and "1 unreachable: " in cut.output, cut.output)
    sound(claims, machine, wanted)
    claims.equal("exit status of the next run", success(lab.play(machine, "bind", *batch[0], **batch[1])), (0, ""))
    as_bound(claims, machine, wanted)


def test_a_disk_with_room_for_three_files(lab, claims, wanted):
    """Small machine, never bound: the disk of /etc/systemd/system is full after three files"""
    machine = lab.fresh(DUO)
    machine.run(SMALL.format(files=3))
    look, files = machine.look(), machine.files()
    run = lab.play(machine, "bind")
    said = "No space left on device. All files were restored"
    claims.true(f"bind fails, and says: {said}", run.status != 0 and said in run.failure("duo"), run.output)
    claims.equal("files that differ from before", differing(machine.files(), files), [])
    claims.true("interrupts, workqueues, threads and cpusets are as before", machine.look() == look)
    machine.run("mount -o remount,size=9M /run/small")
    claims.equal("exit status of a bind with more room", success(lab.play(machine, "bind")), (0, ""))
    as_bound(claims, machine, wanted)


REFUSALS = [
    pytest.param(FILL, "rm /fill /fill2 /fill3", "No usable temporary directory found|No space left on device", id="full"),
    pytest.param(READ_ONLY, "umount --lazy /etc", "Read-only file system", id="read-only"),
]


@pytest.mark.parametrize("harm, cure, said", REFUSALS)
def test_a_disk_that_takes_nothing(lab, claims, harm, cure, said):
    """Small machine: another plan, and nothing can be written to the disk"""
    machine = lab.bound(DUO).machine
    look, files = machine.look(), machine.files()
    machine.run(harm)
    run = lab.play(machine, "bind", **OTHER_PLAN)
    claims.true(f"bind fails, and says: {said}", run.status != 0 and re.search(said, run.output), run.output)
    claims.equal("files that differ from before", changed_files(machine, files), [])
    claims.true("interrupts, workqueues, threads and cpusets are as before", machine.look() == look)
    machine.run(cure)
    claims.equal("exit status of the next bind", success(lab.play(machine, "bind", **OTHER_PLAN)), (0, ""))
    plan, now = plan_of(machine), machine.look()
    claims.true("the plan in force is the other one", now["slices"] != look["slices"])
    as_planned(claims, machine, plan, now)


def test_unit_files_that_were_edited_by_hand(lab, claims, wanted):
    """Small machine: somebody edited unit files, removed one, and systemd has read them"""
    machine = lab.bound(DUO).machine
    machine.run(f"sed -i s/^AllowedCPUs=.*/AllowedCPUs=0/ {UNITS}/npu-1.slice && rm {UNITS}/npu-0.slice")
    machine.run(f"sed -i s/^ExecStart=.*/ExecStart=false/ {UNITS}/npu-affinity-irq.service && systemctl daemon-reload")
    machine.run("systemctl restart npu-1.slice")  # with systemd 256 and 257 a reload leaves the slice as it was
    claims.equal("npu-1.slice cpuset.cpus.effective", machine.look()["slices"]["npu-1.slice"]["cpus"], "0")
    run = lab.play(machine, "bind")
    claims.equal("exit status of bind", success(run), (0, ""))
    claims.equal("files written", len(run.files("duo")[0]), 3)
    as_bound(claims, machine, wanted)
    command = machine.run("systemctl show npu-affinity-irq --property=ExecStart --value")
    claims.true("what systemd runs at boot is the program again", "-m npu_affinity irq" in command, command)


def test_a_cpu_that_goes_offline_between_plan_and_bind(lab, claims, wanted):
    """Small machine, never bound: a CPU goes offline after the plan was made"""
    machine = lab.fresh(DUO)
    files = machine.files()
    run = lab.play(machine, "tests/lab/plays/offline_between.yml", cpu=7)
    claims.true("bind fails", run.status != 0, run.output)
    said = "should have CPUs 6-11 and has 6,8-11"
    claims.true(f"and says: npu-0.slice {said}", said in run.failure("duo"), run.failure("duo"))
    claims.equal("files that differ from before", differing(machine.files(), files), [])
    claims.equal("exit status of the next bind, which plans without the CPU", success(lab.play(machine, "bind")), (0, ""))
    plan = plan_of(machine)
    claims.true("CPU 7 is in no pool", all("7" not in npu["pool"].split(",") and npu["pool"] != "6-11" for npu in plan["npus"]))
    as_planned(claims, machine, plan)
    machine.run("echo 1 >/sys/devices/system/cpu/cpu7/online")
    claims.equal("exit status of a bind after the CPU came back", success(lab.play(machine, "bind")), (0, ""))
    as_bound(claims, machine, wanted)


def test_a_tool_that_hangs(lab, claims):
    """Small machine: npu-smi does not answer"""
    machine = lab.bound(DUO).machine
    look, files = machine.look(), machine.files()
    description = json.loads(machine.run("cat /simulator/machine.json"))
    machine.write("/simulator/machine.json", json.dumps({**description, "faults": {"sleep": 600}}))
    run = lab.play(machine, "bind", npu_affinity_timeout=5, **OTHER_PLAN)
    said = "did not answer within 5 s and was killed"
    claims.true(f"bind fails, and says: {said}", run.status != 0 and said in run.failure("duo"), run.output)
    claims.equal("its processes that are left", machine.run("pgrep -fc '[n]pu-smi' || true").strip(), "0")
    claims.equal("files that differ from before", differing(machine.files(), files), [])
    claims.true("interrupts, workqueues, threads and cpusets are as before", machine.look() == look)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What features set on a whole machine: the kernel takes it, it comes back at boot, and unbind restores what was there."""

import time

import pytest

from tests.lab.conftest import changes, drift, plan_of, said, success
from tests.lab.kernel import CQ, SETTLE, STATUS, allowed_to, irqs, main_process, numbers, start, variables
from tests.lab.machine import PATIENCE
from tests.lab.shapes import DUO, ISOLATED, NVME, QUEUES

TUNABLE = "/proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/vm/swappiness"
TUNED = {
    "npu_affinity_tuning": {"governor": "performance", "numa_balancing": "0", "transparent_hugepages": "never", "swappiness": "1"},
    "npu_affinity_metrics_enabled": True,
}
TEXTFILE = "/var/lib/prometheus/node-exporter/npu_affinity.prom"


def values(machine):
    """What the kernel says: numa_balancing, the huge pages' word in brackets, swappiness."""
    balancing, hugepages, swappiness = machine.run(f"cat {TUNABLE}").splitlines()
    return balancing, hugepages.partition("[")[2].partition("]")[0], swappiness


def drift_and_rebinds(machine):
    """What the metrics' own unit writes: causes of drift, and how many interrupts were restored."""
    machine.run("systemctl start npu-affinity-metrics.service")
    lines = [line.rpartition(" ") for line in machine.run(f"grep -v '^#' {TEXTFILE}").splitlines()]
    found = {name: value for name, _blank, value in lines}
    causes = {name.split('"')[1] for name, value in found.items() if name.startswith("npu_affinity_drifted_objects{") and value != "0"}
    return causes, found['npu_affinity_interrupts_rebound_total{trigger="check"}']


INFER = "infer.service"
SERVICE = "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n\n[Install]\nWantedBy=multi-user.target\n"
PROFILE = {"npu_affinity_profile": "latency", "npu_affinity_services": [{"unit": INFER, "npus": [0]}]}
OF_PROFILE = ("OMP_", "TASK_QUEUE_ENABLE", "LD_PRELOAD")


def test_settings_hold_until_unbind(lab, claims, tmp_path):
    """Small machine: host settings, and a service by a profile, after a bind, a reboot and unbind; metrics of an interrupt that is moved"""
    machine, options = lab.bound(DUO).machine, {**TUNED, **PROFILE}
    machine.write(f"/etc/systemd/system/{INFER}", SERVICE)
    machine.run(f"mkdir -p $(dirname {TEXTFILE}) && systemctl daemon-reload && systemctl enable --now {INFER}")
    before = values(machine)
    claims.true(f"numa_balancing, huge pages and swappiness before: {before}", before != ("0", "never", "1"))
    claims.equal("variables of the service before", variables(machine, INFER, OF_PROFILE), {})
    run = lab.play(machine, "bind", **options)
    claims.equal("exit status of bind", success(run), (0, ""))
    claims.equal("after it", values(machine), ("0", "never", "1"))
    claims.true("a governor, which an emulated machine does not support, is a warning", "governor" in run.output, run.output)
    claims.true("an allocator that is not installed is a remark", "neither jemalloc nor tcmalloc" in said(run), said(run))
    machine.run(f"systemctl restart {INFER}")
    pool, main = (plan_of(machine)["npus"][0][name] for name in ("pool", "main"))
    found = variables(machine, INFER, OF_PROFILE)
    threads = int(found.get("OMP_NUM_THREADS", "0"))
    claims.true(f"OpenMP has {threads} threads on pool {pool}", 0 < threads <= len(numbers(pool)))
    claims.equal("its variables", found, {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "false", "TASK_QUEUE_ENABLE": "1"})
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **options)), (0, []))
    claims.equal("exit status and drift", drift(lab, machine, tmp_path, **options), (0, {}))
    causes, put_back = drift_and_rebinds(machine)
    claims.equal("drift in metrics", causes, set())
    machine.run(f"echo 11 >/proc/irq/{irqs(next(iter(machine.look()['functions'].values())), CQ)[0]}/smp_affinity_list")
    claims.equal("drift in metrics after an interrupt was moved", drift_and_rebinds(machine)[0], {"manual change"})
    machine.run("systemctl start npu-affinity-irq.service")
    claims.equal("drift and restored interrupts, in metrics", drift_and_rebinds(machine), (set(), str(int(put_back) + 1)))
    machine.run(f"rm {TEXTFILE}")
    machine.reboot()
    machine.await_idle("npu-affinity-*.service")
    claims.equal("after a reboot", values(machine), ("0", "never", "1"))
    claims.equal("variables of the service after a reboot", variables(machine, INFER, OF_PROFILE), found)
    machine.run(f"for _ in $(seq 100); do taskset -pc {main_process(machine, INFER)} | grep -q ': {main}$' && break; sleep 0.2; done")
    claims.equal("CPUs of its main thread", allowed_to(machine, f"cat /proc/{main_process(machine, INFER)}/status")[0], main)
    machine.run(f"for second in $(seq 120); do [ -s {TEXTFILE} ] && break; sleep 1; done")
    claims.true("the timer has written metrics after the boot", machine.run(f"grep -x 'npu_affinity_bound 1' {TEXTFILE}"))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("after unbind", values(machine), before)
    claims.equal("files for node exporter", machine.run(f"ls $(dirname {TEXTFILE})"), "")
    machine.run(f"systemctl restart {INFER}")
    claims.equal("variables of the service after unbind", variables(machine, INFER, OF_PROFILE), {})


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


TIMER = "npu-affinity-nic.timer"
NEAR = {"npu_affinity_nic": "near", "npu_affinity_housekeeping": "2", "npu_affinity_min_cpus": 4}
OTHER = {**NEAR, "npu_affinity_housekeeping": "1"}
FUNCTION = (
    "for folder in /sys/bus/pci/devices/*; do "
    'case "$(cat $folder/class) $(cat $folder/numa_node)" in "0x020000 0") basename $folder ;; esac; done'
)
INTERRUPTS = (
    "for irq in $(ls /sys/bus/pci/devices/%s/msi_irqs); do "
    "for queue in $(ls /proc/irq/$irq | grep -E 'put[.][0-9]+$'); do "
    "echo ${queue#*-} $(cat /proc/irq/$irq/smp_affinity_list /proc/irq/$irq/effective_affinity_list); done; done"
)
SENDING = "cd /sys/bus/pci/devices/%s/virtio*/net/*/queues; for queue in tx-*; do echo $queue $(cat $queue/xps_cpus); done 2>/dev/null"
DRIVER = "/sys/bus/pci/drivers/virtio-pci"


def queues(machine, pci):
    """``{queue: (affinity, effective affinity)}`` of a function."""
    lines = [line.split() for line in machine.run(INTERRUPTS % pci).splitlines()]
    return {name: tuple(places) for name, *places in lines}


def affinities(machine, pci):
    return {name: places[0] for name, places in queues(machine, pci).items()}


def sending(machine, pci):
    """``{queue: CPUs that send by it}`` of a function, which has none where the kernel shows none for a single queue."""
    lines = [line.split() for line in machine.run(SENDING % pci).splitlines()]
    masks = {name: int(mask.replace(",", ""), 16) for name, *masks in lines for mask in masks}
    return {name: {cpu for cpu in range(NVME.cpus) if mask >> cpu & 1} for name, mask in masks.items()}


def state(machine, pci):
    return queues(machine, pci), sending(machine, pci)


@pytest.mark.parametrize("shape", [NVME], ids=lambda shape: shape.name)
def test_queues_stay_near_their_function(lab, claims, tmp_path, shape):
    """Machine with a network function on node 0: its queues after binds, a driver load, a reboot, a rollback and an unbind"""
    machine = lab.bound(shape).machine
    pci = machine.run(FUNCTION).strip()
    before, sent = affinities(machine, pci), sending(machine, pci)
    several = range(QUEUES if sent else 1)  # one, where no device with several can be made outside
    claims.equal("queues of the function", sorted(before), [f"{way}.{queue}" for way in ("input", "output") for queue in several])
    claims.equal("exit status of a bind", success(lab.play(machine, "bind", **NEAR)), (0, ""))
    near = {name: (str(int(name[-1]) % 2),) * 2 for name in before}
    wanted = near, sent
    claims.equal("affinity and effective affinity of its queues, and XPS as before", state(machine, pci), wanted)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **NEAR)), (0, []))
    machine.run(f"echo {pci} >{DRIVER}/unbind; echo {pci} >{DRIVER}/bind; {SETTLE}")
    machine.await_idle("npu-affinity-nic@*.service")
    claims.equal("its queues after the driver was bound again", state(machine, pci), wanted)
    machine.reboot()
    machine.await_idle("npu-affinity-nic*.service")
    claims.equal("its queues after a reboot", state(machine, pci), wanted)
    spread = f"for irq in $(ls /sys/bus/pci/devices/{pci}/msi_irqs); do echo 0-11 >/proc/irq/$irq/smp_affinity_list; done"
    machine.run(f"systemctl stop {TIMER}; {spread}")  # on a slow machine its time would come before verify has looked
    status, found = drift(lab, machine, tmp_path, **NEAR)
    claims.true(f"verify ends with 2 and finds the queues: {found}", status == 2 and any(pci in name for name in found.keys() - {TIMER}))
    machine.run(f"systemctl start npu-affinity-nic.service {TIMER}")
    claims.equal("its queues after the unit ran", state(machine, pci), wanted)
    claims.equal("exit status of a bind by other CPUs", success(lab.play(machine, "bind", **OTHER)), (0, ""))
    claims.equal("its queues on the one CPU that is left", affinities(machine, pci), dict.fromkeys(before, "0"))
    claims.equal("exit status of a rollback", success(lab.play(machine, "rollback", npu_affinity_to="-1", **OTHER)), (0, ""))
    claims.equal("its queues after it", state(machine, pci), wanted)
    claims.equal("exit status of an unbind of nic", success(lab.play(machine, "unbind", npu_affinity_features="nic")), (0, ""))
    claims.equal("affinity of its queues", affinities(machine, pci), before)
    claims.equal("files that are left", machine.run("find /etc -name '*affinity-nic*' -o -name nic.json"), "")


FOLLOW = {"npu_affinity_housekeeping": "follow", "npu_affinity_min_cpus": 4}
SETS = "cat /sys/fs/cgroup/system.slice/cpuset.cpus.effective /sys/fs/cgroup/init.scope/cpuset.cpus.effective"
HOLDS = "import time\ndevice = open('/dev/davinci0', 'rb')\nopen('/run/first', 'w').close()\ntime.sleep(3600)\n"


def has(machine):
    """What both have, or nothing that a test expects."""
    system, init = map(numbers, machine.run(SETS).split())
    return system if system == init else {None}


def reaches(claims, machine, what, wanted, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while has(machine) != wanted and time.monotonic() < deadline:
        time.sleep(1)
    claims.equal(f"CPUs of the system {what}", has(machine), wanted)


def test_the_system_has_idle_pools_until_work_starts(lab, claims):
    """Small machine: two binds, a worker starts, and systemd reloads"""
    machine = lab.fresh(DUO)
    everything = numbers(machine.look()["online"])
    claims.equal("exit status of bind", success(lab.play(machine, "bind", **FOLLOW)), (0, ""))
    plan = plan_of(machine)
    pool = numbers(plan["npus"][0]["pool"])
    claims.equal("CPUs that always stay", len(numbers(plan["housekeeping"])), 4)
    reaches(claims, machine, "after the bind", everything)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **FOLLOW)), (0, []))
    claims.equal("CPUs of the system after it", has(machine), everything)
    claims.true("status names the NPUs whose CPUs are lent", "those of NPU 0-1 while no workload runs there" in machine.run(STATUS))
    start(machine, "first", "npu-0.slice", HOLDS)
    reaches(claims, machine, "once a worker has opened NPU 0", everything - pool)
    claims.equal("exit status of verify", success(lab.play(machine, "verify", **FOLLOW)), (0, ""))
    machine.run("systemctl daemon-reload")
    claims.true("after a reload the pool in use stays free", not has(machine) & pool)
    reaches(claims, machine, "a look later", everything - pool, 2 * PATIENCE)


CPU = "/sys/devices/system/cpu"
PARTITION = (
    "cd /sys/fs/cgroup && echo +cpuset >cgroup.subtree_control && mkdir lab && echo 10-11 >lab/cpuset.cpus && "
    "echo root >lab/cpuset.cpus.partition && cat lab/cpuset.cpus.partition"
)
SPREAD = """
import os, subprocess, sys, time
for cpus in {1, 2, 3}, {4, 5}:
    os.sched_setaffinity(0, cpus)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _number in range(3)]
    time.sleep(10)
    print(*{open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[36] for process in busy})
    for process in busy:
        process.kill()
"""
"""The CPUs on which three busy processes run that may use CPUs 1-3, and on which three that may use CPUs 4-5."""
EXPLAINED = {"npu_affinity_housekeeping": "0,6", "npu_affinity_isolation": "explain"}
TICKLESS = "nohz_full on the kernel command line includes CPUs 6, which are kept for the system"


@pytest.mark.parametrize("shape", [ISOLATED], ids=lambda shape: shape.name)
def test_a_plan_reports_what_the_kernel_sets_apart(lab, claims, shape):
    """Kernel with isolcpus, nohz_full and irqaffinity, and a cpuset partition: what a plan says of them, and the line that would fit"""
    machine = lab.fresh(shape)
    claims.equal("CPUs that the kernel isolates", machine.run(f"cat {CPU}/isolated").strip(), "4-5")
    claims.equal("interrupts start on", machine.run("cat /proc/irq/default_smp_affinity").strip().lstrip("0,"), "3")
    claims.equal("a partition", machine.run(PARTITION).strip(), "root")
    spread, isolated = machine.run("python3 -", stdin=SPREAD).splitlines()
    claims.true(f"busy processes that may use CPUs 1-3 are spread over several: {spread}", len(spread.split()) > 1)
    claims.true(f"those that may use the isolated CPUs 4-5 stay on one: {isolated}", len(isolated.split()) == 1)
    run = lab.play(machine, "plan", **EXPLAINED)
    claims.equal("exit status of a plan", success(run), (0, ""))
    text = said(run)
    claims.true("NPU 1 is partly isolated", "Pools of NPU 1 are only partly isolated from the scheduler: CPUs 1-3 are not" in text, text)
    claims.true("interrupts of NPU 0 and 1", "irqaffinity on the kernel command line excludes CPUs 2,7-8, to which" in text, text)
    claims.true("the partition", "cgroup lab is a cpuset partition (root) with CPUs 10-11 of NPU 0" in text, text)
    tickless = machine.run(f"cat {CPU}/nohz_full || true").strip()  # Debian 11's kernel has none
    claims.equal(f"nohz_full, of which the kernel has '{tickless}'", TICKLESS in text, tickless == "4-6")
    claims.true("the command line that fits", "isolcpus=managed_irq,1-5,7-11:" in text and "irqaffinity=0-2,6-8:" in text, text)
    claims.equal("CPUs that the kernel isolates after it", machine.run(f"cat {CPU}/isolated").strip(), "4-5")

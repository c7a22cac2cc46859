# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions about the kernel's view of a machine that several tests ask."""

import re

from tests.lab.machine import PATIENCE

SQ, CQ = "sq_send_trigger_irq", "cq_update_irq"
DRIVER = "/sys/bus/pci/drivers/davinci_mock"
SETTLE = f"udevadm settle --timeout={PATIENCE}"
UNITS = "npu-affinity-irq@*.service"
STATUS = "until npu-affinity status >/run/status || [ $? != 4 ]; do sleep 1; done; cat /run/status"
"""4: the timer's unit is at work."""
SOON = "/run/systemd/system/{timer}.d/soon.conf"
MANAGED = ("Input/output error", "Operation not permitted")
"""How kernels refuse to move an interrupt that they manage: EIO, and from 6.12 on EPERM."""


def settle(machine):
    """Wait until the units that a driver's bind starts have ended."""
    machine.run(SETTLE)
    machine.await_idle(UNITS)


def numbers(cpulist):
    """The set of numbers of a cpulist."""
    found = set()
    for part in filter(None, cpulist.split(",")):
        first, _dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def irqs(function, name):
    """The interrupt numbers of a function that have a handler of this name."""
    return sorted(int(irq) for irq, vector in function["vectors"].items() if vector["name"] == name)


def where(function, name):
    """The distinct (affinity, effective affinity) of the function's interrupts of a name."""
    return sorted({(vector["affinity"], vector["effective"]) for vector in function["vectors"].values() if vector["name"] == name})


def on_their_cpus(claims, machine, plan, look=None):
    """Claim that every NPU of the plan has its interrupts, workqueue and kernel thread on its IRQ CPUs."""
    look = look or machine.look()
    for npu in plan["npus"]:
        function = look["functions"][npu["pci"]]
        first, second = sorted(numbers(npu["irq"]))[:2]
        title, device = f"NPU {npu['id']} ({npu['pci']})", function["number"]
        claims.equal(f"{title} {SQ}, affinity and effective affinity", where(function, SQ), [(str(first), str(first))])
        claims.equal(f"{title} number of {CQ}", len(irqs(function, CQ)), 16)
        claims.equal(f"{title} every {CQ}, affinity and effective affinity", where(function, CQ), [(str(second), str(second))])
        claims.equal(f"workqueue dev{device}_sq_send_wq, cpumask", look["workqueues"][f"dev{device}_sq_send_wq"], str(first))
        claims.equal(f"kernel thread dev{device}_sq_task, Cpus_allowed_list", look["threads"][f"dev{device}_sq_task"], str(first))


def in_their_slices(claims, machine, plan, look=None, threads=False):
    """Claim that every slice of the plan has its CPUs and memory nodes, and so has a process started in it. With ``threads``, the watcher
    can have placed that on the CPUs of role main."""
    look = look or machine.look()
    start = "systemd-run --quiet --pipe --wait --collect --slice=%s cat /proc/self/status && echo"
    every = " && ".join(start % npu["slice"] for npu in plan["npus"])
    statuses = machine.run(every).removesuffix("\n\n").split("\n\n")
    for npu, status in zip(plan["npus"], statuses, strict=True):
        found = look["slices"][npu["slice"]]
        claims.equal(f"{npu['slice']} cpuset.cpus.effective", found["cpus"], npu["pool"])
        claims.equal(f"{npu['slice']} cpuset.mems.effective", found["mems"], npu["memory_nodes"])
        cpus, nodes = allowed(status)
        claims.equal(
            f"a process started in {npu['slice']}, Cpus_allowed_list and Mems_allowed_list",
            (npu["pool"] if threads and cpus == npu["main"] else cpus, nodes),
            (npu["pool"], npu["memory_nodes"]),
        )


def as_planned(claims, machine, plan, look=None):
    """Claim that slices and interrupts, and what belongs to them, have the CPUs of the plan; return what the kernel says."""
    look = look or machine.look()
    in_their_slices(claims, machine, plan, look)
    on_their_cpus(claims, machine, plan, look)
    return look


def pin(machine, interrupts, cpu):
    machine.run(f"for n in {' '.join(map(str, interrupts))}; do echo {cpu} >/proc/irq/$n/smp_affinity_list; done")


def refused(claims, machine, interrupts):
    """Claim that the kernel refuses to move each of the interrupts, because it manages them itself."""
    answers = machine.run(f"for n in {' '.join(map(str, interrupts))}; do echo 1 2>&1 >/proc/irq/$n/smp_affinity_list || true; done")
    named = {line.rpartition(": ")[2] for line in answers.splitlines()}
    claims.true(f"the kernel refuses to move {len(interrupts)} of them: {named}", named and named <= set(MANAGED), answers)


def elapse(machine, timer):
    """Let a timer elapse in a second."""
    machine.write(SOON.format(timer=timer), "[Timer]\nOnActiveSec=\nOnActiveSec=1s\nAccuracySec=1s\n")
    machine.run(f"systemctl daemon-reload && systemctl restart {timer}")


def words_of_irqbalance(machine):
    """The command line of irqbalance, which runs; systemd may have said so before it executed the program."""
    ask = "pid=$(systemctl show --property=MainPID --value irqbalance); until [ $(cat /proc/$pid/comm) = irqbalance ]; do sleep 0.3; done"
    return machine.run(f"{ask}; tr '\\0' ' ' </proc/$pid/cmdline")


def await_another_place(machine, interrupts, cpu):
    """Wait until somebody has moved one of the interrupts away from a CPU."""
    files = " ".join(f"/proc/irq/{irq}/smp_affinity_list" for irq in interrupts)
    machine.run(f'while [ "$(sort -u {files})" = {cpu} ]; do sleep 1; done')


def allowed_to(machine, command):
    """The CPUs and memory nodes that a status of /proc, which a command prints, allows to a process."""
    return allowed(machine.run(command))


def allowed(status):
    return tuple(re.search(rf"^{key}_allowed_list:\s*(\S+)", status, re.MULTILINE).group(1) for key in ("Cpus", "Mems"))


def allowed_of_threads(machine, pid):
    """The CPUs of a process's threads by their names: ``{name: {cpulist}}``."""
    found = {}
    for status in machine.run(f"cat /proc/{pid}/task/*/status").split("Name:\t")[1:]:
        found.setdefault(status.partition("\n")[0], set()).add(allowed(status)[0])
    return found


def start(machine, unit, slice_name, program, under=""):
    """Start a Python program in a slice, under another command if given; return its process id when it has made ``/run/<unit>``."""
    machine.write(f"/run/{unit}.py", program)
    command = f"systemd-run --quiet --collect --unit={unit} --slice={slice_name} {under} python3 /run/{unit}.py"
    wait = f"until [ -e /run/{unit} ]; do sleep 0.3; done"
    machine.run(f"{command} && {wait}")
    return main_process(machine, unit)


def run_service(machine, unit, program, settings=""):
    """Install a service that runs a Python program, and start it."""
    machine.write(f"/run/{unit}.py", program)
    machine.write(f"/etc/systemd/system/{unit}", f"[Service]\nType=exec\n{settings}\nExecStart=/usr/bin/python3 /run/{unit}.py\n")
    machine.run(f"systemctl daemon-reload && systemctl start {unit}")


def main_process(machine, unit):
    return int(machine.run(f"systemctl show --property=MainPID --value {unit}"))


def variables(machine, unit, names):
    """The environment variables that a service's main process was started with, of those whose names start so."""
    lines = machine.run(f"tr '\\0' '\\n' </proc/{main_process(machine, unit)}/environ").splitlines()
    return dict(line.split("=", 1) for line in lines if line.startswith(names))


def policies(machine, pid):
    """The memory policies of a process's mappings, without those that the kernel keeps for itself."""
    return set(re.findall(r"^\S+ (\S+) (?:heap|anon)", machine.run(f"cat /proc/{pid}/numa_maps"), re.MULTILINE))


def start_worker(machine, unit, slice_name, mebibytes, under=""):
    """Start a process that holds memory in a slice, under another command if given; return its id when it holds it."""
    held = f"held = bytearray({mebibytes} << 20)\nheld[::4096] = b'x' * len(held[::4096])\n"
    return start(machine, unit, slice_name, f"import time\n{held}open('/run/{unit}', 'w').close()\ntime.sleep(3600)\n", under)


def pages(machine, pid):
    """How many pages a process has on each memory node."""
    found = {}
    for node, count in re.findall(r" N(\d+)=(\d+)", machine.run(f"cat /proc/{pid}/numa_maps")):
        found[int(node)] = found.get(int(node), 0) + int(count)
    return found

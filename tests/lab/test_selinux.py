# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SELinux with the policy of Debian, permissive and enforcing: labels of files, what is denied, and what irqbalance may run."""

import re

from tests.lab.conftest import ALONE, drift, plan_of, said, success
from tests.lab.kernel import CQ, SOON, as_planned, elapse, irqs, on_their_cpus, pin, words_of_irqbalance
from tests.lab.shapes import SELINUX
from tests.lab.test_irq import await_passes, reboot, settle
from tests.lab.test_undo import POLICY, as_before

SHAPE, CONFIG = SELINUX, "/etc/selinux/config"
AS_SESSIONS = {"ansible_python_interpreter": ALONE}
"""Modules run in the domain of ssh's sessions, as on any host."""
DENIED = re.compile(
    r'avc:  denied  \{ (?P<what>.+?) \} .*comm="(?P<program>[^"]+)".*scontext=\w+:\w+:(?P<domain>\w+).*permissive=(?P<free>[01])'
)
SYSTEM = re.compile(r"systemd-|\(spawn\)")
"""Programs of systemd, and what udev is before it runs a rule's program: Debian's policy denies them things on any host."""
NAMED = {("systemctl", "udev_t", "setrlimit")}
"""What docs/troubleshooting.md names: how udev starts a unit."""


def denials(machine):
    """What SELinux denied to programs that are not systemd's, or would have: ``{(program, domain, permissions): enforced}``."""
    log = machine.run("journalctl --no-pager --output=cat --grep='avc:  denied' || true")
    found = {}
    for line in DENIED.finditer(log):
        if not SYSTEM.match(line["program"]):
            case = line["program"], line["domain"], line["what"]
            found[case] = found.get(case, False) or line["free"] == "0"
    return found


def labelled(claims, machine):
    """Claim that the labels of all files are those of the policy."""
    claims.equal("what restorecon would change", machine.run("restorecon -nvR /etc /usr /var /run").splitlines(), [])


def test_from_permissive_to_enforcing(lab, claims, tmp_path):
    """Bind under a permissive SELinux, then enforcing: reboot, driver load, timer, verify, bind and unbind"""
    machine, _run, before, files = lab.bound(SHAPE)
    plan = plan_of(machine)
    claims.equal("mode of the first bind", machine.run("getenforce").strip(), "Permissive")
    labelled(claims, machine)
    claims.equal("denials of the first bind", denials(machine), {})

    machine.run(f"sed -i s/=permissive/=enforcing/ {CONFIG}")
    reboot(claims, machine)
    claims.equal("mode after a reboot", machine.run("getenforce").strip(), "Enforcing")
    as_planned(claims, machine, plan)
    machine.run("rmmod davinci_mock && modprobe davinci_mock vectors=33")
    settle(machine)
    look = machine.look()
    on_their_cpus(claims, machine, plan, look)

    moved = irqs(look["functions"][plan["npus"][0]["pci"]], CQ)[0]
    elsewhere = plan["npus"][1]["irq"].partition("-")[0]
    pin(machine, [moved], elsewhere)
    elapse(machine, "npu-affinity-irq.timer")
    machine.run(f"while [ $(cat /proc/irq/{moved}/smp_affinity_list) = {elsewhere} ]; do sleep 1; done")
    machine.await_idle("npu-affinity-irq.service")
    machine.run(f"rm {SOON.format(timer='npu-affinity-irq.timer')} && systemctl daemon-reload && systemctl restart npu-affinity-irq.timer")
    on_their_cpus(claims, machine, plan)

    claims.equal("exit status and drift", drift(lab, machine, tmp_path, **AS_SESSIONS), (0, {}))
    claims.equal("exit status of a bind", success(lab.play(machine, "bind", **AS_SESSIONS)), (0, ""))
    labelled(claims, machine)
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind", **AS_SESSIONS)), (0, ""))
    logged = machine.run("journalctl --boot --no-pager --output=cat --grep='avc:  denied.*permissive=0' || true").splitlines()
    claims.true(f"{len(logged)} denials of systemd's programs were logged since the reboot", logged)
    claims.equal("other denials of all that, without the known ones", set(denials(machine)) - NAMED, set())
    machine.run(f"sed -i s/=enforcing/=permissive/ {CONFIG}")
    as_before(claims, machine, before, files)


def test_irqbalance_that_may_run_no_script(lab, claims, tmp_path):
    """Enforcing SELinux: irqbalance gets only what it may run, and follows its policy when it is exempted"""
    machine = lab.bound(SHAPE).machine
    plan = plan_of(machine)
    machine.run("setenforce 1 && systemctl start irqbalance")
    run = lab.play(machine, "bind", **AS_SESSIONS)  # fails where irqbalance has moved interrupts by its end
    why = "its policy on this host lets irqbalance run no policy script ('semanage permissive -a irqbalance_t' exempts it)"
    claims.true("it says why irqbalance is not told, and what exempts it", why in said(run))
    claims.equal("its policy script", machine.run(f"[ -e {POLICY} ] && echo there || echo removed").strip(), "removed")
    claims.true("irqbalance was told nothing", "--policyscript" not in words_of_irqbalance(machine))
    stopped = lab.play(machine, "bind", npu_affinity_irqbalance="stop", **AS_SESSIONS)
    claims.equal("exit status of a bind that stops it", success(stopped), (0, ""))
    on_their_cpus(claims, machine, plan)
    refused = denials(machine)
    claims.true(f"before that, SELinux denied {refused}", {case[:2] for case in refused} == {("irqbalance", "irqbalance_t")}, refused)

    module = "/root/permissive_irqbalance_t.cil"  # as semanage makes it
    machine.write(module, "(typepermissive irqbalance_t)\n")
    machine.run(f"semodule -X 400 -i {module} && rm {module}", timeout=900)
    claims.equal("exit status of a bind", success(lab.play(machine, "bind", **AS_SESSIONS)), (0, ""))
    claims.true("irqbalance was told", f"--policyscript={POLICY}" in words_of_irqbalance(machine))
    labelled(claims, machine)
    pid = machine.run("systemctl show --property=MainPID --value irqbalance").strip()
    await_passes(machine, pid, 3)
    on_their_cpus(claims, machine, plan)
    enforced = {case for case, enforced in denials(machine).items() if enforced}
    claims.equal("denials that were enforced", enforced - NAMED, set(refused))
    claims.equal("exit status and drift", drift(lab, machine, tmp_path, **AS_SESSIONS), (0, {}))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind", **AS_SESSIONS)), (0, ""))
    claims.true("irqbalance was told nothing", "--policyscript" not in words_of_irqbalance(machine))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hardened machine, with the configuration of docs/first-bind.md: neither root nor anybody without the bastion may log in."""

import functools
import subprocess

import pytest

from tests.lab import image
from tests.lab.conftest import REPOSITORY, Operator, changes, drift, plan_of, said, success
from tests.lab.kernel import CQ, as_planned, irqs, pin
from tests.lab.machine import PATIENCE
from tests.lab.shapes import DUO
from tests.lab.test_faults import OTHER_PLAN
from tests.lab.test_irq import reboot
from tests.lab.test_undo import as_before

PASSWORD = "secret of ops"
LIBRARY = "/var/lib/npu-affinity"
COMMAND = f"{LIBRARY}/npu-affinity"
BASTION = "admin@bastion.example.com"
HARDEN = f"""
set -eu
useradd --no-user-group --create-home --shell /bin/bash ops
echo 'ops:{PASSWORD}' | chpasswd
useradd --shell /usr/sbin/nologin admin
mkdir /etc/ssh/keys
for user in ops admin; do install -m 644 /root/.ssh/authorized_keys /etc/ssh/keys/$user; done
echo 'AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/keys/%u' >/etc/ssh/sshd_config.d/keys.conf
printf '%s\\n' 'Port 2222' 'PermitRootLogin no' 'PasswordAuthentication no' 'PidFile none' 'Include /etc/ssh/sshd_config' >/etc/ssh/hardened
printf '%s\\n' 'Defaults requiretty' 'ops ALL=(ALL:ALL) ALL' | install -m 440 /dev/stdin /etc/sudoers.d/ops
printf '%s\\n' 'tmpfs /tmp tmpfs noexec,nosuid,nodev 0 0' 'proc /proc proc hidepid=2 0 0' >/etc/fstab
printf '%s\\n' '[Mount]' What=/usr Where=/usr Options=bind,ro '[Install]' WantedBy=local-fs.target >/etc/systemd/system/usr.mount
rm /etc/systemd/system-generators/systemd-fstab-generator
mount --all
mount -o remount /proc
mount -o remount /tmp
systemctl enable --now usr.mount
systemctl enable --now hardened-sshd
systemctl reload ssh
"""
"""A second sshd, which only the first one can reach: that is the bastion, and root's way in for what a test asks the machine.

/usr has a unit of its own: with a bind of it in fstab, the whole disk of Debian 13 was read-only after a reboot. It is mounted before that
sshd starts, whose mount namespace would keep a writable one.
"""
SSHD = """
[Unit]
After=network.target ssh.service
[Service]
ExecStart=/usr/sbin/sshd -D -f /etc/ssh/hardened
ProtectHome=yes
UMask=0077
[Install]
WantedBy=multi-user.target
"""
SSH = """
Host bastion.example.com
 Port {port}
Host {name}
 Port 2222
 User ops
Host *
 HostName 127.0.0.1
 IdentityFile {key}
 StrictHostKeyChecking no
 UserKnownHostsFile /dev/null
 LogLevel ERROR
 ServerAliveInterval 15
 ServerAliveCountMax 20
"""
SEEN = """
umask
ls -d /proc/1 || echo 'no process of others'
LC_ALL=C touch /usr/local/there 2>&1 | grep -q 'Read-only' && echo '/usr is read-only'
printf '#!/bin/sh\\n' >/tmp/program; chmod 700 /tmp/program; /tmp/program || echo '/tmp is noexec'
ls ~ || echo 'no home'
sudo -S true || echo 'no sudo without a terminal'
"""


class Operators:
    """The way to a hardened machine: ``play`` runs playbooks as ops, and ``ssh`` commands."""

    def __init__(self, lab, machine):
        folder = machine.ssh_config.parent
        self._config, ansible = folder / "hardened", folder / "ansible.cfg"
        port = next(line.split()[1] for line in machine.ssh_config.read_text().splitlines() if line.startswith(" Port"))
        self._config.write_text(SSH.format(port=port, name=machine.shape.name, key=image.KEY))
        ansible.write_text((REPOSITORY / "docs/first-bind.md").read_text().partition("```ini\n")[2].partition("```")[0])
        variables = {"ansible_user": "ops", "ansible_become": True, "ansible_become_password": PASSWORD, "ansible_pipelining": False}
        variables |= {"ansible_remote_tmp": "/var/tmp/ansible-ops", "ansible_ssh_common_args": f"-F {self._config}"}
        variables |= {"npu_affinity_library": LIBRARY, "npu_affinity_timeout": PATIENCE}
        operator = Operator(variables, {"ANSIBLE_CONFIG": str(ansible), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder)})
        self._name, self._play = machine.shape.name, functools.partial(lab.play_as, operator)

    def play(self, machine, playbook, *arguments, **variables):
        return self._play(machine, playbook, *arguments, **variables)

    def ssh(self, command, *options, user="ops"):
        """What a command says, and on another line its exit status."""
        words = ["ssh", "-F", str(self._config), "-J", BASTION, *options, f"{user}@{self._name}", f"{command}\necho $?"]
        ended = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
        return ended.stdout + ended.stderr

    def sudo(self, command):
        return self.ssh(f"echo '{PASSWORD}' | sudo --stdin --prompt= {command}", "-tt")


@pytest.fixture
def hardened(lab):
    machine = lab.fresh(DUO)
    machine.write("/etc/systemd/system/hardened-sshd.service", SSHD)
    machine.run(HARDEN)
    return machine, Operators(lab, machine)


def test_from_plan_to_unbind(hardened, claims, tmp_path):
    """Hardened Small machine: from plan to unbind, over a reboot, by a user with a password for sudo"""
    machine, operators = hardened
    before, files, seen = machine.look(), machine.files(), in_the_way(claims, operators)
    planned(claims, machine, operators)
    plan = bound_once(claims, machine, operators)
    moved_by_hand(claims, machine, operators, tmp_path)

    reboot(claims, machine)
    claims.equal("what ops finds after it", operators.ssh(SEEN), seen)
    as_planned(claims, machine, plan)
    claims.equal("exit status and drift after it", drift(operators, machine, tmp_path), (0, {}))
    asked_on_the_host(claims, operators, plan)

    claims.equal("exit status of a bind by another plan", success(operators.play(machine, "bind", **OTHER_PLAN)), (0, ""))
    claims.true("it is another plan", plan_of(machine)["npus"] != plan["npus"])
    claims.equal("exit status of the rollback", success(operators.play(machine, "rollback", npu_affinity_to="-1")), (0, ""))
    as_planned(claims, machine, plan)
    claims.equal("exit status and drift after it", drift(operators, machine, tmp_path), (0, {}))

    claims.equal("exit status of unbind", success(operators.play(machine, "unbind")), (0, ""))
    as_before(claims, machine, before, files)
    claims.equal(f"what is left in {LIBRARY}", machine.run(f"ls -A {LIBRARY} || true"), "")


def in_the_way(claims, operators):
    """Claim that each part of the hardening is in the way of ops, and return what ops sees."""
    claims.true("root may not log in", "Permission denied" in operators.ssh("true", user="root"))
    seen = operators.ssh(SEEN)
    for sign in ("0077", "no process of others", "/usr is read-only", "/tmp is noexec", "no home", "no sudo without a terminal"):
        claims.true(f"ops finds: {sign}", sign in seen, seen)
    return seen


def planned(claims, machine, operators):
    run = operators.play(machine, "plan", ansible_pipelining=True)
    claims.equal("exit status with pipelining", run.status, 2)
    claims.true("the summary says why", "sudo: sorry, you must have a tty to run sudo [NPU_NOT_GATHERED]" in said(run), said(run))
    claims.equal("exit status of plan", success(operators.play(machine, "plan")), (0, ""))


def bound_once(claims, machine, operators):
    """Bind, claim that a second bind changes nothing, and return the plan."""
    claims.equal("exit status of bind", success(operators.play(machine, "bind")), (0, ""))
    plan = plan_of(machine)
    as_planned(claims, machine, plan)
    claims.equal("exit status and changes of check mode", changes(operators.play(machine, "bind", "--check", "--diff")), (0, []))
    claims.equal("exit status and changes of a second bind", changes(operators.play(machine, "bind")), (0, []))
    return plan


def moved_by_hand(claims, machine, operators, folder):
    claims.equal("exit status and drift", drift(operators, machine, folder), (0, {}))
    npu = plan_of(machine)["npus"][1]
    operators.sudo("systemctl stop npu-affinity-irq.timer npu-affinity-irq.service")
    pin(machine, irqs(machine.look()["functions"][npu["pci"]], CQ)[:1], 11)
    expected = {f"NPU {npu['id']} {CQ}": "manual change", "npu-affinity-irq.timer": "manual change"}
    claims.equal("exit status and drift after a change by hand", drift(operators, machine, folder), (2, expected))


def asked_on_the_host(claims, operators, plan):
    """Claim that the command answers ops as docs/host-command.md says."""
    answer = operators.ssh(f"{COMMAND} plan && {COMMAND} status")
    claims.true("ops may read the plan", all(npu["slice"] in answer for npu in plan["npus"]), answer)
    claims.true("and not the status", f"only root can read all of it: sudo {COMMAND} status" in answer, answer)
    answer = operators.sudo(f"{COMMAND} status")
    claims.true("which sudo gives", f"bound: {len(plan['npus'])} NPUs" in answer and answer.split()[-1] == "0", answer)

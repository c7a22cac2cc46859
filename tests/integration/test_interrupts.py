# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts on which interrupts, workqueues or irqbalance ignore what was set: the playbooks report it, host by host."""

from __future__ import annotations

import json
import subprocess

import yaml

from tests.fakes.small_host import MACHINE, PLAN, interrupt, said, write

RULE = "etc/udev/rules.d/90-npu-affinity.rules"
VARIABLES = {"npu_affinity_batches": ["100%"]}


def deliver_elsewhere(tree, cpu):
    """Make the first SQ interrupt one that only follows its list when the kernel lets it."""
    path = tree / interrupt(tree, "sq_send_trigger_irq", 0)[1:].replace("smp_", "effective_")
    path.unlink()
    path.write_text(f"{cpu}\n")


def fire(tree, irq):
    table = tree / "proc/interrupts"
    lines = table.read_text().splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith(f"{irq:5d}:"))
    lines[place] = lines[place].replace("          0", "          7", 1)
    table.write_text("\n".join(lines) + "\n")


def pose(tree, pid):
    """A user's process with the name of the driver's thread and an empty command line."""
    for name, text in (("comm", "dev0_sq_task"), ("cmdline", ""), ("stat", f"{pid} (dev0_sq_task) S 1 1 1 0 -1 4194560")):
        write(tree, f"/proc/{pid}/{name}", text + "\n")
    write(tree, f"/proc/{pid}/status", "Name:\tdev0_sq_task\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t0-31\n")


def remarks(run, host):
    """What a bind said besides failing: a list of sentences."""
    return run.summary["hosts"][host]["remarks"]


def test_unmoved_interrupts_are_reported_and_foreign_ones_kept(fleet):
    isolated = dict(MACHINE, cpus=dict(MACHINE["cpus"], isolated="1,17"))
    hosts = fleet(lazy=MACHINE, isolated=isolated, posed=MACHINE)
    pose(hosts.tree("posed"), 4321)

    run = hosts.succeed("bind", npu_affinity_housekeeping="1", **VARIABLES)
    (queue,) = [line for line in remarks(run, "isolated") if "dev0_sq_send_wq" in line]
    assert "runs on CPUs 0,2-16,18-31 all the same" in queue
    assert any("send workqueue off" in warning for warning in json.loads((hosts.tree("isolated") / PLAN[1:]).read_text())["warnings"])
    assert "Cpus_allowed_list:\t0-31" in (hosts.tree("posed") / "proc/4321/status").read_text()
    assert 'KERNEL=="0000:c1:00.0|0000:01:00.0"' in (hosts.tree("lazy") / RULE).read_text()

    deliver_elsewhere(hosts.tree("lazy"), 30)
    run = hosts.play("bind", "--limit", "lazy", npu_affinity_housekeeping="1", **VARIABLES)
    assert (run.status, run.changed("lazy")) == (0, 0), run.output
    assert any("sq_send_trigger_irq follows at its next interrupt; until then it is on CPUs 30" in line for line in remarks(run, "lazy"))

    fire(hosts.tree("lazy"), 2753)
    run = hosts.play("verify", npu_affinity_housekeeping="1", **VARIABLES)
    line = said(run, "lazy")[1]
    assert line.startswith(
        "NPU 0 sq_send_trigger_irq: expected CPUs 17, found arrived since it was moved to CPUs 17, and still arrives on CPUs 30"
    )
    assert not run.of("isolated", "failed") and not run.of("posed", "failed")


def test_a_host_with_unbindable_interrupts_fails_or_warns_as_set(fleet):
    silent = dict(MACHINE, npus=dict(MACHINE["npus"], vectors=0))
    hosts = fleet(strict=silent, lenient=silent, bound=MACHINE)
    set_variable(hosts, "lenient", npu_affinity_irq_failure="warn")
    run = hosts.play("bind", **VARIABLES)
    assert "its driver has not requested sq_send_trigger_irq and cq_update_irq" in run.failure("strict")
    assert not run.of("lenient", "failed") and not run.of("bound", "failed")
    assert "[WARNING]: NPU 0 (0000:c1:00.0): its driver has not requested" in run.output
    assert "--failure warn" in (hosts.tree("lenient") / "etc/systemd/system/npu-affinity-irq.service").read_text()

    again = hosts.play("bind", "--limit", "lenient,bound", **VARIABLES)
    assert (again.status, again.changed("lenient")) == (0, 0), again.output
    assert again.modules("lenient") == ["npu.affinity.gather"], "it is as wanted"
    run = hosts.play("verify", "--limit", "lenient,strict", **VARIABLES)
    assert "0 of " in said(run, "lenient")[0]
    assert any("to do: NPU 1 (0000:01:00.0): its driver has not requested" in line for line in said(run, "lenient"))
    assert any(line.startswith("NPU 0 cq_update_irq: expected requested, found not requested") for line in said(run, "strict"))


def set_variable(hosts, host, **variables):
    inventory = yaml.safe_load(hosts.inventory.read_text())
    inventory["all"]["hosts"][host].update(variables)
    hosts.inventory.write_text(yaml.safe_dump(inventory))


BUSY = dict(MACHINE, irqbalance={"installed": True, "active": True, "unit": "rhel", "options": ""})
SCRIPT = "usr/local/lib/npu-affinity/irqbalance-policy"
CONFINED_SCRIPT = "usr/libexec/irqbalance/npu-affinity-policy"
ENVIRONMENT = "etc/npu-affinity/irqbalance.env"


def enforce(tree, boolean=None):
    write(tree, "/sys/fs/selinux/enforce", "1")
    write(tree, "/proc/901/attr/current", "system_u:system_r:irqbalance_t:s0\n")
    if boolean is not None:
        write(tree, "/sys/fs/selinux/booleans/irqbalance_run_unconfined", boolean)


def value_for_the_shell(tree):
    """What a shell takes from our environment file, which systemd reads alike."""
    command = ["sh", "-c", '. "$0"; printf "%s" "$IRQBALANCE_ARGS"', str(tree / ENVIRONMENT)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_irqbalance_keeps_its_settings_and_is_set_if_it_listens(fleet):
    hosts = fleet(kept=BUSY, enforcing=BUSY, allowed=BUSY)
    kept, enforcing, allowed = (hosts.tree(name) for name in ("kept", "enforcing", "allowed"))
    site = hosts.folder / "site policy.sh"
    site.write_text('#!/bin/sh\necho "numa_node=1 $2"\n')
    site.chmod(0o755)
    write(kept, "/etc/sysconfig/irqbalance", f"IRQBALANCE_ARGS=\"--banirq=5 \\\n --policyscript='{site}'\"\n")
    write(kept, "/etc/systemd/system/irqbalance.service.d/10-site.conf", '[Service]\nEnvironment="IRQBALANCE_ARGS=--debug"\n')
    enforce(enforcing)
    enforce(allowed, "1 1\n")

    run = hosts.succeed("bind", **VARIABLES)
    assert value_for_the_shell(kept) == f"--banirq=5 --policyscript=/{SCRIPT}"
    answers = {
        pci: subprocess.run([kept / SCRIPT, f"/sys/devices/pci/{pci}", "77"], capture_output=True, text=True, check=True).stdout
        for pci in ("0000:c1:00.0", "0000:7d:00.0")
    }
    assert answers == {"0000:c1:00.0": "ban=true\n", "0000:7d:00.0": "numa_node=1 77\n"}

    (refusal,) = [line for line in remarks(run, "enforcing") if line.startswith("irqbalance")]
    assert "SELinux is enforcing, and its policy on this host lets irqbalance run no policy script" in refusal
    assert not (enforcing / SCRIPT).exists() and not (enforcing / ENVIRONMENT).exists()
    assert value_for_the_shell(allowed) == f"--policyscript=/{CONFINED_SCRIPT}"
    assert (allowed / CONFINED_SCRIPT).stat().st_mode & 0o777 == 0o755 and not (allowed / SCRIPT).exists()
    assert hosts.play("bind", **VARIABLES).changed("allowed") == 0

    (enforcing / interrupt(enforcing, "cq_update_irq", 0)[1:]).write_text("9\n")
    line = said(hosts.play("verify", "--limit", "enforcing", **VARIABLES), "enforcing")[1]
    assert "likely irqbalance: it runs, and cannot be configured to ignore the NPUs: SELinux is enforcing" in line

    hosts.succeed("unbind")
    assert not (allowed / "usr/libexec").exists()
    assert "IRQBALANCE_ARGS" in (kept / "etc/sysconfig/irqbalance").read_text()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs with settings of their own: services, and irqbalance; and interrupts that cannot be bound."""

import subprocess

from tests.fakes.changes import state, touched
from tests.fakes.small_host import MACHINE, UNITS, said, write

VENDOR = "/usr/lib/systemd/system/"
SERVICES = {
    "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0], "engine": "sglang"}, {"unit": "tp.service", "npus": [0, 1]}],
    "npu_affinity_housekeeping": "1",
    "npu_affinity_batches": ["100%"],
}
OWN = "[Service]\nExecStart=/usr/bin/vllm\nCPUAffinity=0-31\nNUMAMask=0-1\nAllowedCPUs=0-31\nAllowedMemoryNodes=0-1\n"
LATER = {
    "v1": ("vllm@.service.d/90-local.conf", "[Service]\nCPUAffinity=0-3\n", "vllm@0.service CPUAffinity", "CPUAffinity=17-31 0-3"),
    "v2": ("tp.service.d/90-local.conf", "[Service]\nAllowedCPUs=\nAllowedCPUs=0-3\n", "tp.service AllowedCPUs", "AllowedCPUs=0-3"),
}


DEVICES = "ASCEND_RT_VISIBLE_DEVICES"
TOLD = {
    "v1": {"vllm@.service": f"Environment={DEVICES}=%i\n", "tp.service": ""},
    "v2": {"vllm@.service": "Environment=SGLANG_SET_CPU_AFFINITY=1\n", "tp.service": f"Environment={DEVICES}=1,7\n"},
}


def output(run):
    return " ".join(run.output.split())


def test_a_services_own_lists_are_reset_and_later_drop_ins_named(fleet):
    hosts = fleet(v1={**MACHINE, "cgroup": "v1"}, v2=MACHINE)
    for host in hosts.hosts:
        for name in ("vllm@.service", "tp.service"):
            write(hosts.tree(host), VENDOR + name, OWN + TOLD[host][name])
        write(hosts.tree(host), UNITS + "system.slice.d/10-site.conf", "[Slice]\nAllowedCPUs=0-15\n")
    bound = hosts.succeed("bind", **SERVICES)
    assert "does not exist: no folder" not in output(bound)
    drop_in = UNITS[1:] + "%s.d/50-npu-affinity.conf"
    assert (
        "CPUAffinity=\nNUMAMask=\nCPUAffinity=17-31\nNUMAPolicy=preferred\nNUMAMask=1\n"
        in (hosts.tree("v1") / (drop_in % "vllm@0.service")).read_text()
    )
    assert (
        "AllowedCPUs=\nAllowedMemoryNodes=\nCPUAffinity=\nSlice=npu.slice\nAllowedCPUs=1-15,17-31\nAllowedMemoryNodes=0-1\nCPUAffinity=0-31\n"
        in (hosts.tree("v2") / (drop_in % "tp.service")).read_text()
    )
    assert "AllowedCPUs=\nAllowedCPUs=0,16\n" in (hosts.tree("v2") / (drop_in % "system.slice")).read_text()
    files = {
        (host, name): (hosts.tree(host) / (drop_in % name)).read_text() for host in hosts.hosts for name in ("vllm@0.service", "tp.service")
    }
    told = {key: text.partition(f"Environment={DEVICES}=")[2] for key, text in files.items()}
    switch = "Environment=SGLANG_AUTO_NUMA_BIND=0\nEnvironment=SGLANG_SET_CPU_AFFINITY=0\n"
    assert told[("v1", "tp.service")] == "0,1\n" and told[("v2", "vllm@0.service")] == "0\n" + switch
    assert {key for key, text in files.items() if switch in text} == {("v1", "vllm@0.service"), ("v2", "vllm@0.service")}
    assert told[("v1", "vllm@0.service")] == told[("v2", "tp.service")] == "", "what a unit says itself is not overridden"
    left = f"/usr/lib/systemd/system/tp.service sets {DEVICES}=1,7"
    assert f"tp.service has the CPUs of NPU 0 and NPU 1, and {left} instead of 0,1. It is left so" in output(bound)
    verified = hosts.succeed("verify", **SERVICES)
    assert f": {left}, and the CPUs of tp.service are those of {DEVICES}=0,1" in output(verified)

    for host, (path, text, _name, _found) in LATER.items():
        write(hosts.tree(host), UNITS + path, text)
    write(hosts.tree("v2"), UNITS + "system.slice.d/60-site.conf", "[Slice]\nAllowedCPUs=3\n")
    differs = hosts.play("verify", **SERVICES)
    for host, (path, _text, name, found) in LATER.items():
        (entry,) = (entry for entry in differs.of(host, "ok") if entry["action"].endswith("binding_info"))
        drift = {found["object"]: found for found in entry["result"]["drift"]}
        assert drift[name]["found"] == found and UNITS + path in drift[name]["remark"], drift
        assert set(drift) == {name} | ({"system.slice CPUs"} if host == "v2" else set())
    assert "/etc/systemd/system/system.slice.d/60-site.conf; remove it there" in output(differs)


def test_a_missing_service_is_reported_before_during_and_after(fleet):
    hosts = fleet(host=MACHINE)
    write(hosts.tree("host"), VENDOR + "vllm@.service", "[Service]\nExecStart=/usr/bin/vllm\n")
    for playbook in ("plan", "bind"):
        run = hosts.succeed(playbook, **SERVICES)
        assert output(run).count("to do on host: tp.service is not installed: systemd has no unit file of this name") == 1, playbook
    assert (hosts.tree("host") / UNITS[1:] / "tp.service.d/50-npu-affinity.conf").exists()
    verified = hosts.succeed("verify", **SERVICES)
    assert "to do on host: tp.service is not installed: systemd has no unit file of this name" in output(verified)
    write(hosts.tree("host"), UNITS + "tp.service", "[Service]\nExecStart=/usr/bin/vllm\n")
    assert "not installed" not in output(hosts.play("verify", **SERVICES))
    shown = output(hosts.play("plan", **{**SERVICES, "npu_affinity_services": SERVICES["npu_affinity_services"][:1]}))
    assert "a bind moves no NPU." in shown and "A bind changes: " in shown and "follow when you restart them: tp.service" in shown, shown


VARIABLES = {"npu_affinity_batches": ["100%"]}


def test_a_host_with_unbindable_interrupts_fails_or_warns_as_set(fleet):
    silent = dict(MACHINE, npus=dict(MACHINE["npus"], vectors=0))
    hosts = fleet(strict=silent, lenient=silent, bound=MACHINE)
    hosts.give({"lenient": {"npu_affinity_irq_failure": "warn"}})
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


SCRIPT = "usr/local/lib/npu-affinity/irqbalance-policy"


def test_irqbalance_keeps_its_arguments_and_its_other_policy(fleet):
    hosts = fleet(kept=dict(MACHINE, irqbalance={"installed": True, "active": True, "unit": "rhel", "options": ""}))
    kept, site = hosts.tree("kept"), hosts.folder / "site policy.sh"
    site.write_text('#!/bin/sh\necho "numa_node=1 $2"\n')
    site.chmod(0o755)
    write(kept, "/etc/sysconfig/irqbalance", f"IRQBALANCE_ARGS=\"--banirq=5 \\\n --policyscript='{site}'\"\n")
    write(kept, "/etc/systemd/system/irqbalance.service.d/10-site.conf", '[Service]\nEnvironment="IRQBALANCE_ARGS=--debug"\n')
    before = state(kept)
    hosts.succeed("bind", **VARIABLES)
    # a shell reads the environment file as systemd does
    command = ["sh", "-c", '. "$0"; printf "%s" "$IRQBALANCE_ARGS"', str(kept / "etc/npu-affinity/irqbalance.env")]
    assert said_by(command) == f"--banirq=5 --policyscript=/{SCRIPT}"
    answers = {pci: said_by([kept / SCRIPT, f"/sys/devices/pci/{pci}", "77"]) for pci in ("0000:c1:00.0", "0000:7d:00.0")}
    assert answers == {"0000:c1:00.0": "ban=true\n", "0000:7d:00.0": "numa_node=1 77\n"}
    hosts.succeed("unbind")
    assert touched(before, state(kept)) == set()


def said_by(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout

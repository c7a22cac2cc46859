# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that say something else themselves, that do not exist, or that run where housekeeping confines them."""

from __future__ import annotations

from tests.fakes.small_host import MACHINE, UNITS, write
from tests.simulator.generate import merge

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


def said(run):
    return " ".join(run.output.split())


def test_a_services_own_lists_are_reset_and_later_drop_ins_named(fleet):
    hosts = fleet(v1={**MACHINE, "cgroup": "v1"}, v2=MACHINE)
    for host in hosts.hosts:
        for name in ("vllm@.service", "tp.service"):
            write(hosts.tree(host), VENDOR + name, OWN + TOLD[host][name])
        write(hosts.tree(host), UNITS + "system.slice.d/10-site.conf", "[Slice]\nAllowedCPUs=0-15\n")
    bound = hosts.succeed("bind", **SERVICES)
    assert "does not exist: no folder" not in said(bound)
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
    assert f"tp.service has the CPUs of NPU 0 and NPU 1, and {left} instead of 0,1. It is left so" in said(bound)
    verified = hosts.succeed("verify", **SERVICES)
    assert f": {left}, and the CPUs of tp.service are those of {DEVICES}=0,1" in said(verified)

    for host, (path, text, _name, _found) in LATER.items():
        write(hosts.tree(host), UNITS + path, text)
    write(hosts.tree("v2"), UNITS + "system.slice.d/60-site.conf", "[Slice]\nAllowedCPUs=3\n")
    differs = hosts.play("verify", **SERVICES)
    for host, (path, _text, name, found) in LATER.items():
        (entry,) = (entry for entry in differs.of(host, "ok") if entry["action"].endswith("binding_info"))
        drift = {found["object"]: found for found in entry["result"]["drift"]}
        assert drift[name]["found"] == found and UNITS + path in drift[name]["remark"], drift
        assert set(drift) == {name} | ({"system.slice CPUs"} if host == "v2" else set())
    assert "/etc/systemd/system/system.slice.d/60-site.conf; remove it there" in said(differs)


def test_a_missing_service_is_reported_before_during_and_after(fleet):
    hosts = fleet(host=MACHINE)
    write(hosts.tree("host"), VENDOR + "vllm@.service", "[Service]\nExecStart=/usr/bin/vllm\n")
    for playbook in ("plan", "bind"):
        run = hosts.succeed(playbook, **SERVICES)
        assert said(run).count("to do on host: tp.service is not installed: systemd has no unit file of this name") == 1, playbook
    assert (hosts.tree("host") / UNITS[1:] / "tp.service.d/50-npu-affinity.conf").exists()
    verified = hosts.succeed("verify", **SERVICES)
    assert "to do on host: tp.service is not installed: systemd has no unit file of this name" in said(verified)
    write(hosts.tree("host"), UNITS + "tp.service", "[Service]\nExecStart=/usr/bin/vllm\n")
    assert "not installed" not in said(hosts.play("verify", **SERVICES))
    shown = said(hosts.play("plan", **{**SERVICES, "npu_affinity_services": SERVICES["npu_affinity_services"][:1]}))
    assert "a bind moves no NPU." in shown and "A bind changes: " in shown and "follow when you restart them: tp.service" in shown, shown


def test_a_name_with_a_typing_error_is_refused_on_request(fleet):
    hosts = fleet(host=MACHINE)
    write(hosts.tree("host"), VENDOR + "vllm@.service", "[Service]\nExecStart=/usr/bin/vllm\n")
    wrong = {"npu_affinity_services": [{"unit": "vlm@0.service", "npus": [0]}]}
    with hosts.untouched():
        run = hosts.play("bind", **wrong, npu_affinity_fail_on=["drift", "services"])
    assert "vlm@0.service (did you mean vllm@.service?) is not installed" in run.failure("host"), run.output
    assert "vlm@0.service (did you mean vllm@.service?)" in said(hosts.play("bind", **wrong))


def test_housekeeping_spares_npu_users_unless_configured(fleet):
    machine = merge(MACHINE, {"npus": {"processes": [{"npu": 0, "pid": 4711, "comm": "python"}]}})
    hosts = fleet(docker=machine, old={**machine, "cgroup": "v1"})
    one = {"npu_affinity_housekeeping": "1"}
    for arguments in (["plan"], ["bind", "--check"], ["bind"]):
        with hosts.untouched("docker"):
            run = hosts.play(*arguments, npu_affinity_batches=["100%"], **one)
        assert "python.service in system.slice (process 4711 python; /dev/davinci0)" in run.failure("docker")
        assert "to CPUs 0,16" in run.failure("docker") and "npu_affinity_housekeeping_confine_holders: true" in run.failure("docker")
        assert not run.of("old", "failed"), "cgroup v1 has no housekeeping"
    hosts.succeed("bind", "--limit", "docker", npu_affinity_housekeeping_confine_holders="yes", **one)
    assert hosts.succeed("bind", "--limit", "docker", **one).changed("docker") == 0

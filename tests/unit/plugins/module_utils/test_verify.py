# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts are bound by the real code, then one thing changes, and exactly that is listed. Nothing is ever written by a comparison."""

from __future__ import annotations

import itertools
import json
import os
import shutil

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import drift
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._features.comparing import Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import binding
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.irqbalance import POLICY
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import settings
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import slice_path
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from tests.fakes.kernel import EVERYWHERE, EVERYWHERE_MASK, FIRST, SECOND, Kernel, add_device, add_function, names_of
from tests.fakes.share import Box
from tests.fakes.share import wanted as shares_of
from tests.fakes.systemd import MARK, UNITS, ModelledSystemd

NPUS = [
    {"id": 0, "pci": FIRST, "pool": "24-35", "irq": "24-25", "mems": "1", "slice": "npu-0.slice"},
    {"id": 1, "pci": SECOND, "pool": "0-11", "irq": "0-1", "mems": "0", "slice": "npu-1.slice"},
]
PLAN = {"npus": NPUS, "housekeeping": "40-47"}
SLICE = UNITS + "/npu-0.slice"
TIMER = UNITS + "/npu-affinity-irq.timer"
QUEUE = "/sys/devices/virtual/workqueue/dev0_sq_send_wq/cpumask"
IRQBALANCE = "/sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs"


def slice_text(cpus, mems):
    return MARK + "[Slice]\nAllowedCPUs=%s\nAllowedMemoryNodes=%s\n" % (cpus, mems)


FILES = [{"path": "%s/%s" % (UNITS, npu["slice"]), "content": slice_text(npu["pool"], npu["mems"])} for npu in NPUS]
FILES.append({"path": TIMER, "content": MARK + "[Timer]\n[Install]\nWantedBy=timers.target\n"})
OWNED = [UNITS + "/npu*.slice", UNITS + "/*.d/50-npu-affinity*.conf"]
CODE = {"path": installed.ARCHIVE, "content": MARK + 'VERSION = "1.0.0"\nsources\n'}
WANTED = Wanted(files=[*FILES, CODE], owned=OWNED, enabled=["npu-affinity-irq.timer"])


def put_plan(host, plan):
    os.makedirs(os.path.dirname(host.path(binding.PLAN)), exist_ok=True)
    with open(host.path(binding.PLAN), "w") as file:
        json.dump(plan, file)


def state(host):
    found = {}
    for folder, _folders, files in os.walk(host.root):
        for path in (os.path.join(folder, name) for name in files):
            information = os.lstat(path)
            found[path] = (information.st_mtime_ns, information.st_ino, information.st_size)
    return found


def compared(host, wanted, plan=None):
    """Compare, make sure that nothing was written, and return ``(bound, findings)``."""
    before = state(host)
    result = verify(host, wanted, plan)
    assert state(host) == before
    return result


def lines(findings):
    return ["%(object)s: %(expected)s, not %(found)s; %(cause)s: %(remark)s" % entry for entry in map(result_of, findings.drift)]


def begins(said, expected):
    """Return the lines, each cut to the length of what is expected of it."""
    return [line[: len(start)] for line, start in itertools.zip_longest(said, expected, fillvalue="")]


@pytest.fixture
def bound(tmp_path):
    """A tree of 48 CPUs and two NPUs that was bound."""
    host = Kernel(tmp_path)
    host.put("/sys/devices/system/cpu/online", EVERYWHERE)
    host.put("/proc/interrupts", "      CPU0       CPU1\n    3: 0 0  GICv3 27 Level  arch_timer")
    for number, (pci, first) in enumerate([(FIRST, 2752), (SECOND, 3008)]):
        add_function(host, pci, first, names_of(number))
        add_device(host, number)
    apply(host, Request(files=[*FILES, CODE], owned=OWNED, enabled=["npu-affinity-irq.timer"]))
    binding.bind(host, PLAN)
    put_plan(host, PLAN)
    return host


def move(host, irq, cpus):
    host.put("/proc/irq/%d/smp_affinity_list" % irq, cpus)


def deliver_elsewhere(host, irq, cpu, times):
    """Let the next bind find an interrupt that does not follow yet, and let it come so many times afterwards."""
    host.put("/proc/irq/%d/effective_affinity_list" % irq, cpu)
    binding.bind(host, PLAN)
    host.put("/proc/interrupts", host.read("/proc/interrupts").replace(" %d: 0 0 " % irq, " %d: 0 %d " % (irq, times)))


def move_thread(host, cpus):
    status = host.read("/proc/900/status")
    host.put("/proc/900/status", status.replace("Cpus_allowed_list:\t24", "Cpus_allowed_list:\t" + cpus))


def move_everything(host):
    for irq in range(2753, 2770):
        move(host, irq, EVERYWHERE)
    host.put(QUEUE, EVERYWHERE_MASK)
    move_thread(host, EVERYWHERE)


def forget_interrupts(host):
    table = host.read("/proc/interrupts").splitlines()
    host.put("/proc/interrupts", "\n".join(line for line in table if not line.strip().startswith("27")))


def run_irqbalance(host, policy=None, arguments=""):
    host.put(IRQBALANCE, "901")
    host.put("/proc/901/cmdline", "/usr/sbin/irqbalance\0--foreground\0" + arguments)
    if policy is not None:
        host.put(POLICY, policy)
    move(host, 2753, "7")


def run_torch_npu(host, setting, visible="0", cgroup="/npu.slice/npu-0.slice/train.scope"):
    host.put("/proc/300/cgroup", "0::" + cgroup)
    host.put("/proc/300/comm", "python3")
    host.put("/proc/300/environ", "LANG=C\0ASCEND_RT_VISIBLE_DEVICES=%s\0CPU_AFFINITY_CONF=%s" % (visible, setting))
    move(host, 2753, "6")
    move(host, 2755, "7")


def offline(host, cpus, online):
    host.put("/sys/devices/system/cpu/online", online)
    for irq in range(2753, 2770):
        if host.read("/proc/irq/%d/smp_affinity_list" % irq) == cpus:
            move(host, irq, online)


def remove(host, path):
    os.unlink(host.path(path))


def edit(host, path, old, new):
    with open(host.path(path)) as file:
        text = file.read()
    assert old in text
    with open(host.path(path), "w") as file:
        file.write(text.replace(old, new))


def append(host, path, text):
    with open(host.path(path), "ab") as file:
        file.write(text)


UNPLACED = {
    "not yet": (
        lambda host: deliver_elsewhere(host, 2753, "30", 0),
        "follows at its next interrupt; until then it is on CPUs 30",
    ),
    "managed by the kernel": (
        lambda host: [move(host, 2753, "7"), os.chmod(host.path("/proc/irq/2753/smp_affinity_list"), 0o444)],
        "is placed by the kernel itself and stays on CPUs 7",
    ),
}


@pytest.mark.parametrize("change, remark", list(UNPLACED.values()), ids=list(UNPLACED))
def test_an_interrupt_that_cannot_be_placed_is_a_remark(bound, change, remark):
    change(bound)
    findings = compared(bound, WANTED)[1]
    assert lines(findings) == []
    assert findings.remarks == ["NPU 0 (%s): IRQ 2753 sq_send_trigger_irq %s [NPU_IRQ_UNPLACED]" % (FIRST, remark)]


def test_missing_interrupts_that_are_tolerated_are_to_do(bound):
    forget_interrupts(bound)
    assert lines(compared(bound, WANTED)[1])
    findings = compared(bound, WANTED._replace(live={"irq": "warn"}))[1]
    (remark,) = findings.remarks
    assert lines(findings) == [] and "its driver has not requested" in remark and remark.endswith("[NPU_IRQ_FAILED]")


def test_a_bound_host_has_no_drift_and_names_what_was_compared(bound):
    was_bound, findings = compared(bound, WANTED)
    assert (was_bound, findings.drift, findings.remarks) == (True, [], [])
    assert findings.checked == {
        "plan": [binding.PLAN],
        "npus": ["NPU 0", "NPU 1"],
        "cpus": ["pool of NPU 0", "pool of NPU 1", "housekeeping"],
        "files": [entry["path"] for entry in [*FILES, CODE]],
        "units": ["npu-affinity-irq.timer at boot"],
        "interrupts": ["NPU %d %s" % (number, name) for number in (0, 1) for name in (binding.CQ, binding.SQ)],
        "workqueues": ["NPU 0 dev0_sq_send_wq", "NPU 1 dev1_sq_send_wq"],
        "threads": ["NPU 0 dev0_sq_task", "NPU 1 dev1_sq_task"],
    }


TOLD = "#!/bin/sh\ncase */%s) echo ban=true ;; esac" % FIRST
CHANGES = {
    "an interrupt was moved": (
        lambda host: move(host, 2755, "7"),
        "NPU 0 cq_update_irq: CPUs 25, not CPUs 7 (IRQ 2755); manual change: moved by hand or by another program; at the next write, "
        "bpftrace -e 'kprobe:irq_affinity_proc_write",
    ),
    "several interrupts were moved, to different places": (
        lambda host: [move(host, 2754, "7"), move(host, 2755, "7"), move(host, 2769, "3")],
        "NPU 0 cq_update_irq: CPUs 25, not CPUs 7 (IRQ 2754-2755), CPUs 3 (IRQ 2769); manual change",
    ),
    "irqbalance, told nothing": (
        run_irqbalance,
        "NPU 0 sq_send_trigger_irq: CPUs 24, not CPUs 7 (IRQ 2753); irqbalance: it runs without a policy",
    ),
    "irqbalance, told of others": (
        lambda host: run_irqbalance(host, TOLD.replace(FIRST, SECOND), "--policyscript=" + POLICY),
        "NPU 0 sq_send_trigger_irq: CPUs 24, not CPUs 7 (IRQ 2753); irqbalance: it runs, and its policy does not name",
    ),
    "irqbalance, not restarted since it was told": (
        lambda host: run_irqbalance(host, TOLD),
        "NPU 0 sq_send_trigger_irq: CPUs 24, not CPUs 7 (IRQ 2753); irqbalance: it runs without the policy",
    ),
    "irqbalance leaves alone what it was told to": (
        lambda host: run_irqbalance(host, TOLD, "--policyscript=" + POLICY),
        "NPU 0 sq_send_trigger_irq: CPUs 24, not CPUs 7 (IRQ 2753); manual change",
    ),
    "torch_npu told otherwise": (
        lambda host: [run_torch_npu(host, "2,npu0:10-20,bind_irq:1"), move(host, 2755, "25")],
        "NPU 0 sq_send_trigger_irq: CPUs 24, not CPUs 6 (IRQ 2753); manual change",
    ),
    "the interrupt's CPU was offline for a while": (
        lambda host: [offline(host, "24", "0-23,25-47"), host.put("/sys/devices/system/cpu/online", EVERYWHERE)],
        "NPU 0 sq_send_trigger_irq: CPUs 24, not CPUs 0-23,25-47 (IRQ 2753); offline CPU: CPU 24 was offline for a while",
    ),
    "a CPU of the pool is offline": (
        lambda host: offline(host, "30", "0-29,31-47"),
        "pool of NPU 0: 24-35 online, not 30 offline; offline CPU: CPU 30",
    ),
    "all CPUs of an NPU are offline": (
        lambda host: host.put("/sys/devices/system/cpu/online", "0-23,36-47"),
        "pool of NPU 0: 24-35 online, not 24-35 offline; offline CPU",
    ),
    "a housekeeping CPU is offline": (
        lambda host: offline(host, "40", "0-39,41-47"),
        "housekeeping: 40-47 online, not 40 offline; offline CPU: CPU 40",
    ),
    "the workqueue": (lambda host: host.put(QUEUE, EVERYWHERE_MASK), "NPU 0 dev0_sq_send_wq: CPUs 24, not CPUs 0-47; manual change"),
    "an interrupt that came and is still delivered elsewhere": (
        lambda host: deliver_elsewhere(host, 2753, "30", 5),
        "NPU 0 sq_send_trigger_irq: CPUs 24, not arrived since it was moved to CPUs 24, and still arrives on CPUs 30 (IRQ 2753); kernel:",
    ),
    "the thread": (lambda host: move_thread(host, "3"), "NPU 0 dev0_sq_task: CPUs 24, not CPUs 3; manual change"),
    "a slice was edited": (
        lambda host: edit(host, SLICE, "AllowedCPUs=24-35", "AllowedCPUs=24-40"),
        SLICE + ": AllowedCPUs=24-35, not AllowedCPUs=24-40; manual change: changed by hand",
    ),
    "a slice was deleted": (lambda host: remove(host, SLICE), SLICE + ": a file, not no such file; manual change: removed"),
    "a slice was replaced": (
        lambda host: edit(host, SLICE, MARK, "# mine\n"),
        SLICE + ": %s, not # mine; manual change: another file took its place" % MARK.strip(),
    ),
    "a slice has other rights": (lambda host: os.chmod(host.path(SLICE), 0o600), SLICE + ": mode 0644, not mode 0600; manual change"),
    "a slice holds what no text can": (
        lambda host: append(host, SLICE, b"caf\xe9\n"),
        SLICE + ": no further line, not caf\ufffd; manual change",
    ),
    "a slice of an earlier plan is left": (
        lambda host: host.put(UNITS + "/npu-7.slice", slice_text("1", "0")),
        UNITS + "/npu-7.slice: no such file, not a file that no bind in force has; manual change",
    ),
    "the host code was edited": (
        lambda host: edit(host, installed.ARCHIVE, "sources", "others"),
        installed.ARCHIVE + ": version 1.0.0, not other content; manual change: changed by hand",
    ),
    "the timer was disabled": (
        lambda host: remove(host, UNITS + "/timers.target.wants/npu-affinity-irq.timer"),
        "npu-affinity-irq.timer at boot: enabled, not not enabled; manual change",
    ),
    "plan.json is not valid JSON": (lambda host: host.put(binding.PLAN, "{"), binding.PLAN + ": the plan in force, not "),
    "plan.json is not a plan": (
        lambda host: host.put(binding.PLAN, "[1]"),
        binding.PLAN + ": the plan in force, not not a plan (the plan has no list 'npus'",
    ),
    "plan.json is that of a newer version": (
        lambda host: edit(host, binding.PLAN, '{"npus"', '{"schema": 2, "npus"'),
        binding.PLAN + ": the plan in force, not /etc/npu-affinity/plan.json was written by a newer version",
    ),
    "previous.json has another shape": (
        lambda host: host.put("/etc/npu-affinity/previous.json", '{"folders": 5}'),
        "/etc/npu-affinity/previous.json: what was there before the first bind, not /etc/npu-affinity/previous.json: section 'folders'",
    ),
    "plan.json has a wrong pool": (
        lambda host: edit(host, binding.PLAN, '"24-35"', '"24-"'),
        binding.PLAN + ": the plan in force, not not a plan (pool of NPU 0: '24-' in '24-'",
    ),
    "plan.json is gone": (
        lambda host: remove(host, binding.PLAN),
        binding.PLAN + ": the plan in force, not no such file; manual change: removed by hand; " + SLICE,
    ),
    "a card is gone": (
        lambda host: shutil.rmtree(host.path("/sys/bus/pci/devices/" + FIRST)),
        "NPU 0: PCI function 0000:c1:00.0, not no such function; lost card",
    ),
}


@pytest.mark.parametrize("change, line", list(CHANGES.values()), ids=list(CHANGES))
def test_one_change_is_one_line_with_its_cause(bound, change, line):
    change(bound)
    was_bound, findings = compared(bound, WANTED)
    assert was_bound
    (said,) = lines(findings)
    assert said.startswith(line)


@pytest.mark.parametrize(
    "setting, visible, taken",
    [
        ("2,npu0:6-20,bind_irq:1", "0", "6-7"),
        ("2,npu1:6-20,bind_irq:1", "3,0", "6-7"),  # the second that it sees
        ("2,npu0:30-31,npu0:6-9,bind_irq:1", "0", "6-7"),  # before 26.1.0
        ("2,npu0:7-9,npu0:6-6,bind_irq:1", "0", "6-7"),  # from it on
    ],
)
def test_a_process_that_moves_interrupts_is_their_cause(bound, setting, visible, taken):
    run_irqbalance(bound)
    run_torch_npu(bound, setting, visible)
    found = {entry.object: entry.cause for entry in compared(bound, WANTED)[1].drift}
    assert sorted(found) == ["NPU 0 cq_update_irq", "NPU 0 sq_send_trigger_irq"]
    assert {word for word, _remark in found.values()} == {"in-process binding"}
    assert found["NPU 0 cq_update_irq"].remark == (
        "process 300 (python3) of NPU 0 in npu-0.slice was started with CPU_AFFINITY_CONF=%s, by which torch_npu puts them on CPUs %s; "
        "remove bind_irq" % (setting, taken)
    )


def test_a_reloaded_driver_is_not_mistaken_for_hands_or_daemons(bound):
    run_irqbalance(bound)
    move_everything(bound)
    _was_bound, findings = compared(bound, WANTED)
    assert [entry.object for entry in findings.drift] == [
        "NPU 0 cq_update_irq",
        "NPU 0 sq_send_trigger_irq",
        "NPU 0 dev0_sq_send_wq",
        "NPU 0 dev0_sq_task",
    ]
    assert {entry.cause.word for entry in findings.drift} == {"driver reload"}
    assert {entry.device for entry in findings.drift} == {Device("npu", 0, FIRST)}


def test_a_driver_that_is_not_loaded_is_named(bound):
    forget_interrupts(bound)
    _was_bound, findings = compared(bound, WANTED)
    assert [line.partition(":")[0] for line in lines(findings)] == ["NPU 0 sq_send_trigger_irq", "NPU 0 cq_update_irq"]
    assert all("requested, not not requested; driver reload" in line for line in lines(findings))


def test_an_offline_irq_cpu_explains_only_what_belongs_there(bound):
    offline(bound, "24", "0-23,25-47")
    bound.put(QUEUE, "0000,00000080")
    move(bound, 2760, "7")
    said = dict(line.split(": ", 1) for line in lines(compared(bound, WANTED)[1]))
    assert sorted(said) == [
        "NPU 0 cq_update_irq",
        "NPU 0 dev0_sq_send_wq",
        "NPU 0 dev0_sq_task",
        "NPU 0 sq_send_trigger_irq",
        "pool of NPU 0",
    ]
    assert "CPUs 25, not CPUs 7 (IRQ 2760); manual change" in said["NPU 0 cq_update_irq"]
    assert all("offline CPU" in said[name] for name in said if name != "NPU 0 cq_update_irq")


@pytest.mark.parametrize("moves", [True, False])
def test_a_newly_configured_irqbalance_is_judged_by_its_actions(bound, monkeypatch, moves):
    """It is on its command line that it was told; whether it listens shows at its first pass."""
    run_irqbalance(bound, TOLD, "--policyscript=" + POLICY)
    move(bound, 2753, "24")
    bound.put("/proc/uptime", "100.00 1.00")
    bound.put("/proc/901/stat", "901 (irqbalance) S 1 9 9 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0" % (96 * os.sysconf("SC_CLK_TCK")))
    waits = []
    monkeypatch.setattr(drift.time, "sleep", lambda seconds: [waits.append(seconds), move(bound, 2753, "7") if moves else None])
    _bound, findings = verify(bound, WANTED)
    assert waits == [8]
    assert [line.partition(" (")[0] for line in lines(findings)] == ["NPU 0 sq_send_trigger_irq: CPUs 24, not CPUs 7"] * moves


POLL = dict(PLAN, poll="1-3")
NO_POLL_THREAD = "host: it runs no kernel thread uvb_poll_window, which would be placed on CPUs 1-3 [NPU_IRQ_UNPLACED]"
POLL_THREADS = [
    ("none runs", None, [], [NO_POLL_THREAD]),
    ("in its place", "1-3", [], []),
    ("elsewhere", EVERYWHERE, ["uvb_poll_window: CPUs 1-3, not CPUs %s" % EVERYWHERE], []),
]


@pytest.mark.parametrize("cpus, drifted, remarks", [row[1:] for row in POLL_THREADS], ids=[row[0] for row in POLL_THREADS])
def test_the_poll_threads_of_the_host_are_compared(bound, cpus, drifted, remarks):
    put_plan(bound, POLL)
    if cpus:
        bound.put("/proc/95/comm", "uvb_poll_window")
        bound.put("/proc/95/status", "Name:\tuvb_poll_window\nCpus_allowed:\t%s\nCpus_allowed_list:\t%s" % (EVERYWHERE_MASK, cpus))
        bound.put("/proc/95/stat", "95 (uvb_poll_window) S 2 0 0 0 -1 2129984")
    findings = compared(bound, WANTED)[1]
    assert [line.partition(";")[0] for line in lines(findings)] == drifted
    assert findings.remarks == remarks
    assert ("uvb_poll_window" in findings.checked["threads"]) is bool(cpus)


def test_interrupts_can_be_left_out(bound):
    move_everything(bound)
    assert compared(bound, WANTED._replace(features={}))[1].drift == []


def test_a_never_bound_host_is_reported_as_drift_only_on_request(tmp_path):
    host = Kernel(tmp_path)
    was_bound, findings = compared(host, WANTED)
    assert (was_bound, findings.drift, findings.checked) == (False, [], {})
    was_bound, findings = compared(host, WANTED._replace(must_be_bound=True))
    assert not was_bound
    assert lines(findings) == [binding.PLAN + ": the plan in force, not no such file; never bound: bind the host"]


def test_a_given_plan_is_compared_with_the_one_in_force(bound):
    assert compared(bound, WANTED, PLAN)[1].drift == []
    other = {"npus": [dict(NPUS[0], pool="24-31"), NPUS[1]]}
    (said,) = lines(compared(bound, WANTED, other)[1])
    expected = "NPU 0 has irq 24-25, mems 1, pool 24-31, not NPU 0 has irq 24-25, mems 1, pool 24-35; manual change"
    assert said.startswith("%s: %s" % (binding.PLAN, expected))
    (said,) = lines(compared(bound, WANTED, {"npus": NPUS[:1]})[1])
    assert "no NPU 1, not NPU 1 has irq 0-1" in said
    (said,) = lines(compared(bound, WANTED._replace(features={}), dict(PLAN, poll="1-3"))[1])
    assert "place for poll threads has poll 1-3, not no place for poll threads" in said
    remove(bound, binding.PLAN)
    (said,) = lines(compared(bound, WANTED, PLAN)[1])
    assert said.startswith(binding.PLAN + ": the plan in force, not no such file")


class Live(ModelledSystemd):
    """A running machine with a slice and services: ``shown`` is what ``systemctl show`` says, by unit."""

    def __init__(self, root):
        ModelledSystemd.__init__(self, root)
        self.shown = {}

    def run(self, argv, stdin="", timeout=None):
        result = ModelledSystemd.run(self, argv, stdin, timeout)
        if argv[1] != "show":
            return result
        units = [word for word in argv[2:] if not word.startswith("-")]
        blocks = [dict({"Id": unit}, **self.shown.get(unit, {})) for unit in units]
        return result._replace(output="\n\n".join("\n".join("%s=%s" % pair for pair in block.items()) for block in blocks) + "\n")

    def add_process(self, pid, group, cpus, mems="0", threads=()):
        self.put("/sys/fs/cgroup%s/cgroup.procs" % group, "%d\n" % pid)
        for folder, allowed in [("", cpus)] + [("/task/%d" % (pid + number), thread) for number, thread in enumerate(threads)]:
            self.put("/proc/%d%s/comm" % (pid, folder), "worker")
            self.put("/proc/%d%s/status" % (pid, folder), "Cpus_allowed_list:\t%s\nMems_allowed_list:\t%s\n" % (allowed, mems))


SERVICES = [
    {"name": "vllm@0.service", "settings": {"Slice": "npu-0.slice"}},
    {"name": "tp.service", "settings": {"Slice": "npu.slice", "AllowedCPUs": "2-3", "AllowedMemoryNodes": "0"}},
]
EXPECTED = [{"unit": "npu.slice", "cpus": "0-3", "mems": "0"}, {"unit": "npu-0.slice", "cpus": "0-1", "mems": "0"}]
LIVE_FILES = [
    {"path": UNITS + "/npu.slice", "content": slice_text("0-3", "0") + "[Install]\nWantedBy=multi-user.target\n"},
    {"path": SLICE, "content": slice_text("0-1", "0")},
]
LIVE_WANTED = Wanted(
    files=LIVE_FILES,
    owned=OWNED,
    enabled=["npu.slice"],
    started=["npu.slice", "npu-0.slice"],
    expected=EXPECTED,
    live={"slices": {"services": SERVICES}},
)
GROUP = "/sys/fs/cgroup" + slice_path("npu-0.slice")


def in_slice(group):
    return {"ActiveState": "active", "ControlGroup": group}


@pytest.fixture
def live(tmp_path):
    host = Live(str(tmp_path))
    put_plan(host, {"npus": [{"id": 0, "pci": "", "pool": "0-1", "irq": "", "mems": "0", "slice": "npu-0.slice"}]})
    units = ["npu.slice", "npu-0.slice"]
    apply(host, Request(files=LIVE_FILES, started=units, expected=EXPECTED))
    os.makedirs(host.path(UNITS + "/multi-user.target.wants"))
    os.symlink("../npu.slice", host.path(UNITS + "/multi-user.target.wants/npu.slice"))
    host.shown = {"vllm@0.service": in_slice("/npu.slice/npu-0.slice/vllm@0.service"), "tp.service": in_slice("/npu.slice/tp.service")}
    host.add_process(100, "/npu.slice/npu-0.slice/vllm@0.service", "0-1")
    host.add_process(200, "/npu.slice/tp.service", "2")
    for kind, value in (("cpus", "2-3"), ("mems", "0")):
        host.put("/sys/fs/cgroup/npu.slice/tp.service/cpuset.%s.effective" % kind, value)
    host.calls.clear()
    return host


CONF = "CPU_AFFINITY_CONF=1,npu0:%s"
BINDERS = [
    # environment, arguments, the message on the process, each up to its end here
    ("SGLANG_SET_CPU_AFFINITY=1", "", ["with SGLANG_SET_CPU_AFFINITY=1: SGLang takes cores of the whole host by number, and ends where"]),
    ("SGLANG_SET_CPU_AFFINITY=0", "", []),
    ("OMP_PROC_BIND=TRUE", "", ["with OMP_PROC_BIND=TRUE: OpenMP puts the process on one CPU"]),
    ("OMP_PROC_BIND=false", "", []),
    (
        "VLLM_CPU_AFFINITY=1",
        "",
        ["with VLLM_CPU_AFFINITY=1: UCM divides the CPUs near the device between worker and store, against CPUs 0-1 of"],
    ),
    (CONF % "0-1,bind_irq:1", "", ["with " + CONF % "0-1,bind_irq:1: torch_npu moves the interrupts of its NPUs and stops irqbalance"]),
    (CONF % "0-1,bind_irq:0", "", []),
    (
        CONF % "0-3",
        "",
        [
            "with %s: torch_npu wants CPUs 0-3 for npu0, of which 2-3 are not among CPUs 0-1 of npu-0.slice, and then binds nothing"
            % (CONF % "0-3")
        ],
    ),
    (
        CONF % "0-3,force:1",
        "",
        [
            "with %s: torch_npu wants CPUs 0-3 for npu0, of which 2-3 are not among CPUs 0-1 of npu-0.slice, and gets less"
            % (CONF % "0-3,force:1")
        ],
    ),
    (
        CONF % "4-5,npu0:0-1",
        "",
        ["with %s: torch_npu wants CPUs 0-1,4-5 (before 26.1.0 0-1) for npu0, of which 4-5" % (CONF % "4-5,npu0:0-1")],
    ),
    (CONF % "0-1,npu1:4-5" + "\0ASCEND_RT_VISIBLE_DEVICES=0", "", []),  # it sees one device
    (
        "CPU_AFFINITY_CONF=2\0ASCEND_RT_VISIBLE_DEVICES=0,1",
        "",
        ["with CPU_AFFINITY_CONF=2: torch_npu wants CPUs 0-3 (its part of the whole host) for npu0 and CPUs 4-7 (its part"],
    ),
    (
        "ATB_SPEED_HOME_PATH=/atb",
        "",
        ["without BIND_CPU=0: MindIE divides the CPUs of its NPU's node itself, against CPUs 0-1 of npu-0.slice"],
    ),
    ("ATB_SPEED_HOME_PATH=/atb\0BIND_CPU=1", "", ["with BIND_CPU=1: MindIE"]),
    ("ATB_SPEED_HOME_PATH=/atb\0BIND_CPU=0", "", []),
    ("", "python3 -m vllm.entrypoints.openai.api_server --additional-config={}", ["without enable_cpu_binding=false: vLLM-Ascend divides"]),
    ("", '/usr/bin/vllm serve m --additional_config {"enable_cpu_binding":false}', []),
    (
        "",
        '/usr/bin/vllm serve m --additional-config {"enable_cpu_binding":false} --numa-bind',
        ["with --numa-bind: vLLM binds its processes to nodes itself"],
    ),
    ("", "/usr/bin/vllm serve m --config=a.yaml --numa-bind --numa-bind-nodes 0 0 --numa-bind-cpus 0 1", []),  # as launch writes it
    (
        "",
        "/usr/bin/vllm serve m --config=a.yaml --numa-bind --numa_bind_cpus=0-3",
        ["with --numa-bind: vLLM binds its processes to nodes itself"],
    ),
    ("", "/usr/bin/vllm serve m --config=a.yaml --numa-bind-cpus all", ["with --numa-bind-cpus: vLLM binds"]),
    ("", "/usr/bin/vllm serve m --config=a.yaml", []),
    ("", "/usr/bin/vllm bench serve --additional-config {", []),
    ("", "serve vllm.toml", []),
    ("NRL_GPU_CPU_AFFINITY_FILE=/tmp/x", "", []),  # binds GPUs only
    (
        "",
        "torchrun --numa-binding=node train.py",
        ["with --numa-binding: torchrun binds each rank to"],
    ),
    ("SGLANG_SET_CPU_AFFINITY=0\0SGLANG_SET_CPU_AFFINITY=1", "", ["with SGLANG_SET_CPU_AFFINITY=1: SGLang"]),
]


@pytest.mark.parametrize("environment, arguments, remarks", BINDERS)
def test_a_program_that_binds_itself_is_named(live, environment, arguments, remarks):
    live.put("/proc/sys/kernel/arch", "aarch64")
    live.put("/proc/100/environ", "LANG=C\0" + environment)
    live.put("/proc/100/cmdline", arguments.replace(" ", "\0"))
    findings = compared(live, LIVE_WANTED)[1]
    found = [remark for remark in findings.remarks if remark.startswith("process 100 (worker) of npu-0.slice started ")]
    expected = ["process 100 (worker) of npu-0.slice started " + remark for remark in remarks]
    assert begins(found, expected) == expected


@pytest.mark.parametrize(
    "environment, unit, path, what",
    [
        ("SGLANG_SET_CPU_AFFINITY=1", "npu-affinity-watch.service", "/etc/npu-affinity/threads.json", "its threads"),
        ("BIND_CPU=1\0ATB_SPEED_HOME_PATH=/atb", "npu-affinity-watch.service", "/etc/npu-affinity/threads.json", "its threads"),
        ("CPU_AFFINITY_CONF=1,npu0:0-1,bind_irq:1", "npu-affinity-irq.timer", UNITS + "/npu-affinity-irq.timer", "them"),
    ],
)
def test_what_a_program_fights_is_named(live, environment, unit, path, what):
    live.put("/proc/100/environ", environment)
    for there in (False, True):
        remarks = [remark for remark in compared(live, LIVE_WANTED)[1].remarks if remark.startswith("process 100 (worker) of npu-0.slice")]
        assert [remark.endswith("; until then %s puts %s back [NPU_WORKER_BINDS_ITSELF]" % (unit, what)) for remark in remarks] == [there]
        live.put(path, "{}")


@pytest.mark.parametrize("visible, said", [("", 0), ("\0ASCEND_RT_VISIBLE_DEVICES=0,1", 2)])
def test_npu_remarks_are_made_only_if_a_process_has_npus(live, visible, said):
    live.put("/proc/sys/kernel/arch", "aarch64")
    live.put("/proc/200/environ", "OMP_PROC_BIND=close" + visible)
    live.put("/proc/200/cmdline", "/usr/bin/vllm\0serve\0m")
    found = [
        remark for remark in compared(live, LIVE_WANTED)[1].remarks if remark.startswith("process 200 (worker) of tp.service started ")
    ]
    assert len(found) == said
    workers = LIVE_WANTED._replace(live={"slices": {"services": SERVICES, "bound_by": "workers"}})
    assert not [remark for remark in compared(live, workers)[1].remarks if "enable_cpu_binding" in remark]


CONTAINER_ID = "0123456789abcdef" * 4
DOCKER = "/system.slice/docker-%s.scope" % CONTAINER_ID


def container(cpus):
    process = {"pid": 300, "start": 1, "command": "worker", "devices": ["davinci0"], "cpus": "0-1"}
    fixed = {"group": DOCKER, "kind": "container", "unit": DOCKER[14:], "engine": "docker", "container": CONTAINER_ID, "name": "llm"}
    npus = [{"kind": "npu", "id": 0}]
    return {**fixed, "devices": ["davinci0"], "npus": npus, "processes": [process], "cpus": cpus, "mems": "0", "witness": "open"}


@pytest.mark.parametrize("cpus, adopted, said", [("0-1", False, 1), ("0-7", False, 0), ("0-7", True, 1)])
def test_a_program_in_adopted_work_that_binds_itself_is_named(live, cpus, adopted, said):
    live.put("/proc/sys/kernel/arch", "aarch64")
    live.add_process(300, DOCKER, "0-1")
    live.add_process(301, DOCKER, "0-1")
    live.put("/proc/301/cmdline", "/usr/bin/vllm\0serve\0m")  # holds no NPU: its workers do
    if adopted:
        entry = {"original": "", "given": ["cpus=0-1"], "npus": [["npu", 0]], "group": DOCKER, "title": "llm"}
        previous.replace(live, "adopt", {"docker:" + CONTAINER_ID: entry})
    remarks = compared(live, LIVE_WANTED._replace(topology={"users": [container(cpus)]}))[1].remarks
    found = [remark for remark in remarks if remark.startswith("process 301 (worker) of container llm started without enable_cpu_binding")]
    assert len(found) == said and all("against CPUs 0-1 of container llm" in remark for remark in found)


def test_a_running_host_is_asked_little_and_told_nothing(live):
    was_bound, findings = compared(live, LIVE_WANTED)
    assert (was_bound, findings.drift) == (True, [])
    assert findings.checked["cpusets"] == [
        "%s %s" % (unit, word) for unit in ("npu.slice", "npu-0.slice", "tp.service") for word in ("CPUs", "memory nodes")
    ]
    assert findings.checked["services"] == ["vllm@0.service", "tp.service"]
    assert findings.checked["processes"] == ["processes of npu-0.slice", "processes of tp.service"]
    assert {call.split()[0] for call in live.calls} == {"is-active", "show"}
    assert len(live.calls) <= 4


def test_housekeeping_of_a_slice_is_compared_once_it_has_started(live):
    expected = EXPECTED + [{"unit": "user.slice", "cpus": "6-7", "mems": ""}]
    wanted = LIVE_WANTED._replace(expected=expected)
    assert compared(live, wanted)[1].drift == []
    live.put("/sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0-7")
    (said,) = lines(compared(live, wanted)[1])
    assert said.startswith("user.slice CPUs: 6-7, not 0-7")


FOLLOWING = [
    ("6-7", "user.slice has CPUs 6-7, and no pool", ""),
    ("4-7", "user.slice has CPUs 4-7, those of NPU 1 while no workload runs there", ""),
    ("0-1,4-7", "", "user.slice CPUs: 4-7, not 0-1,4-7; changed cpuset: a workload holds the others"),
    ("3-7", "", "user.slice CPUs: 4-7, not 3-7"),
    ("4-6", "", "user.slice CPUs: 4-7, not 4-6"),
]


@pytest.mark.parametrize(("has", "remark", "drifted"), FOLLOWING)
def test_housekeeping_that_follows_is_no_drift(live, has, remark, drifted):
    live.put("/etc/npu-affinity/housekeeping.json", '{"floor": "6-7", "most": "0-1,4-5"}')
    npus = [{"id": n, "pci": "", "pool": pool, "irq": "", "slice": "npu-%d.slice" % n} for n, pool in enumerate(("0-1", "4-5"))]
    put_plan(live, {"npus": npus})
    live.put("/sys/fs/cgroup/npu.slice/cgroup.procs", "")
    for group in ("npu-0.slice", "npu-0.slice/vllm@0.service"):
        live.put("/sys/fs/cgroup/npu.slice/%s/cpuset.cpus.effective" % group, "0-1")
    live.put("/sys/fs/cgroup/npu.slice/npu-0.slice/cgroup.procs", "")
    live.put("/run/systemd/system.control/user.slice.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=0-7\n")
    for name in ("cpuset.cpus", "cpuset.cpus.effective"):
        live.put("/sys/fs/cgroup/user.slice/" + name, has)
    expected = [*EXPECTED, {"unit": "user.slice", "cpus": "6-7", "mems": "", "more": "0-1,4-5"}]
    _was_bound, findings = compared(live, LIVE_WANTED._replace(expected=expected, live={}))
    said = [line for line in lines(findings) if line.startswith("user.slice")]
    assert [line[: len(drifted)] for line in said] == [drifted] * bool(drifted)
    (told,) = [text for text in findings.remarks if "[NPU_HOUSEKEEPING_FOLLOWS]" in text]
    assert told.startswith("Housekeeping follows the workloads: " + remark)


def test_a_tree_that_does_not_run_has_no_sets_or_processes(bound):
    bound.put("/sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs", "951")
    bound.put("/proc/951/status", "Cpus_allowed_list:\t0-47\nMems_allowed_list:\t0")
    wanted = WANTED._replace(expected=[{"unit": "system.slice", "cpus": "40-47", "mems": ""}])
    _was_bound, findings = compared(bound, wanted)
    assert findings.drift == [] and "processes" not in findings.checked and "cpusets" not in findings.checked
    bound.put("/etc/systemd/system.control/system.slice.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=")
    (said,) = lines(compared(bound, wanted)[1])
    assert said.startswith("system.slice CPUs: 40-47, not AllowedCPUs= in /etc/systemd/system.control/system.slice.d/50-AllowedCPUs.conf")


def set_property(host, value):
    host.put("/run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=%s\n" % value)


def edit_and_reload(host):
    edit(host, SLICE, "AllowedCPUs=0-1", "AllowedCPUs=0")
    host.grant("npu-0.slice", settings(host.read(SLICE)))


LIVE_CHANGES = {
    "set-property": (
        lambda host: [set_property(host, "0-7"), host.put(GROUP + "/cpuset.cpus.effective", "0-7")],
        ["npu-0.slice CPUs: 0-1, not 0-7; manual change: overridden by /run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf"],
    ),
    "set-property without effect so far": (
        lambda host: set_property(host, "0-99"),
        ["npu-0.slice CPUs: 0-1, not AllowedCPUs=0-99 in /run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf; manual change"],
    ),
    "set-property to what it is anyway": (lambda host: set_property(host, "0-1"), []),
    "edited and reloaded": (
        edit_and_reload,
        [
            SLICE + ": AllowedCPUs=0-1, not AllowedCPUs=0; manual change: changed by hand",
            "npu-0.slice CPUs: 0-1, not 0; manual change: its unit file was changed",
        ],
    ),
    "systemd has not read the file": (
        lambda host: [
            host.shown.update({"npu-0.slice": {"NeedDaemonReload": "yes"}}),
            host.put(GROUP + "/cpuset.cpus.effective", "0-7"),
        ],
        ["npu-0.slice CPUs: 0-1, not 0-7; changed cpuset: systemd has not read the unit file"],
    ),
    "left narrow": (
        lambda host: host.put(GROUP + "/cpuset.cpus.effective", "0"),
        ["npu-0.slice CPUs: 0-1, not 0; changed cpuset: something other than systemd"],
    ),
    "the parent was narrowed": (
        lambda host: [
            host.put("/sys/fs/cgroup/npu.slice/cpuset.cpus.effective", "1-3"),
            host.put(GROUP + "/cpuset.cpus.effective", "1"),
        ],
        [
            "npu.slice CPUs: 0-3, not 1-3; changed cpuset: something other than systemd",
            "npu-0.slice CPUs: 0-1, not 1; changed cpuset: npu.slice above it",
        ],
    ),
    "the controller is off": (
        lambda host: os.unlink(host.path(GROUP + "/cpuset.cpus.effective")),
        ["npu-0.slice CPUs: 0-1, not no cpuset; changed cpuset: the cpuset controller is off"],
    ),
    "other memory nodes": (
        lambda host: host.put(GROUP + "/cpuset.mems.effective", "0-1"),
        ["npu-0.slice memory nodes: 0, not 0-1; changed cpuset"],
    ),
    "a CPU is offline": (
        lambda host: [
            host.put("/sys/devices/system/cpu/online", "0,2-7"),
            host.put(GROUP + "/cpuset.cpus.effective", "0"),
            host.put("/sys/fs/cgroup/npu.slice/cpuset.cpus.effective", "0,2-3"),
        ],
        ["pool of NPU 0: 0-1 online, not 1 offline; offline CPU: CPU 1"],
    ),
    "all its CPUs are offline": (
        lambda host: [
            host.put("/sys/devices/system/cpu/online", "2-7"),
            host.put(GROUP + "/cpuset.cpus.effective", "2-3"),
            host.put("/sys/fs/cgroup/npu.slice/cpuset.cpus.effective", "2-3"),
        ],
        ["pool of NPU 0: 0-1 online, not 0-1 offline", "npu-0.slice CPUs: 0-1, not 2-3; offline CPU: none of them is online"],
    ),
    "a slice was stopped": (
        lambda host: [host.running.discard("npu-0.slice"), shutil.rmtree(host.path(GROUP)), host.shown.clear()],
        ["npu-0.slice: active, not inactive; manual change: stopped"],
    ),
    "a process has other CPUs": (
        lambda host: host.add_process(100, "/npu.slice/npu-0.slice/vllm@0.service", "0-7"),
        ["processes of npu-0.slice: CPUs 0-1, memory nodes 0, not CPUs 0-7, memory nodes 0 of 100 (worker); changed cpuset"],
    ),
    "a service still runs where it was": (
        lambda host: host.shown.update({"vllm@0.service": in_slice("/system.slice/vllm@0.service")}),
        ["vllm@0.service: in npu-0.slice, not in system.slice; not restarted"],
    ),
    "a service in the slice of another NPU": (
        lambda host: host.shown.update({"vllm@0.service": in_slice("/npu.slice/npu-1.slice/vllm@0.service")}),
        ["vllm@0.service: in npu-0.slice, not in npu-1.slice; not restarted"],
    ),
    "a service of several NPUs with other CPUs": (
        lambda host: host.put("/sys/fs/cgroup/npu.slice/tp.service/cpuset.cpus.effective", "0-3"),
        ["tp.service CPUs: 2-3, not 0-3; changed cpuset"],
    ),
    "a stopped service is nobody's drift": (lambda host: host.shown.update({"vllm@0.service": {"ActiveState": "inactive"}}), []),
}


@pytest.mark.parametrize("change, expected", list(LIVE_CHANGES.values()), ids=list(LIVE_CHANGES))
def test_what_the_kernel_grants_is_compared_on_a_running_host(live, change, expected):
    change(live)
    assert begins(lines(compared(live, LIVE_WANTED)[1]), expected) == expected
    assert {call.split()[0] for call in live.calls} <= {"is-active", "show"}


def test_differing_units_belong_to_the_npu_of_their_slice(live):
    live.put(GROUP + "/cpuset.cpus.effective", "0")
    live.shown.update({"vllm@0.service": in_slice("/system.slice/vllm@0.service")})
    live.put("/sys/fs/cgroup/npu.slice/tp.service/cpuset.cpus.effective", "0-3")
    inner = {"name": "a", "slice": "npu-0-a.slice", "limiter": "npu-affinity-limiter-a.service"}
    wanted = LIVE_WANTED._replace(live={"slices": {"services": SERVICES, "vnpus": [inner]}}, stopped=[inner["limiter"]])
    live.running.add(inner["limiter"])
    found = {finding.unit: finding.device for finding in compared(live, wanted)[1].drift}
    first = Device.of(json.loads(live.read(binding.PLAN))["npus"][0])
    assert found == {"npu-0.slice": first, "vllm@0.service": first, inner["limiter"]: first, "tp.service": None}


def test_a_service_with_a_changed_drop_in_may_keep_running(live):
    drop_in = UNITS + "/vllm@0.service.d/50-npu-affinity.conf"
    wanted = LIVE_WANTED._replace(files=LIVE_FILES + [{"path": drop_in, "content": MARK + "[Service]\nSlice=npu-0.slice\n"}])
    live.shown["vllm@0.service"] = in_slice("/system.slice/vllm@0.service")
    expected = [drop_in + ": a file, not no such file", "vllm@0.service: in npu-0.slice, not in system.slice; manual change: its drop-in"]
    assert begins(lines(compared(live, wanted)[1]), expected) == expected


@pytest.mark.parametrize("top", ["", "/systemd", "/unified"])
def test_threads_of_services_without_slices_are_compared_singly(live, top):
    wanted = Wanted(live={"slices": {"services": [{"name": "old.service", "settings": {"CPUAffinity": "4-5"}}]}})
    live.shown["old.service"] = in_slice("/system.slice/old.service")
    live.add_process(300, top + "/system.slice/old.service", "4-5", threads=["4-5", "4"])
    assert compared(live, wanted)[1].drift == []
    live.add_process(300, top + "/system.slice/old.service", "4-5", threads=["4-5", "0-7", "6"])
    (said,) = lines(compared(live, wanted)[1])
    assert said.startswith("threads of old.service: CPUs 4-5, not CPUs 0-7 of 301 (worker) and 1 more; not restarted")


def test_a_running_service_is_compared_with_what_systemd_loaded(live):
    wanted = Wanted(live={"slices": {"services": [{"name": "old.service", "settings": {"CPUAffinity": "4-5", "NUMAMask": "0"}}]}})
    live.put(UNITS + "/old.service.d/50-npu-affinity.conf", MARK + "[Service]\nCPUAffinity=4-5\nNUMAMask=0\n")
    live.shown["old.service"] = {"LoadState": "loaded", "ActiveState": "inactive", "CPUAffinity": "4 5", "NUMAMask": "0"}
    assert compared(live, wanted)[1].drift == []
    live.shown["old.service"]["CPUAffinity"] = "0-7"
    (said,) = lines(compared(live, wanted)[1])
    assert said.startswith("old.service CPUAffinity: CPUAffinity=4-5, not CPUAffinity=0-7; changed cpuset: systemd has not read its files")
    live.put(UNITS + "/old.service.d/90-site.conf", "[Service]\nCPUAffinity=0-7\n")
    (said,) = lines(compared(live, wanted)[1])
    assert "manual change: " + UNITS + "/old.service.d/90-site.conf, which systemd reads as well" in said
    os.remove(live.path(UNITS + "/old.service.d/90-site.conf"))
    live.shown["old.service"] = {"LoadState": "not-found", "ActiveState": "inactive", "CPUAffinity": "", "NUMAMask": ""}
    findings = compared(live, wanted)[1]
    assert "old.service is not installed" in findings.remarks[0] and not findings.drift


DEVICES = "ASCEND_RT_VISIBLE_DEVICES"
SITE = UNITS + "/vllm@0.service.d/%s-npu-affinity.conf"


def start_with(host, *variables):
    host.put("/proc/100/environ", "\0".join(("HOME=/", *variables)) + "\0")


def disagree(host, number, text):
    host.put(SITE % number, "[Service]\n%s\n" % text)


LEFT = "remark: %s sets ASCEND_RT_VISIBLE_DEVICES=3, and the CPUs of vllm@0.service are those of ASCEND_RT_VISIBLE_DEVICES=0" % (SITE % 60)
OLD = "main process of vllm@0.service ASCEND_RT_VISIBLE_DEVICES: ASCEND_RT_VISIBLE_DEVICES=%s, not %s; not restarted: it still runs as"
STARTED = {
    "as it was told": (lambda host: start_with(host, DEVICES + "=0"), []),
    "not started since": (start_with, [OLD % ("0", "no " + DEVICES)]),
    "with the NPU of another": (lambda host: start_with(host, DEVICES + "=3"), [OLD % ("0", DEVICES + "=3")]),
    "another file wins": (lambda host: [disagree(host, 60, "Environment=%s=3" % DEVICES), start_with(host, DEVICES + "=3")], [LEFT]),
    "another file wins since it started": (
        lambda host: [disagree(host, 60, "Environment=%s=4" % DEVICES), start_with(host, DEVICES + "=2")],
        [OLD % ("4", DEVICES + "=2"), LEFT.replace("=3", "=4")],
    ),
    "another file takes it away": (
        lambda host: [disagree(host, 60, "Environment="), start_with(host, DEVICES + "=0")],
        ["vllm@0.service %s: %s=0, not no %s; manual change: another file of the service takes away" % (DEVICES, DEVICES, DEVICES)],
    ),
    "it is not running": (lambda host: host.shown["vllm@0.service"].update(MainPID="0"), []),
}


SWITCH = "SGLANG_SET_CPU_AFFINITY"
ENGINES = {
    "as it was told": (lambda host: start_with(host, SWITCH + "=0"), []),
    "not started since": (
        lambda host: start_with(host, SWITCH + "=1"),
        [
            "main process of vllm@0.service %s: %s=0, not %s=1; not restarted" % (SWITCH, SWITCH, SWITCH),
            "remark: process 100 (worker) of npu-0.slice started with %s=1: SGLang takes cores" % SWITCH,
        ],
    ),
    "another file wins": (
        lambda host: [disagree(host, 60, "Environment=%s=1" % SWITCH), start_with(host, SWITCH + "=true")],
        [
            "main process of vllm@0.service %s: %s=1, not %s=true; not restarted" % (SWITCH, SWITCH, SWITCH),
            "remark: %s sets %s=1, and vllm@0.service then binds itself, against %s=0 of its drop-in" % (SITE % 60, SWITCH, SWITCH),
            "remark: process 100 (worker) of npu-0.slice started with %s=true: SGLang takes cores" % SWITCH,
        ],
    ),
}


TOLD_APART = [("devices", DEVICES, *row) for row in STARTED.values()] + [("switches", SWITCH, *row) for row in ENGINES.values()]


@pytest.mark.parametrize("kind, name, change, expected", TOLD_APART, ids=[*STARTED, *("engine, " + story for story in ENGINES)])
def test_the_environment_of_a_running_service_is_compared(live, kind, name, change, expected):
    service = {"name": "vllm@0.service", "settings": {"Slice": "npu-0.slice"}, kind: {name: "0"}}
    ours = {"path": SITE % 50, "content": MARK + "[Service]\nSlice=npu-0.slice\nEnvironment=%s=0\n" % name}
    live.put(UNITS + "/vllm@0.service", "[Service]\nExecStart=/usr/bin/vllm\n")
    live.put(ours["path"], ours["content"])
    live.shown["vllm@0.service"]["MainPID"] = "100"
    change(live)
    findings = compared(live, LIVE_WANTED._replace(files=LIVE_FILES + [ours], live={"slices": {"services": [service]}}))[1]
    said = lines(findings) + ["remark: " + remark for remark in findings.remarks]
    assert begins(said, expected) == expected


def test_running_services_ids_are_ignored_while_cards_are_lost(live):
    """A process keeps the device that it opened, whatever id that has later."""
    live.shown["vllm@0.service"]["MainPID"] = "100"
    live.put(SITE % 60, "[Service]\nEnvironment=%s=0\n" % DEVICES)
    start_with(live, DEVICES + "=1")
    service = {"name": "vllm@0.service", "settings": {"Slice": "npu-0.slice"}, "devices": {DEVICES: "0"}}
    wanted = LIVE_WANTED._replace(live={"slices": {"services": [service]}})
    (said,) = lines(compared(live, wanted)[1])
    assert said.startswith(OLD % ("0", DEVICES + "=1"))
    lost = {"id": 0, "pci": "0000:01:00.0", "pool": "4-5", "slice": "npu-1.slice"}
    put_plan(live, {**json.loads(live.read(binding.PLAN)), "lost": [lost]})
    assert compared(live, wanted)[1].drift == []


def test_a_service_in_its_slice_is_compared_with_the_slices_sets(live):
    group = GROUP + "/vllm@0.service"
    live.put(group + "/cpuset.cpus.effective", "0-1")
    live.put(group + "/cpuset.mems.effective", "0")
    assert compared(live, LIVE_WANTED)[1].drift == []
    live.put(group + "/cpuset.cpus.effective", "0")
    live.put(UNITS + "/vllm@.service.d/site.conf", "[Service]\nAllowedCPUs=0\n")
    (said,) = lines(compared(live, LIVE_WANTED)[1])
    assert said == "vllm@0.service CPUs: 0-1, not 0; manual change: overridden by %s/vllm@.service.d/site.conf; remove it there" % UNITS


def test_a_unit_of_ours_that_failed_is_drift(live):
    unit = "npu-affinity-irq@0000:c1:00.0.service"
    live.put("%s/npu-affinity-irq@.service" % UNITS, MARK)
    live.shown["npu-affinity-*"] = {"Id": unit, "ActiveState": "failed", "Result": "exit-code"}
    (said,) = lines(compared(live, LIVE_WANTED)[1])
    assert said.startswith("%s last run: success, not exit-code; failed unit: 'journalctl -u %s' shows why" % (unit, unit))


def test_the_timer_must_run(live):
    wanted = Wanted(started=["npu-affinity-irq.timer"])
    (said,) = lines(compared(live, wanted)[1])
    assert said.startswith("npu-affinity-irq.timer: active, not inactive; manual change: stopped by hand")
    live.running.add("npu-affinity-irq.timer")
    assert compared(live, wanted)[1].drift == []


def test_an_irqbalance_that_was_stopped_by_a_bind_must_stay_so(live):
    wanted = Wanted(stopped=["irqbalance.service"])
    assert compared(live, wanted)[1].checked["units"] == ["irqbalance.service"]
    live.running.add("irqbalance.service")
    (said,) = lines(compared(live, wanted)[1])
    assert said.startswith("irqbalance.service: stopped and disabled, not active; manual change")


SHARED = {"npus": [dict(NPUS[0], pci="", irq="")]}
ON = shares_of()
SHARES = {
    # what we switched on before, what is wanted, the lines
    "as wanted": (["0", "1", "2"], ON, []),
    "forgotten by the driver": (
        [],
        shares_of(0, 2),
        ["card 0: on, not off; driver reload: the driver forgets", "card 2: on, not off; driver reload"],
    ),
    "one card switched off": (["0", "2"], ON, ["card 1: on, not off; manual change"]),
    "a card that is not there": ([], shares_of(7), ["device share: on, not npu_affinity_device_share_npus: there is no card 7"]),
}


@pytest.mark.parametrize("shared, wanted, expected", list(SHARES.values()), ids=list(SHARES))
def test_device_share_is_compared_card_by_card(tmp_path, shared, wanted, expected):
    box = Box(tmp_path, "a2")
    if shared:
        box.share(*[int(card) for card in shared])
    put_plan(box.host, SHARED)
    box.forget_calls()
    assert begins(lines(verify(box.host, Wanted(live={"device_share": wanted}))[1]), expected) == expected
    assert box.sets == []


def test_a_card_of_one_npu_is_drift_of_that_npu(tmp_path):
    box = Box(tmp_path, "a2")
    box.share(0)
    put_plan(box.host, {**SHARED, "options": {"npus": []}})
    npus = [{"kind": "npu", "id": 5 - card, "card": card, "chip": 0, "pci": "0000:0%d:00.0" % card} for card in range(3)]
    findings = verify(box.host, Wanted(live={"device_share": ON}, topology={"npus": npus}))[1]
    assert [(entry.object, entry.device) for entry in findings.drift if entry.kind == "device_share"] == [
        ("card 1", ("npu", 4, "0000:01:00.0")),
        ("card 2", ("npu", 3, "0000:02:00.0")),
    ]


def test_chips_of_one_card_can_differ_and_a_silent_card_is_named(tmp_path):
    box = Box(tmp_path, "310p")
    box.share()
    box.by_hand("-i 2 -c 1 -d 0")
    put_plan(box.host, SHARED)
    assert lines(verify(box.host, Wanted(live={"device_share": ON}))[1])[0].startswith("card 2: on, not off (chips 1); manual change")
    box.faults(answers={"info -t device-share -i 5": {"text": "dcmi module initialize failed. ret is -8005", "status": 187}})
    said = lines(verify(box.host, Wanted(live={"device_share": ON}))[1])
    assert any(line.startswith("card 5: on, not ") and "; npu-smi: it did not answer" in line for line in said), said


@pytest.mark.parametrize("topology", [None, {"npus": []}], ids=["asked", "gathered without an answer"])
def test_a_missing_npu_smi_is_said_where_the_plan_has_npus(tmp_path, topology):
    host = Kernel(tmp_path)
    put_plan(host, SHARED)
    (said,) = lines(compared(host, Wanted(live={"device_share": ON}, topology=topology))[1])
    assert said.startswith("device share: on, not npu-smi was not found") and "; npu-smi: it did not answer" in said
    for npus in ([], [dict(NPUS[0], pci="", irq="", slice="gpu-0.slice")]):
        put_plan(host, {"npus": npus})
        assert compared(host, Wanted(live={"device_share": ON}, topology=topology))[1].drift == []

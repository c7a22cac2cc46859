# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts are bound by the real code, then one thing changes, and exactly that is told, as verify.txt says. A comparison writes nothing."""

import json
import os
import pathlib
import shlex
import shutil

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import drift, binding
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.irqbalance import POLICY
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import slice_path
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from tests.fakes.kernel import EVERYWHERE, EVERYWHERE_MASK, FIRST, SECOND, Kernel, add_device, add_function, bind, names_of
from tests.fakes.share import Box, wanted as shares_of
from tests.fakes.systemd import a_request, MARK, SLICE, UNITS, ModelledSystemd, slice_text

NPUS = [
    {"id": 0, "pci": FIRST, "pool": "24-35", "irq": "24-25", "mems": "1", "slice": "npu-0.slice"},
    {"id": 1, "pci": SECOND, "pool": "0-11", "irq": "0-1", "mems": "0", "slice": "npu-1.slice"},
]
PLAN = {"npus": NPUS, "housekeeping": "40-47"}
TIMER = UNITS + "/npu-affinity-irq.timer"
FILES = [{"path": "%s/%s" % (UNITS, npu["slice"]), "content": slice_text(npu["pool"], npu["mems"])} for npu in NPUS]
FILES.append({"path": TIMER, "content": MARK + "[Timer]\n[Install]\nWantedBy=timers.target\n"})
FILES.append({"path": installed.ARCHIVE, "content": MARK + 'VERSION = "1.0.0"\nsources\n'})
OWNED = [UNITS + "/npu*.slice", UNITS + "/*.d/50-npu-affinity*.conf"]
WANTED = Wanted(files=FILES, owned=OWNED, enabled=["npu-affinity-irq.timer"])


def read_stories():
    """Return ``{section: {claim: (commands, lines)}}`` of verify.txt."""
    found = {}
    text = pathlib.Path(__file__).with_name("verify.txt").read_text(encoding="utf-8").replace("{VERSION}", VERSION)
    for section in text.rstrip("\n").split("\n== ")[1:]:
        name, *parts = section.split("\n# ")
        stories = [part.split("\n") for part in parts]
        found[name] = {head.partition(": ")[0]: (head.partition(": ")[2], told) for head, *told in stories}
    return found


STORIES = read_stories()


def put_plan(host, plan):
    os.makedirs(os.path.dirname(host.path(binding.PLAN)), exist_ok=True)
    with open(host.path(binding.PLAN), "w") as file:
        json.dump(plan, file)


def state(host):
    paths = [os.path.join(folder, name) for folder, _folders, names in os.walk(host.root) for name in names]
    return {path: (os.lstat(path).st_mtime_ns, os.lstat(path).st_ino, os.lstat(path).st_size) for path in paths}


def compared(host, wanted, plan=None):
    """Compare, make sure that nothing was written, and return ``(bound, findings)``."""
    before = state(host)
    result = verify(host, wanted, plan)
    assert state(host) == before
    return result


def lines(findings):
    return [result_of(entry)["sentence"] for entry in findings.drift]


class Story:
    """A host with methods that are the commands of verify.txt."""

    def tells(self, wanted, commands, wishes):
        """Carry commands out, and return what a comparison tells then; ``wishes`` are what ``want`` compares instead."""
        asked = {}
        for verb, *words in [shlex.split(command) for command in commands.split("; ")]:
            if verb == "want":
                asked = wishes[words[0]]
            else:
                getattr(self, verb)(*words)
        plan = asked.get("plan")
        findings = compared(self, wanted._replace(**{name: value for name, value in asked.items() if name != "plan"}), plan)[1]
        return lines(findings) + ["remark: " + remark for remark in findings.remarks]

    def cpus_online(self, cpus):
        self.put("/sys/devices/system/cpu/online", cpus)

    def unlink(self, path):
        os.unlink(self.path(path))

    def rmtree(self, path):
        shutil.rmtree(self.path(path))

    def chmod(self, path, mode):
        os.chmod(self.path(path), int(mode, 8))

    def edit(self, path, old, new):
        with open(self.path(path), encoding="latin-1") as file:
            text = file.read()
        assert old in text
        with open(self.path(path), "w", encoding="latin-1") as file:
            file.write(text.replace(old, new))


class Bound(Story, Kernel):
    """A tree of 48 CPUs and two NPUs that was bound."""

    def __init__(self, root):
        Kernel.__init__(self, root)
        self.cpus_online(EVERYWHERE)
        self.put("/proc/interrupts", "      CPU0       CPU1\n    3: 0 0  GICv3 27 Level  arch_timer")
        for number, (pci, first) in enumerate([(FIRST, 2752), (SECOND, 3008)]):
            add_function(self, pci, first, names_of(number))
            add_device(self, number)
        apply(self, a_request(files=FILES, owned=OWNED, enabled=["npu-affinity-irq.timer"]))
        self.bind(PLAN)

    def bind(self, plan):
        put_plan(self, plan)
        bind(self, plan)

    def large_role(self):
        self.bind({**PLAN, "npus": [{**NPUS[0], "irq": "24-27"}, NPUS[1]]})

    def move(self, irq, cpus):
        self.put("/proc/irq/%s/smp_affinity_list" % irq, cpus)

    def move_workqueue(self, mask):
        self.put("/sys/devices/virtual/workqueue/dev0_sq_send_wq/cpumask", mask)

    def move_thread(self, cpus):
        self.edit("/proc/900/status", "Cpus_allowed_list:\t24", "Cpus_allowed_list:\t" + cpus)

    def move_everything(self):
        for irq in range(2753, 2770):
            self.move(irq, EVERYWHERE)
        self.move_workqueue(EVERYWHERE_MASK)
        self.move_thread(EVERYWHERE)

    def deliver(self, irq, cpu, times):
        """Let the next bind find an interrupt that does not follow yet, and let it come so many times afterwards."""
        self.put("/proc/irq/%s/effective_affinity_list" % irq, cpu)
        bind(self, PLAN)
        self.edit("/proc/interrupts", " %s: 0 0 " % irq, " %s: 0 %s " % (irq, times))

    def forget_interrupts(self):
        table = self.read("/proc/interrupts").splitlines()
        self.put("/proc/interrupts", "\n".join(line for line in table if not line.strip().startswith("27")))

    def irqbalance(self, pci="", told=""):
        """Run irqbalance with a policy for a function, and let it move an interrupt."""
        self.put("/sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs", "901")
        self.put("/proc/901/cmdline", "/usr/sbin/irqbalance\0--foreground\0" + ("--policyscript=" + POLICY if told else ""))
        if pci:
            self.put(POLICY, "#!/bin/sh\ncase */%s) echo ban=true ;; esac" % pci)
        self.move(2753, "7")

    def torch_npu(self, setting, visible="0"):
        self.put("/proc/300/cgroup", "0::/npu.slice/npu-0.slice/train.scope")
        self.put("/proc/300/comm", "python3")
        self.put("/proc/300/environ", "LANG=C\0ASCEND_RT_VISIBLE_DEVICES=%s\0CPU_AFFINITY_CONF=%s" % (visible, setting))
        self.move(2755, "7")

    def offline(self, cpus, online):
        self.cpus_online(online)
        for irq in range(2753, 2770):
            if self.read("/proc/irq/%d/smp_affinity_list" % irq) == cpus:
                self.move(irq, online)

    def poll(self, cpus=""):
        """Give the plan a place for poll threads, and run one."""
        put_plan(self, dict(PLAN, poll="1-3"))
        if cpus:
            self.put("/proc/95/comm", "uvb_poll_window")
            self.put("/proc/95/status", "Name:\tuvb_poll_window\nCpus_allowed:\t%s\nCpus_allowed_list:\t%s" % (EVERYWHERE_MASK, cpus))
            self.put("/proc/95/stat", "95 (uvb_poll_window) S 2 0 0 0 -1 2129984")


@pytest.fixture
def bound(tmp_path):
    return Bound(tmp_path)


WISHES = {
    "tolerant": {"live": {"irq": "warn"}},
    "no_irq": {"features": {}},
    "plan": {"plan": PLAN},
    "another_pool": {"plan": {"npus": [dict(NPUS[0], pool="24-31"), NPUS[1]]}},
    "one_npu": {"plan": {"npus": NPUS[:1]}},
    "poll_threads": {"plan": dict(PLAN, poll="1-3"), "features": {}},
    "system_slice": {"expected": [{"unit": "system.slice", "cpus": "40-47", "mems": ""}]},
}


@pytest.mark.parametrize("claim", STORIES["a bound tree"])
def test_one_change_of_a_bound_tree_is_told_with_its_cause(bound, claim):
    commands, told = STORIES["a bound tree"][claim]
    assert bound.tells(WANTED, commands, WISHES) == told


def test_a_bound_host_has_no_drift_and_names_what_was_compared(bound):
    was_bound, findings = compared(bound, WANTED)
    assert (was_bound, findings.drift, findings.remarks) == (True, [], [])
    assert findings.checked == {
        "plan": [binding.PLAN],
        "npus": ["NPU 0", "NPU 1"],
        "cpus": ["pool of NPU 0", "pool of NPU 1", "housekeeping"],
        "files": [entry["path"] for entry in FILES],
        "units": ["npu-affinity-irq.timer at boot"],
        "interrupts": ["NPU %d %s" % (number, name) for number in (0, 1) for name in (binding.CQ, binding.SQ)],
        "workqueues": ["NPU 0 dev0_sq_send_wq", "NPU 1 dev1_sq_send_wq"],
        "threads": ["NPU 0 dev0_sq_task", "NPU 1 dev1_sq_task"],
    }
    bound.poll("1-3")
    assert "uvb_poll_window" in compared(bound, WANTED)[1].checked["threads"]


@pytest.mark.parametrize("moves", [True, False])
def test_a_newly_configured_irqbalance_is_judged_by_its_actions(bound, monkeypatch, moves):
    """It is on its command line that it was told; whether it listens shows at its first pass."""
    bound.irqbalance(FIRST, "told")
    bound.move(2753, "24")
    bound.put("/proc/uptime", "100.00 1.00")
    bound.put("/proc/901/stat", "901 (irqbalance) S 1 9 9 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0" % (96 * os.sysconf("SC_CLK_TCK")))
    waits = []
    monkeypatch.setattr(drift.time, "sleep", lambda seconds: [waits.append(seconds), bound.move(2753, "7") if moves else None])
    said = [line.partition(" (")[0] for line in lines(verify(bound, WANTED)[1])]
    assert waits == [8] and said == ["NPU 0 sq_send_trigger_irq: expected CPUs 24, found CPUs 7"] * moves


def test_a_never_bound_host_is_reported_as_drift_only_on_request(tmp_path):
    was_bound, findings = compared(Kernel(tmp_path), WANTED)
    assert (was_bound, findings.drift, findings.checked) == (False, [], {})
    was_bound, findings = compared(Kernel(tmp_path), WANTED._replace(must_be_bound=True))
    said = binding.PLAN + ": expected the plan in force, found no such file; likely never bound: bind the host [NPU_NEVER_BOUND]"
    assert (was_bound, lines(findings)) == (False, [said])


def test_a_tree_that_does_not_run_has_no_sets_or_processes(bound):
    bound.put("/sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs", "951")
    bound.put("/proc/951/status", "Cpus_allowed_list:\t0-47\nMems_allowed_list:\t0")
    findings = compared(bound, WANTED._replace(**WISHES["system_slice"]))[1]
    assert findings.drift == [] and "processes" not in findings.checked and "cpusets" not in findings.checked


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
NPU_0 = {"id": 0, "pci": "", "pool": "0-1", "irq": "", "mems": "0", "slice": "npu-0.slice"}
NPU_1 = dict(NPU_0, id=1, pool="4-5", slice="npu-1.slice")
VLLM, TP, OLD = "/npu.slice/npu-0.slice/vllm@0.service", "/npu.slice/tp.service", "/system.slice/old.service"
SITE = UNITS + "/vllm@0.service.d/%s-npu-affinity.conf"
CONTAINER = "0123456789abcdef" * 4
DOCKER = "/system.slice/docker-%s.scope" % CONTAINER


class Live(Story, ModelledSystemd):
    """A running machine with a slice and services: ``shown`` is what ``systemctl show`` says, by unit."""

    def __init__(self, root):
        ModelledSystemd.__init__(self, root)
        self.shown = {}
        put_plan(self, {"npus": [NPU_0]})
        apply(self, a_request(files=LIVE_FILES, started=["npu.slice", "npu-0.slice"], expected=EXPECTED))
        os.makedirs(self.path(UNITS + "/multi-user.target.wants"))
        os.symlink("../npu.slice", self.path(UNITS + "/multi-user.target.wants/npu.slice"))
        for pid, group, cpus in ((100, VLLM, "0-1"), (200, TP, "2")):
            self.runs_in(*os.path.split(group))
            self.add_process(pid, group, cpus)
        self.grants(TP, "2-3")
        self.grants(TP, "0", "mems")
        self.calls.clear()

    def run(self, argv, stdin="", timeout=None):
        result = ModelledSystemd.run(self, argv, stdin, timeout)
        if argv[1] != "show":
            return result
        units = [word for word in argv[2:] if not word.startswith("-")]
        blocks = [dict({"Id": unit}, **self.shown.get(unit, {})) for unit in units]
        return result._replace(output="\n\n".join("\n".join("%s=%s" % pair for pair in block.items()) for block in blocks) + "\n")

    def add_process(self, pid, group, cpus, mems="0", threads=()):
        self.put("/sys/fs/cgroup%s/cgroup.procs" % group, "%s\n" % pid)
        for folder, allowed in [("", cpus)] + [("/task/%d" % (pid + number), thread) for number, thread in enumerate(threads)]:
            self.put("/proc/%s%s/comm" % (pid, folder), "worker")
            self.put("/proc/%s%s/status" % (pid, folder), "Cpus_allowed_list:\t%s\nMems_allowed_list:\t%s\n" % (allowed, mems))

    def start(self, unit):
        self.running.add(unit)

    def stop(self, unit):
        self.running.discard(unit)

    def show(self, unit, *values):
        self.shown[unit] = dict(value.split("=") for value in values)

    def runs_in(self, group, unit):
        self.show(unit, "ActiveState=active", "ControlGroup=%s/%s" % (group, unit))

    def failed(self, unit):
        self.put(UNITS + "/npu-affinity-irq@.service", MARK)
        self.show("npu-affinity-*", "Id=" + unit, "ActiveState=failed", "Result=exit-code")

    def grants(self, unit, cpus, kind="cpus"):
        self.put("/sys/fs/cgroup%s/cpuset.%s.effective" % (unit if "/" in unit else slice_path(unit), kind), cpus)

    def set_property(self, value):
        self.put("/run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=%s\n" % value)

    def own_set(self, cpus):
        self.grants(VLLM, cpus)
        self.grants(VLLM, "0", "mems")

    def lend(self, has):
        """Let housekeeping follow the workloads: of the pools of two NPUs, that of the first is in use."""
        self.put("/etc/npu-affinity/housekeeping.json", '{"floor": "6-7", "most": "0-1,4-5"}')
        put_plan(self, {"npus": [NPU_0, NPU_1]})
        for group in ("", "/npu-0.slice"):
            self.put("/sys/fs/cgroup/npu.slice%s/cgroup.procs" % group, "")
        self.grants(VLLM, "0-1")
        self.put("/run/systemd/system.control/user.slice.d/50-AllowedCPUs.conf", "[Slice]\nAllowedCPUs=0-7\n")
        self.put("/sys/fs/cgroup/user.slice/cpuset.cpus", has)
        self.grants("user.slice", has)

    def old_service(self, found, state="loaded"):
        """Have a service without a slice, as systemd has loaded it."""
        self.put(UNITS + "/old.service.d/50-npu-affinity.conf", MARK + "[Service]\nCPUAffinity=4-5\nNUMAMask=0\n")
        mask = "NUMAMask=" + "0" * bool(found)
        self.show("old.service", "LoadState=" + state, "ActiveState=inactive", "CPUAffinity=" + found, mask)

    def old_threads(self, top, *threads):
        self.runs_in(*os.path.split(OLD))
        self.add_process(300, top + OLD, "4-5", threads=threads)

    def starts(self, pid, *words):
        """Start a program with variables and arguments."""
        variables = [word for word in words if word.partition("=")[0].isupper()]
        self.put("/proc/sys/kernel/arch", "aarch64")
        self.put("/proc/%s/environ" % pid, "\0".join(["HOME=/", *variables]) + "\0")
        self.put("/proc/%s/cmdline" % pid, "\0".join(words[len(variables) :]))

    def started(self, name, value, pid="100"):
        """Start a service that a drop-in gives a variable with another value of it, or none."""
        self.put(UNITS + "/vllm@0.service", "[Service]\nExecStart=/usr/bin/vllm\n")
        self.put(SITE % 50, own_file(name)["content"])
        self.shown["vllm@0.service"]["MainPID"] = pid
        self.starts(100, *[name + value] if value else [])

    def elsewhere(self, variable):
        self.put(SITE % 60, "[Service]\nEnvironment=%s\n" % variable)

    def lose_card(self):
        """A process keeps the device that it opened, whatever id that has later."""
        put_plan(self, {"npus": [NPU_0], "lost": [dict(NPU_1, pci="0000:01:00.0")]})

    def adopt(self, recorded=""):
        """Run two processes in a container, of which one starts the workers that hold an NPU."""
        for pid in (300, 301):
            self.add_process(pid, DOCKER, "0-1")
        self.starts(301, "/usr/bin/vllm", "serve", "m")
        if recorded:
            entry = {"original": "", "given": ["cpus=0-1"], "npus": [["npu", 0]], "group": DOCKER, "title": "llm"}
            previous.replace(self, "adopt", {"docker:" + CONTAINER: entry})


def own_file(name):
    return {"path": SITE % 50, "content": MARK + "[Service]\nSlice=npu-0.slice\nEnvironment=%s=0\n" % name}


def container(cpus):
    process = {"pid": 300, "start": 1, "command": "worker", "devices": ["davinci0"], "cpus": "0-1"}
    fixed = {"group": DOCKER, "kind": "container", "unit": DOCKER[14:], "engine": "docker", "container": CONTAINER, "name": "llm"}
    npus = [{"kind": "npu", "id": 0}]
    return {**fixed, "devices": ["davinci0"], "npus": npus, "processes": [process], "cpus": cpus, "mems": "0", "witness": "open"}


def services(*entries, **more):
    return {"live": {"slices": {"services": entries, **more}}}


def with_variable(kind, name):
    return {"files": [*LIVE_FILES, own_file(name)], **services(dict(SERVICES[0], **{kind: {name: "0"}}))}


USER = {"unit": "user.slice", "cpus": "6-7", "mems": ""}
AFFINITY = {"CPUAffinity": "4-5"}
LIVE_WISHES = {
    "drop_in": {"files": [*LIVE_FILES, own_file("A")]},
    "timer": {"started": ["npu-affinity-irq.timer"]},
    "no_irqbalance": {"stopped": ["irqbalance.service"]},
    "housekeeping": {"expected": [*EXPECTED, USER]},
    "lent": {"expected": [*EXPECTED, dict(USER, more="0-1,4-5")], "live": {}},
    "old_service": {"owned": [], **services({"name": "old.service", "settings": {**AFFINITY, "NUMAMask": "0"}})},
    "old_threads": services({"name": "old.service", "settings": AFFINITY}),
    "devices": with_variable("devices", "ASCEND_RT_VISIBLE_DEVICES"),
    "switches": with_variable("switches", "SGLANG_SET_CPU_AFFINITY"),
    "workers": services(*SERVICES, bound_by="workers"),
    "inside": {"topology": {"users": [container("0-1")]}},
    "outside": {"topology": {"users": [container("0-7")]}},
}


@pytest.fixture
def live(tmp_path):
    return Live(str(tmp_path))


@pytest.mark.parametrize("claim", STORIES["a running machine"])
def test_one_change_of_a_running_host_is_told_with_its_cause(live, claim):
    commands, told = STORIES["a running machine"][claim]
    assert live.tells(LIVE_WANTED, commands, LIVE_WISHES) == told
    assert {call.split()[0] for call in live.calls} <= {"is-active", "show"}


FOUGHT = [
    (["SGLANG_SET_CPU_AFFINITY=1"], "npu-affinity-watch.service", "/etc/npu-affinity/threads.json", "its threads"),
    (["BIND_CPU=1", "ATB_SPEED_HOME_PATH=/atb"], "npu-affinity-watch.service", "/etc/npu-affinity/threads.json", "its threads"),
    (["CPU_AFFINITY_CONF=1,npu0:0-1,bind_irq:1"], "npu-affinity-irq.timer", TIMER, "them"),
]


@pytest.mark.parametrize("variables, unit, path, what", FOUGHT)
def test_what_a_program_fights_is_named(live, variables, unit, path, what):
    live.starts(100, *variables)
    for there in (False, True):
        (remark,) = compared(live, LIVE_WANTED._replace(owned=[]))[1].remarks
        assert remark.endswith("; until then %s puts %s back [NPU_WORKER_BINDS_ITSELF]" % (unit, what)) is there
        live.put(path, "{}")


def test_differing_units_belong_to_the_npu_of_their_slice(live):
    live.grants("npu-0.slice", "0")
    live.runs_in("/system.slice", "vllm@0.service")
    live.grants(TP, "0-3")
    inner = {"name": "a", "slice": "npu-0-a.slice", "limiter": "npu-affinity-limiter-a.service"}
    wanted = LIVE_WANTED._replace(live={"slices": {"services": SERVICES, "vnpus": [inner]}}, stopped=[inner["limiter"]])
    live.start(inner["limiter"])
    found = {finding.unit: finding.device for finding in compared(live, wanted)[1].drift}
    first = Device.of(NPU_0)
    assert found == {"npu-0.slice": first, "vllm@0.service": first, inner["limiter"]: first, "tp.service": None}


def test_a_running_host_is_asked_little_and_told_nothing(live):
    was_bound, findings = compared(live, LIVE_WANTED)
    assert (was_bound, findings.drift, findings.remarks) == (True, [], [])
    units = ("npu.slice", "npu-0.slice", "tp.service")
    assert findings.checked["cpusets"] == ["%s %s" % (unit, word) for unit in units for word in ("CPUs", "memory nodes")]
    assert findings.checked["services"] == ["vllm@0.service", "tp.service"]
    assert findings.checked["processes"] == ["processes of npu-0.slice", "processes of tp.service"]
    assert {call.split()[0] for call in live.calls} == {"is-active", "show"} and len(live.calls) <= 4


SHARED = {"npus": [dict(NPUS[0], pci="", irq="")]}
ON = shares_of()
MUTE = {"info -t device-share -i 5": {"text": "dcmi module initialize failed. ret is -8005", "status": 187}}
SHARES = {
    # the cards, what happened to them, which ones are wanted, and what is told up to its cause
    "as wanted": ("a2", lambda box: box.share(), ON, []),
    "forgotten": (
        "a2",
        lambda box: None,
        shares_of(0, 2),
        ["card %d: expected on, found off; likely driver reload" % card for card in (0, 2)],
    ),
    "one switched off": ("a2", lambda box: box.share(0, 2), ON, ["card 1: expected on, found off; likely manual change"]),
    "one chip switched off": (
        "310p",
        lambda box: [box.share(), box.by_hand("-i 2 -c 1 -d 0")],
        ON,
        ["card 2: expected on, found off (chips 1); likely manual change"],
    ),
    "not there": (
        "a2",
        lambda box: None,
        shares_of(7),
        ["device share: expected on, found npu_affinity_device_share_npus: there is no card 7; npu-smi knows cards 0-2"],
    ),
    "silent": (
        "310p",
        lambda box: [box.share(), box.faults(answers=MUTE)],
        ON,
        ["card 5: expected on, found npu-smi cannot answer (unavailable): "],
    ),
}


@pytest.mark.parametrize("kind, change, wanted, told", SHARES.values(), ids=SHARES)
def test_device_share_is_compared_card_by_card(tmp_path, kind, change, wanted, told):
    box = Box(tmp_path, kind)
    change(box)
    put_plan(box.host, SHARED)
    box.forget_calls()
    said = lines(verify(box.host, Wanted(live={"device_share": wanted}))[1])
    assert len(said) == len(told) and all(map(str.startswith, said, told)), said
    assert box.sets == []


def test_a_card_of_one_npu_is_drift_of_that_npu(tmp_path):
    box = Box(tmp_path, "a2")
    box.share(0)
    put_plan(box.host, {**SHARED, "options": {"npus": []}})
    npus = [{"kind": "npu", "id": 5 - card, "card": card, "chip": 0, "pci": "0000:0%d:00.0" % card} for card in range(3)]
    findings = verify(box.host, Wanted(live={"device_share": ON}, topology={"npus": npus}))[1]
    found = [(entry.object, entry.device) for entry in findings.drift if entry.kind == "device_share"]
    assert found == [("card 1", ("npu", 4, "0000:01:00.0")), ("card 2", ("npu", 3, "0000:02:00.0"))]


@pytest.mark.parametrize("topology", [None, {"npus": []}], ids=["asked", "gathered without an answer"])
def test_a_missing_npu_smi_is_said_where_the_plan_has_npus(tmp_path, topology):
    host, wanted = Kernel(tmp_path), Wanted(live={"device_share": ON}, topology=topology)
    put_plan(host, SHARED)
    (said,) = lines(compared(host, wanted)[1])
    assert said.startswith("device share: expected on, found npu-smi was not found") and "; likely npu-smi: it did not answer" in said
    for npus in ([], [dict(NPUS[0], pci="", irq="", slice="gpu-0.slice")]):
        put_plan(host, {"npus": npus})
        assert compared(host, wanted)[1].drift == []

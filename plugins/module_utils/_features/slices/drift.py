# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slices need of a host, and what the kernel really grants to them, services and their processes. Reads only."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Iterator, Mapping, Sequence, Tuple

from ..._base.binders import BINDERS, VLLM, VLLM_ASCEND
from ..._base.cpulist import compress, expand
from ..._base.findings import CHANGED_CPUSET, EDIT, OFFLINE_CPU, OLD_PROCESS, Cause, Value, coded
from ..._host.host import Host
from ..._kernel.machine import CGROUPS, architecture, slice_path
from ..._kernel.memory import nodes_with_memory
from ..._kernel.processes import command_of, folder_of, members, started_with, variables_of
from ..._state.systemd import CPUSET_KEYS, RUNTIME_CONTROLS, UNIT_FOLDER, Systemd, settings
from ..._state.unit_environment import agrees, environment
from ..._state.unit_files import absent, differences, drop_in_of, fragment, numbers, others, similar, withheld
from ..feature import Comparing
from ..threads import torch_npu
from ..threads.feature import SETTINGS as THREADS
from ..watching import WATCH_SERVICE
from .lending import given, holders, lending, sentence

if TYPE_CHECKING:
    from ..._base.documents import AppliedState, BoundService, UnitSets

    InFolder = Tuple[UnitSets, "str | None"]
    """The sets that a unit is to have, and the folder of its control group, None where it does not run."""

_VISIBLE = {"npu": "ASCEND_RT_VISIBLE_DEVICES", "gpu": "CUDA_VISIBLE_DEVICES"}
_LOADED = ("CPUAffinity", "NUMAMask")
"""Settings of a service that no cgroup shows."""
_ALLOWED = {"Cpus_allowed_list": "cpus", "Mems_allowed_list": "mems"}
_OTHER_DEVICES = "%s sets %s=%s, and the CPUs of %s are those of %s=%s: remove it there, or name the devices that it uses"
_BINDS_ITSELF = "%s sets %s=%s, and %s then binds itself, against %s=%s of its drop-in: remove it, or remove its engine from the settings"


def require(host: Host, state: AppliedState) -> None:
    """Refuse units that get no CPU sets, and programs that they start and that are neither there nor placed first by feature vnpu."""
    for entry in state["expected"]:
        parent = posixpath.dirname(slice_path(entry["unit"])) if entry["unit"].endswith(".slice") else ""
        why = withheld(host, parent)
        if why:
            raise ValueError("%s cannot get CPUs %s: %s" % (entry["unit"], entry["cpus"], why))
    layout = state["live"].get("vnpu")
    layout_files = ["%s/%s" % (layout["folder"], file["name"]) for file in layout["files"]] if layout else []
    for path in state["programs"]:
        if path not in layout_files and not host.exists(path):
            raise ValueError(
                "%s is not on the host, and the units of vNPUs start it: containers would wait for their limiter and then fail. Place "
                "it (npu_affinity_vnpu_enabled with npu_affinity_vnpu_files), or set npu_affinity_vnpu_limiter to '' where the library "
                "does without one" % path
            )


def compare(comparing: Comparing) -> None:
    """Compare services with their drop-ins, and the effective sets of units, and of the processes in them, with the expected ones."""
    of_services = _compare_services(comparing)
    expected = [entry for entry in comparing.wanted.expected if entry["unit"] not in comparing.idle]
    host, systemd = comparing.host, Systemd(comparing.host)
    in_folders = [(entry, systemd.cgroup(entry["unit"])) for entry in _followed(comparing, expected)] + of_services
    for entry, folder in in_folders:
        right = [_compare_set(comparing, entry, folder, key) for key, (kind, _word) in CPUSET_KEYS.items() if _sets(entry)[kind]]
        if folder:
            inner = {other for _entry, other in in_folders if other and other != folder}
            processes = ["/proc/" + pid for pid in members(host, folder, inner)]
            check_binders(comparing, entry["unit"], processes, entry["cpus"])
            if all(right):
                _compare_tasks(comparing, "processes of " + entry["unit"], processes, entry)


def _sets(entry: UnitSets) -> dict[str, str]:
    return {"cpus": entry["cpus"], "mems": entry["mems"]}


def _followed(comparing: Comparing, expected: Sequence[UnitSets]) -> Iterator[UnitSets]:
    """Yield the expected sets, those of units that follow the workloads as far as these let them have what they have."""
    host, has = comparing.host, given(comparing.host)
    following = any(entry.get("more") for entry in expected) and has
    loan = lending(host) if following else None
    held = loan.held(holders(host, loan.plan)) if loan else set()
    for entry in expected:
        if loan and entry.get("more") and entry["unit"] in has:
            lent = has[entry["unit"]] & set(expand(entry["more"])) - held
            yield {**entry, "cpus": compress(lent.union(expand(entry["cpus"])))}
        else:
            yield entry
    if loan:
        comparing.findings.remarks += coded("NPU_HOUSEKEEPING_FOLLOWS", [sentence(loan, has)])


def _compare_set(comparing: Comparing, entry: UnitSets, folder: str | None, key: str) -> bool:
    """Compare one set of one unit and return whether the kernel grants it."""
    host, findings, systemd, unit = comparing.host, comparing.findings, Systemd(comparing.host), entry["unit"]
    kind, word = CPUSET_KEYS[key]
    name, cpulist = "%s %s" % (unit, word), _sets(entry)[kind]
    wanted = set(expand(cpulist))
    usable = wanted & ((comparing.online if kind == "cpus" else nodes_with_memory(host)) or wanted)
    text = host.read("%s/cpuset.%s.effective" % (folder, kind)) if folder else None
    effective = None if text is None else set(expand(text))
    overrides = [path for path in systemd.set_by_hand(unit) if key in path]
    overrides += [path for path, _value in others(host, unit, key) if path not in overrides]
    lent = RUNTIME_CONTROLS if entry.get("more") else ()
    overrides = [path for path in overrides if not path.startswith(lent)]
    if effective is None and not host.live or effective == usable:
        other = [path for path in overrides if settings(host.read(path)).get(key) != cpulist]
        if other:
            text = settings(host.read(other[0])).get(key, "")
            cpus = numbers(text)
            has = _set_of(kind, None if cpus is None else compress(cpus))._replace(state="%s=%s in %s" % (key, text, other[0]))
            findings.differs("cpusets", name, _set_of(kind, cpulist), has, cause_of_set(usable, effective, other), unit)
        elif effective is not None:
            findings.same("cpusets", name)
        return effective is not None
    parent = posixpath.basename(posixpath.dirname(slice_path(unit))) if unit.endswith(".slice") else ""
    above = (parent, systemd.effective(parent, kind)) if parent else None
    unread = host.live and systemd.show(["NeedDaemonReload"], [unit]).get(unit, {}).get("NeedDaemonReload") == "yes"
    cause = cause_of_set(usable, effective, overrides, above, unit in comparing.edited, unread)
    if entry.get("more") and effective and effective > usable:
        cause = Cause(CHANGED_CPUSET, "a workload holds the others, and %s did not take them back: see its journal" % WATCH_SERVICE)
    has = Value("no cpuset") if effective is None else _set_of(kind, compress(effective))
    findings.differs("cpusets", name, _set_of(kind, cpulist), has, cause, unit)
    return False


def _set_of(kind: str, cpulist: str | None) -> Value:
    return Value(cpus=cpulist) if kind == "cpus" else Value(mems=cpulist)


def cause_of_set(
    wanted: set[int],
    effective: set[int] | None,
    overrides: Sequence[str] = (),
    above: tuple[str, set[int] | None] | None = None,
    edited: bool = False,
    unread: bool = False,
) -> Cause:
    """Return the likely cause why the kernel grants a unit ``effective`` (None without a cpuset) and not ``wanted``, which is online.

    It rests on what systemd 252 was seen to do: ``systemctl set-property`` leaves a drop-in of its own, one of the ``overrides``. ``above``
    is ``(unit, set)`` of the slice above; ``unread``: systemd has not read the unit file since it changed.
    """
    if overrides:
        by_hand = all("/system.control/" in path or "/transient/" in path for path in overrides)
        advice = "remove the file, run 'systemctl daemon-reload', and bind" if by_hand else "remove it there"
        return Cause(EDIT, "overridden by %s; %s" % (", ".join(overrides), advice))
    if not wanted:
        return Cause(OFFLINE_CPU, "none of them is online, and the kernel then grants those of the slice above")
    if edited:
        return Cause(EDIT, "its unit file was changed")
    if unread:
        return Cause(CHANGED_CPUSET, "systemd has not read the unit file since it changed; bind again")
    if effective is None:
        return Cause(CHANGED_CPUSET, "the cpuset controller is off for it")
    if above and above[1] is not None and effective == wanted & above[1]:
        return Cause(CHANGED_CPUSET, "%s above it does not have the others" % above[0])
    return Cause(CHANGED_CPUSET, "something other than systemd wrote it, or systemd left an older set behind")


def _compare_services(comparing: Comparing) -> list[InFolder]:
    """Compare services; return the sets of those that have one of their own."""
    host, slices = comparing.host, comparing.wanted.live.get("slices")
    services = slices.get("services") or () if slices else ()
    properties = ["LoadState", "ActiveState", "ControlGroup", "MainPID", *_LOADED]
    states = Systemd(host).show(properties, [service["name"] for service in services]) if host.live else {}
    with_sets: list[InFolder] = []
    missing = {}
    for service in services:
        one = _Service(comparing, service, states.get(service["name"], {}))
        if one.is_missing:
            missing[one.unit] = similar(host, one.unit)
        with_sets += one.compare()
    if missing:
        comparing.findings.remarks += coded("NPU_UNKNOWN_UNIT", [absent(missing)])
    return with_sets


def _compare_tasks(comparing: Comparing, name: str, tasks: Sequence[str], entry: UnitSets, word: str = CHANGED_CPUSET) -> None:
    """Compare tasks, by their folders in /proc, with ``{unit, cpus, mems}``, of which they may use a part; ``word`` is the likely cause."""
    host, findings, sets = comparing.host, comparing.findings, _sets(entry)
    outside = []
    for task in tasks:
        lines = (line.partition(":") for line in (host.read(task + "/status") or "").splitlines())
        allowed = {_ALLOWED[key]: value.strip() for key, _colon, value in lines if key in _ALLOWED}  # empty for one that has ended
        if any(cpus and not set(expand(allowed.get(kind, ""))) <= set(expand(cpus)) for kind, cpus in sets.items()):
            outside.append((task, allowed))
    if not outside:
        if tasks:
            findings.same("processes", name)
        return
    task, allowed = outside[0]
    title = "%s (%s)" % (task.rpartition("/")[2], host.read(task + "/comm") or "ended")
    remark = "the set of the unit does not reach them"
    if word == OLD_PROCESS:
        remark = "it runs with its former settings, or its workers bind themselves (vLLM-Ascend: enable_cpu_binding=false)"
    cpus, mems = (allowed.get(kind) if cpulist else None for kind, cpulist in sets.items())
    has = Value(cpus=cpus, mems=mems, task=title, more=len(outside) - 1)
    expected = Value(cpus=entry["cpus"] or None, mems=entry["mems"] or None)
    findings.differs("processes", name, expected, has, Cause(word, remark), entry["unit"])


class _Service:
    """A service, and the properties that systemd shows of it."""

    def __init__(self, comparing: Comparing, service: BoundService, state: Mapping[str, str]) -> None:
        self.comparing = comparing
        self.host = comparing.host
        self.unit, self.wanted = service["name"], service["settings"]
        self.devices, self.switches = service.get("devices") or {}, service.get("switches") or {}
        self.state = state
        self.edited = self.unit in comparing.edited
        self.is_missing = state.get("LoadState") == "not-found" if self.host.live else fragment(self.host, self.unit) is None
        """systemd reads drop-ins of services that are installed only."""

    def compare(self) -> list[InFolder]:
        """Compare what files, systemd and processes have; return the set to compare, if the service has one of its own."""
        if not self.edited and self.host.exists(drop_in_of(self.unit)):
            self._check_settings()
        files = {**self._check_variables(self.devices, _OTHER_DEVICES), **self._check_variables(self.switches, _BINDS_ITSELF)}
        if self.state.get("ActiveState") != "active":
            return []
        if not self.comparing.plan.get("lost"):  # else ids may mean other devices than when it was started
            self._check_main_process(files)
        group = self.state.get("ControlGroup", "")
        with_sets = self._check_slice(group) if "Slice" in self.wanted else []
        if "CPUAffinity" in self.wanted:
            folder = folder_of(self.host, group) if group else ""
            inside = ["/proc/" + pid for pid in members(self.host, folder)] if folder else []
            entry: UnitSets = {"unit": self.unit, "cpus": self.wanted["CPUAffinity"], "mems": ""}
            check_binders(self.comparing, self.unit, inside, entry["cpus"])
            threads = ["%s/task/%s" % (process, name) for process in inside for name in self.host.names(process + "/task")]
            _compare_tasks(self.comparing, "threads of " + self.unit, threads, entry, OLD_PROCESS)
        return with_sets

    def _check_settings(self) -> None:
        """Compare what all files of a service say together, and what systemd has loaded of it, with its drop-in."""
        different = {key: (effective, path) for key, _value, effective, path in differences(self.host, self.unit, self.wanted)}
        for key, value in self.wanted.items():
            name, loaded = "%s %s" % (self.unit, key), None if self.is_missing else self.state.get(key)
            if key in different:
                effective, path = different[key]
                remark = (
                    "%s, which systemd reads as well, says %s too; remove it there" % (path, key) if path else "its files do not say so"
                )
                self._differs("services", name, "%s=%s" % (key, value), "%s=%s" % (key, effective), Cause(EDIT, remark))
            elif key in _LOADED and loaded is not None and numbers(loaded) != numbers(value):
                cause = Cause(CHANGED_CPUSET, "systemd has not read its files since they changed; 'systemctl daemon-reload' does that")
                self._differs("services", name, "%s=%s" % (key, value), "%s=%s" % (key, loaded), cause)
            else:
                self.comparing.findings.same("services", name)

    def _check_variables(self, wanted: Mapping[str, str], remark: str) -> dict[str, str]:
        """Compare variables of the service's files. Other values in a file that npu.affinity does not manage are a ``remark``."""
        variables = environment(self.host, self.unit) if wanted else {}
        for name, value in wanted.items():
            here, path = variables.get(name, ("", ""))
            title = "%s %s" % (self.unit, name)
            if agrees(name, here, value):
                self.comparing.findings.same("services", title)
            elif path not in ("", drop_in_of(self.unit)):
                self.comparing.findings.remarks += coded("NPU_VARIABLE_KEPT", [remark % (path, name, here, self.unit, name, value)])
            elif not self.edited:
                cause = Cause(EDIT, "another file of the service takes away what its drop-in says (Environment=)")
                self._differs("services", title, "%s=%s" % (name, value), "no %s" % name, cause)
        return {name: here for name, (here, _path) in variables.items()}

    def _check_main_process(self, files: Mapping[str, str]) -> None:
        """Compare the variables that a service was started with, which its program may have set itself, with what its files say now."""
        pid = self.state.get("MainPID", "0")
        started = dict(word.partition("=")[::2] for word in (started_with(self.host, pid) if pid != "0" else []))
        for name, value in {**self.devices, **self.switches}.items() if started else ():
            title, expected, here = "main process of %s %s" % (self.unit, name), files.get(name, value), started.get(name, "")
            if here == expected or agrees(name, here, value):
                self.comparing.findings.same("processes", title)
            else:
                shown = "%s=%s" % (name, here) if name in started else "no %s" % name
                cause = self._as_started("it still runs with its former settings, or its program sets this itself")
                self._differs("processes", title, "%s=%s" % (name, expected), shown, cause)

    def _check_slice(self, group: str) -> list[InFolder]:
        home = self.wanted["Slice"]
        if posixpath.dirname(group) != slice_path(home):
            current = posixpath.basename(posixpath.dirname(group)) or "no slice"
            self._differs("services", self.unit, "in " + home, "in " + current, self._as_started("it still runs with its former settings"))
            return []
        self.comparing.findings.same("services", self.unit)
        sets = [(entry["cpus"], entry["mems"]) for entry in self.comparing.wanted.expected if entry["unit"] == home]
        if "AllowedCPUs" in self.wanted:
            sets = [(self.wanted["AllowedCPUs"], self.wanted.get("AllowedMemoryNodes", ""))]
        elif not self.host.exists(CGROUPS + group + "/cpuset.cpus.effective"):
            return []
        return [({"unit": self.unit, "cpus": cpus, "mems": mems}, CGROUPS + group) for cpus, mems in sets[-1:]]

    def _as_started(self, remark: str) -> Cause:
        return Cause(EDIT, "its drop-in was changed") if self.edited else Cause(OLD_PROCESS, remark)

    def _differs(self, kind: str, name: str, expected: str, actual: str, cause: Cause) -> None:
        self.comparing.findings.differs(kind, name, expected, actual, cause, self.unit)


def check_binders(comparing: Comparing, unit: str, processes: Sequence[str], cpus: str) -> None:
    """Say which of the processes of a unit, given by their folders in /proc, bind themselves. ``cpus`` are those of the unit.

    Each is a remark, and explains other findings. Their environment and arguments at the start show it (:mod:`_base.binders`)."""
    host, findings = comparing.host, comparing.findings
    online = set(comparing.online)
    granted = set(expand(cpus)) & online or set(expand(cpus))
    may_bind = comparing.host_binds and architecture(host) == "aarch64"
    units = ((WATCH_SERVICE, "its threads", THREADS), ("npu-affinity-irq.timer", "them", UNIT_FOLDER + "/npu-affinity-irq.timer"))
    fights = ["; until then %s puts %s back" % (unit, what) if host.exists(path) else "" for unit, what, path in units]
    device = getattr(findings.devices.get(unit), "kind", "")
    of_unit = [kind for kind in _VISIBLE if kind == device or unit.startswith((kind + "-", kind + ".slice"))]
    by_sentence: dict[str, list[str]] = {}
    against = "CPUs %s of %s" % (compress(granted), unit)
    for pid in [process.rpartition("/")[2] for process in processes]:
        environment, command = started_with(host, pid), command_of(host, pid)
        variables = variables_of(environment)
        kinds = [kind for kind, name in _VISIBLE.items() if kind in of_unit or name in variables]
        left_out = [] if may_bind else [VLLM_ASCEND]
        left_out += [VLLM] if _is_given_cpus(command, granted) else []
        binders = [one for one in BINDERS if (len(one.kinds) > 1 or kinds[:1] == list(one.kinds)) and one not in left_out]
        hows = [(binder, binder.enabled_by(variables, command)) for binder in binders]
        texts = ["%s: %s, against %s: %s%s" % (how, binder.effect, against, binder.remedy, fights[0]) for binder, how in hows if how]
        for text in texts + _of_torch_npu(environment, granted, online, against, fights[1]):
            by_sentence.setdefault(text, []).append(pid)
    for text, pids in by_sentence.items():
        more = " and %d more" % (len(pids) - 1) if len(pids) > 1 else ""
        who = "process %s (%s) of %s%s" % (pids[0], host.read("/proc/%s/comm" % pids[0]) or "ended", unit, more)
        findings.remarks += coded("NPU_WORKER_BINDS_ITSELF", ["%s started %s" % (who, text)])


def _is_given_cpus(command: Sequence[str], granted: set[int]) -> bool:
    """Whether vLLM places its workers on CPUs that it was given, all of them those of its unit: filter ``launch`` writes this."""
    lists, is_list = [], False
    for word in command:
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            is_list = name.replace("_", "-") == "--numa-bind-cpus"
        if is_list and (equals or not word.startswith("-")):
            lists.append(value if equals else word)
    try:
        given = {cpu for text in lists for cpu in expand(text)}
    except ValueError:
        return False
    return bool(given) and given <= granted


def _of_torch_npu(environment: Sequence[str], granted: set[int], online: set[int], against: str, fight: str) -> list[str]:
    """Return what torch_npu does with interrupts, which ``fight`` says who restores, and makes of CPUs that the unit does not have, by both
    readings of the text where they differ."""
    setting = torch_npu.setting(environment)
    if not setting:
        return []
    (variable, wanted), sentences = setting, []
    if torch_npu.BIND_IRQ in wanted.switches:
        text = "with %s: torch_npu moves the interrupts of its NPUs and stops irqbalance: remove bind_irq%s"
        sentences.append(text % (variable, fight))
    ids = torch_npu.visible_ids(environment)
    count = len(ids) if ids else len(wanted.ranges)
    outside, texts = set(), []
    for number in range(count) if ids else sorted(wanted.ranges):
        old, new = (torch_npu.cpus_of(wanted, number, count, online, release) or set() for release in torch_npu.READINGS)
        if (old | new) - granted:
            outside |= (old | new) - granted
            differ = "" if old == new else " (before 26.1.0 %s)" % compress(old)
            share = "" if number in wanted.ranges else " (its part of the whole host)"
            texts.append("CPUs %s%s%s for npu%d" % (compress(new), differ, share, number))
    if outside:
        result = "and gets less" if "force" in wanted.switches else "and then binds nothing"
        sentences.append(
            "with %s: torch_npu wants %s, of which %s are not among %s, %s: give it the CPUs of the plan (filter npu.affinity.launch, form "
            "torch_npu), or remove the variable" % (variable, " and ".join(texts), compress(outside), against, result)
        )
    return sentences

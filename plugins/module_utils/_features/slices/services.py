# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services, compared with the settings of their drop-ins, and tasks with the sets of their unit. Reads only."""

from __future__ import annotations

import posixpath
from typing import Any, Mapping, Sequence

from ..._base.cpulist import expand
from ..._base.findings import CHANGED_CPUSET, EDIT, OLD_PROCESS, Cause, Value, coded
from ..._kernel.machine import CGROUPS, slice_path
from ..._kernel.processes import folder_of, members, started_with
from ..._state.systemd import Systemd
from ..._state.unit_environment import agrees, environment
from ..._state.unit_files import absent, differences, drop_in_of, fragment, numbers, similar
from ..feature import Comparing
from .binders import check_binders

_LOADED = ("CPUAffinity", "NUMAMask")
"""Settings of a service that no cgroup shows."""
_ALLOWED = {"Cpus_allowed_list": "cpus", "Mems_allowed_list": "mems"}
_OTHER_DEVICES = "%s sets %s=%s, and the CPUs of %s are those of %s=%s: remove it there, or name the devices that it uses"
_BINDS_ITSELF = "%s sets %s=%s, and %s then binds itself, against %s=%s of its drop-in: remove it, or remove its engine from the settings"


def check_services(comparing: Comparing) -> list[dict[str, Any]]:
    """Compare services; return the sets of those that have one of their own, as ``expected`` has those of slices, and its ``folder``."""
    host, services = comparing.host, comparing.slices.get("services") or ()
    properties = ["LoadState", "ActiveState", "ControlGroup", "MainPID", *_LOADED]
    states = Systemd(host).show(properties, [service["name"] for service in services]) if host.live else {}
    with_sets: list[dict[str, Any]] = []
    missing = {}
    for service in services:
        one = _Service(comparing, service, states.get(service["name"], {}))
        if one.is_missing:
            missing[one.unit] = similar(host, one.unit)
        with_sets += one.compare()
    if missing:
        comparing.findings.remarks += coded("NPU_UNKNOWN_UNIT", [absent(missing)])
    return with_sets


def compare_tasks(comparing: Comparing, name: str, tasks: Sequence[str], entry: Mapping[str, Any], word: str = CHANGED_CPUSET) -> None:
    """Compare tasks, by their folders in /proc, with ``{unit, cpus, mems}``, of which they may use a part; ``word`` is the likely cause."""
    host, findings = comparing.host, comparing.findings
    outside = []
    for task in tasks:
        lines = (line.partition(":") for line in (host.read(task + "/status") or "").splitlines())
        allowed = {_ALLOWED[key]: value.strip() for key, _colon, value in lines if key in _ALLOWED}  # empty for one that has ended
        if any(entry[kind] and not set(expand(allowed.get(kind, ""))) <= set(expand(entry[kind])) for kind in _ALLOWED.values()):
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
    has = Value(cpus=allowed.get("cpus") if entry["cpus"] else None, mems=allowed.get("mems") if entry["mems"] else None)
    has = has._replace(task=title, more=len(outside) - 1)
    expected = Value(cpus=entry["cpus"] or None, mems=entry["mems"] or None)
    findings.differs("processes", name, expected, has, Cause(word, remark), entry["unit"])


class _Service:
    """A service ``{name, settings, devices, switches}`` of filter ``npu.affinity.binding``, and the properties that systemd shows of it."""

    def __init__(self, comparing: Comparing, service: Mapping[str, Any], state: Mapping[str, str]) -> None:
        self.comparing = comparing
        self.host = comparing.host
        self.unit: str = service["name"]
        self.wanted: Mapping[str, str] = service["settings"]
        self.devices: Mapping[str, str] = service.get("devices") or {}
        self.switches: Mapping[str, str] = service.get("switches") or {}
        self.state = state
        self.edited = self.unit in comparing.edited
        self.is_missing = state.get("LoadState") == "not-found" if self.host.live else fragment(self.host, self.unit) is None
        """systemd reads drop-ins of services that are installed only."""

    def compare(self) -> list[dict[str, Any]]:
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
            entry = {"unit": self.unit, "cpus": self.wanted["CPUAffinity"], "mems": ""}
            check_binders(self.comparing, self.unit, inside, entry["cpus"])
            threads = ["%s/task/%s" % (process, name) for process in inside for name in self.host.names(process + "/task")]
            compare_tasks(self.comparing, "threads of " + self.unit, threads, entry, OLD_PROCESS)
        return with_sets

    def _check_settings(self) -> None:
        """Compare what all files of a service say together, and what systemd has loaded of it, with our drop-in."""
        different = {key: (effective, path) for key, _value, effective, path in differences(self.host, self.unit, self.wanted)}
        for key, value in self.wanted.items():
            name, loaded = "%s %s" % (self.unit, key), None if self.is_missing else self.state.get(key)
            if key in different:
                effective, path = different[key]
                cause = Cause(EDIT, "its files do not say so")
                if path:
                    cause = Cause(EDIT, "%s, which systemd reads as well, says %s too; remove it there" % (path, key))
                self._differs("services", name, "%s=%s" % (key, value), "%s=%s" % (key, effective), cause)
            elif key in _LOADED and loaded is not None and numbers(loaded) != numbers(value):
                cause = Cause(CHANGED_CPUSET, "systemd has not read its files since they changed; 'systemctl daemon-reload' does that")
                self._differs("services", name, "%s=%s" % (key, value), "%s=%s" % (key, loaded), cause)
            else:
                self.comparing.findings.same("services", name)

    def _check_variables(self, wanted: Mapping[str, str], remark: str) -> dict[str, str]:
        """Compare variables of the service's files. Other values by a file that is not ours are its owner's wish, and a ``remark``."""
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

    def _check_slice(self, group: str) -> list[dict[str, Any]]:
        home = self.wanted["Slice"]
        if posixpath.dirname(group) != slice_path(home):
            current = posixpath.basename(posixpath.dirname(group)) or "no slice"
            self._differs("services", self.unit, "in " + home, "in " + current, self._as_started("it still runs with its former settings"))
            return []
        self.comparing.findings.same("services", self.unit)
        sets = [{"cpus": entry["cpus"], "mems": entry["mems"]} for entry in self.comparing.wanted.expected if entry["unit"] == home]
        if "AllowedCPUs" in self.wanted:
            sets = [{"cpus": self.wanted["AllowedCPUs"], "mems": self.wanted.get("AllowedMemoryNodes", "")}]
        elif not self.host.exists(CGROUPS + group + "/cpuset.cpus.effective"):
            return []
        return [dict(last, unit=self.unit, folder=CGROUPS + group) for last in sets[-1:]]

    def _as_started(self, remark: str) -> Cause:
        return Cause(EDIT, "its drop-in was changed") if self.edited else Cause(OLD_PROCESS, remark)

    def _differs(self, kind: str, name: str, expected: str, actual: str, cause: Cause) -> None:
        self.comparing.findings.differs(kind, name, expected, actual, cause, self.unit)

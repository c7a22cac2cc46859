# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""irqbalance on a host: whether it runs, its present settings, and whether and where it would run a managed policy script.

Unit files and environment files are read as systemd does (systemd.syntax(7), systemd.exec(5)), options as irqbalance does
(irqbalance(1)). Under an enforcing SELinux irqbalance may run no script, or, with newer policies, those in one folder while a boolean
is on (fedora-selinux/selinux-policy issue 1582, pull requests 2552 and 2741).
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import time
from typing import Any, Callable, Iterable, Mapping

from ..._host.host import Host
from ..._kernel.machine import CGROUPS, HIERARCHIES, runs
from ..._kernel.processes import START, command_of, stat_fields
from ..._state.unit_environment import in_files, in_settings
from ..._state.unit_files import FOLDERS, drop_ins, values_of_files
from ..._state.writable import obstacle
from .feature import CONFINED_POLICY, IRQBALANCE, IRQBALANCE_FILES, POLICY

UNKNOWN = "unknown: bpftrace shows the program, see docs/troubleshooting.md"
DROP_IN = "50-npu-affinity-irq.conf"
UNIT = IRQBALANCE
_SELINUX = "/sys/fs/selinux/"
_WRITTEN = re.compile(r'--policyscript=(\S+)"$', re.MULTILINE)
_BOOLEAN = "irqbalance_run_unconfined"
_EXEMPTION = "'semanage permissive -a irqbalance_t' exempts it"
_POLICY_TYPE = re.compile(r"^SELINUXTYPE=([\w-]+)", re.MULTILINE)
_GROUPS = ["%s/system.slice/%s" % (top, UNIT) for top in HIERARCHIES]
_VARIABLE = re.compile(r"^\$(\w+)\Z|^\$\{(\w+)\}\Z")
_INTERVAL = re.compile(r" (?:--interval|-t)[= ]?(\d+)")
_USUAL_INTERVAL = 10
_SLACK = 2
_STARTED = "/run/systemd/units/invocation:" + UNIT
"""A link that systemd makes each time it starts the unit."""


def irqbalance(host: Host) -> dict[str, Any]:
    """Return ``{installed, active, argument_key, arguments, policy, policy_place, refusal}``.

    ``argument_key`` is the variable that the unit's command line takes its arguments from; distributions differ (OPTIONS,
    IRQBALANCE_ARGS). ``arguments`` is its value without our drop-in and without a policy script, ``policy`` that script, ``policy_place``
    where a managed one has to be. ``refusal`` is the reason why irqbalance cannot use one, or ''.
    """
    file = next((path for path in ("%s/%s" % (folder, UNIT) for folder in FOLDERS) if host.read(path)), None)
    files = [file, *(path for path in drop_ins(host, UNIT) if posixpath.basename(path) != DROP_IN)] if file else []
    settings = {key: [value for _path, value in rows] for key, rows in values_of_files(host, files).items()}
    key, arguments, policy, refusal = _arguments(host, settings)
    place, forbidden = _place(host)
    return {
        "installed": file is not None,
        "active": any(runs(host, group) for group in _GROUPS),
        "argument_key": key,
        "arguments": arguments,
        "policy": policy,
        "policy_place": place,
        "refusal": (refusal or forbidden) if file else "",
    }


def _arguments(host: Host, settings: Mapping[str, list[str]]) -> tuple[str | None, str, str, str]:
    """Return ``(variable or None, arguments, policy script, why they cannot be extended)``."""
    try:
        words = shlex.split((settings.get("ExecStart") or [""])[-1])
        variables = [(index, match) for index, match in enumerate(map(_VARIABLE.match, words)) if match]
        if not variables:
            return None, "", "", "its unit takes no arguments from its environment"
        place, variable = variables[0]
        split, whole = variable.groups()
        values = in_settings([("", line) for line in settings.get("Environment", [])], split or whole)
        values += in_files(host, settings.get("EnvironmentFile", []), split or whole)  # which win, the later over the earlier
        others, policy = _without_policy(shlex.split(values[-1][1] if values else ""))
    except ValueError as error:
        return None, "", "", "the arguments of its unit cannot be read (%s)" % error
    arguments = " ".join(shlex.quote(word) for word in others)
    policy = policy or _without_policy(words[:place])[1]
    refusal = ""
    if whole and others:
        refusal = "its unit takes ${%s}, with %s, as one argument" % (whole, arguments)
    elif _without_policy(words[place:])[1]:
        refusal = "its unit names a policy script of its own behind $%s" % (split or whole)
    elif policy and os.path.isdir(host.path(policy)):
        refusal = "it takes its policies from the folder %s already" % policy
    return split or whole, arguments, policy, refusal


def _without_policy(words: Iterable[str]) -> tuple[list[str], str]:
    """Return irqbalance's arguments without its policy script, and that script or ''; the last one counts."""
    rest, policy = [], ""
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if len(name) > 4 and "--policyscript".startswith(name):
            policy = value if equals else next(remaining, "")
        elif word.startswith("-l"):
            policy = word[2:] or next(remaining, "")
        else:
            rest.append(word)
    return rest, policy


def _processes(host: Host) -> list[str]:
    return [pid for group in _GROUPS for pid in (host.read("%s%s/cgroup.procs" % (CGROUPS, group)) or "").split()]


def _place(host: Host) -> tuple[str, str]:
    """Return ``(where a policy script has to lie, why none would be run or '')``, as SELinux has it."""
    contexts = [host.read("/proc/%s/attr/current" % pid) for pid in _processes(host)]
    free = any(context and ":irqbalance_t:" not in context for context in contexts)
    if host.read(_SELINUX + "enforce") != "1" or free or _is_permissive(host):
        return POLICY, ""
    boolean = host.read("%sbooleans/%s" % (_SELINUX, _BOOLEAN))
    if boolean is None:
        return POLICY, "SELinux is enforcing, and its policy on this host lets irqbalance run no policy script (%s)" % _EXEMPTION
    if not boolean.startswith("1"):
        return POLICY, "SELinux is enforcing, and %s is off ('setsebool -P %s on' switches it on)" % (_BOOLEAN, _BOOLEAN)
    folder = posixpath.dirname(CONFINED_POLICY)
    why = "" if host.exists(CONFINED_POLICY) else obstacle(host, folder)
    if why:
        return POLICY, "SELinux lets it run a policy script in %s only, which cannot be written (%s; %s)" % (folder, why, _EXEMPTION)
    return CONFINED_POLICY, ""


def _is_permissive(host: Host) -> bool:
    """Whether ``semanage permissive -a irqbalance_t`` exempts irqbalance from an enforcing SELinux."""
    policy = (_POLICY_TYPE.findall(host.read("/etc/selinux/config") or "") or ["targeted"])[-1]
    stores = ["%s/selinux/%s/active/modules" % (folder, policy) for folder in ("/var/lib", "/etc")]  # the second with rpm-ostree
    return any(host.exists("%s/%s/permissive_irqbalance_t" % (store, name)) for store in stores for name in host.names(store, "[0-9]*"))


def until_first_pass(host: Host) -> float:
    """Return the seconds until an irqbalance with a managed policy has looked at all interrupts once since it started; 0 when it has.

    What it does shows only then: at its start it places every interrupt that it does not leave alone.
    """
    remaining: list[float] = [0]
    for pid in _configured(host):
        age, intervals = _age(host, pid), _INTERVAL.findall(" ".join(command_of(host, pid)))
        remaining += [] if age is None else [int((intervals or [_USUAL_INTERVAL])[-1]) + _SLACK - age]
    return max(remaining)


def freedom(host: Host) -> Callable[[str], str]:
    """Return a function that says, for a PCI function, why irqbalance may move its interrupts; '' when it may not, or does not run."""
    facts = irqbalance(host)
    if not facts["active"]:
        return lambda pci: ""
    configured, place = _configured(host), facts["policy_place"]
    place = _written_policy(host) if place == POLICY else place
    policy = host.read(place)

    def free(pci: str) -> str:
        if facts["refusal"]:
            return "it runs, and cannot be configured to ignore the NPUs: %s" % facts["refusal"]
        if policy is None:
            return "it runs without a policy for the NPUs"
        if pci not in policy:
            return "it runs, and its policy does not name this PCI function"
        if not configured:
            return "it runs without the policy that was written for it; 'systemctl restart irqbalance'"
        if any(_outdated(host, pid, place) for pid in configured):
            advice = "it may keep an answer from when that was missing or another one; 'systemctl restart irqbalance' makes it ask again"
            return "it was started before its policy %s last changed, and asks when it first sees an interrupt: %s" % (place, advice)
        return ""

    return free


def suspect(host: Host) -> Callable[[str], str]:
    """Return a function that says who probably moves the interrupts of a PCI function: irqbalance, or unknown.

    The kernel does not record which program wrote an affinity.
    """
    free, running = freedom(host), bool(_processes(host))

    def who(pci: str) -> str:
        why = free(pci)
        if why or not running:
            return "likely irqbalance: %s" % why if why else UNKNOWN
        return "likely irqbalance, although its policy excludes this function: 'systemctl restart irqbalance' makes it apply the policy"

    return who


def _outdated(host: Host, pid: str, policy: str) -> bool:
    """Whether a process is older than the last change of its policy script, also of one that was moved away and back.

    Both times are of the wall clock as it was then, where systemd has left a trace of the start: steps since then do not count.
    """
    changed = os.stat(host.resolve(policy)).st_ctime
    if host.exists(_STARTED):
        return changed > os.lstat(host.path(_STARTED)).st_ctime
    age = _age(host, pid)
    return age is not None and changed > time.time() - age + _SLACK


def _configured(host: Host) -> list[str]:
    """Return the processes of irqbalance whose command lines name a managed policy script."""
    policies = POLICY, CONFINED_POLICY, _written_policy(host)
    return [pid for pid in _processes(host) if _without_policy(command_of(host, pid))[1] in policies]


def _written_policy(host: Host) -> str:
    match = _WRITTEN.search(host.read(IRQBALANCE_FILES[0]) or "")
    return match.group(1) if match else POLICY


def _age(host: Host, pid: str) -> float | None:
    """Return for how many seconds a process has run, None where that cannot be read."""
    fields = stat_fields(host, "/proc/" + pid)
    uptime = (host.read("/proc/uptime") or "").split()
    return float(uptime[0]) - int(fields[START]) / os.sysconf("SC_CLK_TCK") if len(fields) > START and uptime else None

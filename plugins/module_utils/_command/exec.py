# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``npu-affinity exec``: give a rank the CPUs and memory of its device, and execute its program, before it allocates anything.

The program inherits both: sched_setaffinity(2), set_mempolicy(2).

Every rank of a job starts through it, so neither this package nor what it imports may import argparse or typing, which take longer than
all the rest.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Mapping, Sequence

from .._base.binders import OFF, OPENMP
from .._base.cpulist import compress, expand
from .._base.outside import json_of, require_shape, say, shown
from .._base.version import refuse_newer
from .._ranks import BY_PCI, GPU, NPU, ORDER, RANKS, VARIABLES, accessible, index_of, kind_of, matching, title, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._base.documents import Plan, PlanEntry

PLAN = "etc/npu-affinity/plan.json"
REFUSED = 125
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
ROLES = ("main", "pool", "irq", "kv", "acl", "release")
USAGE = """\
usage: npu-affinity exec [--device ID|PCI] [--role ROLE] [--print] [--or-run] -- COMMAND [ARGUMENT ...]

Execute a command on the CPUs and the memory nodes of its NPU or GPU. It needs no root. The device is, in this order: that of --device,
the only visible one, or the visible one by the rank in LOCAL_RANK, MPI_LOCALRANKID, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, or in the
arguments of the command (--local_rank, --npu_device_id, --devices).

  --device ID|PCI  the number of the slice (3, npu-3, gpu-0) or the PCI function
  --role ROLE      CPUs of this role of the pool: %s (default: main)
  --print          print the decision in one line, and start nothing
  --or-run         start the command unbound, with a warning, where the request cannot be met

exit status: that of the command; 125 if it was not started, 126 if it cannot be executed, 127 if it was not found
""" % ", ".join(ROLES)
_FLAGS = ("--print", "--or-run")
_ENTRY = {"id": int, "pool": str, "phy_id?": int}
_ENTRY.update((name + "?", str) for name in (*ROLES, "pci", "slice", "kind", "mems", "memory_nodes"))
_SHAPE = {"npus": [_ENTRY], "lost?": [_ENTRY], "options?": dict}
FIRST_WITH_MANY = (5, 15)
_REASONS = {errno.EPERM: "a seccomp profile denies set_mempolicy", errno.EINVAL: "this process may use none of them"}
POLICIES = {"preferred": 1, "bind": 2, "preferred-many": 5}
_SYSCALLS = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}
"""The number of set_mempolicy, for which Python and the C library have no function."""
_POSSIBLE = "/sys/devices/system/cpu/possible"
_BITS = 64


def main(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Execute the command in the place of this process, or return the exit status."""
    options: dict[str, str] = {}
    command: Sequence[str] = ()
    started = _as_started(os.environ if environment is None else environment)
    try:
        options, command = _parsed(argv)
        if "--help" in options:
            sys.stdout.write(USAGE)
            return 0
        variables, warnings, line = _place(options, started, command)
    except (OSError, ValueError) as error:
        if not ("--or-run" in options and command and "--print" not in options):
            _warn(str(error))
            return REFUSED
        _warn("%s; the command is started unbound" % error)
        return start(command, started)
    if "--print" in options:
        say(line)
        return 0
    for sentence in warnings:
        _warn(sentence)
    return start(command, {**started, **variables})


def start(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Execute a command in the place of this process, with the signals that Python ignores as they were. Return why not, as env(1) does."""
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        _warn("%s: %s" % (command[0], error.strerror))
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


def _place(options: Mapping[str, str], environment: Mapping[str, str], command: Sequence[str]) -> tuple[dict[str, str], list[str], str]:
    """Set the affinity mask and the memory policy of this process. Return what its environment gets, warnings, and the decision in a line.

    Raises ``ValueError`` where it cannot be placed.
    """
    root = options.get("--root", "/")
    plan = read_plan(root)
    variables: dict[str, str] = {}
    npus, lost = plan["npus"], [npu for npu in plan.get("lost") or () if npu["pool"]]
    if "--device" in options:
        entry, variables = _by_name(root, npus, lost, environment, options["--device"])
        why = "--device %s" % options["--device"]
    else:
        entry, why = _visible_device(root, npus, lost, environment, command)
    role, wanted = _cpus(entry, options.get("--role"))
    cpus, narrower = set_cpus(wanted, title(entry))
    nodes, strict = _nodes(entry), (plan.get("options") or {}).get("memory") == "strict"
    policy, denied = set_memory("bind" if strict else "preferred-many", nodes) if nodes else ("", "")
    kept = {*environment, "OMP_PROC_BIND"} if any(name in environment for name in OPENMP) else environment
    variables.update((name, value) for name, value in {**OFF, "OMP_NUM_THREADS": str(len(cpus))}.items() if name not in kept)
    if kind_of(entry) == GPU and ORDER not in environment:
        variables[ORDER] = BY_PCI
    warnings = [text for text in (narrower, denied) if text]
    memory = "policy %s:%s" % (policy, compress(nodes)) if policy else "by first touch"
    words = ["%s=%s" % pair for pair in sorted(variables.items()) if pair[0] not in OFF]
    line = "%s by %s: CPUs %s (%s), memory %s" % (title(entry), why, compress(cpus), role, memory)
    return variables, warnings, "; ".join([", ".join([line, *words]), *warnings])


def read_plan(root: str) -> Plan:
    """Return the plan in force. Raises ``ValueError`` if it is missing, damaged or of a newer schema."""
    path = os.path.join(root, PLAN)
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            plan: Plan = json_of(file.read())
    except FileNotFoundError:
        raise ValueError("%s does not exist: bind this host, or mount the file into the container" % path)
    except ValueError as error:
        raise ValueError("%s is not valid JSON (%s); bind the host again" % (path, error))
    refuse_newer(path, plan)
    require_shape(plan, _SHAPE, path)
    return plan


def _visible_device(
    root: str, npus: Sequence[PlanEntry], lost: Sequence[PlanEntry], environment: Mapping[str, str], command: Sequence[str]
) -> tuple[PlanEntry, str]:
    """Return the device of this process, and where it comes from."""
    kinds = [kind for kind in (NPU, GPU) if any(kind_of(npu) == kind for npu in npus)]
    seen = {kind: visible(kind, accessible(root, kind, npus, lost), environment) for kind in kinds}
    candidates = [kind for kind in kinds if seen[kind]]
    chosen = [kind for kind in candidates if VARIABLES[kind] in environment] or candidates
    if len(chosen) != 1:
        raise ValueError(_no_kind(chosen, kinds, environment))
    devices, word = seen[chosen[0]], chosen[0].upper()
    index, why = 0, "the only visible %s" % word
    if len(devices) > 1:
        rank = index_of(environment, command)
        if rank is None:
            only = "; PMI_RANK counts over all hosts" if "PMI_RANK" in environment else ""
            text = "it is not known which of %d visible %ss this process uses: set one of %s, or name it with --device%s"
            raise ValueError(text % (len(devices), word, ", ".join(RANKS), only))
        index, why = rank
    if index >= len(devices):
        raise ValueError("%s has no device: this process sees %d %ss, counted from 0" % (why, len(devices), word))
    entry = devices[index].entry
    if entry is None:
        raise ValueError("%s, the device by %s, is not in the plan: bind the host with it" % (devices[index].file, why))
    return entry, why


def _no_kind(chosen: Sequence[str], kinds: Sequence[str], environment: Mapping[str, str]) -> str:
    if chosen:
        return "this process sees NPUs and GPUs: set %s or %s, or name one with --device" % tuple(VARIABLES.values())
    settings = ["%s=%s" % (VARIABLES[kind], environment[VARIABLES[kind]]) for kind in kinds if VARIABLES[kind] in environment]
    words = " or ".join(kind.upper() for kind in kinds) or "NPU or GPU"
    return "this process sees no %s of the plan: %s" % (words, " and ".join(settings) or "it may open no device file of one")


def _by_name(
    root: str, npus: Sequence[PlanEntry], lost: Sequence[PlanEntry], environment: Mapping[str, str], name: str
) -> tuple[PlanEntry, dict[str, str]]:
    """Return the device that a name stands for, and the variable that shows it alone, where it is not set and a device file is there."""
    same = matching(npus, name)
    if len(same) != 1:
        has = ", ".join(map(title, same or npus)) or "none"
        raise ValueError("--device %s is %s of this host's devices, which are %s" % (name, "several" if same else "none", has))
    entry, kind = same[0], kind_of(same[0])
    variable = VARIABLES[kind]
    try:
        devices = accessible(root, kind, npus, lost)
    except ValueError:
        return entry, {}
    if variable in environment:
        if not any(one.entry is entry for one in visible(kind, devices, environment)):
            raise ValueError("%s=%s does not show %s: unset it, or name another device" % (variable, environment[variable], title(entry)))
        return entry, {}
    ids = [str(index) for index, one in enumerate(devices) if one.entry is entry]
    return entry, {variable: ",".join(ids)} if ids else {}


def _cpus(entry: PlanEntry, role: str | None) -> tuple[str, list[int]]:
    texts: Mapping[str, str] = {name: str(value) for name, value in entry.items() if name in ROLES and value}
    if role is None:
        role = "main" if "main" in texts else "pool"
    if role not in texts:
        raise ValueError("%s has no CPUs of role %s; it has %s" % (title(entry), role, ", ".join(texts) or "none"))
    return role, expand(texts[role], "%s of %s" % (role, title(entry)))


def _nodes(entry: PlanEntry) -> list[int]:
    """Return the nearest memory nodes; none where the plan does not restrict memory."""
    allowed = entry.get("memory_nodes")
    return expand(entry.get("mems") or allowed, "memory nodes of %s" % title(entry)) if allowed else []


def _parsed(argv: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """Return the options with their values, and the command."""
    options: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if word in _FLAGS or word in ("-h", "--help"):
            options["--help" if word == "-h" else word] = ""
        elif name in ("--device", "--role", "--root") and (equals or words[:1] not in ([], ["--"])):
            options[name] = value if equals else words.pop(0)
        else:
            raise ValueError("%s is not an option of exec, or lacks its value; see npu-affinity exec --help" % word)
    if not words and not {"--help", "--print"} & set(options):
        raise ValueError("exec needs a command: npu-affinity exec -- COMMAND")
    return options, words


def _as_started(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without LC_CTYPE, where it is Python that has set it (PEP 538)."""
    variables = dict(environment)
    if variables.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8"):
        try:
            with open("/proc/self/environ", "rb") as file:
                if b"\0LC_CTYPE=" not in b"\0" + file.read():
                    del variables["LC_CTYPE"]
        except OSError:
            pass
    return variables


def set_cpus(wanted: Collection[int], name: str) -> tuple[set[int], str]:
    """Give this process CPUs, whatever mask it inherited, and return those that it got, and a warning if they are fewer.

    The mask that asks for all possible CPUs gets those of the cpuset, and follows it from then on (:mod:`_kernel.masks`). Raises
    ``ValueError`` where the cpuset has none of the wanted ones; the inherited mask is then restored.
    """
    inherited = os.sched_getaffinity(0)
    try:
        with open(_POSSIBLE) as file:
            possible = expand(file.read())
    except OSError:
        possible = list(range(1024))
    try:
        os.sched_setaffinity(0, possible)
    except OSError as error:
        raise ValueError("this process may not set its CPUs: %s" % error.strerror)
    granted = os.sched_getaffinity(0)
    usable = granted & set(wanted)
    if not usable:
        os.sched_setaffinity(0, inherited)
        text = "this process may use CPUs %s only, of which none is among CPUs %s of %s: its cgroup or container has other ones"
        raise ValueError(text % (compress(granted), compress(wanted), name))
    if usable != granted:
        os.sched_setaffinity(0, usable)
    missing = compress(set(wanted) - usable)
    return usable, "CPUs %s of %s are offline or not in the cpuset of this process" % (missing, name) if missing else ""


def set_memory(policy: str, nodes: Collection[int]) -> tuple[str, str]:
    """Set the memory policy of this process, and return the policy that was set, '' for none, and a warning.

    Without one, memory comes from the node of the CPU that first writes to it. PREFERRED_MANY needs Linux 5.15; PREFERRED takes one node.
    """
    number = _set(policy, nodes)
    kernel = os.uname().release.replace("-", ".").split(".")[:2]
    if number == errno.EINVAL and policy == "preferred-many" and tuple(int(part) for part in kernel if part.isdigit()) < FIRST_WITH_MANY:
        if len(nodes) > 1:
            return "", ""
        policy = "preferred"
        number = _set(policy, nodes)
    if not number:
        return policy, ""
    why = _REASONS.get(number) or os.strerror(number)
    return "", "no memory policy for nodes %s (%s): memory follows the CPUs" % (compress(nodes), why)


def _set(policy: str, nodes: Collection[int]) -> int:
    """Return the error number of a call of set_mempolicy, 0 if there was none."""
    import ctypes

    syscall = _SYSCALLS.get(os.uname().machine)
    if syscall is None:
        return errno.ENOSYS
    bits = sum(1 << node for node in nodes)
    words = bits.bit_length() // _BITS + 1
    mask = (ctypes.c_ulong * words)(*[bits >> _BITS * word & (1 << _BITS) - 1 for word in range(words)])
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(syscall), ctypes.c_int(POLICIES[policy]), mask, ctypes.c_ulong(words * _BITS + 1))
    return ctypes.get_errno() if result else 0


def _warn(sentence: str) -> None:
    sys.stderr.write("npu-affinity: %s\n" % shown(sentence))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

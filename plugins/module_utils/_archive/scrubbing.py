# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What leaves a host: of each file only what the collection is known to read of it. Everything else can be a secret.

A file for which there is no rule keeps assignments of known variables at most. Files of the collection keep what it wrote itself; what
someone added is replaced, so a comparison still finds them changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from typing import Any, Callable, Collection, Mapping, NamedTuple

from .._state.history.entries import FOLDER as HISTORY
from .._features.kubelet import settings as _kubelet
from .._features.kubelet.state_file import FILE as CPU_MANAGER
from .._smi.driver import VERSION_FILE
from .._kernel.isolation import COMMAND_LINE, parameters
from .._state.files import MARKER, is_ours
from .._state.previous import PATH as PREVIOUS
from .._state.unit_files import FOLDERS, LISTS
from .._features.vnpu.layout import LIBRARY
from .._users.engines import DOCKER, PODMAN
from . import command_lines
from .command_lines import REMOVED, SIGN

_KERNEL = re.compile(
    r"/sys/|/proc/(?:interrupts|uptime|stat|cpuinfo|irq/.*|sys/(?:kernel|vm)/(?!hostname|domainname)[\w/]+|device-tree/model"
    r"|driver/nvidia/gpus/[^/]+/information|\d+/(?:task/\d+/)?(?:schedstat|cgroup|attr/current|numa_maps))\Z"
)
"""Files of the kernel that are kept as they are."""
_PARAMETER = re.compile(
    r"(?:isolcpus|nohz_full|rcu_nocbs|irqaffinity|hugepagesz?)=(?:[\d,:/-]|(?<![a-z])(?:all|N|domain|managed_irq|nohz)\b|[KMG]\Z)+\Z"
)
"""What is kept of the kernel command line."""
_CONTAINER = re.compile(r"^/proc/\d+/root/")
_PROCESS = re.compile(r"/proc/\d+/(?:task/\d+/)?(environ|cmdline|maps|comm|stat|status)\Z")
_TITLE = re.compile(r" +-.*")
_JSON = re.compile(
    r"/run/npu-affinity/[\w-]+\.json\Z|/etc/npu-affinity/(?:plan|threads|tuning|hugepages|nic|metrics)\.json\Z|%s/\d+\.json\Z" % HISTORY
)
_SAID_OF_PROCESS = re.compile(r"(process \d+ \([\w./+@-]*).*?(\)(?: of [\w@.:\\-]+)?: )")
_CPU_MANAGER_KEYS = ("policyName", "defaultCpuSet", "defaultCPUSet", "entries", "podEntries", "checksum", "data", "dataChecksum")
_FILES_KEY = "EnvironmentFile"
_KEYS = {*LISTS, _FILES_KEY, "NUMAPolicy", "Slice", "Delegate", "DeviceAllow", "WantedBy", "RequiredBy", "Alias"}
_OUR_KEYS = {*_KEYS, "Description", "Wants", "After", "ConditionPathExists", "Type", "TimeoutStartSec", "OnActiveSec", "OnUnitActiveSec"}
_OUR_UNITS = re.compile(r"/(?:npu|gpu)[\w@.\\-]*\.(?:slice|service|timer)\Z|/50-npu-affinity[\w-]*\.conf\Z")
_OUR_COMMAND = re.compile(r"[\w./+-]+ -m npu_affinity\.\w+(?: [\w./:%-]+)*\Z")
_OUR_LINES = re.compile(
    r'# %s(?:: changes are overwritten\.)?\Z|Environment=PYTHONPATH=[\w./-]+ \w+=1\Z|VERSION = "[\w.+-]+"\Z' % re.escape(MARKER)
)
_SECTION = re.compile(r"\[[A-Za-z-]+\]\s*\Z")
_VALUE = re.compile(r"[\w ,.:;/@%\\*+()'~-]*\Z")
_FILES = re.compile(r"-?[\"']?/[\w./@%*?:\\\[\]+-]*[\"']?\Z")
_FUNCTION = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")
_IRQBALANCE_VARIABLES = ("OPTIONS", "IRQBALANCE_ARGS", "IRQBALANCE_OPTIONS")
_INTERPRETER = re.compile(r"#! ?/[\w./-]*(?: [\w-]+)?")
_WORDS = re.compile(r"[\w .,-]*")
_RECORDED = re.compile(
    r"/[\w./@:\\+-]*\Z|[0-9a-f,:-]*\Z|[\w@.:\\-]+\.(?:service|slice|scope|timer|socket|target)\Z|%s: [\w ,.]*\Z" % re.escape(MARKER)
)
"""What texts in previous.json look like, those of files apart: paths, modes, CPU lists, checksums, units."""


class Known(NamedTuple):
    """What is known of a host's files: those of the kubelet's configuration, the texts that the collection wrote by path, and the SHA-256
    of the files for soft split by path."""

    kubelet_files: Collection[str] = ()
    texts: Mapping[str, Collection[str]] = {}
    libraries: Mapping[str, str] = {}


NOTHING = Known()


def scrub(path: str, data: bytes, known: Known = NOTHING) -> bytes:
    """Return what is kept of a file."""
    path = _CONTAINER.sub("/", path)
    is_program = data.startswith(b"\x7fELF")
    if _KERNEL.match(path) or path in known.libraries and (is_program or hashlib.sha256(data).hexdigest() == known.libraries[path]):
        return data
    if is_program:
        return b""
    text = data.decode("utf-8", "surrogateescape")
    ours = known.texts.get(path, ())
    if text in ours and not path.endswith(".env"):
        return data
    rule = _rule(path, text, known.kubelet_files)
    kept = rule(text)
    if is_ours(text) and rule not in _DOCUMENTS:
        lines = {line for one in ours for line in one.splitlines() if line.startswith("#") or not path.endswith(".env")}
        kept = _ours(text, kept, lines)
    return kept.encode("utf-8", "surrogateescape")


def _rule(path: str, text: str, kubelet_files: Collection[str]) -> Callable[[str], str]:
    """Return the function that takes out of a file's text what is read of it."""
    process = _PROCESS.match(path)
    if process:
        return _OF_PROCESS[process.group(1)]
    if path == COMMAND_LINE:
        return _command_line
    if path.startswith("/proc/"):
        return _nothing
    if path in kubelet_files:
        return _kubelet_settings
    if path.startswith((*FOLDERS, "/run/systemd/")):
        return lambda unit: _unit(path, unit)
    named = {PREVIOUS: _previous, VERSION_FILE: _driver_version, PODMAN: _containers}
    if path.startswith(DOCKER + "/"):
        return _container
    if path in named:
        return named[path]
    for end, rule in (("/" + CPU_MANAGER, _cpu_manager), ("/ld.so.preload", _paths), ("/active_profile", _first_words)):
        if path.endswith(end):
            return rule
    if _JSON.match(path):
        return _history if path.startswith(HISTORY) else _json
    if text.startswith("#!"):
        return _script
    if "/cron" in path:
        return _cron
    return lambda environment: _assignments(environment, path)


def _nothing(text: str) -> str:
    return ""


def _command_line(text: str) -> str:
    """Return the parameters of the kernel command line that are read: those of CPUs and of huge pages."""
    return " ".join(word for word in parameters(text) if _PARAMETER.match(word)) + "\n"


def _ours(text: str, kept: str, known: Collection[str]) -> str:
    """Return a file of the collection: the lines that are kept of it, and those that it is known to have; the others are replaced.

    Order matters to the comparison of a text, so the lines stay where they are.
    """
    left = kept.splitlines()
    lines = []
    for line in text.splitlines():
        if line in left or line in known or _OUR_LINES.match(line) or not line:
            lines.append(line)
        elif MARKER in line and len(lines) < 2:
            lines.append("# %s" % MARKER)
        else:
            lines.append(" ".join(["# %s" % REMOVED, *_FUNCTION.findall(line)]))
    if text.startswith("#!"):
        lines[0] = left[0] if left else "#!"
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def _environ(text: str) -> str:
    return "\0".join(filter(None, map(command_lines.variable, text.split("\0"))))


def _maps(text: str) -> str:
    return "".join(line + "\n" for line in text.splitlines() if LIBRARY in line)


def _name(text: str) -> str:
    """Return a process's name, which can be the begin of its title, without arguments."""
    return _TITLE.sub("", text)


def _stat(text: str) -> str:
    pid, _bracket, rest = text.partition("(")
    name, _bracket, numbers = rest.rpartition(")")
    return "%s(%s)%s" % (pid, _name(name), numbers)


def _status(text: str) -> str:
    return re.sub(r"^(Name:.*?) +-.*$", r"\1", text, flags=re.MULTILINE)


_OF_PROCESS: dict[str, Callable[[str], str]] = {
    "environ": _environ,
    "cmdline": command_lines.cmdline,
    "maps": _maps,
    "comm": lambda text: _name(text.rstrip("\n")) + "\n",
    "stat": _stat,
    "status": _status,
}


def _kubelet_settings(text: str) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items() if re.match(r"[\w./-]+\Z", name)}
        return value if re.match(r"[\w.,%=/:-]*\Z", value) else REMOVED

    return json.dumps(plain(_kubelet.read(text)), indent=1, sort_keys=True) + "\n"


def _unit(path: str, text: str) -> str:
    """Return a unit file with the settings that are read, and of its environment the variables."""
    ours = bool(_OUR_UNITS.search(path)) and is_ours(text)
    keys = _OUR_KEYS if ours else _KEYS
    program = next((name for name in ("irqbalance", "kubelet") if "/%s.service" % name in path), "")
    kept = []
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if _SECTION.match(line):
            kept.append(line)
        elif not equals:
            continue
        elif key in keys and (_FILES if key == _FILES_KEY and value else _VALUE).match(value):
            kept.append(line)
        elif key == "Environment":
            kept += _environment(line, value, program)
        elif key == "ExecStart" and program:
            kept.append(_command(line, value, program))
        elif key.startswith("Exec"):
            kept.append(line if ours and _OUR_COMMAND.match(value) else "%s=%s" % (key, command_lines.scripts(value)))
    return "".join(line + "\n" for line in kept)


def _environment(line: str, value: str, program: str) -> list[str]:
    """Return the line ``Environment=`` with the variables that are read of it, none where it has none of them."""
    try:
        words = shlex.split(value)
    except ValueError:
        return ['Environment="'] if program == "irqbalance" else []  # systemd ignores such a line, and its reader reports it
    kept = [word for word in (command_lines.variable(word) or _arguments(word, program) for word in words) if word]
    if kept == words:
        return [line]
    return ["Environment=%s" % " ".join(map(shlex.quote, kept))] if kept else []


def _arguments(word: str, program: str) -> str:
    """Return a variable with arguments of irqbalance or the kubelet, with those of them that are read; '' where there are none."""
    name, _equals, value = word.partition("=")
    if not program or not re.match(r"\w+\Z", name):
        return ""
    try:
        words = shlex.split(value)
    except ValueError:
        words = value.split()
    kept = _READ[program](words)
    return word if kept == words and kept else "%s=%s" % (name, " ".join(kept)) if kept else ""


_READ: dict[str, Callable[[list[str]], list[str]]] = {"irqbalance": command_lines.irqbalance, "kubelet": command_lines.kubelet}


def _command(line: str, value: str, program: str) -> str:
    """Return the line ``ExecStart=`` of irqbalance or the kubelet with the arguments that are read of it."""
    try:
        words = shlex.split(value)
    except ValueError:
        return 'ExecStart="'
    if not words:
        return line
    start = re.match(r"[-@:+!]*(?:/[\w./+-]*)?", words[0])
    kept = [start.group() if start else "", *_READ[program](words[1:])]
    return line if kept == words else "ExecStart=%s" % " ".join(kept)


def _script(text: str) -> str:
    first = _INTERPRETER.match(text)
    return "%s\n%s" % (first.group() if first else "#!", "# %s\n" % SIGN if SIGN in text else "")


def _cron(text: str) -> str:
    return "".join(command_lines.scripts(line) + "\n" for line in text.splitlines() if not line.lstrip().startswith("#"))


def _assignments(text: str, path: str) -> str:
    """Return the lines of an environment file that set a variable which is read."""
    kept = []
    for line in text.replace("\\\n", "").splitlines():
        name, equals, value = line.strip().partition("=")
        quote = value.strip()[:1] if value.strip()[:1] in ("'", '"') else ""
        inner = value.strip()
        inner = inner[1:-1] if quote and len(inner) > 1 and inner.endswith(quote) else inner
        program = "kubelet" if "kubelet" in path else "irqbalance" if "irqbalance" in path or name in _IRQBALANCE_VARIABLES else ""
        word = "%s=%s" % (name, inner)
        found = command_lines.variable(word) or _arguments(word, program) if equals else ""
        if found:
            kept.append(line if found == word else "%s=%s" % (name, shlex.quote(found[len(name) + 1 :])))
    return "".join(line + "\n" for line in kept)


def _paths(text: str) -> str:
    return "".join(word + "\n" for word in text.split() if re.match(r"/[\w./+-]*\Z", word))


def _first_words(text: str) -> str:
    found = _WORDS.match(text)
    return found.group() + "\n" if found else ""


def _driver_version(text: str) -> str:
    return "".join(line + "\n" for line in text.splitlines() if re.match(r"\s*version\s*=\s*[\w.+-]+\s*\Z", line, re.IGNORECASE))


def _container(text: str) -> str:
    """Return what is read of a container in docker's files, which have its whole environment."""
    document = _document(text)
    if not isinstance(document, dict):
        return "{\n"
    devices = document.get("Devices")
    paths = [{"PathOnHost": row.get("PathOnHost")} for row in devices if isinstance(row, dict)] if isinstance(devices, list) else []
    return json.dumps({"Name": document.get("Name"), "Devices": paths}) + "\n"


def _containers(text: str) -> str:
    document = _document(text)
    rows = [row for row in document if isinstance(row, dict)] if isinstance(document, list) else []
    return json.dumps([{key: row.get(key) for key in ("id", "names")} for row in rows]) + "\n"


def _document(text: str) -> Any:
    """Return what a JSON text says, None for one that is none."""
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return None


def _json(text: str) -> str:
    """Return a document of the collection without what it says of processes' titles; of what is no document only that it is none."""
    return "{\n" if _document(text) is None else _SAID_OF_PROCESS.sub(r"\1\2", text)


def _history(text: str) -> str:
    """Return an entry of the history, with environment files as they are kept elsewhere: they have arguments that the host had before."""
    document = _document(text)
    state = document.get("state") if isinstance(document, dict) else None
    files = state.get("files") if isinstance(state, dict) else None
    changed = False
    for entry in files if isinstance(files, list) else ():
        path, content = (entry.get("path"), entry.get("content")) if isinstance(entry, dict) else (None, None)
        if isinstance(path, str) and isinstance(content, str) and path.endswith(".env"):
            comments = [line for line in content.splitlines() if line.startswith("#")]
            entry["content"] = _ours(content, _assignments(content, path), comments)
            changed = changed or entry["content"] != content
    return json.dumps(document, indent=1, sort_keys=True) + "\n" if changed else _json(text)


def _cpu_manager(text: str) -> str:
    document = _document(text)
    if not isinstance(document, dict):
        return "{\n"
    kept = {key: document[key] for key in _CPU_MANAGER_KEYS if key in document}
    return text if kept == document else json.dumps(kept) + "\n"


def _previous(text: str) -> str:
    """Return the record of what there was before the first bind, without the texts of files that were not ours."""

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: plain(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        return value if not isinstance(value, str) or key != "content" and _RECORDED.match(value) else ""

    document = _document(text)
    return "{\n" if document is None else json.dumps(plain(document), indent=1, sort_keys=True) + "\n"


_DOCUMENTS = (_container, _containers, _json, _history, _previous, _kubelet_settings, _cpu_manager)
"""Rules for what is not read line by line."""

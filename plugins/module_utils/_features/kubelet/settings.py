# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's settings about CPUs: from its configuration file, its drop-in directory and its command line, in this order.

Source: Kubernetes "Set Kubelet Parameters Via A Configuration File": drop-ins end in ``.conf`` and are merged by name, mappings key by
key; flags win. Hosts need not have a YAML library, so the few keys are read line by line: scalars and mappings of one level, in block
or flow style, and JSON.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import Any, Dict, Mapping, NamedTuple

from ..._base.outside import json_of
from ..._host.host import Host
from ..._kernel.processes import command_of, folder_of, members
from ..._state.files import is_managed
from ..._state.unit_files import values

ROOT_FOLDER = "/var/lib/kubelet"
CONFIG = ROOT_FOLDER + "/config.yaml"
UNIT = "kubelet.service"
FLAGS = {
    "cpu-manager-policy": "cpuManagerPolicy",
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "memory-manager-policy": "memoryManagerPolicy",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "topology-manager-scope": "topologyManagerScope",
    "reserved-cpus": "reservedSystemCPUs",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "feature-gates": "featureGates",
}
_MAPPINGS = ("cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "kubeReserved", "systemReserved", "featureGates")
_SCALARS = ("failCgroupV1", *(key for key in FLAGS.values() if key not in _MAPPINGS))
_ENVIRONMENTS = (ROOT_FOLDER + "/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet")
_TOP = re.compile(r"^([A-Za-z][A-Za-z0-9]*)[ \t]*:(?:[ \t]+(.*))?\Z")
_INNER = re.compile(r"""^[ \t]+["']?([A-Za-z0-9_./-]+)["']?[ \t]*:[ \t]*(.*)\Z""")


Settings = Dict[str, Any]
"""Texts, and mappings of texts, by the keys of KubeletConfiguration."""


class Places(NamedTuple):
    """``sources`` are the files with settings, and ``flags`` where a flag has some, none where no kubelet is installed; ``ours`` are those
    that the collection manages."""

    config: str
    config_dir: str | None
    root: str
    sources: list[str]
    ours: list[str]


def settings(host: Host, instead: Mapping[str, str | None] = {}) -> tuple[Settings, Places]:
    """Return the settings, and where they are.

    ``instead`` maps paths of drop-ins to the texts that they would have, None for one that would be gone.
    """
    flags = _flags(host)
    config = flags.get("config") or CONFIG
    folder = (flags.get("config-dir") or "").rstrip("/") or None
    merged: Settings = {}
    sources, ours = [], []
    drop_ins = {"%s/%s" % (folder, name) for name in host.names(folder, "*.conf")} if folder else set()
    drop_ins.update(path for path in instead if folder and path.startswith(folder + "/"))
    for path in [config, *sorted(drop_ins)]:
        text = instead[path] if path in instead else host.read(path)
        if text is not None:
            sources.append(path)
            ours += [path] if is_managed(text) else []
            _merge(merged, read(text))
    given = {FLAGS[name]: value for name, value in flags.items() if name in FLAGS}
    if given:
        sources.append("flags")
        _merge(merged, {key: _pairs(value) if key in _MAPPINGS else value for key, value in given.items()})
    return merged, Places(config, folder, (flags.get("root-dir") or ROOT_FOLDER).rstrip("/"), sources, ours)


def _merge(merged: Settings, more: Settings) -> None:
    for key, value in more.items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value


def read(text: str) -> Settings:
    """Return the known settings of a configuration's text."""
    if text.lstrip().startswith("{"):
        try:
            return _selected(json_of(text))
        except ValueError:
            return {}
    document: Settings = {}
    indents: dict[str, int] = {}
    mapping = None
    for line in text.splitlines():
        top, inner = _TOP.match(line), _INNER.match(line)
        if top:
            key, value = top.group(1), _value(top.group(2) or "")
            mapping = key if not value else None
            document[key] = _flow(value) if value.startswith("{") else value or {}
        elif inner and mapping:
            indent = len(line) - len(line.lstrip())
            if indent <= indents.setdefault(mapping, indent):  # what is deeper belongs to something inside
                document[mapping][inner.group(1)] = _value(inner.group(2))
    return _selected(document)


def _value(text: str) -> str:
    """Return a scalar without its comment and quotes."""
    text = text.strip()
    quoted = re.match(r"""^(["'])(.*?)\1""", text)
    if quoted:
        return quoted.group(2)
    return "" if text.startswith("#") else re.split(r"\s#", text)[0].strip()


def _flow(text: str) -> dict[str, str]:
    pairs = (part.split(":", 1) for part in text.strip("{} ").split(",") if ":" in part)
    return {_value(key): _value(value) for key, value in pairs}


def _selected(document: Settings) -> Settings:
    selected = {key: _text(document[key]) for key in _SCALARS if isinstance(document.get(key), (str, int)) and document[key] != ""}
    mappings = [key for key in _MAPPINGS if isinstance(document.get(key), dict) and document[key]]
    return {**selected, **{key: {str(name): _text(value) for name, value in document[key].items()} for key in mappings}}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pairs(text: str) -> dict[str, str]:
    """Return the mapping of a flag such as ``cpu=500m,memory=1Gi``."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _flags(host: Host) -> dict[str, str]:
    """Return the flags of the running kubelet; where it does not run, those that its unit and environment files show."""
    commands = [command_of(host, pid) for pid in members(host, folder_of(host, "/system.slice/" + UNIT))]
    words = next((words[1:] for words in commands if posixpath.basename(words[0]) == "kubelet"), []) or _of_files(host)
    flags = {}
    for word, following in zip(words, words[1:] + [""]):
        match = re.match(r"^--?([a-z][a-z-]+)(?:=(.*))?\Z", word)
        if match:
            name, value = match.groups("" if following.startswith("-") else following)
            flags[name] = value
    return flags


def _of_files(host: Host) -> list[str]:
    """Return the words of ExecStart of the unit and its drop-ins, and those of the files with further arguments."""
    rows = values(host, UNIT)
    lines = [value for key in ("ExecStart", "Environment") for _path, value in rows.get(key, ())]
    for path in _ENVIRONMENTS:
        lines += [line.split("=", 1)[1] for line in (host.read(path) or "").splitlines() if "=" in line and not line.startswith("#")]
    words = []
    for line in lines:
        try:
            for word in shlex.split(line):
                words += shlex.split(word.split("=", 1)[1]) if re.match(r"^[A-Z_]+=--", word) else word.split()
        except ValueError:
            continue
    return words

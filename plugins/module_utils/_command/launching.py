# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms of :mod:`_launch` on their own host: workloads by the plan in force, and the topology as it is now."""

from __future__ import annotations

import argparse
import re
from typing import Any, Mapping, Match, Sequence

from .._base.cpulist import union
from .._base.findings import Device
from .._base.fitting import SWITCHES
from .._host.installed import code_folder
from .._launch.forms import FORMS
from .._launch.launching import BINDINGS, launch
from .._launch.options import OF_ALL_FORMS, OPTIONS
from .._state.plan_file import memory_nodes
from .._topology.gather import gather
from .state import HostRecord
from .running import find, refuse_lost

_TAKEN = [name for name in OPTIONS if name in OF_ALL_FORMS or any(name in form.options for form in FORMS.values())]
_NAMES = "(%s)" % "|".join([*_TAKEN, "binding"])
_WITH_VALUE = re.compile(r"(?<![-\w])%s=('?)([\w.]+)\2" % _NAMES)
_NAMED = re.compile(r"^%s(?=: )|(?<=leave )%s(?= out)" % (_NAMES, _NAMES))
_HAS = re.compile(r"(?<= no option )(\w+)(; it has )([\w, ]+)\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add form, devices and the options of all forms; argument ``set_NAME`` has the value of option NAME."""
    parser.add_argument("form", type=_form, metavar="FORM", help=", ".join(sorted(FORMS)))
    parser.add_argument(
        "places", nargs="+", metavar="NPU|WORKLOAD", help="3, npu-3, gpu-0, a PCI function, or the name of a workload or vNPU; several NPUs"
    )
    parser.add_argument("--binding", choices=BINDINGS, help="the rule by which vLLM-Ascend binds itself")
    for name in _TAKEN:
        option, words = OPTIONS[name], OPTIONS[name].words
        keywords: dict[str, Any] = {"dest": "set_" + name, "help": "%s (%s)" % (words, option.default) if option.default else words}
        if isinstance(option.default, bool):
            keywords.update(action="store_const", const=not option.default, help="do not " + words if option.default else words)
        elif name == "environment":
            keywords.update(action="append", choices=SWITCHES)
        elif name == "command":
            keywords.update(nargs=argparse.REMAINDER, metavar="WORD", help=words + "; the last option")
        else:
            keywords.update(metavar="TEXT")
        parser.add_argument(_flag(name), **keywords)


def _form(name: str) -> str:
    if name in FORMS:
        return name
    forms = ", ".join(sorted(FORMS))
    raise argparse.ArgumentTypeError("'%s' is none of %s; filter npu.affinity.launch has those of Kubernetes" % (name, forms))


def _flag(name: str) -> str:
    """Return an option of a form as this command takes it; one that is on by default is switched off."""
    default = OPTIONS[name].default if name in OPTIONS else ""
    return "--%s%s" % ("no-" if default is True else "", name.replace("_", "-"))


def typed(sentence: str) -> str:
    """Return a sentence of the engine, which has options as the filter takes them, with those of this command."""

    def with_value(match: Match[str]) -> str:
        name, _quote, value = match.groups()
        return _flag(name) if value in ("true", "false") else "%s %s" % (_flag(name), value)

    def listed(match: Match[str]) -> str:
        return _flag(match[1]) + match[2] + ", ".join(map(_flag, match[3].split(", ")))

    return _NAMED.sub(lambda match: _flag(match[0]), _HAS.sub(listed, _WITH_VALUE.sub(with_value, sentence)))


def text(record: HostRecord, arguments: argparse.Namespace) -> str:
    """Return the text of a form. Raises ``ValueError`` with a sentence for what cannot work, and what the topology lacks."""
    options = {name: getattr(arguments, "set_" + name) for name in _TAKEN if getattr(arguments, "set_" + name) is not None}
    if "environment" in options:
        options["environment"] = dict.fromkeys(options["environment"], True)
    if "library" in FORMS[arguments.form].options:
        options["library"] = options.get("library") or code_folder(record.state)
    entry = _entry(record, arguments.places)
    topology = gather(record.host, npu_smi=record.history.npu_smi)
    try:
        return launch(entry, arguments.form, topology=topology, binding=arguments.binding or "", **options)
    except ValueError as error:
        raise ValueError(". ".join([typed(str(error)), *topology["problems"]]))


def _entry(record: HostRecord, names: Sequence[str]) -> Mapping[str, Any]:
    """Return what names stand for, as the filters plan, workloads and vnpus return it, in the slices that this host has."""
    places = [find(record, name) for name in names]
    for place in places:
        refuse_lost(record, place)
        if place.vnpu and len(places) > 1:
            raise ValueError("a vNPU is a part of one NPU: launch %s alone" % place.title)
    first, expected = places[0], record.expected()
    if first.vnpu:
        return first.vnpu
    npus = list({Device.of(npu): npu for place in places for npu in place.npus}.values())
    kinds = sorted({Device.of(npu).kind for npu in npus})
    if len(kinds) > 1:
        raise ValueError("%s are NPUs and GPUs, and a program uses one kind: name those of one" % ", ".join(names))
    slices = first.slices if len(places) == 1 else [kinds[0] + ".slice"]
    home = next((unit for unit in slices if unit in expected), "")
    if len(npus) == 1 and not first.workload:
        return dict(npus[0], slice=home)
    workload = first.workload if len(places) == 1 else None
    return {
        "name": workload["name"] if workload else "-".join([kinds[0], *(str(npu["id"]) for npu in npus)]),
        "processes": npus,
        "pool": expected[home]["cpus"] if workload and home else union(npu["pool"] for npu in npus),
        "mems": union(npu.get("mems") or "" for npu in npus),
        "memory_nodes": union(map(memory_nodes, npus)),
        "slice": home,
        "engine": workload.get("engine") if workload else None,
    }

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired state of a host: one plain document, made of topology and settings, with its sentences.

Bind applies it, and verify compares the host with it. What a feature adds to it is in the file of that name.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import AppliedState, Assessment, DesiredState, FileEntry, Live
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import MadeState, Plan, Restarted, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied, traces
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES as ON_HOST
from ansible_collections.npu.affinity.plugins.module_utils._host.installed import CODE_FOLDER, relocated
from ansible_collections.npu.affinity.plugins.module_utils._state.history import digest
from ansible_collections.npu.affinity.plugins.module_utils._state.executables import USUAL
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import absent
from ansible_collections.npu.affinity.plugins.module_utils._users import pools
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import BIND_EFFECT, Sentence, by_code, coded, of_error, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import refusals as _refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import adopt, conflicts, remarks, threads, variables
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.difference import InForce, changes, difference
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work, with_kubelet
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import plan_refusals
from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import hardware
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import pods
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import planner
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole, Settings
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import is_hard

ByRole = Mapping[str, OfRole]

_MODULES = {name: importlib.import_module(f"{__package__}.{name}") for name in ON_HOST}
FEATURES = {name: module.wanted for name, module in _MODULES.items()}
"""The functions that say what a feature wants of a host, in the order in which a bind applies them."""
PRESENT, ABSENT = "present", "absent"
MOST_FILES = 3
"""So many files that a bind changes are named in a sentence."""
IN_SUMMARY = [name for name, module in _MODULES.items() if getattr(module, "NOTES_IN_SUMMARY", False)]
"""The features whose notes the summary and the playbook bind show, and which are no remarks."""
PLANNED = ("strategy", "housekeeping", "smt", "min_cpus", "roles", "repair", "replan", "bound_by", "engine_version", "workloads", "memory")
UNLESS_EMPTY = ("cpus", "npus", "visible_npus")
"""The settings of role plan that the planner takes; an empty one of these means all."""


class Refused(ValueError):
    """Why features cannot be made of a plan."""

    def __init__(self, sentences: list[Sentence]) -> None:
        super().__init__(" ".join(sentences))
        self.sentences = sentences


def desired_state(
    topology: Topology,
    settings: Settings,
    shown: bool = False,
    in_force: InForce | None = None,
    tell: bool = False,
) -> DesiredState:
    """Return the desired state of the host with its sentences.

    A host that cannot be bound has ``refusals``, no ``digest``, and a document without features, which changes nothing. ``shown``: the
    plan is only shown: CPUs that pods hold now do not refuse it, and interrupts of other devices are remarks. ``tell``: what a bind would
    change is a remark, as where the plan is shown.
    """
    settings = {**settings, "adopt": adopt.with_mode_in_force(topology, settings["adopt"])}
    document, plan = of_plan(topology, None, {}), None
    try:
        plan = planned(topology, settings["plan"])
        if not (refusals := _refused(topology, plan, settings, shown)):
            document = with_host_code(of_plan(topology, plan, _of_features(settings)), settings["plan"]["library"])
            if npu_smi := _on_this_host(topology, settings["plan"])["npu_smi"]:
                document["npu_smi"] = npu_smi
    except Refused as error:
        refusals = error.sentences
    except ValueError as error:
        refusals = [of_error(error, "NPU_SETTING_INVALID")]
    fingerprint = "" if refusals else digest(applied(document))
    made: DesiredState = {
        **document,
        **_sentences(topology, plan, settings, refusals, document, shown),
        "plan": plan,
        "digest": fingerprint,
        "converged": bool(fingerprint and in_force and fingerprint == in_force["digest"] and not in_force["differs"]),
    }
    if (shown or tell) and made["difference"] and fingerprint and plan and plan["npus"] and (in_force or not topology.get("applied")):
        made["difference"]["changes"] = lines = changes(applied(made), in_force)
        if lines:
            files = [line for line in lines if line.startswith("file ")]
            if len(files) > MOST_FILES:
                lines = [*(line for line in lines if line not in files), f"{len(files)} files, which --check --diff shows"]
            made["remarks"].append(coded(Sentence(BIND_EFFECT, f"A bind changes: {'; '.join(lines)}.")))
    return made


def _of_features(settings: Settings) -> ByRole:
    return {name: cast("ByRole", settings)[name] for name in FEATURES}


def with_host_code(state: AppliedState, folder: str) -> AppliedState:
    """Return a desired state whose host code is in a folder, in every file that names the usual one, which the document does not name."""
    if folder == CODE_FOLDER or not state["runtime"]:
        return state
    files: list[FileEntry] = [
        {**entry, "path": relocated(entry["path"], folder), "content": entry["content"].replace(f"{CODE_FOLDER}/", f"{folder}/")}
        for entry in state["files"]
    ]
    restarted: list[Restarted] = [
        {"unit": entry["unit"], "files": [relocated(path, folder) for path in entry["files"]]} for entry in state["restarted"]
    ]
    return {**state, "files": files, "restarted": restarted, "library": folder}


def planned(topology: Topology, settings: Mapping[str, Any]) -> Plan:
    """Return the plan of a host by the settings of role plan. Raises ``ValueError`` with a sentence if there is none."""
    given = {name: settings[name] for name in PLANNED} | {name: settings[name] or None for name in UNLESS_EMPTY}
    made = planner.plan(topology, exclude_isolated=settings["isolation"] == "exclude", **given)
    return {**made, "warnings": list(map(coded, made["warnings"]))}


def _refused(topology: Topology, plan: Plan, settings: Settings, shown: bool) -> list[Sentence]:
    general, becomes = settings["plan"], _kubelet_becomes(topology, settings["kubelet"])
    work = _work(settings)
    sentences = plan_refusals(topology, plan, work)
    if settings["slices"]["enabled"] and not sentences:
        sentences += variables.mig_refusals(topology, plan, work)
    if plan["npus"]:
        sentences += _refusals.place_refusals(topology) or _refusals.program_refusals(topology)
    sentences += _refusals.silence_refusals(topology, general["replan"])
    sentences += _refusals.host_code_refusals(general["library"])
    if settings["slices"]["enabled"] and "services" in general["fail_on"]:
        sentences += _missing(topology, plan, " Install what is missing, or remove services from npu_affinity_fail_on.")
    if settings["device_share"]["enabled"]:
        sentences += _refusals.driver_refusals(topology)
    if not (shown or becomes):
        sentences += pods.refusals(topology, plan)
    if settings["slices"]["enabled"]:
        sentences += _refusals.holder_refusals(topology, plan) if not general["housekeeping_confine_holders"] else []
        sentences += _refusals.follow_refusals(with_kubelet(topology, becomes), plan)
    return sentences


@remark("NPU_UNKNOWN_UNIT")
def _missing(topology: Topology, plan: Plan, advice: str = "") -> list[str]:
    missing = topology.get("missing_units")
    return [f"{absent(missing)}{advice}"] if missing and plan["npus"] else []


def _work(settings: Settings) -> Work:
    """Return what the settings name. Whether a bind switches device share on is not known where it depends on which NPUs it names."""
    share = settings["device_share"]
    return Work.of(settings["slices"], None if share["npus"] else share["enabled"])


def _sentences(
    topology: Topology, plan: Plan | None, settings: Settings, refusals: list[Sentence], document: AppliedState, shown: bool
) -> Assessment:
    """Return the keys of a document that are not for the host."""
    of_profile = settings.get("of_profile", ())
    refusals = [_with_profile(refusal, of_profile) for refusal in refusals]
    made: Assessment = {
        "refusals": list(map(str, refusals)),
        "remarks": [],
        "codes": by_code(refusals),
        "summary": "",
        "difference": None,
        "outside": [],
        "processes": [],
        "settings": settings.get("applied", {}),
        "profile": settings.get("profile", ""),
        "muted": settings.get("muted", {}),
    }
    if not plan:
        return made
    work = _work(settings)
    made["outside"] = pools.lines(pools.placement(topology.get("users") or (), plan))
    made["difference"] = difference(topology, plan, document, work)
    if refusals:
        made["summary"] = "A bind refuses this plan."
        return made
    sentences = []
    try:
        made["processes"] = threads.processes(topology, plan, settings["threads"]) if plan["npus"] else []
    except ValueError as error:
        sentences.append(of_error(error, "NPU_SETTING_INVALID"))
    sentences = [*remarks.guests(topology), *remarks.remarks(topology, plan, work), *sentences]
    sentences += _of_plan(topology, plan, settings, document, shown)
    texts = [*map(coded, sentences), *(text for name, notes in document["notes"].items() if name not in IN_SUMMARY for text in notes)]
    unasked = tuple(no_effect(name) for name in of_profile)  # a profile sets it on every host, whatever the host has
    made["remarks"] = [*(text for text in texts if not text.startswith(unasked)), *settings.get("remarks", ())]
    summary = document["notes"].get("slices") or [remarks.OFF if plan["npus"] else binding(topology, plan, work)["summary"]]
    made["summary"] = " ".join(summary)
    return made


def _of_plan(topology: Topology, plan: Plan, settings: Settings, document: AppliedState, shown: bool) -> list[Sentence]:
    """Return the remarks on a plan that is not refused, those of features and of what the settings name apart."""
    general, work, slices = settings["plan"], _work(settings), settings["slices"]["enabled"]
    there = with_kubelet(topology, _kubelet_becomes(topology, settings["kubelet"]))
    sentences = remarks.without_slices(there, plan, work) if slices else remarks.slices_off(plan, work, settings["threads"]["enabled"])
    if slices and "services" not in general["fail_on"]:
        sentences = _missing(topology, plan) + sentences
    sentences += variables.remarks(there, plan, work, settings["adopt"]["adopt"] != adopt.REPORT, slices)
    sentences += adopt.remarks(topology, settings["adopt"])
    sentences += [Sentence("NPU_RANKS_PLACED", text) for text in pools.rank_remarks(topology.get("users") or (), plan)] if shown else []
    sentences += remarks.memory_of_units(topology, document)
    sentences += remarks.memory_of_users(topology, plan, document)
    if shown:
        of_features = _neighbours("irq", topology, plan, _of_features(settings))["left_alone"]
        sentences += conflicts.interrupts(topology, plan, {pci for _file, functions in of_features for pci in functions})
    sentences += conflicts.isolation(topology, plan)
    return sentences + (conflicts.command_line(topology, plan) if shown and general["isolation"] == "explain" else [])


def _with_profile(refusal: Sentence, of_profile: Collection[str]) -> Sentence:
    """Return a refusal with the variables in it whose values are those of the profile, because the user set none of them."""
    names = [name for name in of_profile if re.search(rf"\b{name}\b", refusal)]
    return Sentence(refusal.code, f"{refusal.rstrip('.')}. npu_affinity_profile sets {' and '.join(names)}.") if names else refusal


def of_plan(topology: Topology, plan: Plan | None, settings: ByRole) -> AppliedState:
    """Return what the host should be by a plan, of the features that ``settings`` name; without a plan, they are absent.

    Raises ``ValueError`` with sentences when the plan must not be applied.
    """
    made = _features(topology, plan, settings)
    together = Feature()
    for feature in made.values():
        together = together.with_those_of(feature)
    features = {name: PRESENT if _is_on(name, settings[name]) and plan else ABSENT for name in made}
    soft = any(not is_hard(vnpu) for vnpu in settings.get("slices", {}).get("vnpus", ()))
    kept = {"vnpu"} if soft else set()  # a limiter stays as long as a vNPU needs it
    absent = [name for name, presence in features.items() if presence == ABSENT and name not in kept]
    state: MadeState = {
        "schema": 1,
        "features": features,
        "hardware": hardware(topology),
        "plan": plan if together.needs_plan else None,
        "live": cast("Live", {name: feature.live for name, feature in made.items() if feature.live is not None}),
        "notes": {name: list(map(coded, feature.notes)) for name, feature in made.items()},
        "absent": traces(absent, features, together.files),
        **together.document(),
    }
    return cast("AppliedState", state)


def _features(topology: Topology, plan: Plan | None, settings: ByRole) -> dict[str, Feature]:
    """Return what each feature wants, in the order of :data:`FEATURES`. Raises :class:`Refused` with what all of them say against it."""
    made, refusals = {}, []
    for name in (name for name in FEATURES if name in settings):
        given: OfRole = {**_neighbours(name, topology, plan, settings), **_on_this_host(topology, settings[name])}
        try:
            made[name] = feature_of(name, topology, plan, given)
        except ValueError as error:
            refusals.append(of_error(error, "NPU_SETTING_INVALID"))
    if refusals:
        raise Refused(refusals)
    return made


def feature_of(name: str, topology: Topology, plan: Plan | None, settings: OfRole) -> Feature:
    """Return what a feature wants by the settings of its role. It owns its files also where it is off, and says what then has no effect."""
    module, on_host = _MODULES[name], ON_HOST[name]
    if plan and _is_on(name, settings):
        made: Feature = module.wanted(topology, plan, settings)
    else:
        made = Feature(notes=module.idle(settings) if hasattr(module, "idle") else ())
    return dataclasses.replace(made, owned=made.owned or tuple(path for path in on_host.owned if path not in on_host.shared))


def _is_on(name: str, settings: OfRole) -> bool:
    """Whether the settings of a role want its feature: as ``is_on`` of its file says, or else by its switch."""
    is_on = getattr(_MODULES[name], "is_on", None)
    return bool(is_on(settings) if is_on else settings["enabled"])


def _neighbours(name: str, topology: Topology, plan: Plan | None, settings: ByRole) -> OfRole:
    """Return what a feature has to know of others: slices, the policy of a kubelet that this bind restarts, and that owns the CPUs from
    then on; irq, the PCI functions whose interrupts others place."""
    if name == "irq":
        functions = [(getattr(_MODULES[other], "left_alone", None), given) for other, given in settings.items() if plan]
        return {"left_alone": [function(topology, plan, given) for function, given in functions if function]}
    return {"kubelet_becomes": _kubelet_becomes(topology, settings.get("kubelet"))} if name == "slices" else {}


def _kubelet_becomes(topology: Topology, wanted: OfRole | None) -> str:
    """Return the policy of the CPU manager with which this bind starts the kubelet of a drained node; '' if it does not drain it."""
    kubelet = topology.get("kubelet") or {}
    if not (wanted and wanted["restart"]):
        return ""
    if wanted["enabled"]:
        return "static"
    without: str = kubelet.get("policy_without", "")
    return without if without != kubelet.get("policy") else ""


def _on_this_host(topology: Topology, settings: OfRole) -> OfRole:
    """Return settings with the programs that only this host tells: its Python, where they name the usual one, which it need not have, and
    its npu-smi, where they name none and units would not find it."""
    here: OfRole = {**settings}
    python, npu_smi = (topology.get("programs") or {}).get("python3"), (topology.get("driver") or {}).get("path")
    if python and here.get("python") == USUAL["python3"]:
        here["python"] = python
    if npu_smi and here.get("npu_smi") == "":
        here["npu_smi"] = npu_smi
    return here

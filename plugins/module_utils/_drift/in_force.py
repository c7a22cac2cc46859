# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a host with the desired state that is in force there by its own history: the one comparison of all who ask. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, cast

from .._features.feature import Wanted
from .._features.parts import applied
from .._features.register import FEATURES
from .._state.difference import difference
from .._state.history import InForce, in_force, since
from .._host import installed
from .._host.host import CommandError, Host
from .._state import previous
from .._state.journal import INTERRUPTED
from .._state.plan_file import PATH as PLAN
from .._state.systemd import units_of
from .._state.unit_files import drop_in_of
from .._base.version import VERSION
from .._base.findings import INTERRUPTED_RUN, OLD_PROCESS, Cause, Finding, Findings, coded
from .._users.pools import sentence
from .codes import PLAN_OUTDATED, result_of
from .verify import verify

if TYPE_CHECKING:
    from .._base.documents import AppliedState, Comparison, Drift, Live, Topology
    from .._host.installed import HostCode


class Compared(NamedTuple):
    """``bound``: whether the host was ever bound; ``recorded`` and ``wanted``: what it was compared with."""

    bound: bool
    findings: Findings
    recorded: InForce
    wanted: Wanted


def comparison(host: Host, compared: Compared, desired: AppliedState | None = None) -> Comparison:
    """Return what module ``binding_info`` returns. ``desired``: the state whose changes it lists."""
    findings, recorded = compared.findings, compared.recorded
    return {
        "bound": compared.bound,
        "changes": difference(applied(desired), recorded.state) if desired and recorded.state else [],
        "drift": drift_of(host, compared),
        "checked": findings.checked,
        "outside": findings.outside,
        "outside_sentence": sentence(findings.outside),
        "remarks": findings.remarks,
        "last_change": recorded.entries[-1].header() if recorded.state else None,
    }


def wanted_by(state: AppliedState | None) -> Wanted:
    """Return what a host is compared with by a desired state; None: by its plan alone."""
    if not state:
        return Wanted()
    given: Mapping[str, Any] = state
    placed = [entry for feature in FEATURES.values() if feature.placed for entry in feature.placed(state)]
    wanted = Wanted(**{name: given[name] for name in Wanted._fields if name in given})
    return wanted._replace(files=[*state["files"], *placed])


def compare(
    host: Host,
    topology: Topology | None = None,
    must_be_bound: bool = False,
    host_code: HostCode | None = None,
    history: InForce | None = None,
) -> Compared:
    """Compare a host with its state in force. ``topology`` tells which NPUs are there; without it none counts as new. ``history`` is what
    the host has, where that was read already. ``host_code`` returns the files of the host code; without it these are not compared.

    A host without a history is compared with its plan.json alone. Raises as :func:`verify.verify`.
    """
    recorded = history or in_force(host)
    state = recorded.state
    wanted, folder = wanted_by(state), installed.code_folder(state)
    owned = installed.everywhere(wanted.owned, [folder])
    wanted = wanted._replace(owned=owned, topology=topology, must_be_bound=must_be_bound)
    if state is None and host.text(PLAN) is None:
        wanted = wanted._replace(owned=[pattern for feature in FEATURES.values() for pattern in feature.owned])
    outdated = ""
    if state and state.get("runtime") and host_code:
        outdated = _outdated(host, folder)
        if not outdated:
            wanted = wanted._replace(files=[*wanted.files, *host_code(state)])
    bound, findings = verify(host, wanted, state["plan"] if state else None)
    findings.remarks += coded("NPU_HISTORY_INCOMPLETE", [*recorded.remarks, *([recorded.missing] if bound and recorded.missing else [])])
    findings.remarks += coded(PLAN_OUTDATED, [outdated] if outdated else [])
    return Compared(bound, findings, recorded, wanted)


def drift_of(host: Host, compared: Compared) -> list[Drift]:
    """Return the drift as plain data. The cause names the last bind or rollback where that explains the difference."""
    findings = compared.findings.drift
    before = _as_before(host, compared.recorded) if findings else set()
    begun = previous.recorded(host).get(INTERRUPTED, []) if findings else []
    unfinished = {*begun, *units_of(begun)}
    return [result_of(_explained(finding, compared.recorded, before, unfinished)) for finding in findings]


def _explained(finding: Finding, recorded: InForce, before: set[tuple[str, str]], unfinished: set[str]) -> Finding:
    if not unfinished.isdisjoint((finding.object, finding.unit or "")):
        return finding._replace(cause=Cause(INTERRUPTED_RUN, "a run did not end, or left something to the next one; bind again"))
    text = ""
    if finding.cause.word == OLD_PROCESS and finding.unit:
        path = drop_in_of(finding.unit)
        entry = since(recorded.entries, lambda state: next((file["content"] for file in state["files"] if file["path"] == path), None))
        text = "its settings are those of %s" % entry.title() if entry else ""
    elif (finding.kind, finding.object) in before:
        text = "it is as it was before %s" % recorded.entries[-1].title()
    return finding._replace(cause=Cause(finding.cause.word, "%s; %s" % (finding.cause.remark, text))) if text else finding


def _as_before(host: Host, recorded: InForce) -> set[tuple[str, str]]:
    """Return the kind and name of what is as the entry before the last one wants it.

    Device share is left out, because npu-smi is slow. Lost cards and offline CPUs are not what an entry wants.
    """
    state = recorded.entries[-2].state if recorded.state and len(recorded.entries) > 1 else None
    if not state or not state["plan"]:
        return set()
    try:
        live = cast("Live", {name: value for name, value in state["live"].items() if name != "device_share"})
        wanted = wanted_by(state)._replace(live=live, topology=cast("Topology", {"npus": [], "users": []}))
        findings = verify(host, wanted, state["plan"])[1]
    except (LookupError, OSError, TypeError, ValueError, CommandError):  # such as an entry of a version that kept less
        return set()
    same = {(kind, name) for kind, names in findings.checked.items() if kind not in ("npus", "cpus") for name in names}
    return same - {(finding.kind, finding.object) for finding in findings.drift}


def _outdated(host: Host, folder: str) -> str:
    """Return a sentence where the host has the host code of another version of the collection."""
    text = host.text(installed.relocated(installed.ARCHIVE, folder))
    version = installed.installed_version(text)
    if text is None or version == VERSION:
        return ""
    return "a bind would now replace the host code, version %s, by that of version %s" % (version or "unknown", VERSION)

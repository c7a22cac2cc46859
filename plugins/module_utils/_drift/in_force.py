# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a host with the desired state that is in force there by its own history. Reads only.

The playbook verify, the command on the host, the metrics and the archives all use this one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple

from .._features.register import FEATURES
from .._state.history.in_force import InForce, in_force
from .._host.host import Host
from .._host.installed import ARCHIVE, installed_version
from .._state.plan_file import PATH as PLAN
from .._base.version import VERSION
from .findings import Findings
from .verify import Wanted, verify
from .wanted import wanted_by

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry

HostCode = Callable[["AppliedState"], "list[FileEntry]"]
"""Returns the files of the host code for a desired state, as :func:`runtime.files_of` does. The installed host code has none."""


class Comparison(NamedTuple):
    """``bound``: whether the host was ever bound; ``known`` and ``wanted``: what it was compared with; ``outdated``: why a bind would
    replace the host code although it is not drift, or ''."""

    bound: bool
    findings: Findings
    known: InForce
    wanted: Wanted
    outdated: str


def compare(
    host: Host,
    topology: Mapping[str, Any] | None = None,
    npu_smi: str | None = None,
    must_be_bound: bool = False,
    host_code: HostCode | None = None,
    history: InForce | None = None,
) -> Comparison:
    """Compare a host with its state in force. ``topology`` tells which NPUs are there; without it none counts as new. ``history`` is what
    the host has, where that was read already.

    A host without a history is compared with its plan.json alone. Raises as :func:`verify.verify`.
    """
    known = history or in_force(host)
    state = known.state
    wanted = wanted_by(state)._replace(topology=topology, npu_smi=npu_smi, must_be_bound=must_be_bound)
    if state is None and host.text(PLAN) is None:
        wanted = wanted._replace(owned=[pattern for feature in FEATURES.values() for pattern in feature.owned])
    outdated = ""
    if state and state.get("runtime") and host_code:
        outdated = _outdated(host)
        if not outdated:
            wanted = wanted._replace(files=[*wanted.files, *host_code(state)])
    bound, findings = verify(host, wanted, state["plan"] if state else None)
    findings.remarks += known.remarks
    if bound and known.missing:
        findings.remarks.append(known.missing)
    if outdated:
        findings.remarks.append(outdated)
    return Comparison(bound, findings, known, wanted, outdated)


def _outdated(host: Host) -> str:
    """Return a sentence where the host has the host code of another version of the collection."""
    text = host.text(ARCHIVE)
    version = installed_version(text)
    if text is None or version == VERSION:
        return ""
    return "a bind would now replace the host code, version %s, by that of version %s" % (version or "unknown", VERSION)

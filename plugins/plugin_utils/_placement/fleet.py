# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a fleet for placement, out of the variables of a play or of saved facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

FACT = "npu_affinity_topology"
LABELS = "npu_affinity_labels"
"""The variable of the inventory that gives labels to hosts."""


def fleet(variables: Mapping[str, Any], names: Iterable[str], saved: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return ``{topology, labels}`` of every host by name, or ``{refused}`` with the reason why there is no topology.

    ``variables`` are those of each host, such as ``hostvars``, and ``names`` the hosts to take of them. With ``saved``, JSON texts by
    file name, the topologies come from there, and the variables only give labels to hosts that have some.
    """
    if not isinstance(variables, Mapping) or not isinstance(names, Iterable) or not isinstance(saved, Mapping | None):
        raise ValueError("expected variables of hosts by name, names, and texts by file name")
    if saved is None:
        return {name: _entry(variables[name], _fact(variables[name]), variables[name].get("npu_affinity_gather_error")) for name in names}
    found = {}
    for file, text in saved.items():
        name = _host(file)
        topology, error = _read(text)
        own = variables[name] if name in variables else {}  # noqa: SIM401 - hostvars.get fails for hosts that are not in the inventory
        found[name] = _entry(own, topology, error)
    return found


def _fact(variables: Mapping[str, Any]) -> Any:
    """Return the topology: a variable where a playbook set one, or ``inject_facts_as_vars`` is on, else among the facts."""
    return variables.get(FACT) or (variables.get("ansible_facts") or {}).get(FACT)


def _host(file: str) -> str:
    """Return the host of a file: newer fact caches of Ansible put ``s1_`` before its name."""
    return file.removesuffix(".json").removeprefix("s1_")


def _entry(variables: Mapping[str, Any], topology: Any, error: Any) -> dict[str, Any]:
    if not isinstance(topology, Mapping):
        return {"refused": str(error or f"the fact {FACT} is not known; gather it with npu.affinity.topology_facts")}
    labels = variables.get(LABELS) or {}
    return {"topology": topology, "labels": {label: value for label, value in labels.items() if value is not None}}


def _read(text: str) -> tuple[Any, str | None]:
    """Return the topology of a saved text: the fact itself, an Ansible fact cache with it, or a module's result; or why there is none."""
    try:
        facts = json.loads(text)
        if isinstance(facts, Mapping) and "__payload__" in facts:
            facts = json.loads(facts["__payload__"])
    except (RecursionError, TypeError, ValueError) as error:
        return None, f"its saved facts are not valid JSON ({error})"
    if not isinstance(facts, Mapping):
        return None, "its saved facts are not a dictionary"
    facts = found if isinstance(found := facts.get("ansible_facts"), Mapping) else facts
    return (facts if "cpus" in facts else facts.get(FACT)), f"its saved facts do not have {FACT}"

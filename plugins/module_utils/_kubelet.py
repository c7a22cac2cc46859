# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's CPU manager as its files show it. Read only: kubelet alone writes them.

State file, versions 1 (container id -> CPUs) and 2 (pod -> container -> CPUs): Kubernetes ``pkg/kubelet/cm/cpumanager/state``.
It is written in two steps, so that an overlap or lost CPUs can be left behind (kubernetes issues 84783 and 136604), and it goes
stale when the machine changes (79823).

This module is private to the collection.
"""

from __future__ import annotations

import json
import re

from ._cpulist import compress, expand

CONFIG = "/var/lib/kubelet/config.yaml"
STATE = "/var/lib/kubelet/cpu_manager_state"


def kubelet(host, online):
    """Return ``{policy, topology_policy, default_cpus, exclusive, warnings}``, or None on a host without kubelet files.

    ``exclusive`` maps ``pod/container`` (version 1: the container id) to a cpulist. ``online`` is the set of online CPUs.
    """
    config, state_text = host.read(CONFIG), host.read(STATE)
    if config is None and state_text is None:
        return None
    warnings = []
    state = {"policy": None, "default_cpus": None, "exclusive": {}}
    reserved = []
    try:
        reserved = expand(_setting(config, "reservedSystemCPUs") or "", "%s: reservedSystemCPUs" % CONFIG)
        state = parse_state(state_text) if state_text is not None else state
    except ValueError as error:
        warnings.append("The CPU manager's sets cannot be used: %s" % error)
    wanted = _setting(config, "cpuManagerPolicy")
    if wanted and state["policy"] and wanted != state["policy"]:
        warnings.append(
            "%s wants CPU manager policy %s, but kubelet last ran with %s (%s): it refuses to start until that file is removed"
            % (CONFIG, wanted, state["policy"], STATE)
        )
    if state["policy"] == "static":
        warnings.extend(_inconsistencies(state, online, set(reserved)))
    return {
        "policy": wanted or state["policy"] or "none",
        "topology_policy": _setting(config, "topologyManagerPolicy") or "none",
        "default_cpus": state["default_cpus"],
        "exclusive": state["exclusive"],
        "warnings": warnings,
    }


def parse_state(text):
    """Return ``{policy, default_cpus, exclusive}`` of a state file's text; ``ValueError`` says what is wrong with it."""
    try:
        state = json.loads(text)
        exclusive = {}
        for pod, containers in (state.get("entries") or {}).items():
            if isinstance(containers, dict):
                exclusive.update(("%s/%s" % (pod, name), cpulist) for name, cpulist in containers.items())
            else:
                exclusive[pod] = containers
        policy, default = state["policyName"], state["defaultCpuSet"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("%s is no CPU manager state (%s: %s)" % (STATE, type(error).__name__, error))
    return {
        "policy": policy,
        "default_cpus": compress(expand(default, "%s: defaultCpuSet" % STATE)),
        "exclusive": {name: compress(expand(cpulist, "%s: %s" % (STATE, name))) for name, cpulist in sorted(exclusive.items())},
    }


def _setting(config, key):
    """Return the value of a top-level key of a kubelet configuration, or None."""
    match = re.search(r"""^%s:[ \t]*["']?([^"'#\s]+)""" % key, config or "", re.MULTILINE)
    return match.group(1) if match else None


def _inconsistencies(state, online, reserved):
    owner = dict.fromkeys(expand(state["default_cpus"]), "the shared pool")
    for name, cpulist in state["exclusive"].items():
        cpus = set(expand(cpulist))
        for other in sorted({owner[cpu] for cpu in cpus if cpu in owner}):
            common = compress(cpu for cpu in cpus if owner.get(cpu) == other)
            yield "%s gives CPUs %s to %s and to %s" % (STATE, common, name, other)
        owner.update(dict.fromkeys(cpus, name))
    missing = online - set(owner) - reserved
    if missing:
        yield "%s has lost CPUs %s: they are online, not reserved, and in no set" % (STATE, compress(missing))
    unknown = set(owner) - online
    if unknown:
        yield "%s names CPUs %s, which are not online: the machine changed since kubelet started" % (STATE, compress(unknown))

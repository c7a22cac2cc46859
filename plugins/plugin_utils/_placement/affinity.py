# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the hosts that fit the tasks of a job get by affinity to switches, SuperPods or network trees, from the labels of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement import superpods, trees
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import switches as _switches
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fit import Fit
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import Host
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request, SuperPods, Switches, Trees, of_950


def hosts_for(hosts: Mapping[str, Host], fits: Sequence[Fit], request: Request, used: Iterable[str] = ()) -> list[str] | None:
    """Return the hosts for each task, None for a job without affinity between hosts. Raises ``ValueError`` where there are none.

    ``fits`` are the hosts that fit, the best first; ``used`` are hosts that instances of the same service got before.
    """
    if request.switch:
        return _by_switch(hosts, fits, request.switch, request.replicas)
    if request.superpod:
        return _by_superpod(hosts, fits, request, request.superpod, used)
    if request.tree:
        return _by_tree(fits, request.tree, request.replicas)
    return None


def _by_switch(hosts: Mapping[str, Host], fits: Sequence[Fit], wanted: Switches, replicas: int) -> list[str]:
    by_name: dict[str, list[Host]] = {}
    for host in hosts.values():
        if host.labels.get("switch") is not None:
            by_name.setdefault(str(host.labels["switch"]), []).append(host)
    if not by_name:
        raise ValueError("No host names its switch; set npu_affinity_labels.switch in the inventory, or leave switch out of the request")
    switches = []
    for name, members in by_name.items():
        state = wanted.states.get(name) or {}
        free = {host.name for host in members} & {fit.host.name for fit in fits}
        shared, unhealthy = int(state.get("shared") or 0), int(state.get("healthy") or 0)
        switches.append(_switches.Switch(name, _positions(name, members), free, shared, unhealthy, tuple(state.get("spanned_by") or ())))
    per_switch = wanted.tor_count or max(len(switch.hosts) for switch in switches)
    return _switches.select(switches, replicas, wanted.version, wanted.schema, per_switch, wanted.shared_switches)


def _positions(switch: str, hosts: Sequence[Host]) -> Sequence[str | None]:
    """Return the hosts of a switch by position, in order of their names where none is given."""
    by_position = {host.label("position"): host.name for host in hosts}
    if by_position.keys() == {None}:
        return sorted(host.name for host in hosts)
    numbers = [position for position in by_position if position is not None and position >= 0]
    if len(numbers) != len(hosts):
        raise ValueError(f"Switch {switch}: two of its hosts have the same position, or one has none; give each a position of its own")
    return [by_position.get(position) for position in range(max(numbers) + 1)]


def _by_superpod(hosts: Mapping[str, Host], fits: Sequence[Fit], request: Request, wanted: SuperPods, used: Iterable[str]) -> list[str]:
    fits = [fit for fit in fits if fit.host.label("superpod") is not None]
    if request.replicas == 1:  # hosts in use are filled first, whatever is left in their SuperPods (selectNodesWithLeastResourceForSingle)
        least = min((len(fit.host.chips) for fit in fits), default=0)
        fits = [fit for fit in fits if len(fit.host.chips) == least]
    if not fits:
        raise ValueError("No host that fits names its SuperPod; set npu_affinity_labels.superpod in the inventory, or leave superpod out")
    racked = {fit.family for fit in fits} == {superpods.ATLAS_950}
    if racked:
        if refusal := of_950(wanted, request.npus, request.replicas):
            raise ValueError(refusal)
        without = sorted(fit.host.name for fit in fits if fit.host.label("rack") is None)
        if without and len(without) < len(fits):
            raise ValueError(
                f"Only some hosts of the Atlas 950 name their rack; set npu_affinity_labels.rack of {', '.join(without[:3])}, too"
            )
        racked = not without
    members: dict[superpods.Rack, list[str]] = {}
    for fit in fits:
        members.setdefault(rack_of(fit.host, racked), []).append(fit.host.name)
    pieces = _pieces(hosts, {rack: len(names) for rack, names in members.items()}, request, wanted, racked, used)
    chosen = [members[rack].pop(0) for rack, count in pieces for _host in range(count)]
    if len(chosen) < request.replicas:
        raise ValueError(f"{request.replicas} tasks are wanted, and the SuperPods have {len(chosen)} hosts for them")
    return chosen


def _pieces(
    hosts: Mapping[str, Host], free: Mapping[superpods.Rack, int], request: Request, wanted: SuperPods, racked: bool, used: Iterable[str]
) -> list[tuple[superpods.Rack, int]]:
    """Return racks and how many hosts they give, in the order of the tasks."""
    per_block = max(1, wanted.sp_block // request.npus)
    blocks = max(1, request.replicas // per_block)
    if wanted.service is not None:
        running = superpods.running(wanted.service["id"], wanted.service["job"], wanted.service["jobs"], "hosts")
        on = [rack_of(hosts[name], racked) for name in (*running, *used) if name in hosts and hosts[name].label("superpod") is not None]
        return [(rack, per_block) for rack in superpods.take_instances(free, on, blocks, per_block)]
    if racked:
        per_piece = max(1, wanted.ra_block // superpods.HOST_NPUS)
        return superpods.take_pieces(free, request.replicas, per_block, per_piece, wanted.ub_memory, wanted.soft)
    by_pod = {pod: count for (pod, _rack), count in free.items()}
    return [((pod, 0), count) for pod, count in superpods.take_blocks(by_pod, blocks, per_block, wanted.reserve_nodes, wanted.soft)]


def rack_of(host: Host, racked: bool) -> superpods.Rack:
    """Return the SuperPod of a host and its rack there, 0 where racks do not count."""
    return host.label("superpod") or 0, (host.label("rack") or 0) if racked else 0


def _by_tree(fits: Sequence[Fit], wanted: Trees, replicas: int) -> list[str]:
    levels = trees.levels_of(wanted.levels, replicas)
    reasons = []
    for name, tree in trees.trees(wanted.config).items():
        of_tree = [fit.host for fit in fits if str(fit.host.labels.get(trees.LABEL, trees.DEFAULT)) == name]
        groups = {host.name: [host.labels.get(label) for label in tree.labels] for host in of_tree}
        paths = [(*map(str, path), host) for host, path in groups.items() if None not in path]
        try:
            if not paths:
                raise ValueError(f"no host that fits has its labels {', '.join(tree.labels)} in npu_affinity_labels")
            return [path[-1] for path in trees.place(paths, levels, tree.reserve)]
        except ValueError as refused:
            reasons.append(f"tree {name}: {refused}")
    raise ValueError("; ".join(reasons))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job can run whose tasks differ: together or not at all, as a gang of Volcano's. Serves the filter ``place``.

In SuperPods, each of them is an instance of a service: a job of its own, placed next to the instances before it.

Shapes of tasks are placed one after the other by what is left, the largest first; where that leaves one out, once more in the order in
which the request has them. Where that leaves one out, too, :mod:`_placement.search` looks for any place, within a number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._placement import affinity
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import place as _place
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fit import fit
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import Host
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.place import Entry, Refusal
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import DEFAULTS, Request, checked, fields_of, number_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.search import LIMIT, OutOfSteps, anywhere, search

OF_EACH = ("cpus", "npus", "replicas")
"""What only tasks say, and not the job for all of them."""
OF_TASKS = (*OF_EACH, "policy", "family", "mode")
OF_SERVICE = {"service": {}, "ub_memory": False, "super_pod_size": None}
"""What instances of a service have in common. A block is an instance, and no reserve is kept."""
WHOLE = ("weight", "kubernetes", "limit")


class Shape(NamedTuple):
    """Tasks of one kind and their name. In SuperPods they are an instance of a service, of which there may be several."""

    name: str
    request: Request
    instances: int = 1

    @property
    def tasks(self) -> int:
        return self.request.replicas * self.instances

    @property
    def title(self) -> str:
        return _place.tasks_by_name(replace(self.request, replicas=self.tasks), self.name)

    def as_data(self) -> dict[str, str | int | None]:
        instances = {"instances": self.instances} if self.request.superpod else {}
        return {"name": self.name, **{key: getattr(self.request, key) for key in OF_TASKS}, **instances}


def place(hosts: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the tasks of a job can run, as :func:`_placement.place.place` does, which has jobs of one shape.

    With ``tasks`` in the request, entries and refusals have the ``name`` of their shape, and ``fitting`` counts hosts for each.
    """
    if not isinstance(request, Mapping) or request.get("tasks") is None:
        plain = {key: value for key, value in request.items() if key != "tasks"} if isinstance(request, Mapping) else request
        return _place.place(hosts, plain)
    shapes = _shapes(request)
    ranked, refused, fitting = _alone(hosts, shapes)
    largest = sorted(shapes, key=lambda shape: (-shape.request.npus, -shape.request.cpus))
    tasks, missing = _together(hosts, largest)
    if missing and largest != shapes:
        tasks, _missing = _together(hosts, shapes)
    limit = 0
    if not tasks:
        try:
            tasks = _anyhow(hosts, largest)
        except OutOfSteps:
            limit = LIMIT
    order = [shape.name for shape in shapes]
    tasks.sort(key=lambda task: order.index(task["name"]))
    for number, task in enumerate(tasks):
        task["task"] = number
    message = _message(shapes, tasks, missing, fitting, limit)
    table = [message, *_place.task_lines(tasks, "task", "name", "host")]
    for shape in shapes:
        table += ["", f"{shape.name}, alone: {_place.tasks_by_name(replace(shape.request, replicas=1))}"]
        refusals = [refusal for refusal in refused if refusal["name"] == shape.name]
        table += _place.ranking_lines([entry for entry in ranked if entry["name"] == shape.name], fitting[shape.name], refusals)
    return {
        "request": {**{key: getattr(shapes[0].request, key) for key in WHOLE}, "tasks": [shape.as_data() for shape in shapes]},
        "placed": bool(tasks),
        "message": message,
        "tasks": tasks,
        "hosts": ranked,
        "fitting": fitting,
        "refused": refused,
        "table": table,
    }


def _shapes(request: Mapping[str, Any]) -> list[Shape]:
    """Return the shapes of a job. ``ValueError`` names the field, what was found and what is expected."""
    common = fields_of("request", request, {**DEFAULTS, "tasks": None})
    given = common.pop("tasks")
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise ValueError(f"tasks: expected a list of {{npus, cpus, replicas}}; got {given!r}")
    if both := [name for name in OF_EACH if name in request]:
        raise ValueError(f"tasks: {', '.join(both)} next to tasks is ambiguous: set it in each of tasks")
    if alike := [name for name in ("switch", "tree") if common[name] is not None]:
        raise ValueError(f"tasks: {', '.join(alike)} requires that all tasks are alike; leave it out, or place each task separately")
    in_superpods = common.pop("superpod")
    if in_superpods is not None:
        in_superpods = {"service": {}, **fields_of("superpod", in_superpods, OF_SERVICE)}
    defaults = {"name": None, **{name: common[name] for name in OF_TASKS}, **({} if in_superpods is None else {"instances": 1})}
    shapes: list[Shape] = []
    for number, task in enumerate(given):
        try:
            fields = fields_of("request", task, defaults)
            name = f"task{number}" if fields["name"] is None else str(fields["name"])
            superpod = in_superpods if number_of("npus", fields["npus"], 0) else None
            request_ = checked({**common, "superpod": superpod, **{key: fields[key] for key in OF_TASKS}})
            shapes.append(Shape(name, request_, number_of("instances", fields.get("instances", 1), 1)))
        except ValueError as error:
            raise ValueError(f"tasks[{number}]: {str(error).removeprefix('request: ')}") from error
    names = [shape.name for shape in shapes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"tasks: {', '.join(twice)} is the name of several tasks; give each its own name")
    if in_superpods is not None:
        return shapes
    multi = sum(shape.request.replicas for shape in shapes if shape.request.npus) > 1
    return [shape._replace(request=replace(shape.request, multi=multi)) for shape in shapes]


def _alone(hosts: Mapping[str, Any], shapes: list[Shape]) -> tuple[list[Entry], list[Refusal], dict[str, int]]:
    """Return for every shape what hosts could take one task of it if nothing else ran: the ranked ones, the refused ones, and how many."""
    readable, unreadable = _place.read_all(hosts)
    ranked: list[Entry] = []
    refused: list[Refusal] = []
    fitting = {}
    for shape in shapes:
        ranking, unfit = _place.ranked(readable, shape.request)
        entries, no_cpus = _place.details(ranking, ())
        ranked += [{"name": shape.name, **entry} for entry in entries]
        refusals = sorted([*unreadable, *unfit, *no_cpus], key=lambda refusal: str(refusal["host"]))
        refused += [{"name": shape.name, **refusal} for refusal in refusals]
        fitting[shape.name] = len(ranking.fits)
    return ranked, refused, fitting


def _together(hosts: Mapping[str, Any], shapes: list[Shape]) -> tuple[list[Entry], tuple[Shape, int] | None]:
    """Return the tasks of all shapes; or none, and the first shape that has too little room with the number of its tasks that have it."""
    readable, _unreadable = _place.read_all(hosts)
    tasks: list[Entry] = []
    for shape in shapes:
        placed: list[Entry] = []
        for number in range(shape.instances):
            placed += _one_instance(readable, shape, [task["host"] for task in (*tasks, *placed)])
            if len(placed) < shape.request.replicas * (number + 1):
                return [], (shape, len(placed))
        tasks += [{"name": shape.name, **task} for task in placed]
    return tasks, None


def _one_instance(hosts: Mapping[str, Host], shape: Shape, used: Sequence[str]) -> list[Entry]:
    """Return the tasks of a shape once, as many as have a place, and take away from hosts what they get."""
    ranking, _refused = _place.ranked(hosts, shape.request)
    if not shape.request.superpod:
        return _place.tasks_of(ranking)
    try:
        chosen = affinity.hosts_for(hosts, ranking.ordered(), shape.request, used) or ()
        return [_place.put(fit(hosts[name], shape.request), ranking) for name in chosen]
    except ValueError:
        return []


def _anyhow(hosts: Mapping[str, Any], shapes: list[Shape]) -> list[Entry]:
    """Return the tasks of all shapes in any placement that has room for them; none if there is no such. Raises :class:`OutOfSteps`."""
    readable, _unreadable = _place.read_all(hosts)
    rankings = [_place.ranked(readable, shape.request)[0] for shape in shapes]
    requests = [shape.request for shape in shapes]
    if any(request.superpod for request in requests):
        single = [request if request.superpod else replace(request, replicas=1) for request in requests]
        numbers = [shape.instances if shape.request.superpod else shape.tasks for shape in shapes]
        placement = anywhere(readable, single, numbers) or {}
    else:
        placement = search(readable, requests) or {}
    return [
        {"name": shapes[index].name, "task": 0, **_place.put(fit(readable[name], requests[index]), rankings[index])}
        for name, order in placement.items()
        for index in order
    ]


def _message(shapes: list[Shape], tasks: list[Entry], missing: tuple[Shape, int] | None, fitting: Mapping[str, int], limit: int = 0) -> str:
    """Return the answer in words. With ``limit``, the search ended after so many steps without a placement."""
    if tasks or missing is None:
        placed = (f"{shape.title} on {_place.hosts_by_name([task for task in tasks if task['name'] == shape.name])}" for shape in shapes)
        return f"The job can run: {'; '.join(placed)}."
    shape, room = missing
    if limit:
        return (
            f"No placement of the job was found within the limit of {limit} steps; it may have one. Tried first, "
            f"{shape.title} found room for {room} of {shape.tasks}. Ask for fewer tasks or shapes, or name fewer hosts."
        )
    if not fitting[shape.name]:
        return f"The job cannot run: no host can take {shape.title}, with its reason in refused."
    others = " and ".join(other.name for other in shapes if other.name != shape.name)
    alongside = f" alongside {others}" if others else ""
    return (
        f"The job cannot run, because its tasks run together or not at all: {shape.title}{alongside} would find room for {room} of "
        f"{shape.tasks}."
    )

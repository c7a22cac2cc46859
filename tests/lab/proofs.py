# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All proofs that the lab can give: each test on each release, image and architecture that it applies to.

``python -m tests.lab.proofs`` lists their CPU seconds, machines and ids. ``--core`` lists the core tests on Debian 12 only. ``--run ID...``
runs proofs, as ``--run core`` runs the core ones, and prints the result of each test. ``LAB_MINUTES`` limits how long tests are begun.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SUITES = ("bullseye", "bookworm", "trixie", "testing")
IMAGES = ("engines", "engines-v1", "selinux")
SOAK = "test_soak.py::test_soak"
SOAK_MINUTES = 5
USUAL = 60
SECONDS = {name: int(seconds) for seconds, name in map(str.split, (HERE / "seconds.txt").read_text().splitlines())}
"""CPU seconds of tests, of QEMU without KVM, after the start of their machines: of all others :data:`USUAL`. Not all were measured: a
playbook takes some 12, a reboot 50."""
SECONDS[SOAK] = 60 * SOAK_MINUTES + 60
STARTS = {"image": 75, "a2": 60, "a3": 60, "eight": 90, "odd": 60, "nvme": 0, "engines": 90, "engines-v1": 90}
"""CPU seconds of an image, and of the first boot and bind of each machine: of all others :data:`USUAL`. One that cannot be saved boots in
each test."""
OPTIONS = ["-v", "--no-fold-skipped", "-o", "addopts=", "-p", "no:cacheprovider", "--durations=0", "--durations-min=5"]
SIDE_BY_SIDE = ("-n", "2", "--maxschedchunk=1")
NOT_NEEDED = [f"-pno:{name}" for name in ("xdist", "rerunfailures", "hypothesispytest", "terminal", "cacheprovider")]


class Proof(NamedTuple):
    """A test in an environment: its id, variables and pytest's arguments, the CPU seconds that it takes, and its machine."""

    id: str
    environment: dict[str, str]
    arguments: list[str]
    seconds: int
    shape: str
    core: bool


@functools.cache
def proofs() -> list[Proof]:
    """Return all proofs. Pytest collects the tests once for each kind of image, side by side."""
    environments = [{}, *({"LAB_IMAGE": name} for name in IMAGES)]
    processes = [
        subprocess.Popen([sys.executable, "-m", __spec__.name, "--collect"], cwd=REPOSITORY, env=_with(environment), stdout=subprocess.PIPE)
        for environment in environments
    ]
    found = []
    for environment, process in zip(environments, processes, strict=True):
        output, _none = process.communicate()
        if process.returncode:
            raise RuntimeError(f"pytest could not collect the tests of the lab with {environment}")
        for test in json.loads(output.splitlines()[-1]):
            found += _of_test(environment, **test)
    return found


def _with(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process, without what this one has of the lab."""
    others = {name: value for name, value in os.environ.items() if name not in ("LAB_ARCH", "LAB_IMAGE", "LAB_SUITE")}
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "build"), os.environ.get("PYTHONPATH")]))
    return {**others, "PYTHONPATH": path, **environment}


def _of_test(environment: dict[str, str], test: str, shape: str, suites: Sequence[str], marks: Sequence[str]) -> list[Proof]:
    """Return the proofs by a test: on each release it is for and on aarch64, or on the image of its environment."""
    variables = {"SOAK_MINUTES": str(SOAK_MINUTES)} if "soak" in marks else {}
    places = dict.fromkeys(environment.values(), environment) or {suite: {"LAB_SUITE": suite} for suite in suites}
    if "architecture" in marks and not environment:
        places["arm64"] = {"LAB_ARCH": "arm64"}
    name = test.removeprefix("tests/lab/")
    return [
        Proof(f"{place}:{name}", where | variables, [test], SECONDS.get(name, USUAL), shape, "core" in marks and place == "bookworm")
        for place, where in places.items()
    ]


def cost(chosen: Iterable[Proof]) -> int:
    """Return the CPU seconds of proofs together, with the image of each environment and the start of each machine, where none is kept."""
    proved = list(chosen)
    places = {proof.id.partition(":")[0] for proof in proved}
    machines = {(proof.id.partition(":")[0], proof.shape) for proof in proved}
    starts = sum(STARTS.get(shape, USUAL) for _place, shape in machines)
    return STARTS["image"] * len(places) + starts + sum(proof.seconds for proof in proved)


def run(chosen: Sequence[Proof], minutes: int = 0) -> int:
    """Run proofs: those on machines of many kinds by two processes, and then one process for each other environment, two at a time."""
    until = time.monotonic() + 60 * minutes
    groups: dict[tuple, list[str]] = {}
    for proof in chosen:
        groups.setdefault(tuple(sorted(proof.environment.items())), []).extend(proof.arguments)

    def begin(group: tuple, workers: Sequence[str] = ()) -> int:
        environment = dict(group)
        left = max(int(until - time.monotonic()) // 60, 0) or -1
        kind = ["-rsRP", "--reruns=0"] if "SOAK_MINUTES" in environment else ["-rsR", "--reruns=1"]
        options = [*OPTIONS, *kind, *workers, f"--lab-minutes={left if minutes else 0}"]
        command = [sys.executable, "-m", "pytest", *options, *groups[group]]
        setup = subprocess.run(["tests/lab/setup", environment.get("LAB_ARCH", "amd64")], cwd=REPOSITORY, check=False)
        output = None if workers else subprocess.PIPE
        ended = subprocess.run(command, cwd=REPOSITORY, env=_with(environment), stdout=output, text=True, check=False)
        print(ended.stdout or "", end="", flush=True)
        return setup.returncode or ended.returncode

    several = [group for group in groups if not {"LAB_IMAGE", "SOAK_MINUTES"} & set(dict(group))]
    statuses = [begin(group, SIDE_BY_SIDE) for group in several]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        statuses += pool.map(begin, [group for group in groups if group not in several])
    return max(statuses, default=0)


def collect() -> int:
    """Print what pytest collects in this environment, as JSON."""
    import pytest

    from tests.lab.conftest import shape_of

    class Collected:
        def pytest_collection_finish(self, session):
            tests = []
            for item in session.items:
                marks = [mark.name for mark in item.iter_markers()]
                named = item.get_closest_marker("suites")
                if not any(mark.args[0] for mark in item.iter_markers("skipif")):
                    suites = named.args if named else SUITES
                    tests.append({"test": item.nodeid, "shape": shape_of(item).name, "suites": suites, "marks": marks})
            print(json.dumps(tests))

    return pytest.main([*NOT_NEEDED, "-o", "addopts=", "--collect-only", "tests/lab"], plugins=[Collected()])


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--collect"]:
        return collect()
    by_id = {proof.id: proof for proof in proofs()}
    core = [proof for proof in by_id.values() if proof.core]
    if arguments[:1] == ["--run"]:
        lacking = [name for name in arguments[1:] if name != "core" and name not in by_id]
        if lacking:
            print(f"no such proof: {', '.join(lacking)}; python -m tests.lab.proofs lists all", file=sys.stderr)
            return 2
        chosen = {name: by_id[name] for name in arguments[1:] if name != "core"}
        chosen |= {proof.id: proof for proof in core if "core" in arguments}
        return run(list(chosen.values()), int(os.environ.get("LAB_MINUTES") or 0))
    listed = core if arguments == ["--core"] else list(by_id.values())
    print("\n".join(f"{proof.seconds:4} {proof.shape:10} {proof.id}" for proof in listed))
    print(f"{len(listed)} proofs take {cost(listed)} CPU seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

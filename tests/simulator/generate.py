# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn a short machine description in YAML into a directory tree of sysfs, procfs and working vendor tools.

    python -m tests.simulator.generate MACHINE.yml TARGET
    python -m tests.simulator.generate --fleet FLEET.yml FOLDER

MACHINE is a file, or the name of one in ``machines/``. A tree is written when there is none, or when the description or the simulator
changed since; otherwise it is left as it is, with everything that was done to it. To change a tree's faults, its device share or its cards
afterwards see ``faults.py``, to restart it ``reboot.py``.

The languages of machines and fleets: ``README.md``.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import yaml

from . import cpu, driver, irq, proc
from .machine import resolve
from .tree import Tree

HERE = pathlib.Path(__file__).parent
ORIGIN = "simulator/origin.json"
VOLATILE = "simulator/volatile.json"
DEFAULT_GROUP = "npu_hosts"

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(machine: str | os.PathLike) -> dict[str, Any]:
    """Return the description in a file, or in the one of that name in ``machines/``."""
    path = pathlib.Path(machine)
    if not path.suffix:
        path = HERE / "machines" / ("%s.yml" % machine)
    if not path.is_file():
        names = ", ".join(sorted(found.stem for found in (HERE / "machines").glob("*.yml")))
        raise ValueError("there is no machine description %s; name a file or one of %s" % (machine, names))
    description = _parse(path)
    return merge(load(description.pop("like")), description) if "like" in description else description


def _parse(path: pathlib.Path) -> dict[str, Any]:
    with path.open() as file:
        return yaml.load(file, Loader=_Loader)


def generate(machine: dict[str, Any] | str | os.PathLike, target: str | os.PathLike) -> None:
    """Write a machine's tree to a directory, unless the same one is there already.

    Raises ``ValueError`` when the description is wrong, or when the directory holds something else.
    """
    description = machine if isinstance(machine, dict) else load(machine)
    target = pathlib.Path(target).absolute()
    origin = {"description": description, "simulator": _simulator_digest()}
    origin = json.loads(json.dumps(origin, default=str))
    if target.exists():
        if not (target / ORIGIN).is_file() and any(target.iterdir()):
            raise ValueError("%s is not a simulated host's tree and not empty: name another directory or remove it" % target)
        if (target / ORIGIN).is_file() and json.loads((target / ORIGIN).read_text()) == origin:
            return
    resolved = resolve(description)
    target.parent.mkdir(parents=True, exist_ok=True)
    before = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix=".%s-" % target.name, dir=target.parent) as work:
            new, old = os.path.join(work, "new"), os.path.join(work, "old")
            tree = Tree(new)
            for writer in (cpu, irq, proc, driver):
                writer.write(tree, resolved)
            tree.write("/" + VOLATILE, json.dumps(tree.volatile))
            tree.write("/" + ORIGIN, json.dumps(origin, indent=1))
            if target.exists():
                os.rename(target, old)
            os.rename(new, target)
    finally:
        os.umask(before)


def _simulator_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def merge(description: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a description with a change laid over it: mappings are merged, every other value is replaced."""
    result = copy.deepcopy(description)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if both else copy.deepcopy(value)
    return result


def generate_fleet(fleet: str | os.PathLike, folder: str | os.PathLike) -> None:
    """Write the trees of a fleet file's hosts, and their Ansible inventory."""
    path = pathlib.Path(fleet)
    folder = pathlib.Path(folder).absolute()
    groups: dict[str, dict[str, Any]] = {}
    for name, entry in _parse(path)["hosts"].items():
        generate(merge(load(entry["machine"]), entry.get("change", {})), folder / name)
        group = groups.setdefault(entry.get("group", DEFAULT_GROUP), {"hosts": {}})
        group["hosts"][name] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "npu_affinity_root": str(folder / name),
            **entry.get("vars", {}),
        }
    head = "# Managed by npu.affinity: simulated hosts of %s, each a directory tree next to this file.\n" % path.name
    (folder / "inventory.yml").write_text(head + yaml.safe_dump(groups, sort_keys=False))


if __name__ == "__main__":
    try:
        (generate_fleet if sys.argv[1] == "--fleet" else generate)(*sys.argv[-2:])
    except ValueError as error:
        sys.exit(str(error))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The summary of a bind in docs/first-bind.md: ``python -m tests.transcripts --write`` updates it."""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile

import yaml

from tests.integration import controller
from tests.integration.conftest import REPOSITORY, Fleet
from tests.simulator.generate import load, merge

FIRST_BIND = REPOSITORY / "docs/first-bind.md"
HOST = "a2-01"


def fleet(folder: pathlib.Path, *names: str) -> Fleet:
    """Return the demo fleet below a folder, or only hosts of these names."""
    demo = yaml.safe_load((REPOSITORY / "tests/simulator/fleet.yml").read_text())["hosts"]
    demo = {name: host for name, host in demo.items() if name in names or not names}
    hosts = Fleet(folder, {name: merge(load(host["machine"]), host.get("change", {})) for name, host in demo.items()})
    hosts.give({name: host["vars"] for name, host in demo.items() if "vars" in host})
    (folder / "group.yml").write_text(yaml.safe_dump({"npu_hosts": {"hosts": dict.fromkeys(demo)}}))
    return hosts


def transcript(hosts: Fleet, playbook: str, *arguments: str) -> str:
    """Run a playbook over the demo fleet, and return what it prints."""
    places = {"report": "report.html", "archives": "archives", "placement_file": "placement.json"}
    variables = {f"npu_affinity_{name}": str(hosts.folder / place) for name, place in places.items()}
    run = hosts.play(playbook, "-i", str(hosts.folder / "group.yml"), *arguments, **variables)
    assert run.status == 0, run.output
    return _alike_everywhere(run.output, hosts.folder)


def _alike_everywhere(output: str, folder: pathlib.Path) -> str:
    """Return an output with the same paths wherever the demo fleet is."""
    text = output.replace(f" -i {folder}/group.yml", "").replace(f"{folder}/inventory.yml", "hosts.yml").replace(f"{folder}/", "")
    return re.sub(r"(hosts\.yml) \S*playbooks/(\w+)\.yml", r"\1 npu.affinity.\2", text)


def first_bind(hosts: Fleet) -> str:
    """Bind a demo host, and return docs/first-bind.md with the summary."""
    (summary,) = re.findall(r"^SUMMARY of .*?\n(?=\n)", transcript(hosts, "bind", "--limit", HOST), flags=re.DOTALL | re.MULTILINE)
    part = r"(?<=^```\n)SUMMARY of bind, .*?(?=^```$)"
    made, times = re.subn(part, lambda _old: summary, FIRST_BIND.read_text(), count=1, flags=re.DOTALL | re.MULTILINE)
    if not times:
        raise ValueError(f"{FIRST_BIND} has no place for the summary of a bind")
    return made


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = first_bind(fleet(pathlib.Path(folder)))
    controller.close()
    if "--write" in sys.argv[1:]:
        FIRST_BIND.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()

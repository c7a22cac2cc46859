# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbooks print, for docs/transcripts.md and docs/measure.md: ``python -m tests.transcripts --write`` brings them up to date."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

from tests.integration import controller
from tests.integration.conftest import REPOSITORY, Fleet
from tests.simulator.generate import load

PAGE = REPOSITORY / "docs/transcripts.md"
MEASURE = REPOSITORY / "docs/measure.md"
SHOWN = {
    "plan": ("plan", ["--limit", "a2-01,a2-02"], "two hosts alone"),
    "bind --check": ("bind", ["--check", "--limit", "a2-01,duo-01"], "two hosts alone"),
    "bind": ("bind", [], ""),
    "bind, again": ("bind", ["--limit", "a2-01,duo-01"], "two hosts alone, which are as planned"),
    "verify": ("verify", ["--limit", "a2-01,duo-01"], "two hosts alone"),
    "history": ("history", ["--limit", "a2-01"], "one host alone"),
    "rollback --check": (
        "rollback",
        ["--check", "--limit", "a2-01,duo-01", "-e", "npu_affinity_to=1"],
        "two hosts alone, with `-e npu_affinity_to=1`",
    ),
    "report": ("report", ["--limit", "a2-01,duo-01"], "two hosts alone"),
    "collect": ("collect", ["--limit", "a2-01"], "one host alone"),
    "inspect": ("inspect", [], "what collect made, with `-e npu_affinity_archive=archives`"),
    "place": (
        "place",
        ["-e", '{"npu_affinity_request": {"npus": 2, "cpus": 32}}'],
        "a job of two NPUs and 32 CPUs, with `-e npu_affinity_placement_file=placement.json`",
    ),
    "unbind": ("unbind", ["--limit", "a2-01,duo-01"], "two hosts alone, with `-e npu_affinity_confirm=yes`"),
}
"""Title: playbook, arguments, and what is said of it."""
OF_A_HOST = re.compile(r"(changed|ok): \[|\S+: (\d+ of \d+ compared|.* entry \d+ of)")
"""Lines that come in the order in which hosts are done."""


def fleet(folder: pathlib.Path) -> Fleet:
    """Return the demo fleet below a folder."""
    demo = yaml.safe_load((REPOSITORY / "tests/simulator/fleet.yml").read_text())["hosts"]
    hosts = Fleet(folder, {name: {**load(host["machine"]), **host.get("change", {})} for name, host in demo.items()})
    hosts.give({name: host["vars"] for name, host in demo.items() if "vars" in host})
    (folder / "group.yml").write_text(yaml.safe_dump({"npu_hosts": {"hosts": dict.fromkeys(demo)}}))
    return hosts


def transcript(hosts: Fleet, title: str) -> str:
    """Run a playbook, and return what it prints."""
    playbook, arguments, _remark = SHOWN[title]
    places = {"npu_affinity_report": "report.html", "npu_affinity_archives": "archives", "npu_affinity_archive": "archives"}
    places["npu_affinity_placement_file"] = "placement.json"
    variables = {name: str(hosts.folder / place) for name, place in places.items()}
    run = hosts.play(playbook, "-i", str(hosts.folder / "group.yml"), *arguments, **variables)
    assert run.status == 0, run.output
    return _alike_everywhere(run.output, hosts.folder)


def _alike_everywhere(output: str, folder: pathlib.Path) -> str:
    """Return an output without what differs from run to run, place to place, and with every task that is added."""
    text = output.replace(f" -i {folder}/group.yml", "").replace(f"{folder}/inventory.yml", "hosts.yml")
    text = text.replace(f"{REPOSITORY}/playbooks/", "").replace(f"{folder}/", "")
    text = re.sub(r"(hosts\.yml) playbooks/(\w+)\.yml", r"\1 npu.affinity.\2", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-11-22T13:30:00Z", text)
    text = re.sub(r"(bind|rollback) by \S+, npu", r"\1 by alice, npu", text)
    text = re.sub(r"^(\S+ +): ok=.*(changed=\d+).*(failed=\d+).*", r"\1: \2 \3", text, flags=re.MULTILINE)
    text = re.sub(r"^(included: .* for )(.*)$", lambda found: found[1] + ", ".join(sorted(found[2].split(", "))), text, flags=re.MULTILINE)
    lines: list[str] = []
    for of_a_host, grouped in itertools.groupby(text.strip().splitlines(), lambda line: bool(OF_A_HOST.match(line))):
        group = list(grouped)
        lines += sorted(group) if of_a_host else group
    return "".join(f"{line.rstrip()}\n" for line in lines)


def section(title: str, output: str) -> str:
    """Return the part of the document on one run."""
    playbook, arguments, remark = SHOWN[title]
    command = f"`ansible-playbook -i hosts.yml npu.affinity.{playbook}{' --check' if '--check' in arguments else ''}`"
    return f"\n## {title}\n\n{f'Of {remark}. ' if remark else ''}{command}\n\n```\n{output}```\n"


def page(hosts: Fleet) -> str:
    """Return the document."""
    text = [
        "# What the playbooks print\n\n"
        "Over the demo fleet of six simulated hosts, with the `ansible.cfg` of the checkout, which shows only what changed or failed. The\n"
        "counters of the recap are shortened. This page is made by the code (`python -m tests.transcripts --write`), and a test "
        "compares it.\n"
    ]
    text += [section(title, transcript(hosts, title)) for title in SHOWN]
    return "".join(text)


def measured(folder: pathlib.Path) -> str:
    """Return what ``make measure`` prints, which counts processes of this machine."""
    command = [sys.executable, "-m", "tests.simulator.load", str(folder)]
    environment = {**os.environ, "MAKELEVEL": "1", "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    environment["ANSIBLE_COLLECTIONS_PATH"] = str(REPOSITORY / "build")
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return re.sub(r"^(\S+ +): ok=.*", r"\1: changed=0 failed=0", run.stdout, flags=re.MULTILINE)


def with_measured(document: str, output: str) -> str:
    """Return docs/measure.md with this output."""
    return re.sub(r"(?<=\n## Try it\n\n```\n).*?(?=```\n)", lambda _old: f"$ make measure\n{output}", document, count=1, flags=re.DOTALL)


def skeleton(document: str) -> list[str]:
    """Return how the lines of a document begin, each once, up to their first number: they are the same wherever it was made."""
    return list(dict.fromkeys(re.split(r"  +|\d", line.strip())[0].strip() for line in document.splitlines()))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = page(fleet(pathlib.Path(folder)))
        measure = with_measured(MEASURE.read_text(), measured(pathlib.Path(folder, "measures")))
    controller.close()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text)
        MEASURE.write_text(measure)
    else:
        print(text, measure, sep="\n")


if __name__ == "__main__":
    main()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every ansible-playbook command in the documents is run over one simulated host."""

from __future__ import annotations

import json
import os
import shlex
import shutil

import pytest

from tests.unit.docs.test_commands import PAGES, commands

ORDER = ["plan", "bind", "verify", "measure", "history", "collect", "inspect", "report", "place", "rollback", "unbind"]
RUN, TIME = "20261121T100150-03c1", "2026-11-21T18:00"
"""Of a rollback in the documents. The host has another run, which began at another time."""
FOLDERS = ["before", "after", "runs/2026-11-20", "runs/2026-11-21", "site-a"]
"""Of reports, which commands of documents read."""


def typed():
    """The commands of all documents, each once, in an order in which they find what they need: ``(playbook, its arguments)``."""
    found = {}
    for page in PAGES:
        for words in commands(page.read_text()):
            playbooks = [word for word in words if word.startswith("npu.affinity.")]
            if words[0] == "ansible-playbook" and len(playbooks) == 1:
                arguments = words[1:]
                arguments.remove(playbooks[0])
                if "-i" in arguments:
                    del arguments[arguments.index("-i") : arguments.index("-i") + 2]
                found[playbooks[0].removeprefix("npu.affinity."), tuple(arguments)] = True
    return sorted(found, key=lambda command: ORDER.index(command[0]))


@pytest.mark.long
def test_the_commands_of_all_documents(fleet, tmp_path, monkeypatch):
    monkeypatch.setenv("PWD", str(tmp_path))
    hosts = fleet(node001="i310_pro")
    for housekeeping in ("", "0", "0-1"):
        hosts.succeed("bind", npu_affinity_housekeeping=housekeeping)
    hosts.succeed("verify", npu_affinity_reports=str(tmp_path / "reports"))
    for folder in FOLDERS:
        shutil.copytree(tmp_path / "reports", tmp_path / folder)
    (tmp_path / "site-b").mkdir()
    record = json.loads((tmp_path / "site-a/node001.json").read_text())
    (tmp_path / "site-b/node002.json").write_text(json.dumps({**record, "host": "node002"}))
    second = json.loads((hosts.tree("node001") / "etc/npu-affinity/history/2.json").read_text())["run"]
    shown, failed = typed(), []
    for playbook, arguments in shown:
        line = shlex.join(arguments).replace(RUN, second["id"]).replace(TIME, second["time"])
        run = hosts.play(playbook, *shlex.split(line), npu_affinity_measure_seconds=1)
        if run.status:
            failed.append(f"{playbook} {line}: {run.output}")
    assert failed == [], os.linesep.join(failed)
    assert len(shown) > 30 and all(example in str(shown) for example in (RUN, TIME))

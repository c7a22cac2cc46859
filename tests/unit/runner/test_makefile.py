# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What targets of the Makefile pass to ansible-playbook, in a checkout whose path has a blank."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.documents import REPOSITORY

PLAYBOOK = f"""#!{os.path.realpath(sys.executable)} -IS
import json, os, sys
print(json.dumps({{"arguments": sys.argv[1:], "config": os.environ["ANSIBLE_CONFIG"]}}))
"""


@pytest.fixture
def make(tmp_path):
    """Runs a target, and returns what ansible-playbook gets: its arguments, and the variables of ``-e`` in one mapping."""
    checkout = tmp_path / "a checkout"
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / "tests").mkdir()
    (checkout / ".venv/bin/ansible-playbook").write_text(PLAYBOOK)
    (checkout / ".venv/bin/ansible-playbook").chmod(0o755)
    (checkout / ".venv/bin/python").symlink_to(sys.executable)
    shutil.copy(REPOSITORY / "Makefile", checkout)
    (checkout / "tests/find-python").symlink_to(REPOSITORY / "tests/find-python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MAKE", "MFLAGS"))}

    def run(target, **variables):
        command = ["make", "--silent", *(f"--old-file={name}" for name in (".venv/run.stamp", "fleet", "site")), target]
        command += [f"{name}={value}" for name, value in variables.items()]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        arguments = found["arguments"]
        given = [value for option, value in zip(arguments, arguments[1:], strict=False) if option == "-e"]
        extra = {name: value for text in given for name, value in json.loads(text).items()}
        return checkout, found, extra

    return run


FILES = [
    ("verify", {"reports": "build/reports"}),
    ("report", {"report": "build/report.html", "measures": "build/measures"}),
    ("collect", {"archives": "build/archives"}),
    ("inspect", {"archives": "build/archives", "report": "build/inspect.html"}),
    ("measure", {"measures": "build/measures"}),
    ("place", {"placement_file": "build/placement.json"}),
]


@pytest.mark.parametrize(("target", "places"), FILES, ids=[target for target, _places in FILES])
def test_files_lie_in_a_checkout_whose_path_has_a_blank(make, target, places):
    inventory = "an inventory/hosts.yml"
    checkout, found, extra = make(target, INVENTORY=inventory)
    assert {name: value for name, value in extra.items() if name != "npu_affinity_request"} == {
        f"npu_affinity_{name}": f"{checkout}/{place}" for name, place in places.items()
    }
    assert found["arguments"][found["arguments"].index("-i") + 1] == inventory
    assert found["arguments"][-1] == f"playbooks/{target}.yml"


def test_paths_with_blanks_are_passed_as_they_are(make):
    checkout, _found, extra = make("place", FACTS="../the facts")
    assert extra["npu_affinity_facts"] == f"{checkout.parent}/the facts"
    assert make("place")[2]["npu_affinity_facts"] == f"{checkout}/build/site/facts"
    assert make("inspect", ARCHIVE="/an archive")[2]["npu_affinity_archives"] == "/an archive"


def test_the_configuration_next_to_an_inventory_comes_first(make, tmp_path):
    (tmp_path / "the site").mkdir()
    (tmp_path / "the site/ansible.cfg").write_text("")
    for inventory in ("../the site/hosts.yml", "../the site/", f"{tmp_path}/the site/hosts.yml"):
        assert make("report", INVENTORY=inventory)[1]["config"] == f"{tmp_path}/the site/ansible.cfg"

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkout works with nothing but ansible-core: no make, no environment variables, no installed collection.

With make and an inventory of the user's, the user's ansible.cfg and collections hold.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import REPOSITORY

CALLBACK = """
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = "name: greeting\\ntype: notification\\nshort_description: A greeting\\ndescription: [A greeting.]"


class CallbackModule(CallbackBase):
    CALLBACK_NAME = "site.tools.greeting"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook):
        self._display.display("the collection of the site is here")
"""


def run(*command):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MAKE", "MFLAGS")) and name != "PYTHONPATH"
    }
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300, check=False)


def ansible_playbook(*arguments):
    return run(str(Path(sys.executable).parent / "ansible-playbook"), *arguments)


def test_ansible_playbook_from_a_checkout(fleet):
    hosts = fleet(i310="i310_pro", other="i310_pro")
    done = ansible_playbook("-i", str(hosts.inventory), "bind.yml", "--check", "--limit", "i310")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    assert "no group npu_hosts, so all of its hosts are used: 2 hosts." in done.stderr


def test_a_checkouts_tarball_installs_as_the_readme_says(tmp_path):
    checkout, home = tmp_path / "npu.affinity", tmp_path / "home"
    listed = subprocess.run(["tests/list-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, checkout / name, follow_symlinks=False)
    home.mkdir()
    (row,) = re.findall(r"^\| a tarball \| (.*) \|$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_") and name != "PYTHONPATH"}
    environment |= {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
    command = " && ".join(re.findall(r"`(.*?)`", row)).replace("collection install", "collection install --offline")
    done = subprocess.run(["sh", "-c", command], cwd=checkout, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing to do" not in done.stdout
    assert (home / ".ansible/collections/ansible_collections/npu/affinity/MANIFEST.json").is_file()


def test_make_with_an_inventory_takes_the_set_up_of_the_user(fleet, tmp_path):
    hosts = fleet(i310="i310_pro")
    callbacks = tmp_path / "collections/ansible_collections/site/tools/plugins/callback"
    callbacks.mkdir(parents=True)
    (callbacks / "greeting.py").write_text(CALLBACK)
    (tmp_path / "ansible.cfg").write_text("[defaults]\ncollections_path = collections\ncallbacks_enabled = site.tools.greeting\n")
    done = run("make", "--old-file=.venv/run.stamp", "report", f"INVENTORY={hosts.inventory}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the collection of the site is here" in done.stdout

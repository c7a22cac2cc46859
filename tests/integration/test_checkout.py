# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkout works with nothing but ansible-core: no make, no environment variables, no installed collection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import REPOSITORY


def test_ansible_playbook_from_a_checkout(fleet):
    hosts = fleet(i310="i310_pro")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_") and name != "PYTHONPATH"}
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(hosts.inventory), "bind.yml", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout

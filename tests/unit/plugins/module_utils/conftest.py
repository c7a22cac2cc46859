# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every test of the host code needs: a tree written from a table, and a tool that answers from a table."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from tests.fakes.programs import TOOL


class Tree:
    """A machine's tree below a temporary directory; ``host`` is what the code under test gets."""

    def __init__(self, root):
        self.root = str(root)
        self.host = Host(self.root, timeout=10)

    def write(self, files):
        """Write ``{path: text}``; a newline is added, as the kernel does. Text None makes a directory."""
        for path, text in files.items():
            target = self.root + path
            os.makedirs(target if text is None else os.path.dirname(target), exist_ok=True)
            if text is not None:
                with open(target, "w") as file:
                    file.write(str(text) + "\n")
        return self.host

    def tool(self, path, answers):
        """Write an executable that answers its arguments, joined by blanks, with a text or ``{text, rc, sleep}``."""
        target = self.root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w") as file:
            file.write("#!%s -IS\n%s" % (os.path.realpath(sys.executable), TOOL))
        os.chmod(target, os.stat(target).st_mode | stat.S_IXUSR)
        answers = {words: answer if isinstance(answer, dict) else {"text": answer} for words, answer in answers.items()}
        with open(target + ".json", "w") as file:
            json.dump(answers, file)
        return target

    def calls(self, path):
        """Return the arguments of every call of a tool, in order."""
        try:
            with open(self.root + path + ".calls") as file:
                return file.read().splitlines()
        except OSError:
            return []


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def generate():
    """Writes the tree of a simulated host."""
    if sys.version_info < (3, 11):
        pytest.skip("the simulator needs Python 3.11")
    from tests.simulator.generate import generate

    return generate

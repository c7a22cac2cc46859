# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules of the tests' Ansible run as they do in a process of their own: what they get, what they say, and how they end."""

from __future__ import annotations

import json
import sys

PROGRAM = """
import json, os, sys
here = {"folder": os.getcwd(), "word": os.environ["WORD"], "controller": "ansible.cli" in sys.modules, "rest": sys.stdin.read()}
print(json.dumps({**here, "name": __name__}))
print("said aside", file=sys.stderr)
"""
ENDS = {"": 0, "sys.exit(3)": 3, "raise ValueError('no')": 1, "os.kill(os.getpid(), 9)": 255}


def test_a_program_that_is_handed_over_ends_as_it_would_alone(fleet, tmp_path):
    hosts = fleet()
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": []}]
    for number, end in enumerate(ENDS):
        (tmp_path / f"{number}.py").write_text(PROGRAM + end)
        command = f"cd {tmp_path}; WORD='two words' '{sys.executable}' < {number}.py"
        play[0]["tasks"].append({"ansible.builtin.shell": command, "ignore_errors": True})
    (tmp_path / "play.yml").write_text(json.dumps(play))
    run = hosts.succeed(str(tmp_path / "play.yml"))
    for entry, (end, status) in zip(run.of("localhost"), ENDS.items(), strict=True):
        result = entry["result"]
        assert result["rc"] == status, (end, result)
        if status != 255:
            here = {"folder": str(tmp_path), "word": "two words", "name": "__main__", "controller": False, "rest": ""}
            assert json.loads(result["stdout"]) == here
            assert result["stderr"].splitlines()[0] == "said aside"
            assert ("ValueError: no" in result["stderr"]) is (status == 1)

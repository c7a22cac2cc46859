# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions: text files of commands with what they print. Below the head, "# claim" begins a session, "$ " a command; "..." is any text."""

import doctest
import pathlib

import pytest


def sessions(path):
    """Return the sessions of a file as parameters of a test: the claim, and the commands with what they print."""
    found = []
    for text in pathlib.Path(path).read_text().partition("\n\n")[2].split("\n# "):
        claim, *commands = text.removeprefix("# ").rstrip("\n").split("\n$ ")
        found.append(pytest.param(claim, [command.partition("\n")[::2] for command in commands], id=claim.partition(" (")[0]))
    return found


def replay(commands, answer, options=doctest.ELLIPSIS):
    """Give every command to a function, and compare what it returns."""
    for command, expected in commands:
        found = answer(command).rstrip("\n")
        assert doctest.OutputChecker().check_output(expected, found, options), f"$ {command}\n{found}\n--- expected:\n{expected}"

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other tests take for a host: its numbers of CPUs and nodes, and what npu-smi says and does, as the published one."""

import contextlib
import doctest
import io
import json
import pathlib
from stat import filemode

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from tests.fakes.sessions import replay, sessions
from tests.simulator import driver
from tests.simulator import npu_smi as program
from tests.simulator.faults import lose_card, set_faults
from tests.simulator.generate import generate, load, merge
from tests.simulator.reboot import reboot


def small(machine):
    """Return a machine's description with four CPUs a node, for tests that have nothing to do with CPUs."""
    return merge(load(machine), {"cpus": {"per_node": 4, "cores_per_cluster": 2}})


def npu_smi(tree, words, stdin, uid):
    """Return what the tree's npu-smi prints, with an exit status other than 0. It runs in this process, as Python starts slowly."""
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setenv("NPU_SMI_UID", str(uid))
        patch.setattr("sys.stdin", io.StringIO(stdin))
        status = program.main(str(tree), words.split())
    return output.getvalue() + f"[{status}]" * bool(status)


def answer(tree, command):
    """Return what a command of a session prints."""
    command, _typed, typed = command.partition(" <<<")
    word, _blank, rest = command.partition(" ")
    if word == "faults":
        set_faults(tree, **json.loads(rest))
    elif word == "lose":
        lose_card(tree, int(rest))
    elif word == "reboot":
        reboot(tree)
    elif word == "shared":
        state = tree / driver.SHARE_STATE[1:]
        return state.read_text() if state.exists() else "[]"
    elif word == "cat":
        found = [Host(tree).read(f"/sys/devices/system/{path}") for path in rest.split()]
        return "; ".join("none" if text is None else text for text in found)
    elif word == "ls":
        path = tree / rest
        return filemode(path.stat().st_mode) if path.exists() else "none"
    else:
        user, _words, words = command.partition("npu-smi")
        return npu_smi(tree, words, typed.strip().replace(",", "\n") + "\n" * bool(typed), int(user.partition("=")[2] or 0))
    return ""


@pytest.mark.parametrize("claim, commands", sessions(pathlib.Path(__file__).with_name("sessions.txt")))
def test_a_session(tmp_path, claim, commands):
    machine = claim.rpartition("(")[2].rstrip(")")
    generate(machine.removeprefix("whole ") if machine.startswith("whole") else small(machine), tmp_path)
    replay(commands, lambda command: answer(tmp_path, command), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)

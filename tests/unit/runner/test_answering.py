# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""npu-smi that answers in the process of a test says what the program says, and a module in a fork ends as the program does."""

from __future__ import annotations

import inspect
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import host
from tests.fakes import programs
from tests.simulator.faults import set_faults
from tests.simulator.generate import generate

CALLS = [["info"], ["info", "-m"], ["set", "-t", "device-share", "-i", "0", "-d", "1"], ["unknown"], []]


def never(argv, _stdin, _limit):
    raise AssertionError(f"{argv} was started")


@pytest.fixture
def npu_smi(tmp_path):
    generate("a2_8x24", tmp_path)
    return str(tmp_path) + programs.PLACE


def test_npu_smi_answers_as_the_program_does(npu_smi, tmp_path):
    answer = programs.answering(never, host.Result)
    for words in CALLS:
        started = inspect.unwrap(host._run)([npu_smi, *words], "y\n", 60)
        assert answer([npu_smi, *words], "y\n", 60) == started
    calls = (tmp_path / "var/log/npu-smi-calls.log").read_text().splitlines()
    assert calls == [" ".join(words) for words in CALLS for _each in range(2)]


def test_answers_to_threads_do_not_mix(npu_smi):
    answer = programs.answering(never, host.Result)
    calls = [[npu_smi, *words] for words in CALLS[:2]] * 30
    alone = [answer(call, "", 60).output for call in calls[:2]] * 30
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda call: answer(call, "", 60).output, calls)) == alone
    finally:
        sys.setswitchinterval(interval)


def test_a_slow_npu_smi_is_started(npu_smi, tmp_path):
    set_faults(tmp_path, sleep=600)
    with pytest.raises(AssertionError, match="was started"):
        programs.answering(never, host.Result)([npu_smi, "info"], "", 60)


ENDS = [("pass", 0, ""), ("return 3", 3, ""), ("sys.exit(4)", 4, ""), ("raise OSError('no end')", 1, "OSError: no end")]


@pytest.mark.parametrize(("end", "status", "said"), ENDS)
def test_a_fork_ends_as_the_program_does(tmp_path, monkeypatch, end, status, said):
    text = f"import json, sys\ndef main():\n    print(json.dumps([sys.argv[1:], sys.stdin.read()]))\n    {end}\n"
    (tmp_path / f"program_{status}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    done = programs.run_main(f"program_{status}", "--root", "/", text="given\n")
    assert (done.returncode, json.loads(done.stdout)) == (status, [["--root", "/"], "given\n"])
    assert said in done.stderr and bool(said) == bool(done.stderr)

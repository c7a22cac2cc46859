# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a host between real processes."""

import contextlib
import functools
import itertools
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._state import lock, previous
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import Busy, changing

HOLDER = """
import sys
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
with changing(Host(sys.argv[1]), "npu_affinity irq"):
    print("held", flush=True)
    sys.stdin.readline()
"""
COUNTER = """
import sys
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
for number in range(20):
    with changing(Host(sys.argv[1]), "counter"):
        previous.record(Host(sys.argv[1]), "folders", ["/%s/%d" % (sys.argv[2], number)])
"""


def python(program, *arguments, **pipes):
    return subprocess.Popen([sys.executable, "-c", program, *arguments], universal_newlines=True, **pipes)


@pytest.fixture
def holder(tree):
    """A process that holds the lock until the test ends it."""
    process = python(HOLDER, tree.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def everything(tree):
    return sorted(os.path.join(folder, name) for folder, folders, files in os.walk(tree.root) for name in folders + files)


def test_the_lock_leaves_nothing_behind_and_check_mode_skips_it(tree):
    with changing(tree.host, "a"):
        assert re.match(r"a \(process %d\) since 20\d\d-.* UTC$" % os.getpid(), tree.host.read(lock.PATH))
        with changing(tree.host, "b", check=True):
            pass
    with changing(tree.host, "a"), pytest.raises(Busy), pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "LIMIT", 0)
        with changing(tree.host, "not twice in one process either"):
            pass
    assert everything(tree) == []


def test_who_waits_too_long_is_told_who_holds_it_and_since_when(tree, holder, monkeypatch):
    monkeypatch.setattr(lock, "LIMIT", 0.3)
    start = time.monotonic()
    with pytest.raises(Busy) as refused, changing(tree.host, "module unbind"):
        pytest.fail("the lock is held")
    assert 0.3 <= time.monotonic() - start < 60
    words = (
        r"npu_affinity irq \(process %d\) since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC is changing this host, and did not end within 0\.3 s"
    )
    assert re.match(words % holder.pid, str(refused.value))


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_who_waits_goes_on_when_the_holder_ends_however_it_ends(tree, holder, end):
    waiting = python(HOLDER, tree.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    time.sleep(0.5)
    assert waiting.poll() is None
    if end == "ends":
        holder.communicate("\n", timeout=60)
    else:
        holder.send_signal(signal.SIGKILL)
    assert waiting.communicate(timeout=60) == ("held\n", None)
    assert waiting.returncode == 0
    assert everything(tree) == [tree.root + "/run"] or end == "ends"
    assert not tree.host.exists(lock.PATH)


def test_many_processes_that_record_at_once_forget_nothing(tree):
    counters = [python(COUNTER, tree.root, str(number)) for number in range(4)]
    assert [counter.wait(timeout=60) for counter in counters] == [0] * 4
    assert len(previous.recorded(tree.host)["folders"]) == 80


def test_first_locks_of_a_tree_without_run_do_not_conflict(tree, monkeypatch):
    """Each holder makes the folder that is missing and takes it along: here others do so before up to three calls of the kernel."""
    folder, made, removed = tree.root + "/run", os.mkdir, os.rmdir

    def meanwhile(call, moments, *arguments, **options):
        numbers.append(len(numbers))
        with contextlib.suppress(OSError):
            if numbers[-1] in moments:
                (removed if os.access(folder, os.F_OK) else made)(folder)
        return call(*arguments, **options)

    for moments in (moments for size in range(4) for moments in itertools.combinations(range(12), size)):
        numbers = []
        with monkeypatch.context() as patch:
            for name in ("mkdir", "open", "stat", "unlink", "rmdir"):
                patch.setattr(os, name, functools.partial(meanwhile, getattr(os, name), moments))
            with changing(tree.host, "a"):
                assert tree.host.read(lock.PATH).startswith("a (process")
        with contextlib.suppress(OSError):
            removed(folder)
        assert len(numbers) >= 7 and everything(tree) == [], moments


def test_children_of_the_holder_do_not_keep_it(tree):
    with changing(tree.host, "a"):
        child = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lock, "LIMIT", 0)
            with changing(tree.host, "b"):
                pass
    finally:
        child.kill()
        child.wait()


def test_nobody_changes_a_host_whose_record_cannot_be_read(tree):
    tree.write({previous.PATH: "{"})
    for check in (True, False):
        with pytest.raises(ValueError, match="is not valid JSON"), changing(tree.host, "a", check):
            pytest.fail("the record is broken")
    assert not tree.host.exists(lock.PATH)


def test_a_place_that_cannot_be_written_is_said(tree):
    tree.write({"/run": "no folder"})
    with pytest.raises(ValueError, match=r"/run/npu-affinity.lock cannot be written \(.*\); run as root"), changing(tree.host, "a"):
        pytest.fail("there is no place for a lock")


@pytest.mark.parametrize("module", ["host_files", "unbind"])
def test_modules_that_change_a_host_read_every_features_record(tmp_path, module):
    if sys.version_info < (3, 8):
        pytest.skip("ansible-core, of which modules are parts, needs Python 3.8")
    top = "ansible_collections.npu.affinity.plugins"
    (tmp_path / "etc/npu-affinity").mkdir(parents=True)
    (tmp_path / "etc/npu-affinity/previous.json").write_text(
        '{"tuning": {"/proc/sys/kernel/numa_balancing": {"original": "1", "given": ["0"]}}, "metrics": []}'
    )
    read = f"import {top}.modules.{module}\nfrom {top}.module_utils._host.host import Host\n"
    read += f"from {top}.module_utils._state import previous\nprint(*sorted(previous.recorded(Host({str(tmp_path)!r}))))"
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=False)
    assert done.stdout == "metrics tuning\n", done.stderr

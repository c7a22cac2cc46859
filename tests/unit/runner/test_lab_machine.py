# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest of the lab that does not start is tried again, and then the console says why. One that was bound is kept for other processes."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from tests.lab import conftest, image, machine, shapes

QEMU = """
import sys
console = sys.argv[sys.argv.index("-serial") + 1].removeprefix("file:")
with open(console, "w") as file:
    file.write("\\x1b[2J\\x1b[01;01HUEFI firmware\\n\\nKernel panic - not syncing: no disk\\n")
print('{"QMP": {}}', flush=True)
sys.stdin.readline()
print('{"return": {}}', flush=True)
if HOW == "ends":
    sys.exit("qemu: out of memory")
sys.stdin.read()
"""


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """A function that makes a guest whose QEMU stops short as told, with a second for its boot."""

    def make(how):
        programs = {"qemu": f"#!{os.path.realpath(sys.executable)}\nHOW = {how!r}\n{QEMU}", "ssh": "#!/bin/sh\nexit 255\n"}
        programs["setpriv"] = '#!/bin/sh\nshift 2\nexec "$@"\n'
        for name, text in programs.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(image, "QEMU", str(tmp_path / "qemu"))
        monkeypatch.setattr(shapes, "kvm_works", lambda: False)
        monkeypatch.setattr(machine, "BOOT_SECONDS", 1)
        return machine.Machine(shapes.A2)

    return make


ENDS = [("hangs", "guest a2 does not answer after its start within 1 s"), ("ends", "guest a2 has ended: qemu: out of memory")]


@pytest.mark.parametrize(("how", "said"), ENDS)
def test_a_boot_that_stops_short_says_how_its_console_ends(guest, how, said):
    guest = guest(how)
    with pytest.raises(RuntimeError, match=said) as error:
        guest._start()
    guest.stop()
    assert str(error.value).endswith("UEFI firmware\nKernel panic - not syncing: no disk")


class Guest:
    """A machine that keeps nothing but the names of its states."""

    compiled = (0, "")
    runs = True

    def __init__(self, shape):
        self.shape = shape
        self.done, self.compiled_in = [], {}

    def boot(self):
        self.done.append("boot")

    def resume(self, folder, state):
        self.done.append(f"resume {state} of {(folder / 'states').read_text()}")

    def restore(self, state):
        self.done.append(f"restore {state}")

    def keep(self, folder, state):
        (folder / "states").write_text(f"{', '.join(self.done)}, {state}")

    def look(self):
        return {"online": "0-11"}

    files = stop = look


@pytest.fixture
def labs(tmp_path, monkeypatch):
    """A function that makes the lab of another process, whose binds end with a status."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(conftest, "Machine", Guest)
    monkeypatch.setattr(conftest, "made_of", lambda shape: [shape.name])
    monkeypatch.setattr(conftest, "root", lambda _machine, _python: None)

    def make(status=0):
        lab = conftest.Lab(tmp_path)
        lab.play_as = lambda _operator, machine, playbook: SimpleNamespace(status=status, output=f"{playbook} of {machine.shape.name}")
        return lab

    return make


def test_a_bound_guest_is_kept_for_other_processes(labs, monkeypatch):
    first, second = labs(), labs(status=1)
    assert first.fresh(shapes.DUO).done == ["boot"]
    for lab in (first, second):
        bound = lab.bound(shapes.DUO)
        assert bound.machine.done == ["resume bound of boot, restore booted, bound"]
        assert (bound.run.output, bound.before, bound.files_before) == ("bind of duo", {"online": "0-11"}, {"online": "0-11"})
    assert second.fresh(shapes.DUO).done[1:] == ["restore booted"] and second.bound(shapes.DUO).machine.done[2:] == ["restore bound"]
    assert labs().fresh(shapes.DUO).done == ["resume booted of boot, restore booted, bound"]
    monkeypatch.setattr(conftest, "sources", lambda: "other plugins")
    with pytest.raises(AssertionError, match="bind of duo"):
        labs(status=1).bound(shapes.DUO)
    assert labs().bound(shapes.DUO).machine.done == ["resume bound of boot, bound"]


def test_a_guest_that_cannot_be_saved_is_bound_each_time(labs):
    lab = labs()
    assert [lab.bound(shapes.NVME).machine.done for _time in range(2)] == [["boot"], ["boot"]]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest of the lab that does not start: it is tried again, and then the console says why. Nothing waits for ever."""

from __future__ import annotations

import os
import sys

import pytest

from tests.lab import image, machine, shapes

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
        programs = {"qemu": f"#!{sys.executable}\nHOW = {how!r}\n{QEMU}", "ssh": "#!/bin/sh\nexit 255\n"}
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

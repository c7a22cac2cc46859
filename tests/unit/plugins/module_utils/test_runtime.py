# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _installed, _main, _runtime
from ansible_collections.npu.affinity.plugins.module_utils._host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState, is_ours

FOLDER = pathlib.Path(_runtime.__file__).parent
PACKAGE = "ansible_collections/npu/affinity/plugins/module_utils"
MADE = {"__init__.py", "__main__.py"}


def imported(name):
    """Return the files of this package that a file imports, also inside functions, and the packages that they are in."""
    found = set()
    for node in ast.walk(ast.parse((FOLDER / name).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = (FOLDER / name).parents[node.level - 1].joinpath(*(node.module or "").split("."))
            paths = [folder.with_suffix(".py")] + [folder / (alias.name + ".py") for alias in node.names]
            found |= {str(path.relative_to(FOLDER)) for path in paths if path.is_file()}
    return found | {str(parent / "__init__.py") for file in found | {name} for parent in pathlib.PurePath(file).parents}


def test_the_archive_has_the_programs_and_all_that_they_import():
    closure, waiting = set(), ["_main.py"]
    while waiting:
        name = waiting.pop()
        if name not in closure:
            closure.add(name)
            waiting += imported(name)
    assert set(_runtime.sources()) == closure - {"_main.py"} | MADE


def test_galaxy_takes_the_names_of_all_files():
    names = {path.stem for path in FOLDER.rglob("*.py")} - {"__init__"}
    assert [name for name in sorted(names) if not re.match(r"^(?!.*__)[a-z_][0-9a-z_]*$", name)] == []


def test_ansible_sends_the_programs_with_whatever_installs_them():
    assert "_main.py" in imported("_runtime.py")


def test_every_source_compiles_and_the_archive_names_its_owner_first():
    for name, source in _runtime.sources().items():
        compile(source, name, "exec")
    assert is_ours(_runtime.archive_file()["content"])


def test_the_archive_has_the_version_of_the_collection():
    (version,) = (line.split()[1] for line in (FOLDER.parents[1] / "galaxy.yml").read_text().splitlines() if line.startswith("version:"))
    assert _runtime.VERSION == _installed.installed_version(_runtime.archive_file()["content"]) == version
    assert _installed.installed_version(None) is None and _installed.installed_version("# of old\n") is None


def install(folder):
    (folder / "lib").mkdir()
    archive = folder / "lib/npu_affinity.zip"
    archive.write_bytes(_runtime.archive())
    return dict(os.environ, PYTHONPATH=str(archive), PYTHONDONTWRITEBYTECODE="1")


ANSWERS = {
    "adopt": "nothing is adopted",
    "irq": "nothing is bound",
    "device_share": "npu-smi was not found",
    "threads": "no thread is placed",
    "metrics": "no metrics are written",
    "tuning": "",
    "command": "not bound",
}


@pytest.mark.parametrize("program", sorted(_main.PROGRAMS))
def test_programs_run_without_ansible_and_leave_nothing_behind(tmp_path, program):
    environment = install(tmp_path)
    (tmp_path / "host").mkdir()
    words = ["--root", str(tmp_path / "host")] + (["status"] if program == "command" else [])
    command = [sys.executable, "-m", "npu_affinity", program, *words]
    done = subprocess.run(command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert ANSWERS[program] in done.stdout.decode()
    assert done.returncode == {"device_share": 1, "command": 5}.get(program, 0)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["npu_affinity.zip"]


@pytest.mark.parametrize("words", [[], ["irqs"], ["--help"]])
def test_an_unknown_program_lists_the_known_ones(capsys, words):
    assert _main.main(words) == 2
    assert capsys.readouterr().err == "usage: python3 -m npu_affinity adopt|command|device_share|irq|metrics|threads|tuning [--help]\n"


def loaded(tmp_path, code):
    done = subprocess.run([sys.executable, "-c", code], env=install(tmp_path), cwd="/", stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().split()


def test_starting_the_interrupt_program_imports_nothing_heavy(tmp_path):
    found = set(
        loaded(
            tmp_path, "import sys; from npu_affinity import __main__; from npu_affinity._features.irq import binding; print(*sys.modules)"
        )
    )
    assert "npu_affinity._kernel.interrupts" in found
    assert not found & {"tempfile", "random", "shutil", "npu_affinity._state.files", "npu_affinity._npu_smi", "ansible"}


@pytest.mark.skipif(sys.version_info < (3, 8), reason="zipimport of Python 3.7 is written in C")
def test_each_source_is_compiled_once_and_keeps_its_file_name(tmp_path):
    code = """
import zipimport
compile_source, compiled = zipimport._compile_source, []
zipimport._compile_source = lambda path, source: compiled.append(path) or compile_source(path, source)
from npu_affinity._features.irq import binding
inside = [path for path in compiled if ".zip/npu_affinity/_features/irq/" in path]
print(len(inside) - len(set(inside)), len(inside) > 3, binding.__file__)
"""
    twice, many, name = loaded(tmp_path, code)
    assert (twice, many, name) == ("0", "True", str(tmp_path / "lib/npu_affinity.zip/npu_affinity/_features/irq/binding.py"))


def test_the_same_bytes_come_out_of_the_archive_that_ansible_sends(tmp_path):
    payload = tmp_path / "payload.zip"
    with zipfile.ZipFile(str(payload), "w", zipfile.ZIP_DEFLATED) as file:
        parts = PACKAGE.split("/")
        for depth in range(1, len(parts)):
            file.writestr("/".join(parts[:depth]) + "/__init__.py", "")
        for name in ["_runtime.py", "_main.py", "_module/__init__.py", *set(_runtime.sources()) - {"__main__.py"}]:
            file.writestr("%s/%s" % (PACKAGE, name), (FOLDER / name).read_bytes())
    code = "import hashlib; from %s._runtime import archive; print(hashlib.sha256(archive()).hexdigest())" % PACKAGE.replace("/", ".")
    environment = dict(os.environ, PYTHONPATH=str(payload))
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd="/", stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == hashlib.sha256(_runtime.archive()).hexdigest()


def test_the_archive_survives_being_read_and_written_as_text(tmp_path):
    host = Host(str(tmp_path))
    content = _runtime.archive_file()["content"]
    FileState(content, 0o644).put(host, _installed.ARCHIVE)
    assert FileState.of(host, _installed.ARCHIVE).text == content
    with open(host.path(_installed.ARCHIVE), "rb") as file:
        assert zipfile.ZipFile(io.BytesIO(file.read())).testzip() is None

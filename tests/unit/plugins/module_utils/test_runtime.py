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

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._command import main
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState, is_ours

FOLDER = pathlib.Path(runtime.__file__).parents[1]
PACKAGE = "ansible_collections/npu/affinity/plugins/module_utils"
FIND_PYTHON = pathlib.Path(__file__).parents[3] / "find-python"
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


def closure(*names):
    """Return files with all that they import."""
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imported(name)
    return found


def test_the_archive_has_the_programs_and_all_that_they_import():
    assert set(runtime.sources()) == closure("_command/main.py", "_apply/again.py", "_base/zipped.py") | MADE


@pytest.mark.parametrize("name", ["_apply/apply.py", "_apply/comparison.py", "_state/host_code.py"])
def test_what_only_compares_a_host_does_not_carry_the_programs(name):
    assert not closure(name) & {"_command/main.py", "_apply/runtime.py"}


def test_each_python_makes_the_same_archive():
    code = "from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime; print(runtime.digest())"
    environment = dict(os.environ, PYTHONPATH=str(FOLDER.parents[4]), PYTHONDONTWRITEBYTECODE="1")
    for version in ("3.7", "3.9", "3.13", "3.14"):
        python = subprocess.run([FIND_PYTHON, version], capture_output=True, text=True, check=True).stdout.strip()
        if python:
            done = subprocess.run([python, "-c", code], env=environment, cwd="/", capture_output=True, text=True, check=True)
            assert done.stdout.strip() == runtime.digest(), python


def test_galaxy_takes_the_names_of_all_files():
    names = {path.stem for path in FOLDER.rglob("*.py")} - {"__init__"}
    assert [name for name in sorted(names) if not re.match(r"^(?!.*__)[a-z_][0-9a-z_]*$", name)] == []


def test_ansible_sends_the_programs_with_whatever_installs_them():
    assert "_command/main.py" in imported("_apply/runtime.py")


def test_all_sources_compile_and_the_archive_names_its_owner():
    for name, source in runtime.sources().items():
        compile(source, name, "exec")
    assert is_ours(runtime.files_of(None)[0]["content"])


def test_the_archive_has_the_version_of_the_collection():
    (version,) = (line.split()[1] for line in (FOLDER.parents[1] / "galaxy.yml").read_text().splitlines() if line.startswith("version:"))
    assert runtime.VERSION == installed.installed_version(runtime.files_of(None)[0]["content"]) == version
    assert installed.installed_version(None) is None and installed.installed_version("# of old\n") is None


def install(folder):
    (folder / "lib").mkdir()
    archive = folder / "lib/npu_affinity.zip"
    archive.write_bytes(runtime.archive())
    return dict(os.environ, PYTHONPATH=str(archive), PYTHONDONTWRITEBYTECODE="1")


ANSWERS = {
    "irq": "",
    "device_share": "",
    "watch": "No feature of this host places what starts later",
    "metrics": "no metrics are written",
    "tuning": "",
    "hard_vnpu": "",
    "hugepages": "",
    "nic": "",
    "command": "not bound",
}


@pytest.mark.parametrize("program", sorted(main.PROGRAMS))
def test_programs_run_without_ansible_and_leave_nothing_behind(tmp_path, program):
    environment = install(tmp_path)
    (tmp_path / "host").mkdir()
    words = ["--root", str(tmp_path / "host")] + (["status"] if program == "command" else [])
    command = [sys.executable, "-m", "npu_affinity", program, *words]
    done = subprocess.run(command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert ANSWERS[program] in done.stdout.decode()
    assert done.returncode == {"command": 5}.get(program, 0)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["npu_affinity.zip"]


@pytest.mark.parametrize("words", [[], ["irqs"], ["--help"]])
def test_an_unknown_program_lists_the_known_ones(capsys, words):
    assert main.main(words) == 2
    assert (
        capsys.readouterr().err
        == "usage: python3 -m npu_affinity command|device_share|hard_vnpu|hugepages|irq|metrics|nic|tuning|watch [--help]\n"
    )


def test_starting_the_interrupt_program_imports_nothing_heavy(tmp_path):
    code = "import sys; from npu_affinity import __main__; from npu_affinity._features.irq import binding; print(binding.__file__)"
    code += "; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=install(tmp_path), cwd="/", stdout=subprocess.PIPE, check=True)
    file, *found = done.stdout.decode().split()
    assert file == str(tmp_path / "lib/npu_affinity.zip/npu_affinity/_features/irq/binding.py")
    assert "npu_affinity._kernel.interrupts" in found
    assert not {"tempfile", "random", "shutil", "npu_affinity._state.files", "npu_affinity._npu_smi", "ansible"}.intersection(found)


def test_the_archive_that_ansible_sends_gives_the_same_bytes(tmp_path):
    payload = tmp_path / "payload.zip"
    with zipfile.ZipFile(str(payload), "w", zipfile.ZIP_DEFLATED) as file:
        parts = PACKAGE.split("/")
        for depth in range(1, len(parts)):
            file.writestr("/".join(parts[:depth]) + "/__init__.py", "")
        for name in ["_apply/runtime.py", *set(runtime.sources()) - {"__main__.py"}]:
            file.writestr("%s/%s" % (PACKAGE, name), (FOLDER / name).read_bytes())
    code = "import hashlib; from %s._apply.runtime import archive; print(hashlib.sha256(archive()).hexdigest())" % PACKAGE.replace("/", ".")
    environment = dict(os.environ, PYTHONPATH=str(payload))
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd="/", stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == hashlib.sha256(runtime.archive()).hexdigest()


def test_the_archive_survives_being_read_and_written_as_text(tmp_path):
    host = Host(str(tmp_path))
    content = runtime.files_of(None)[0]["content"]
    FileState(content, 0o644).put(host, installed.ARCHIVE)
    assert FileState.of(host, installed.ARCHIVE).text == content
    with open(host.path(installed.ARCHIVE), "rb") as file:
        assert zipfile.ZipFile(io.BytesIO(file.read())).testzip() is None


COUNTING = """
import collections, sys
compiled = collections.Counter()
def note(event, arguments):
    if event == "compile" and arguments[1]:
        compiled[str(arguments[1])] += 1
sys.addaudithook(note)
import {module}
twice = [name for name, times in compiled.items() if "{folder}" in name and times > 1]
print(len([name for name in compiled if "{folder}" in name]), *twice)
"""


def compiled(archive, module, folder):
    """Return how many sources of a folder in an archive Python compiled to import a module, and the names of those it compiled twice."""
    command = [sys.executable, "-c", COUNTING.format(module=module, folder=folder)]
    environment = dict(os.environ, PYTHONPATH=str(archive))
    count, *twice = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    return int(count), [pathlib.PurePath(name).name for name in twice]


AUDITED = pytest.mark.skipif(sys.version_info < (3, 8), reason="Python says what it compiles since 3.8")


@AUDITED
def test_the_installed_archive_compiles_each_source_once(tmp_path):
    install(tmp_path)
    count, twice = compiled(tmp_path / "lib/npu_affinity.zip", "npu_affinity._command.program", "npu_affinity.zip/npu_affinity/")
    assert count > 10 and set(twice) <= {"__init__.py", "zipped.py"}


@AUDITED
def test_what_ansible_sends_compiles_each_source_once(tmp_path):
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(archive, "w") as members:
        for path in FOLDER.parent.rglob("*.py"):
            if path.parts[len(FOLDER.parts) - 1] in ("module_utils", "modules"):
                members.write(path, "ansible_collections/npu/affinity/plugins/%s" % path.relative_to(FOLDER.parent))
        for parent in pathlib.PurePath(PACKAGE).parents:
            members.writestr("%s/__init__.py" % parent, "")
        members.writestr(PACKAGE.replace("module_utils", "modules") + "/__init__.py", "")
    count, twice = compiled(archive, PACKAGE.replace("/", ".").replace("module_utils", "modules.gather"), "/_")
    assert count > 50
    assert [name for name in twice if name != "__init__.py"] == ["exits.py", "zipped.py", "outside.py"]


def test_no_archive_is_made_where_a_module_has_no_sources(monkeypatch):
    monkeypatch.setattr(runtime, "_source", lambda name: None)
    with pytest.raises(ValueError, match="Mitogen sends modules without their sources"):
        runtime.sources()

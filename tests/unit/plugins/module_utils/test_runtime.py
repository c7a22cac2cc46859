# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import ast
import hashlib
import importlib
import io
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _features
from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._command import main
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState, is_managed

FOLDER = pathlib.Path(runtime.__file__).parents[1]
PLUGINS = "ansible_collections/npu/affinity/plugins"
MODULE_UTILS = PLUGINS.replace("/", ".") + ".module_utils"
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
    assert set(runtime.sources()) == closure("_command/main.py", "_apply/apply.py", "_base/zipped.py") | MADE
    assert "_command/main.py" in imported("_apply/runtime.py"), "Ansible sends the programs with whatever installs them"


@pytest.mark.parametrize("name", ["_apply/apply.py", "_drift/in_force.py", "_state/host_code.py"])
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


def test_the_archive_has_what_features_name():
    texts = [path.read_text() for path in FOLDER.glob("_features/*/feature.py")]
    places = {place for text in texts for place in re.findall(r'"(\w+)\.(\w+):(\w+)"', text)}
    assert len(places) > 20
    for feature, file, name in places:
        assert "_features/%s/%s.py" % (feature, file) in runtime.sources()
        assert hasattr(importlib.import_module("%s.%s.%s" % (_features.__name__, feature, file)), name), (feature, file, name)


def test_the_archive_has_the_version_of_the_collection():
    (version,) = (line.split()[1] for line in (FOLDER.parents[1] / "galaxy.yml").read_text().splitlines() if line.startswith("version:"))
    content = runtime.files_of(None)[0]["content"]
    assert runtime.VERSION == installed.installed_version(content) == version and is_managed(content)
    assert installed.installed_version(None) is None and installed.installed_version("# of old\n") is None


def install(folder):
    (folder / "lib").mkdir()
    archive = folder / "lib/npu_affinity.zip"
    archive.write_bytes(runtime.archive())
    return dict(os.environ, PYTHONPATH=str(archive), PYTHONDONTWRITEBYTECODE="1")


def send(archive, names):
    """Write what Ansible sends of these files of plugins, and return the environment in which they are imported."""
    packages = {str(parent) for name in names for parent in pathlib.PurePath(PLUGINS, name).parents} - {"."}
    with zipfile.ZipFile(str(archive), "w", zipfile.ZIP_DEFLATED) as members:
        for name in names:
            members.write(str(FOLDER.parent / name), "%s/%s" % (PLUGINS, name))
        for name in packages - {str(pathlib.PurePath(PLUGINS, name).parent) for name in names if name.endswith("__init__.py")}:
            members.writestr(name + "/__init__.py", "")
    return dict(os.environ, PYTHONPATH=str(archive))


SAID = {"watch": "No feature of this host places what starts later", "metrics": "no metrics are written", "command": "not bound"}


@pytest.mark.parametrize("program", sorted(main.PROGRAMS))
def test_programs_run_without_ansible_and_leave_nothing_behind(tmp_path, program):
    environment = install(tmp_path)
    (tmp_path / "host").mkdir()
    words = ["--root", str(tmp_path / "host")] + (["status"] if program == "command" else [])
    command = [sys.executable, "-m", "npu_affinity", program, *words]
    done = subprocess.run(command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert SAID.get(program, "") in done.stdout.decode()
    assert done.returncode == {"command": 5}.get(program, 0)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["npu_affinity.zip"]


@pytest.mark.parametrize("words", [[], ["irqs"], ["--help"]])
def test_an_unknown_program_lists_the_known_ones(capsys, words):
    programs = "command|device_share|hard_vnpu|hugepages|irq|metrics|nic|tuning|watch"
    assert main.main(words) == 2
    assert capsys.readouterr().err == "usage: python3 -m npu_affinity %s [--help]\n" % programs


def test_starting_the_interrupt_program_imports_nothing_heavy(tmp_path):
    code = "import sys; from npu_affinity import __main__; from npu_affinity._features.irq import binding; print(binding.__file__)"
    code += "; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=install(tmp_path), cwd="/", stdout=subprocess.PIPE, check=True)
    file, *found = done.stdout.decode().split()
    assert file == str(tmp_path / "lib/npu_affinity.zip/npu_affinity/_features/irq/binding.py")
    assert "npu_affinity._kernel.interrupts" in found
    assert not {"tempfile", "random", "shutil", "npu_affinity._state.files", "npu_affinity._npu_smi", "ansible"}.intersection(found)


def test_the_archive_that_ansible_sends_gives_the_same_bytes(tmp_path):
    names = ["_apply/runtime.py", *set(runtime.sources()) - {"__main__.py"}]
    environment = send(tmp_path / "payload.zip", ["module_utils/" + name for name in names])
    code = "import hashlib; from %s._apply.runtime import archive; print(hashlib.sha256(archive()).hexdigest())" % MODULE_UTILS
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd="/", stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == hashlib.sha256(runtime.archive()).hexdigest()


def test_the_archive_survives_being_read_and_written_as_text(tmp_path):
    host = Host(str(tmp_path))
    content = runtime.files_of(None)[0]["content"]
    FileState(content, 0o644).write(host, installed.ARCHIVE)
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


def compiled(environment, module, folder):
    """Return how many sources of a folder in an archive Python compiled to import a module, and the names of those it compiled twice."""
    command = [sys.executable, "-c", COUNTING.format(module=module, folder=folder)]
    count, *twice = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    return int(count), [pathlib.PurePath(name).name for name in twice if not name.endswith("__init__.py")]


@pytest.mark.skipif(sys.version_info < (3, 8), reason="Python says what it compiles since 3.8")
def test_each_source_of_an_archive_is_compiled_once(tmp_path):
    count, twice = compiled(install(tmp_path), "npu_affinity._command.program", "npu_affinity.zip/npu_affinity/")
    assert count > 10 and set(twice) <= {"zipped.py"}
    plugins = [
        str(path.relative_to(FOLDER.parent)) for kind in ("module_utils", "modules") for path in FOLDER.parent.glob(kind + "/**/*.py")
    ]
    count, twice = compiled(send(tmp_path / "payload.zip", plugins), MODULE_UTILS.replace("module_utils", "modules.gather"), "/_")
    assert count > 50 and twice == ["exits.py", "zipped.py", "outside.py"]


def test_no_archive_is_made_where_a_module_has_no_sources(monkeypatch):
    monkeypatch.setattr(runtime, "_source", lambda name: None)
    with pytest.raises(ValueError, match="Mitogen sends modules without their sources"):
        runtime.sources()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _installed, _runtime
from ansible_collections.npu.affinity.plugins.module_utils._state.files import is_ours

FOLDER = pathlib.Path(_runtime.__file__).parent
PROGRAMS = (
    "_command/program.py",
    "_irq/program.py",
    "_device_share/program.py",
    "_processes/program.py",
    "_metrics/program.py",
    "_tuning.py",
)
PACKAGE = "ansible_collections/npu/affinity/plugins/module_utils"


def imported(name):
    """Return the files of this package that a file imports, also inside functions, and the packages that they are in."""
    found = set()
    for node in ast.walk(ast.parse((FOLDER / name).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = (FOLDER / name).parents[node.level - 1].joinpath(*(node.module or "").split("."))
            paths = [folder.with_suffix(".py")] + [folder / (alias.name + ".py") for alias in node.names]
            found |= {str(path.relative_to(FOLDER)) for path in paths if path.is_file()}
    return found | {str(parent / "__init__.py") for file in found | {name} for parent in pathlib.PurePath(file).parents}


def test_the_files_are_the_programs_and_all_that_they_import():
    closure, waiting = set(), list(PROGRAMS)
    while waiting:
        name = waiting.pop()
        if name not in closure:
            closure.add(name)
            waiting += imported(name)
    assert set(_runtime.FILES) == closure


def test_galaxy_takes_the_names_of_all_files():
    names = {path.stem for path in FOLDER.rglob("*.py")} - {"__init__"}
    assert [name for name in sorted(names) if not re.match(r"^(?!.*__)[a-z_][0-9a-z_]*$", name)] == []


def test_ansible_sends_them_because_the_programs_are_imported():
    assert set(PROGRAMS) <= imported("_runtime.py")


def test_each_text_says_in_its_first_line_whose_it_is_and_is_python():
    texts = _runtime.sources()
    assert tuple(texts) == _runtime.INSTALLED
    for name, text in texts.items():
        assert text.startswith("# Managed by npu.affinity: changes are overwritten.\n")
        assert is_ours(text)
        compile(text, name, "exec")


def test_the_installed_package_has_the_version_of_the_collection():
    (version,) = (line.split()[1] for line in (FOLDER.parents[1] / "galaxy.yml").read_text().splitlines() if line.startswith("version:"))
    assert _runtime.VERSION == _installed.installed_version(_runtime.sources()["__init__.py"]) == version
    assert _installed.installed_version(None) is None and _installed.installed_version("# of old\n") is None


def install(folder):
    package = folder / "lib" / "npu_affinity"
    for name, text in _runtime.sources().items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return dict(os.environ, PYTHONPATH=str(package.parent), PYTHONDONTWRITEBYTECODE="1")


@pytest.mark.parametrize(
    "program, answer",
    [
        ("_irq", "nothing is bound"),
        ("_device_share", "npu-smi was not found"),
        ("_processes", "no thread is placed"),
        ("_metrics", "no metrics are written"),
        ("_tuning", ""),
    ],
)
def test_installed_without_ansible_the_programs_run_and_leave_nothing_behind(tmp_path, program, answer):
    environment = install(tmp_path)
    (tmp_path / "host").mkdir()
    command = [sys.executable, "-m", "npu_affinity." + program, "--root", str(tmp_path / "host")]
    done = subprocess.run(command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert answer in done.stdout.decode()
    assert done.returncode == (1 if program == "_device_share" else 0)
    package = tmp_path / "lib/npu_affinity"
    assert sorted(str(path.relative_to(package)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(_runtime.INSTALLED)


def test_starting_the_interrupt_program_imports_nothing_heavy(tmp_path):
    code = "import sys, npu_affinity._irq.__main__; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], env=install(tmp_path), cwd="/", stdout=subprocess.PIPE, check=True)
    loaded = set(done.stdout.decode().split())
    assert "npu_affinity._kernel.interrupts" in loaded
    assert not loaded & {"tempfile", "random", "shutil", "npu_affinity._state.files", "npu_affinity._npu_smi", "ansible"}


def test_the_same_texts_come_out_of_the_archive_that_ansible_sends(tmp_path):
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(str(archive), "w") as file:
        parts = PACKAGE.split("/")
        for depth in range(1, len(parts)):
            file.writestr("/".join(parts[:depth]) + "/__init__.py", "")
        for name in ["_runtime.py"] + list(_runtime.FILES):
            file.writestr("%s/%s" % (PACKAGE, name), (FOLDER / name).read_text())
    code = "import json; from %s._runtime import sources; print(json.dumps(sources()))" % PACKAGE.replace("/", ".")
    environment = dict(os.environ, PYTHONPATH=str(archive))
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd="/", stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout.decode()) == _runtime.sources()


def test_texts_that_carry_the_line_already_do_not_get_it_twice(tmp_path):
    environment = install(tmp_path)
    package = tmp_path / "lib/npu_affinity"
    (package / "_runtime.py").write_text((FOLDER / "_runtime.py").read_text())
    for name, installed in zip(_runtime.FILES, _runtime.INSTALLED):
        (package / installed).rename(package / name)
    code = "import json; from npu_affinity._runtime import sources; print(json.dumps(sources()))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd="/", stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout.decode()) == _runtime.sources()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of released packages, which pip downloads into the cache. They run as they are, next to stubs of what they import."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests import cache

PLATFORMS = [f"manylinux_2_{number}_{machine}" for number in (24, 28, 34) for machine in ("aarch64", "x86_64")]
SECONDS = 600
"""So long pip may take for a package of some hundred MB."""
CONNECTION_FAILED = (subprocess.SubprocessError, OSError)


def files(name: str, version: str, members: Sequence[str]) -> Path:
    """Return a folder with these files of a package. One of :data:`CONNECTION_FAILED` says that no index has it."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11"]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        subprocess.run([*command, "--dest", str(folder), f"{name}=={version}"], check=True, capture_output=True, text=True, timeout=SECONDS)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            for member in members:
                (folder / Path(member).name).write_bytes(package.read(member))
        wheel.unlink()

    return cache.folder("packages", [name, version, *members], make)


@contextmanager
def loaded(path: Path, stubs: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    """Yield the module of a file. ``stubs`` are the names in modules that it imports, also while it runs."""
    made = {}
    for name, values in stubs.items():
        made[name] = types.ModuleType(name)
        vars(made[name]).update(values)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    program = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, made):
        spec.loader.exec_module(program)
        yield program

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files on the controller, written in the process of the task: a copy to localhost runs two or three modules for each of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail


def write(texts: Mapping[str, str]) -> list[str]:
    """Write files by their paths, and return the paths of those that were new or had another text."""
    written = []
    for path, text in texts.items():
        try:
            if _differs(Path(path), text):
                _write(Path(path), text)
                written.append(path)
        except OSError as error:
            raise AnsibleActionFail(f"{path} cannot be written on the controller: {error.strerror or error}") from None
    return written


def _differs(path: Path, text: str) -> bool:
    if path.exists() and not path.is_file():
        raise AnsibleActionFail(f"{path} cannot be written on the controller: it is not a file; name another one")
    return not path.exists() or path.read_bytes() != text.encode()


def _write(path: Path, text: str) -> None:
    """Write it next to its place first, so no reader sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".npu-affinity-", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(text.encode())
            file.close()
            temporary.chmod(0o644)
            temporary.replace(path)
        except OSError:
            temporary.unlink()
            raise


def records(folders: Iterable[str]) -> list[Path]:
    """Return the JSON files of some folders."""
    return [path for folder in folders for path in sorted(Path(folder).glob("*.json"))]


def content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise AnsibleActionFail(f"{path} cannot be read as JSON: {error}") from error

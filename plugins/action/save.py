# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Writes files in the process of the task itself: a copy to localhost runs two or three modules for each of them."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset({"files"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        # Older ansible-core makes data of a text that looks like JSON.
        texts = {path: text if isinstance(text, str) else json.dumps(text) for path, text in self._task.args["files"].items()}
        written = write(texts, self._task.check_mode)
        return {**result, "changed": bool(written), "written": written}


def write(texts: Mapping[str, str], check: bool = False) -> list[str]:
    """Write files by their paths, and return the paths of those that were new or had another text."""
    written = []
    for path, text in texts.items():
        try:
            if _differs(Path(path), text):
                written.append(path)
                if not check:
                    _write(Path(path), text)
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

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder with the host code, a plan and stand-ins for device files, for ``npu-affinity exec --root FOLDER``."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._host.installed import COMMAND, CODE_FOLDER


def install(folder: pathlib.Path, pools: list[str]) -> str:
    """Make the folder, with an NPU for each pool, and return the path of the launcher, which may stay there only."""
    for file in runtime.files_of(None):
        path = folder / file["path"][1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        content = file["content"] if path.suffix == ".zip" else file["content"].replace(CODE_FOLDER, str(folder) + CODE_FOLDER)
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        path.chmod(0o755)
    (folder / "dev").mkdir()
    npus = []
    for number, pool in enumerate(pools):
        npus.append({"id": number, "phy_id": 2 * number, "pool": pool, "mems": "0", "memory_nodes": "0", "slice": f"npu-{number}.slice"})
        (folder / f"dev/davinci{2 * number}").touch()
    (folder / "etc/npu-affinity").mkdir(parents=True)
    (folder / "etc/npu-affinity/plan.json").write_text(json.dumps({"schema": 1, "npus": npus}))
    return str(folder / COMMAND[1:])

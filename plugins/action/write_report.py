# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail

from ansible_collections.npu.affinity.plugins.action import save
from ansible_collections.npu.affinity.plugins.filter.fleet_table import fleet_table
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import Typed, typed
from ansible_collections.npu.affinity.plugins.plugin_utils._report.export import FORMATS
from ansible_collections.npu.affinity.plugins.plugin_utils._report.page import report_html
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import ARCHIVES, now, record

ELSEWHERE = Typed(options=("-i", "INVENTORY"))
"""How hosts are bound that the inventory of this run does not have: those of saved records and of archives."""


class ActionModule(HostAction):
    """Reads what runs have left, and writes the page and the tables, in the process of the task itself."""

    _requires_connection = False
    _VALID_ARGS = frozenset()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = dict(task_vars or {})
        own, names = self.settings(variables, role="report"), list(variables["ansible_play_hosts_all"])
        if own["from"]:
            saved = _files(own["from"])
            names, records = [path.stem for path in saved], [_content(path) for path in saved]
        else:
            records = [record(name, variables["hostvars"][name]) for name in names]
        kinds = {path: Path(path).suffix.removeprefix(".") for path in own["report"]}
        pages = [path for path, kind in kinds.items() if kind not in FORMATS]
        texts = {path: fleet_table(records, kind) for path, kind in kinds.items() if kind in FORMATS}
        if pages:
            texts |= dict.fromkeys(pages, self._page(names, records, own, variables))
        save.write(texts)
        self.say([f"The page is {path}" for path in pages])
        return result | {"pages": pages}

    def _page(self, names: list[str], records: list[Any], own: Mapping[str, Any], variables: dict[str, Any]) -> str:
        measures = self.settings(variables, playbooks=True)["measures"]
        runs = [{"name": Path(folder).name, "records": list(map(_content, _files([folder])))} for folder in own["runs"]]
        return report_html(
            records,
            generated=now("%Y-%m-%d %H:%M UTC"),
            earlier=list(map(_content, _files(own["runs"][-1:]))),
            measures=list(map(_content, _files(f"{measures}/{name}" for name in names))),
            runs=[*runs, {"name": "this run", "records": records}] if runs else [],
            strategies=own["strategies"],
            typed=ELSEWHERE if own["from"] or variables["groups"].get(ARCHIVES) else typed(context.CLIARGS, os.environ),
        )


def _files(folders: Iterable[str]) -> list[Path]:
    return [path for folder in folders for path in sorted(Path(folder).glob("*.json"))]


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise AnsibleActionFail(f"{path} cannot be read as JSON: {error}") from error

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction

IN_CHECK_MODE = "Nothing is packed in check mode."


class ActionModule(HostAction):
    """Packs a host, and fetches the archive, which nobody else may read on either side."""

    _VALID_ARGS = frozenset()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = dict(task_vars or {})
        if self._task.check_mode:
            return result | {"skipped": True, "msg": IN_CHECK_MODE}
        if "npu_affinity_topology" not in variables:
            return result | {"skipped": True}
        host, of_playbooks = variables["inventory_hostname"], self.settings(variables, playbooks=True)
        number = variables["ansible_play_hosts_all"].index(host) + 1
        name = f"host{number:03}" if of_playbooks["anonymous"] else host
        target = Path(of_playbooks["archives"], f"{name}.tar.gz")
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.on_host("ansible.builtin.tempfile", {"prefix": "npu-affinity-", "suffix": ".tar.gz"}, variables)["path"]
        try:
            result |= self.on_host("host_archive", self._options(place, of_playbooks, variables), variables)
            if not result.get("failed"):
                self._fetch(place, target, variables)
                result["lines"] = [f"{host}: {target}"]
                self.say(result["lines"])
        finally:
            self.on_host("ansible.builtin.file", {"path": place, "state": "absent"}, variables)
        return result | {"changed": False, "archive": str(target)}

    def _options(self, place: str, of_playbooks: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        asked = self.settings(variables, gather=True)
        return {
            "dest": place,
            "host": variables["inventory_hostname"],
            "anonymous": of_playbooks["anonymous"],
            "settings": self.settings(variables)["given"],
            **{name: asked[name] for name in ("root", "device_share", "units", "timeout")},
            "npu_smi": asked["npu_smi"] or None,
        }

    def _fetch(self, place: str, target: Path, variables: dict[str, Any]) -> None:
        target.touch(mode=0o600)
        target.chmod(0o600)
        fetched = False
        try:
            fetched = not self.action("ansible.builtin.fetch", {"src": place, "dest": str(target), "flat": True}, variables).get("failed")
        finally:
            if not fetched:
                with contextlib.suppress(FileNotFoundError):
                    target.unlink()

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as each version of the collection left them: ``python -m tests.upgrade`` records those of the version of this checkout.

Run it where the tag of a release is checked out. Until there is one, ``python -m tests.upgrade 1.0.0-rc.1`` calls this checkout so.
``tests/integration/recorded/VERSION.txz`` has for each host ``HOST.json``, with its machine, its settings and the files that the bind
removed, and below ``HOST/`` what the bind wrote.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from tests.fakes import small_host
from tests.fakes.changes import state
from tests.integration import controller
from tests.integration.conftest import REPOSITORY, Fleet
from tests.simulator.generate import load

LOGS = "/var/log"
RECORDED = Path(__file__).with_name("integration") / "recorded"
HOSTS = {
    # host: machine, settings
    "v2": (
        {**small_host.MACHINE, "soft_split": True},
        {
            **small_host.VARIABLES,
            "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [1]}],
            "npu_affinity_adopt": "always",
            "npu_affinity_hugepages": {"node": {0: 100}},
            "npu_affinity_metrics_enabled": True,
            "npu_affinity_nic": "near",
            "npu_affinity_threads_enabled": True,
            "npu_affinity_vnpu_enabled": True,
            "npu_affinity_vnpu_limiter": "",
            "npu_affinity_vnpus": [{"name": "a", "npu": 0, "memory_mib": 28672, "core": 20}],
        },
    ),
    "hybrid": (
        {**load("duo"), "cgroup": "hybrid"},
        {"npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}], "npu_affinity_irqbalance": "stop"},
    ),
}


def record(version: str) -> None:
    """Bind simulated hosts with this checkout as a version, and keep what that wrote."""
    with tempfile.TemporaryDirectory() as place, tarfile.open(RECORDED / f"{version}.txz", "w:xz") as tar:
        collection = Path(place, "ansible_collections/npu/affinity")
        for folder in ("meta", "playbooks", "plugins", "roles"):
            shutil.copytree(REPOSITORY / folder, collection / folder)
        names = collection / "plugins/module_utils/_base/version.py"
        names.write_text(names.read_text().replace(f'VERSION = "{VERSION}"', f'VERSION = "{version}"'))
        machines = {host: machine for host, (machine, _settings) in HOSTS.items()}
        hosts = Fleet(Path(place), machines, collection)
        hosts.give({host: settings for host, (_machine, settings) in HOSTS.items()})
        before = {host: state(hosts.tree(host), LOGS) for host in HOSTS}
        hosts.succeed("bind", npu_affinity_batches=["100%"], npu_affinity_author="recorder")
        for host, (machine, settings) in HOSTS.items():
            after = state(hosts.tree(host), LOGS)
            about = {"machine": machine, "settings": settings, "removed": sorted(before[host].keys() - after.keys())}
            text = json.dumps(about, indent=1).encode()
            info = tarfile.TarInfo(f"{host}.json")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
            for path in sorted(path for path in after if after[path] != before[host].get(path)):
                tar.add(hosts.tree(host) / path[1:], f"{host}{path}", recursive=False)


def restored(recorded: Path, folder: Path) -> tuple[Fleet, dict[str, dict[str, object]]]:
    """Return simulated hosts as a version left them, and what they were like before it bound them."""
    with tarfile.open(recorded) as tar:
        about = {
            name.removesuffix(".json"): json.load(tar.extractfile(name))
            for name in tar.getnames()
            if name.endswith(".json") and "/" not in name
        }
        hosts = Fleet(folder, {host: of_host["machine"] for host, of_host in about.items()})
        hosts.give({host: of_host["settings"] for host, of_host in about.items()})
        before = {host: state(hosts.tree(host)) for host in about}
        for host, of_host in about.items():
            for path in of_host["removed"]:
                (hosts.tree(host) / path[1:]).unlink()
        for member in tar:
            path = folder / member.name
            if not member.isdir() and os.path.lexists(path):  # a tree has many names for each of its constants: none is written through
                path.unlink()
            if "/" in member.name:
                tar.extract(member, folder, filter="fully_trusted")
    return hosts, before


if __name__ == "__main__":
    record(*sys.argv[1:] or [VERSION])
    controller.close()

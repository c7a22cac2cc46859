# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Past one controller: the work is handed to another node by ansible-runner, which streams it there and the results back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import REPOSITORY


@pytest.fixture
def private_data(fleet, tmp_path):
    hosts = fleet(node01="i310_pro", node02="i310_pro")
    folder = tmp_path / "private"
    for name, text in {
        "project/bind.yml": "- name: Bind\n  ansible.builtin.import_playbook: npu.affinity.bind\n",
        "inventory/hosts.yml": hosts.inventory.read_text(),
        "env/settings": json.dumps({"suppress_ansible_output": True}),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def streamed(private_data, work):
    """Run transmit | worker | process, and return ``{host: changed tasks}`` of the play recap that comes back."""
    runner = str(Path(sys.executable).with_name("ansible-runner"))
    environment = dict(
        os.environ,
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        ANSIBLE_COLLECTIONS_PATH=str(REPOSITORY / "build"),
        ANSIBLE_LOCALHOST_WARNING="false",
    )
    arguments = {"text": False, "capture_output": True, "env": environment, "timeout": 300}
    job = subprocess.run([runner, "transmit", str(private_data), "-p", "bind.yml"], check=True, **arguments).stdout
    work.mkdir()
    events = subprocess.run([runner, "worker", "--private-data-dir", str(work)], input=job, check=True, **arguments).stdout
    back = private_data.with_name(f"back-{work.name}")
    back.mkdir()
    subprocess.run([runner, "process", str(back)], input=events, check=True, **arguments)
    found = back / "artifacts"
    assert (found / "rc").read_text() == "0"
    stats = [json.loads(event.read_text()) for event in found.glob("job_events/*.json")]
    (recap,) = [event["event_data"] for event in stats if event["event"] == "playbook_on_stats"]
    return {host: recap["changed"].get(host, 0) for host in recap["ok"]}


@pytest.mark.long
def test_a_bind_that_runs_on_another_node(private_data, tmp_path):
    first = streamed(private_data, tmp_path / "worker-1")
    assert set(first) == {"node01", "node02"} and all(first.values())
    assert streamed(private_data, tmp_path / "worker-2") == {"node01": 0, "node02": 0}

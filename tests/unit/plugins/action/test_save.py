# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action save writes files of the controller: as a whole, once, and not in check mode."""

from __future__ import annotations

import os
import types

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.npu.affinity.plugins.action.save import ActionModule


def save(files, check=False):
    task = Task()
    task.action, task.args, task.check_mode, task.async_val = "npu.affinity.save", {"files": files}, check, 0
    loader = DataLoader()
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    return ActionModule(task, connection, None, loader, Templar(loader), None).run(task_vars={})


def test_files_are_written_once_and_with_their_folders(tmp_path):
    path, other = tmp_path / "reports" / "node1.json", tmp_path / "reports" / "node1.xml"
    files = {str(path): '{"host": "ä"}', str(other): "<testsuite/>\n"}
    assert save(files, check=True)["written"] == list(files) and not path.parent.exists()
    done = save(files)
    assert done["changed"] and done["written"] == list(files)
    assert path.read_text() == '{"host": "ä"}' and other.stat().st_mode & 0o777 == 0o644
    assert not save(files)["changed"]
    assert save({**files, str(other): "<other/>"})["written"] == [str(other)]
    assert sorted(found.name for found in path.parent.iterdir()) == ["node1.json", "node1.xml"]


def test_what_is_data_by_now_is_json_again(tmp_path):
    save({str(tmp_path / "a.json"): {"host": "node1"}})
    assert (tmp_path / "a.json").read_text() == '{"host": "node1"}'


@pytest.mark.parametrize("path", ["/dev/null", "{folder}", "{folder}/fifo"])
def test_what_is_no_file_is_neither_waited_for_nor_replaced(tmp_path, path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(AnsibleActionFail, match="cannot be written on the controller: it is not a file"):
        save({path.format(folder=tmp_path): "{}"})
    assert not os.path.isfile("/dev/null")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "reports").write_text("")
    with pytest.raises(AnsibleActionFail, match="reports/a.json cannot be written on the controller: "):
        save({str(tmp_path / "reports" / "a.json"): "{}"})

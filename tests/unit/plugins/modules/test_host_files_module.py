# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it: one transaction of files, units and settings."""

import json
import subprocess
import sys
import zipfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._state.history import FOLDER as HISTORY
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN
from tests.fakes.states import a_state

SWAPPINESS = "proc/sys/vm/swappiness"
UNITS = "/etc/systemd/system/"
MARK = "# Managed by npu.affinity: changes are overwritten.\n"
SLICE = {"path": UNITS + "npu-0.slice", "content": MARK + "[Slice]\n"}
REFUSED = {
    "kubepods": ([{"path": UNITS + "kubepods.slice", "content": MARK}], "nothing may be set on kubepods"),
    "path": ([{"path": "/etc/../passwd", "content": MARK}], "must be absolute"),
    "write": ([SLICE, {"path": "/etc/udev/rules.d/90-npu-affinity.rules", "content": MARK + "\ud800"}], "All files were restored"),
}
HOSTILE = 'from __future__ import annotations\nopen(%r, "w").close()\n'


@pytest.mark.parametrize("files, sentence", REFUSED.values(), ids=REFUSED)
def test_a_refused_or_failing_file_leaves_settings_as_they_were(act, root, files, sentence):
    result = act("host_files", state=a_state(files=files, live={"tuning": {"swappiness": 0}}))
    assert result["failed"] and sentence in result["msg"]
    assert (root / SWAPPINESS).read_text() == "60\n"
    assert not (root / SLICE["path"][1:]).exists()


def test_a_setting_that_is_refused_leaves_the_files_as_they_were(act, root):
    def bind(file, swappiness):
        return act("host_files", state=a_state(files=[file], live={"tuning": {"governor": "performance", "swappiness": swappiness}}))

    result = bind(SLICE, 0)
    assert result["changed"] and "this host has no governor to set" in str(result["warnings"])
    governor = root / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    governor.parent.mkdir(parents=True)
    governor.write_text("powersave\n")
    (governor.parent / "scaling_available_governors").write_text("powersave\n")
    assert "there is no governor performance" in bind({**SLICE, "content": MARK + "[Slice]\nAllowedCPUs=0\n"}, 10)["msg"]
    assert (root / SLICE["path"][1:]).read_text() == SLICE["content"] and (root / SWAPPINESS).read_text() == "0\n"


def test_a_change_is_compared_within_the_same_call(act, root):
    asked = {"state": a_state(live={"tuning": {"swappiness": 0}}, plan={"schema": 1, "npus": []}), "compare": {}}
    assert act("host_files", _ansible_check_mode=True, **asked)["compared"] is None
    changed = act("host_files", **asked)
    alone = act("binding_info", desired=asked["state"])
    assert changed["changed"] and changed["compared"] == {key: alone[key] for key in changed["compared"]}
    assert changed["compared"]["bound"]
    again = act("host_files", **asked)
    assert not again["changed"] and again["compared"] is None


def test_what_units_read_and_run_is_there_before_them(act, root):
    unit = {"path": UNITS + "npu-affinity-irq.service", "content": MARK + "[Service]\nExecStart=/bin/true\n"}
    plan = {"schema": 1, "npus": [{"id": 0, "pool": "0"}]}
    order = act("host_files", state=a_state(files=[unit], runtime=True, plan=plan))["files"]
    assert order[0] == PLAN and order[-1] == unit["path"] and installed.ARCHIVE in order


@pytest.mark.parametrize(
    "live, sentence",
    [
        ({"irq": {"failure": "warn"}}, "irq of live of the desired state is {'failure': 'warn'}"),
        ({"hugepages": {"size": "2M", "nodes": {}}}, "size of hugepages of live of the desired state is '2M'"),
        ({"slices": {"services": []}}, "slices of live of the desired state lacks 'workloads'"),
    ],
)
def test_live_values_of_another_shape_are_refused(act, root, live, sentence):
    asked = {"state": a_state(runtime=True, owned=[installed.ARCHIVE])}
    act("host_files", **asked)
    refused = act("host_files", state=dict(asked["state"], files=[SLICE], live=live))
    assert refused["failed"] and sentence in refused["msg"] and not (root / SLICE["path"][1:]).exists()
    entry = root / HISTORY[1:] / "1.json"
    document = json.loads(entry.read_text())
    entry.write_text(json.dumps({**document, "state": {**document["state"], "live": live}}))
    asked = {"ANSIBLE_MODULE_ARGS": {"root": str(root), "host_code": runtime.digest()}}
    module = [sys.executable, "-m", "ansible_collections.npu.affinity.plugins.modules.gather"]  # it knows no feature yet
    done = subprocess.run(module, input=json.dumps(asked), capture_output=True, text=True, check=True)
    assert sentence in json.loads(done.stdout)["in_force"]["differs"][0]


def test_gathering_tells_host_code_of_another_build(act, root):
    asked = {"state": a_state(runtime=True, owned=[installed.ARCHIVE])}
    act("host_files", **asked)
    archive = root / installed.ARCHIVE[1:]
    content = archive.read_bytes()

    def differs():
        return act("gather", host_code=runtime.digest())["in_force"]["differs"]

    assert differs() == []
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("npu_affinity/_apply/apply.py", HOSTILE % str(root / "ran"))
    for changed in (archive.read_bytes(), b'# old\nVERSION = "0.1"\n'):
        archive.write_bytes(changed)
        assert differs() == [f"{installed.ARCHIVE} is missing, or not the host code of this collection"] and not (root / "ran").exists()
        assert act("host_files", **asked)["files"] == [installed.ARCHIVE] and archive.read_bytes() == content
    archive.unlink()
    assert differs() == [f"{installed.ARCHIVE} is missing, or not the host code of this collection"]

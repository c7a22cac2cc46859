# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a simulated host with two cards, as Ansible runs it that a bind has changed."""

from __future__ import annotations


import pytest

from tests.fakes.share import wanted
from tests.fakes.states import a_state

from tests.simulator import generate as simulator
from tests.fakes.two_cards import two_cards

from tests.simulator import faults

MACHINE = two_cards(0, 1)
PLAN = {
    "npus": [
        {"id": 0, "pci": "0000:c1:00.0", "pool": "0-7", "irq": "0-1"},
        {"id": 1, "pci": "0000:01:00.0", "pool": "16-23", "irq": "16-17"},
    ]
}
SLICE = "/etc/systemd/system/npu-0.slice"


@pytest.fixture
def root(tmp_path):
    simulator.generate(MACHINE, tmp_path)
    return tmp_path


@pytest.fixture
def bound(run_module, root):
    """The tree of a host whose slice, interrupts, host code and device share a bind has changed, and what it was before."""
    before = files_of(root)
    (root / SLICE[1:]).write_text("[Slice]\nAllowedCPUs=0\n")
    before[SLICE] = b"[Slice]\nAllowedCPUs=0\n"
    content = "# Managed by npu.affinity: changes are overwritten.\n[Slice]\nAllowedCPUs=0-7\n"
    live = {"irq": "fail", "device_share": wanted()}
    state = a_state(plan=PLAN, runtime=True, files=[{"path": SLICE, "content": content}], live=live)
    assert not run_module("host_files", root=str(root), state=state).get("failed")
    return root, before


def files_of(root):
    vendor = ("/simulator", "/var/log", "/run/npu-smi")
    paths = ["/" + str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    return {path: (root / path[1:]).read_bytes() for path in paths if not path.startswith(vendor)}


def test_a_run_puts_everything_back_and_says_what(run_module, bound):
    root, before = bound
    predicted = run_module("unbind", root=str(root), _ansible_check_mode=True)
    assert SLICE in predicted["files"] and files_of(root) != before
    result = run_module("unbind", root=str(root))
    assert files_of(root) == before
    assert predicted.pop("message") == "This host would be restored to its state before the first bind."
    assert predicted == {name: value for name, value in result.items() if name != "message"}
    assert result["changed"] and result["message"] == "This host is as it was before the first bind."
    assert result["files"] == [SLICE]
    assert {"/etc/npu-affinity/plan.json", "/etc/npu-affinity/previous.json"} <= set(result["removed"])
    assert [(chip["card"], chip["before"], chip["after"]) for chip in result["device_share"]["chips"]] == [
        (0, True, False),
        (1, True, False),
    ]
    (entry,) = [entry for entry in result["interrupts"]["npus"][0]["interrupts"] if entry["name"] == "sq_send_trigger_irq"]
    assert (result["interrupts"]["npus"][0]["pci"], entry["before"], entry["after"]) == ("0000:01:00.0", "16", "16-31")
    told, text = result["diff"]
    assert (text["before_header"], text["after"]) == (SLICE, before[SLICE].decode())
    lines = told["prepared"].splitlines()
    assert lines[:3] == ["plan:", "  - NPU 0 (0000:c1:00.0): CPUs 0-7, irq 0-1", "  - NPU 1 (0000:01:00.0): CPUs 16-23, irq 16-17"]
    assert "  - /etc/npu-affinity/previous.json" in lines
    restored = (
        "  ~ 0000:c1:00.0: sq_send_trigger_irq 0 -> 0-15; 16 cq_update_irq 1 -> 0-15; dev0_sq_send_wq 0 -> 0-31; dev0_sq_task 0 -> 0-31"
    )
    assert restored in lines
    file = "  ~ /etc/device_share.cfg: as before the first bind"
    assert lines[-3:] == ["device share:", "  ~ card 0-1 chip 0: on -> off", file]
    again = run_module("unbind", root=str(root))
    nothing = {"changed": False, "bound": False, "diff": [], "removed": [], "kept": []}
    assert {name: again[name] for name in nothing} == nothing
    assert again["message"] == "This host is not bound: there is nothing to unbind."


def test_a_diff_shows_no_file_that_not_everybody_may_read(run_module, root):
    (root / SLICE[1:]).write_text("[Slice]\n# secret\n")
    (root / SLICE[1:]).chmod(0o640)
    content = "# Managed by npu.affinity: changes are overwritten.\n[Slice]\nAllowedCPUs=0-7\n"
    for name, arguments in (("host_files", {"state": a_state(files=[{"path": SLICE, "content": content}])}), ("unbind", {})):
        result = run_module(name, root=str(root), _ansible_diff=True, **arguments)
        assert result["changed"] and "(not shown; mode 0640)" in str(result["diff"])
        assert "secret" not in str(result)
    assert "secret" in (root / SLICE[1:]).read_text()


def test_a_busy_card_fails_at_the_end_or_warns_on_request(run_module, bound):
    root, before = bound
    faults.set_faults(root, busy=[1])
    result = run_module("unbind", root=str(root))
    assert result["failed"] and result["device_share"]["busy"] == [1] and result["kept"] == ["device_share"]
    assert "not everything could be restored: card 1: chip 0 is not off, because a container holds the card" in result["msg"]
    assert set(files_of(root)) - set(before) == {"/etc/npu-affinity/previous.json", "/etc/device_share.cfg"}
    result = run_module("unbind", root=str(root), ignore_busy=True)
    assert not result.get("failed") and not result["changed"]
    assert "card 1" in str(result["warnings"])
    assert result["message"] == "What is left is in /etc/npu-affinity/previous.json (device_share), for a later run."
    faults.set_faults(root)
    assert run_module("unbind", root=str(root))["message"] == "This host is as it was before the first bind."
    assert files_of(root) == before

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a simulated host with two cards, as Ansible runs it that a bind has changed."""

import json

import pytest

from tests.fakes.bound import files_of
from tests.fakes.share import wanted
from tests.fakes.states import a_state

from tests.simulator import faults

FIRST = {"id": 0, "pci": "0000:c1:00.0", "pool": "0-7", "irq": "0-1"}
PLAN = {"npus": [FIRST, {"id": 1, "pci": "0000:01:00.0", "pool": "16-23", "irq": "16-17"}]}
SLICE, PREVIOUS = "/etc/systemd/system/npu-0.slice", "/etc/npu-affinity/previous.json"
CONTENT = "# Managed by npu.affinity: changes are overwritten.\n[Slice]\nAllowedCPUs=0-7\n"


@pytest.fixture
def bound(act, root):
    """The tree of a host whose slice, interrupts, host code and device share a bind has changed, and what it was before."""
    (root / SLICE[1:]).write_text("[Slice]\nAllowedCPUs=0\n")
    before = files_of(root)
    live = {"irq": "fail", "device_share": wanted()}
    state = a_state(plan=PLAN, runtime=True, files=[{"path": SLICE, "content": CONTENT}], live=live)
    assert act("host_files", state=state)["changed"]
    return root, before


DIFF = [
    "plan:\n  - NPU 0 (0000:c1:00.0): CPUs 0-7, irq 0-1\n  - NPU 1 (0000:01:00.0): CPUs 16-23, irq 16-17\n",
    "\n  - /etc/npu-affinity/previous.json\n",
    "\n  ~ 0000:c1:00.0: sq_send_trigger_irq 0 -> 0-15; 16 cq_update_irq 1 -> 0-15; dev0_sq_send_wq 0 -> 0-31; dev0_sq_task 0 -> 0-31\n",
    "\ndevice share:\n  ~ card 0-1 chip 0: on -> off\n  ~ /etc/device_share.cfg: as before the first bind\n",
]


def test_a_run_puts_everything_back_and_says_what(act, bound):
    root, before = bound
    predicted = act("unbind", _ansible_check_mode=True)
    assert SLICE in predicted["files"] and files_of(root) != before
    result = act("unbind")
    assert files_of(root) == before
    assert predicted.pop("message") == "This host would be restored to its state before the first bind."
    assert predicted == {name: value for name, value in result.items() if name != "message"}
    assert result["changed"] and result["message"] == "This host is as it was before the first bind."
    assert result["files"] == [SLICE]
    assert {"/etc/npu-affinity/plan.json", PREVIOUS} <= set(result["removed"])
    chips = [(chip["card"], chip["before"], chip["after"]) for chip in result["device_share"]["chips"]]
    assert chips == [(0, True, False), (1, True, False)]
    (entry,) = [entry for entry in result["interrupts"]["npus"][0]["interrupts"] if entry["name"] == "sq_send_trigger_irq"]
    assert (result["interrupts"]["npus"][0]["pci"], entry["before"], entry["after"]) == ("0000:01:00.0", "16", "16-31")
    told, text = result["diff"]
    assert (text["before_header"], text["after"]) == (SLICE, before[SLICE].decode())
    for part in DIFF:
        assert part in told["prepared"], told["prepared"]
    again = act("unbind")
    nothing = {"changed": False, "bound": False, "diff": [], "removed": [], "kept": []}
    assert {name: again[name] for name in nothing} == nothing
    assert again["message"] == "This host is not bound: there is nothing to unbind."


def test_a_diff_shows_no_file_that_not_everybody_may_read(act, root):
    (root / SLICE[1:]).write_text("[Slice]\n# secret\n")
    (root / SLICE[1:]).chmod(0o640)
    for name, arguments in (("host_files", {"state": a_state(files=[{"path": SLICE, "content": CONTENT}])}), ("unbind", {})):
        result = act(name, _ansible_diff=True, **arguments)
        assert result["changed"] and "(not shown; mode 0640)" in str(result["diff"])
        assert "secret" not in str(result)
    assert "secret" in (root / SLICE[1:]).read_text()


def test_a_busy_card_fails_at_the_end_or_warns_on_request(act, bound):
    root, before = bound
    faults.set_faults(root, busy=[1])
    result = act("unbind")
    assert result["failed"] and result["device_share"]["busy"] == [1] and result["kept"] == ["device_share"]
    assert "not everything could be restored: card 1: chip 0 is not off, because a container holds the card" in result["msg"]
    kept = files_of(root)
    assert set(kept) - set(before) == {PREVIOUS, "/etc/device_share.cfg"}
    assert json.loads(kept[PREVIOUS]).keys() == {"about", "schema", "device_share"}
    result = act("unbind", ignore_busy=True)
    assert not result.get("failed") and not result["changed"] and files_of(root) == kept
    assert "card 1" in str(result["warnings"])
    assert result["message"] == f"What is left is in {PREVIOUS} (device_share), for a later run."
    faults.set_faults(root)
    assert act("unbind")["message"] == "This host is as it was before the first bind."
    assert files_of(root) == before

#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: device_share
short_description: Switch the device share of NPUs on or off
version_added: 1.0.0
description:
  - Device share (container share mode) lets several containers open one NPU, which soft slicing requires. It is off by default.
  - Queries the state of every chip with C(npu-smi), changes only chips that differ, and reads every chip again, also after a failure.
  - A card that a container has open cannot change. The module changes the other cards, then fails and names the open ones.
  - Both dies of an A3 card change together. The chips of a 300I Duo card change individually.
  - Records the original state in C(/etc/npu-affinity/previous.json).
  - The driver forgets device share at a reboot. With O(boot_unit), a unit restores it at boot.
options:
  enabled:
    description: Whether containers may share the chips.
    type: bool
    required: true
  npus:
    description:
      - The cards to switch. An element is a card, by its NPU ID as C(npu-smi info) shows it, or a dictionary with C(card) and C(chip).
      - Empty means all cards. Cards that are not in the list do not change.
    type: list
    elements: raw
    default: []
  only_ours:
    description:
      - With O(enabled=false), leave device share on for chips where it was on before this collection first changed it.
    type: bool
    default: true
  recover:
    description:
      - The driver's own recovery of device share after a reboot.
      - It restores only cards 0 to 7, and no A3 cards. Later changes damage its file. With V(on), the module therefore switches it off and on,
        and sets every card again.
      - V(leave) does not change it.
    type: str
    choices: [leave, 'on', 'off']
    default: leave
  ignore_busy:
    description: Report and skip cards that a container has open, instead of failing the task.
    type: bool
    default: false
  boot_unit:
    description:
      - The text of C(npu-affinity-device-share.service), which enables device share at boot. The module writes and enables the unit and its
        host code, in the folder that its C(PYTHONPATH) names, but does not start it.
      - An empty text removes the unit. Without this option, the unit does not change.
    type: str
  min_driver:
    description:
      - The oldest version of the Ascend driver with which device share may be switched on. Soft slicing needs V(25.5).
      - Empty means any.
    type: str
    default: '25.5'
  topology:
    description:
      - The fact C(npu_affinity_topology) from module M(npu.affinity.topology_facts). With it, the module need not query the cards.
    type: dict
  root:
    description: Root directory of the host's file tree. With any value other than V(/), the module uses the C(npu-smi) of that tree.
    type: path
    default: /
  npu_smi:
    description: The C(npu-smi) command. By default, the module searches where Ascend drivers install it.
    type: str
  timeout:
    description:
      - Time limit of each C(npu-smi) call in seconds. Calls for cards whose controller does not respond take tens of seconds.
      - After a call without an answer, the module makes no more queries. All calls of a run together may take five times as long.
    type: int
    default: 60
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Let containers share all NPUs
  npu.affinity.device_share:
    enabled: true
    topology: "{{ ansible_facts['npu_affinity_topology'] }}"
    boot_unit: "{{ lookup('ansible.builtin.file', 'npu-affinity-device-share.service') }}"

- name: Let them share one card and one chip of another, even if a third party holds some of them now
  npu.affinity.device_share:
    enabled: true
    npus:
      - 2
      - card: 3
        chip: 1
    ignore_busy: true

- name: Disable sharing on all chips, and recovery by the driver
  npu.affinity.device_share:
    enabled: false
    only_ours: false
    recover: 'off'
    boot_unit: ''
    min_driver: ''
    timeout: 60

- name: The same in the tree of a simulated host
  npu.affinity.device_share:
    root: /srv/simulated/node1
    npu_smi: /srv/simulated/node1/usr/local/Ascend/driver/tools/npu-smi
    enabled: false
"""

RETURN = r"""
chips:
  description:
    - Every chip that was queried. RV(chips[].enabled) is the requested state, or null if none was requested.
    - A state is null if npu-smi did not report one.
  returned: always
  type: list
  elements: dict
  contains:
    card:
      description: NPU ID.
      returned: always
      type: int
    chip:
      description: Chip ID on the card.
      returned: always
      type: int
    before:
      description: The state before.
      returned: always
      type: bool
    after:
      description: The state that was read back, in check mode the expected one.
      returned: always
      type: bool
    enabled:
      description: The wanted state.
      returned: always
      type: bool
  sample:
    - {card: 0, chip: 0, before: false, after: true, enabled: true}
recover:
  description: The driver's recovery switch before and after, null when O(recover=leave).
  returned: always
  type: dict
  sample: {before: false, after: true}
busy:
  description: Cards that could not be changed because a container has them open.
  returned: always
  type: list
  elements: int
  sample: [3]
failures:
  description: A sentence for every card, and for the recovery switch, that is not as wanted.
  returned: always
  type: list
  elements: str
  sample: ['card 3: chip 0 is not on, because a container holds the card (exporters and device plugins count); stop it and run again']
files:
  description: Paths of the files that were written for the boot unit.
  returned: always
  type: list
  elements: str
  sample: [/etc/systemd/system/npu-affinity-device-share.service]
removed:
  description: Paths of the files that were removed.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import OLDEST_DRIVER, Report, select
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.step import result_of
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.switching import (
    RECOVER,
    Choice,
    require_driver,
    switch,
)
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.tool import Cards, Refusal, ShareTool
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs import diffs
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import UNIT_FOLDER
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Report as Files
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request

UNIT = "npu-affinity-device-share.service"


def argument_spec() -> dict[str, Any]:
    return {
        "enabled": {"type": "bool", "required": True},
        "npus": {"type": "list", "elements": "raw", "default": []},
        "only_ours": {"type": "bool", "default": True},
        "recover": {"type": "str", "choices": list(RECOVER), "default": "leave"},
        "ignore_busy": {"type": "bool", "default": False},
        "boot_unit": {"type": "str"},
        "min_driver": {"type": "str", "default": OLDEST_DRIVER},
        "topology": {"type": "dict"},
        "root": {"type": "path", "default": "/"},
        "npu_smi": {"type": "str"},
        "timeout": {"type": "int", "default": 60},
    }


def run(module: AnsibleModule, host: Host) -> tuple[Report, Files]:
    """Return the reports on device share and on files; the unit is written first, so a busy card is tried again at boot."""
    params, topology = module.params, module.params["topology"]
    if topology and not params["npus"] and not Cards.of_topology(topology).chips:
        return Report(), write_unit(host, params["boot_unit"] and "", module.check_mode)
    if params["enabled"] and params["min_driver"]:
        require_driver(host, params["min_driver"], topology and topology["driver"]["version"])
    tool = ShareTool(host, params["npu_smi"])
    cards = Cards.of_topology(topology) if topology else tool.cards()
    select(cards.chips, params["npus"])
    written = write_unit(host, params["boot_unit"], module.check_mode)
    choice = Choice(params["enabled"], params["npus"], params["only_ours"])
    return switch(host, tool, cards, choice, RECOVER[params["recover"]], module.check_mode), written


def write_unit(host: Host, text: str | None, check: bool) -> Files:
    """Bring the boot unit to a text ('' removes it, None leaves it alone), with the host code that it runs."""
    path = "%s/%s" % (UNIT_FOLDER, UNIT)
    if not text:
        return apply(host, Request(owned=[] if text is None else [path]), check)
    files = [runtime.archive_file(installed.library_in(text)), {"path": path, "content": text}]
    return apply(host, Request(files=files, enabled=[UNIT]), check)


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        host = Host(module.params["root"], module.params["timeout"])
        with changing(host, "module device_share", module.check_mode):
            report, written = run(module, host)
    except (CommandError, OSError, ValueError, Refusal) as error:
        module.fail_json(msg=str(error))
    for sentence in report.warnings:
        module.warn(sentence)
    ignored: dict[int | None, str] = {
        card: text for card, text in report.failed.items() if module.params["ignore_busy"] and card in report.busy
    }
    failed = {card: text for card, text in report.failed.items() if card not in ignored}
    for sentence in diffs.card_sentences(ignored):
        module.warn(sentence)
    shown = result_of(report)
    result: dict[str, Any] = {
        **shown,
        "changed": report.changed or written.changed,
        "files": [path for path, (before, after) in written.changes.items() if after.text is not None],
        "removed": [path for path, (before, after) in written.changes.items() if after.text is None],
        "diff": diffs.Diff()
        .add_files(written.changes, written.actions)
        .add(diffs.SHARE, diffs.device_share(shown["chips"], shown["recover"]))
        .document(),
    }
    if failed:
        module.fail_json(msg="device share differs from the settings: " + "; ".join(diffs.card_sentences(failed)), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()

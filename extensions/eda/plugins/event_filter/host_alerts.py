# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import argparse
import logging
import math
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

DOCUMENTATION = r"""
---
short_description: Make one event for each alert of a notification of Alertmanager, with its host
description:
  - Takes the events of a webhook that Alertmanager notifies, and makes an event for each alert in them.
  - An event has C(alert), C(host), C(cause), C(status), C(summary) and C(firings), and no more of what was sent. An action is limited to
    C(host). Where an alert names no host, or something that is not the name of one, such as a pattern of an inventory, C(host) is empty.
  - C(host) is the label C(inventory_hostname) of the alert, else its C(instance) without the port. It has to be the name of a host in the
    inventory. The name of a group is none.
  - C(firings) says how often the alert began to fire for the host in the last O(hours) hours, this time included. An alert that fires on
    and is sent again counts once, and so do alerts of one name with several causes that began together. It is known since the rulebook was
    started.
options:
  inventory:
    description:
      - The inventory whose hosts are accepted, as for C(ansible -i). It is read again when an alert names a host that it did not have.
      - By default it is the one that ansible-rulebook was started with. Without one C(host) is any name, and the playbook that is run has
        to refuse what is not a host, as those of this collection do with C(npu_affinity_host).
    type: str
  hours:
    description: Within how many hours firings are counted.
    type: float
    default: 24
"""

EXAMPLES = r"""
- eda.builtin.webhook:
    host: 127.0.0.1
    port: 5000
    token: "{{ webhook_token }}"
  filters:
    - npu.affinity.host_alerts:
        hours: 24
        inventory: /etc/ansible/inventory
"""

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})\Z")
_PORT = re.compile(r":\d+\Z")
_GROUPS = ("all", "ungrouped")
_MOST = 10000
"""How many alerts of hosts are remembered, and how many firings of each: those that were seen longest ago are forgotten."""
_MOST_FIRINGS = 100
_AGE = 60
_TIMEOUT = 60
"""Seconds after which an inventory is read again for an unknown name, and which that may take."""
_seen: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}
"""Alerts of hosts in the order in which they were seen last: when that was, and when each of their firings was seen first,
``{(alert, host): (seconds, {startsAt: seconds})}``."""
_inventories: dict[str, tuple[float, frozenset[str]]] = {}
"""When an inventory was read, and the names of its hosts."""


def main(event: dict[str, Any], hours: float = 24, inventory: str = "") -> list[dict[str, Any]]:
    """Return an event for each alert of a notification."""
    payload = event.get("payload")
    alerts = payload.get("alerts") if isinstance(payload, dict) else None
    found = [alert for alert in alerts if isinstance(alert, dict)] if isinstance(alerts, list) else []
    inventory = inventory or _started_with()
    return [_event(alert, 3600 * hours, inventory) for alert in found]


def _started_with() -> str:
    """Return the inventory that ansible-rulebook was started with, '' where it was without."""
    words = sys.argv if pathlib.PurePath(sys.argv[0]).name == "ansible-rulebook" else []
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-i", "--inventory", default="")
    named: str = parser.parse_known_args(words[1:])[0].inventory
    return named


def _event(alert: dict[str, Any], within: float, inventory: str) -> dict[str, Any]:
    labels, annotations = (_texts(alert.get(part)) for part in ("labels", "annotations"))
    name, host = labels.get("alertname", ""), _host(labels, inventory)
    found = {"alert": name, "host": host, "cause": labels.get("cause", ""), "status": _text(alert.get("status"))}
    firings = _count(name, host, str(alert.get("startsAt", "")), within) if found["status"] == "firing" else 0
    return {**found, "summary": annotations.get("summary", ""), "firings": firings, "meta": {"hosts": [host]} if host else {}}


def _texts(values: Any) -> dict[str, str]:
    return {str(key): _text(value) for key, value in (values.items() if isinstance(values, dict) else ())}


def _text(value: Any) -> str:
    """Return a value without braces: what is in an event becomes a variable of a playbook, and must be no template there."""
    return str(value).replace("{", "(").replace("}", ")")


def _host(labels: dict[str, str], inventory: str) -> str:
    name = labels.get("inventory_hostname") or _PORT.sub("", labels.get("instance", ""))
    if not _HOST.match(name) or name in _GROUPS:
        return ""
    return name if not inventory or name in _hosts(inventory, name) else ""


def _hosts(inventory: str, name: str) -> frozenset[str]:
    """Return the hosts of an inventory, which is read again where it lacks a name. One that cannot be read has those that it had."""
    read, hosts = _inventories.get(inventory, (-math.inf, frozenset()))
    now = time.monotonic()
    if name in hosts or now - read < _AGE:
        return hosts
    command = ["ansible", "-i", inventory, "all", "--list-hosts"]
    try:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        logging.getLogger(__name__).warning("host_alerts: the hosts of %s are not known: %s", inventory, error)
        answer = "\n".join(("", *hosts))
    _inventories[inventory] = now, frozenset(line.strip() for line in answer.splitlines()[1:])
    return _inventories[inventory][1]


def _count(name: str, host: str, began: str, within: float) -> int:
    now = time.monotonic()
    _last, known = _seen.pop((name, host), (now, {}))
    seen = {start: first for start, first in known.items() if now - first < within or start == began}
    seen.setdefault(began, now)
    _seen[name, host] = now, dict(list(seen.items())[-_MOST_FIRINGS:])
    while len(_seen) > 1 and (len(_seen) > _MOST or now - next(iter(_seen.values()))[0] >= within):
        del _seen[next(iter(_seen))]
    return len(seen)

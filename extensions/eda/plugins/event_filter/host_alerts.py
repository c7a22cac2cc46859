# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import time
from typing import Any

DOCUMENTATION = r"""
---
short_description: Make one event for each alert of a notification of Alertmanager, with its host
description:
  - Takes the events of a webhook that Alertmanager notifies, and makes an event for each alert in them.
  - An event has C(alert), C(host), C(cause), C(status), C(summary) and C(firings), and no more of what was sent. An action is limited to
    C(host). Where an alert names no host, or something that is not the name of one, such as a pattern of an inventory, C(host) is empty.
  - C(host) is the label C(inventory_hostname) of the alert, else its C(instance) without the port.
  - C(firings) says how often the alert began to fire for the host in the last O(hours) hours, this time included. An alert that fires on
    and is sent again counts once, and so do alerts of one name with several causes that began together. It is known since the rulebook was
    started.
options:
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
"""

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})\Z")
_PORT = re.compile(r":\d+\Z")
_GROUPS = ("all", "ungrouped")
_seen: dict[tuple[str, str], dict[str, float]] = {}
"""When each firing of an alert was seen first, ``{(alert, host): {startsAt: seconds}}``."""


def main(event: dict[str, Any], hours: float = 24) -> list[dict[str, Any]]:
    """Return an event for each alert of a notification; none where there is none in it."""
    payload = event.get("payload")
    alerts = payload.get("alerts") if isinstance(payload, dict) else None
    return [_event(alert, 3600 * hours) for alert in alerts if isinstance(alert, dict)] if isinstance(alerts, list) else []


def _event(alert: dict[str, Any], within: float) -> dict[str, Any]:
    labels, annotations = (_texts(alert.get(part)) for part in ("labels", "annotations"))
    name, host = labels.get("alertname", ""), _host(labels)
    found = {"alert": name, "host": host, "cause": labels.get("cause", ""), "status": str(alert.get("status"))}
    firings = _count(name, host, str(alert.get("startsAt", "")), within) if found["status"] == "firing" else 0
    return {**found, "summary": annotations.get("summary", ""), "firings": firings, "meta": {"hosts": [host]} if host else {}}


def _texts(values: Any) -> dict[str, str]:
    """Return labels or annotations without braces: what is in an event becomes a variable of a playbook, and must be no template there."""
    found = values.items() if isinstance(values, dict) else ()
    return {str(key): str(value).replace("{", "(").replace("}", ")") for key, value in found}


def _host(labels: dict[str, str]) -> str:
    name = labels.get("inventory_hostname") or _PORT.sub("", labels.get("instance", ""))
    return name if _HOST.match(name) and name not in _GROUPS else ""


def _count(name: str, host: str, began: str, within: float) -> int:
    now = time.monotonic()
    seen = {start: first for start, first in _seen.get((name, host), {}).items() if now - first < within or start == began}
    seen.setdefault(began, now)
    _seen[name, host] = seen
    return len(seen)

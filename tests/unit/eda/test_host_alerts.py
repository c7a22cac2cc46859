# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the event filter makes of a notification of Alertmanager, and what the rulebook says of causes."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base import findings

EDA = Path(__file__).parents[3] / "extensions/eda"
DRIFT = {"alertname": "NpuAffinityDrift", "cause": "irqbalance", "instance": "node1:9100"}


@pytest.fixture
def alerts(monkeypatch):
    """The filter as it is loaded for one run of a rulebook, with a clock: ``alerts.now`` in hours."""
    spec = importlib.util.spec_from_file_location("host_alerts", EDA / "plugins/event_filter/host_alerts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.now = 0.0
    monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": staticmethod(lambda: 3600 * module.now)}))
    return module


def alert(labels=None, began="17:00", status="firing", **more):
    return {"status": status, "labels": {**DRIFT, **(labels or {})}, "startsAt": f"2026-11-22T{began}:00Z", **more}


def events(alerts, *sent):
    return alerts.main({"payload": {"version": "4", "alerts": list(sent)}, "meta": {"endpoint": ""}})


def test_each_alert_is_an_event_with_what_rules_need_and_no_more(alerts):
    labels = {"alertname": "NpuAffinityLostNpu", "cause": "", "instance": "node2"}
    first, second = events(alerts, alert(), alert(labels, annotations={"summary": "lost {{ 1 }}"}, fingerprint="1"))
    same = {"status": "firing", "firings": 1}
    host1, host2 = ({"host": name, "meta": {"hosts": [name]}} for name in ("node1", "node2"))
    assert first == {"alert": "NpuAffinityDrift", "cause": "irqbalance", "summary": "", **same, **host1}
    assert second == {"alert": "NpuAffinityLostNpu", "cause": "", "summary": "lost (( 1 ))", **same, **host2}


def test_no_text_of_an_alert_is_a_template(alerts):
    hostile = "{{ lookup('pipe', 'id') }}"
    sent = alert({"alertname": hostile, "cause": hostile}, began=hostile, status=hostile, annotations={"summary": hostile})
    (event,) = events(alerts, sent)
    assert "{" not in str({key: value for key, value in event.items() if key != "meta"}.values()) and event["status"].startswith("((")


PATTERNS = ("", "all", "ungrouped", "*", "node1,node2", "!node1", "~node.*", "@file", "node1\n", "npu_hosts[0]", "[fd00::1]:9100")
# labels, the host that an action is limited to
HOSTS = [
    ({"instance": "node1.example.com:9100"}, "node1.example.com"),
    ({"instance": "192.0.2.7:9100"}, "192.0.2.7"),
    ({"instance": "192.0.2.7:9100", "inventory_hostname": "node7"}, "node7"),
    ({"instance": "node_7"}, "node_7"),
    *(({"instance": name}, "") for name in PATTERNS),
]


@pytest.mark.parametrize("labels, host", HOSTS)
def test_a_host_is_a_name_and_never_a_pattern(alerts, labels, host):
    (event,) = events(alerts, alert(labels))
    assert event["host"] == host
    assert event["meta"] == ({"hosts": [host]} if host else {})


INVENTORY = "npu_hosts: {hosts: {node1: {}, node2: {}}}\nfleet: {children: {npu_hosts: {}}}\n"
NAMES = [
    ({"inventory_hostname": "node1"}, "node1"),
    ({"instance": "node2:9100"}, "node2"),
    *(({"inventory_hostname": name}, "") for name in ("npu_hosts", "fleet", "node3", "all", "ungrouped", "node*", "node1:node2", "!node1")),
    ({"instance": "npu_hosts:9100"}, ""),
]


@pytest.fixture
def inventory(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    return tmp_path / "hosts.yml"


def test_only_a_host_of_the_inventory_is_accepted(alerts, inventory, monkeypatch):
    command = ["/opt/venv/bin/ansible-rulebook", "--rulebook", "npu.affinity.heal", "-i", str(inventory), "--vars", "heal.yml"]
    monkeypatch.setattr(sys, "argv", command)
    found = [(event["host"], event["meta"]) for event in events(alerts, *(alert(labels) for labels, _host in NAMES))]
    assert found == [(host, {"hosts": [host]} if host else {}) for _labels, host in NAMES]


def test_a_host_that_comes_into_the_inventory_is_accepted_later(alerts, inventory):
    def host(**options):
        (event,) = alerts.main({"payload": {"alerts": [alert({"instance": "node3"})]}}, **options)
        return event["host"]

    assert host(inventory=str(inventory)) == ""
    inventory.write_text(INVENTORY.replace("node2", "node3"))
    assert host(inventory=str(inventory)) == "", "it is not read for each alert"
    alerts.now += 1
    assert host(inventory=str(inventory)) == "node3"
    inventory.unlink()
    alerts.now += 1
    assert host(inventory=str(inventory)) == "node3" and host(inventory=str(inventory.with_name("none"))) == ""


def test_what_was_seen_is_forgotten(alerts):
    for number in range(500):
        events(alerts, alert({"instance": f"node{number}"}))
    assert len(alerts._seen) == 500
    alerts.now += 25
    events(alerts, alert())
    assert len(alerts._seen) == 1
    for number in range(300):
        events(alerts, alert(began=f"{number}"))
    assert len(alerts._seen["NpuAffinityDrift", "node1"][1]) <= 100
    alerts._MOST = 10
    for number in range(50):
        events(alerts, alert({"instance": f"node{number}"}))
    assert len(alerts._seen) <= 11


FIRINGS = {  # hours and beginnings of alerts, firings after each
    "sent again": ([(0, "17:00"), (1, "17:00"), (5, "17:00")], [1, 1, 1]),
    "fired again": ([(0, "17:00"), (1, "18:00"), (2, "19:00"), (3, "20:00")], [1, 2, 3, 4]),
    "seldom": ([(0, "17:00"), (25, "18:00"), (50, "19:00")], [1, 1, 1]),
    "fires for days": ([(0, "17:00"), (20, "17:00"), (40, "17:00"), (41, "18:00")], [1, 1, 1, 1]),
}


@pytest.mark.parametrize("sent, firings", FIRINGS.values(), ids=FIRINGS)
def test_firings_are_counted_by_their_beginnings(alerts, sent, firings):
    found = []
    for alerts.now, began in sent:
        (event,) = events(alerts, alert(began=began))
        found.append(event["firings"])
    assert found == firings


def test_what_is_counted_together_and_what_is_not(alerts):
    both = events(alerts, alert(), alert({"cause": "driver reload"}))
    assert [event["firings"] for event in both] == [1, 1], "two causes that began together"
    other = events(alerts, alert({"instance": "node2:9100"}, began="18:00"), alert(status="resolved", began="18:00"), alert(began="19:00"))
    assert [event["firings"] for event in other] == [1, 0, 2]


@pytest.mark.parametrize("payload", [None, "text", [], {}, {"alerts": None}, {"alerts": ["text"]}])
def test_what_is_no_notification_makes_no_event(alerts, payload):
    assert alerts.main({"payload": payload}) == []


def test_an_alert_of_nothing_is_an_event_that_names_no_host(alerts):
    (event,) = alerts.main({"payload": {"alerts": [{"labels": [], "annotations": None}]}})
    assert (event["host"], event["alert"], event["firings"]) == ("", "", 0)


def test_the_rulebook_binds_for_causes_that_verify_has(alerts):
    lists = re.findall(r"event\.cause (?:not )?in \[([^]]*)\]", (EDA / "rulebooks/heal.yml").read_text())
    assert len(lists) == 3 and len(set(lists)) == 1
    words = {value for name, value in vars(findings).items() if name.isupper() and isinstance(value, str)}
    assert set(re.findall(r'"([^"]*)"', lists[0])) < words

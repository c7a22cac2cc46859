# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bound host writes, read by node exporter, Prometheus and Alertmanager of Debian 13. Needs root.

The host is simulated; what is bound, restored and written on it is done by the programs that its units run. The shipped rules are those
that fire, with two seconds for every ``for:``; ``rules_test.yml`` has the real times.
"""

import contextlib
import http.server
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import SQ
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features
from tests import cache
from tests.simulator.generate import generate

HERE = Path(__file__).parent
SHIPPED = HERE.parents[1] / "docs/examples/monitoring"
SUITE = "trixie"
PACKAGES = ("prometheus", "prometheus-node-exporter", "prometheus-alertmanager")
TEXTFILE = "/var/lib/prometheus/node-exporter/npu_affinity.prom"
ON = {"npu_affinity_metrics_enabled": True, "npu_affinity_metrics_textfile": TEXTFILE, "npu_affinity_nic": "near", "npu_affinity_wait": 0}
ALL_SETTINGS = of_features({**ON, "npu_affinity_hugepages": {"size": "2M", "node": {0: 8}}})
SETTINGS = {feature: ALL_SETTINGS[feature] for feature in ("hugepages", "irq", "metrics", "nic")}
DAEMONS = """\
prometheus-node-exporter --web.listen-address=127.0.0.1:{exporter} --collector.disable-defaults --collector.textfile \
  --collector.textfile.directory=/mnt/host/var/lib/prometheus/node-exporter &
prometheus-alertmanager --web.listen-address=127.0.0.1:{alertmanager} --cluster.listen-address= --config.file=alertmanager.yml \
  --storage.path=/tmp/alertmanager &
prometheus --web.listen-address=127.0.0.1:{prometheus} --config.file=prometheus.yml --storage.tsdb.path=/tmp/prometheus &
wait"""
PATIENCE = 60
ELSEWHERE = "NpuAffinityWorkOutsidePool"


@pytest.fixture(scope="session")
def root():
    def make(folder):
        command = ["mmdebstrap", "--variant=apt", "--aptopt=APT::Install-Recommends false", f"--include={','.join(PACKAGES)}"]
        subprocess.run([*command, SUITE, str(folder / "root")], check=True, timeout=900)

    return cache.folder("metrics", [SUITE, *PACKAGES], make, kept=1) / "root"


def in_root(root, work, command):
    return [str(HERE / "run-in-root"), str(root), str(work), command]


class SimulatedHost:
    """A host that was bound, with metrics, in a folder."""

    def __init__(self, folder):
        generate("a2_8x24", folder)
        self.folder = folder
        (folder / TEXTFILE[1:]).parent.mkdir(parents=True)
        topology = gather(Host(str(folder)))
        state = of_plan(topology, plan(topology), SETTINGS)
        arguments = json.dumps({"ANSIBLE_MODULE_ARGS": {"root": str(folder), "state": state}})
        module = [sys.executable, "-m", "ansible_collections.npu.affinity.plugins.modules.host_files"]
        done = subprocess.run(module, input=arguments, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, program):
        """Run what a unit runs, with the code and the interpreter that the host has."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "usr/local/lib/npu-affinity/npu_affinity.zip"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = ["/usr/bin/python3", "-m", "npu_affinity", program, "--root", str(self.folder)]
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def break_an_interrupt(self):
        lines = (self.folder / "proc/interrupts").read_text().splitlines()
        irq = next(line.split(":")[0].strip() for line in lines if line.endswith(SQ))
        (self.folder / f"proc/irq/{irq}/smp_affinity_list").write_text("0-191\n")


class Monitoring:
    """Node exporter, Prometheus and Alertmanager that run, and what Alertmanager has told."""

    def __init__(self, root, work):
        with contextlib.ExitStack() as stack:
            names = ("exporter", "alertmanager", "prometheus")
            self.ports = {name: stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for name in names}
        self.told = queue.Queue()
        told = self.told

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_arguments):
                pass

        self.receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        rules = (SHIPPED / "rules.yml").read_text()
        (work / "rules.yml").write_text(re.sub(r"\bfor: \d+[mh]$", "for: 2s", rules, flags=re.MULTILINE))
        targets = {name: [f"127.0.0.1:{port}"] for name, port in self.ports.items()}
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": targets["exporter"], "labels": {"instance": "npu01"}}]}],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": targets["alertmanager"]}]}]},
        }
        (work / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        route = {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
        url = f"http://127.0.0.1:{self.receiver.server_address[1]}/"
        receivers = [{"name": "test", "webhook_configs": [{"url": url, "send_resolved": True}]}]
        (work / "alertmanager.yml").write_text(yaml.safe_dump({"route": route, "receivers": receivers}))
        self.log = work / "daemons.log"
        with self.log.open("w") as log:
            command = in_root(root, work, DAEMONS.format(**self.ports))
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.receiver.shutdown()
        self.receiver.server_close()

    def ask(self, path, **parameters):
        """Return what Prometheus answers, ``data`` of its API."""
        url = f"http://127.0.0.1:{self.ports['prometheus']}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def value(self, expression):
        """Return the value of an expression with one sample, or None."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def until(self, look, wanted, why):
        """Wait until a look at it returns what is wanted."""
        end, found = time.monotonic() + PATIENCE, None
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                found = look()
                if found == wanted:
                    return
            time.sleep(0.2)
        raise AssertionError(f"{why}: {found}, not {wanted}\n{self.log.read_text()[-3000:]}")

    def alerts(self):
        """Return the states of the alerts that are neither quiet nor about workers that run elsewhere: ``{name: state}``."""
        found = {alert["labels"]["alertname"]: alert["state"] for alert in self.ask("alerts")["alerts"]}
        return {name: state for name, state in found.items() if name != ELSEWHERE}

    def next_notice(self):
        """Return what was told next, apart from that about the workers of the host."""
        while True:
            notice = self.told.get(timeout=PATIENCE)
            labels = notice["alerts"][0]["labels"]
            if labels["alertname"] != ELSEWHERE:
                break
        return notice["status"], labels["alertname"], labels["instance"], labels.get("cause")


@pytest.fixture
def host(tmp_path):
    return SimulatedHost(tmp_path / "host")


@pytest.fixture
def monitoring(root, tmp_path, host):
    host.run("metrics")
    running = Monitoring(root, tmp_path)
    yield running
    running.close()


def test_promtool_takes_rules_and_metrics(root, tmp_path, host):
    host.run("metrics")
    for path in (SHIPPED / "rules.yml", HERE / "rules_test.yml"):
        (tmp_path / path.name).write_text(path.read_text())
    checks = f"promtool check rules rules.yml; promtool test rules rules_test.yml; promtool check metrics < host{TEXTFILE}"
    done = subprocess.run(in_root(root, tmp_path, checks), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS: 14 rules found" in done.stdout and done.stderr == ""


def test_an_alert_fires_for_a_moved_interrupt_and_ends_on_return(host, monitoring):
    monitoring.until(lambda: monitoring.value("npu_affinity_bound"), 1, "node exporter reads the file")
    monitoring.until(lambda: monitoring.value("sum(npu_affinity_drifted_objects)"), 0, "a host as it was bound")
    assert monitoring.alerts() == {}

    host.break_an_interrupt()
    host.run("metrics")
    monitoring.until(monitoring.alerts, {"NpuAffinityDrift": "pending"}, "drift that is new")
    monitoring.until(monitoring.alerts, {"NpuAffinityDrift": "firing"}, "drift that stays")
    assert monitoring.next_notice() == ("firing", "NpuAffinityDrift", "npu01", "irqbalance")
    assert monitoring.value("job:npu_affinity_drifted_hosts:count") == 1

    assert "sq_send_trigger_irq 0-191 -> " in host.run("irq")
    host.run("metrics")
    monitoring.until(monitoring.alerts, {}, "what the timer's program has restored")
    assert monitoring.next_notice() == ("resolved", "NpuAffinityDrift", "npu01", "irqbalance")
    assert monitoring.value('npu_affinity_interrupts_rebound_total{trigger="check"}') == 1

    for _time in range(3):
        host.break_an_interrupt()
        host.run("irq")
        host.run("metrics")
        time.sleep(1.5)
    assert monitoring.next_notice()[:3] == ("firing", "NpuAffinityInterruptsMovedAgain", "npu01")

    check_dashboard(monitoring)


def check_dashboard(monitoring):
    """Every query of the dashboard has an answer."""
    dashboard = json.loads((SHIPPED / "dashboard.json").read_text())
    now = time.time()
    queries = [(panel["title"], target) for panel in dashboard["panels"] for target in panel["targets"]]
    for title, target in queries:
        expression = re.sub(r"\$(job|instance)\b", ".*", target["expr"])
        if target["instant"]:
            found = monitoring.query(expression)
        else:
            found = monitoring.ask("query_range", query=expression, start=now - 5, end=now, step=1)["result"]
        assert found, f"{title}: {expression}"
    assert len(queries) >= 22
    variables = [entry["query"]["query"] for entry in dashboard["templating"]["list"] if entry["type"] == "query"]
    for name in re.findall(r", (\w+)\)", " ".join(variables)):
        assert monitoring.ask(f"label/{name}/values", **{"match[]": "npu_affinity_info"}), name

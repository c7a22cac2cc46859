# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of a simulated host that module host_files has bound: as they are, after something happened to it, and when nobody wants them."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.metrics import textfile
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import binding
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._command.metrics import samples, writing
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.fakes.node import read_drop_ins
from tests.fakes.changes import work_outside
from tests.fakes.bound import MACHINE, SETTINGS, TEXTFILE
from tests.simulator import generate as simulator

FIRST, SECOND = "0000:c1:00.0", "0000:01:00.0"
FOLDER = TEXTFILE.rpartition("/")[0]
IRQ = {**SETTINGS["irq"], "irqbalance": "leave", "wait": 0, "rebind_limit": 1}
HUGEPAGES = {**SETTINGS["hugepages"], "hugepages": {"size": "2M", "node": {0: 40, 1: 10}}}
METRICS, NIC = SETTINGS["metrics"], SETTINGS["nic"]


@pytest.fixture
def root(tmp_path):
    simulator.generate(MACHINE, tmp_path)
    (tmp_path / FOLDER[1:]).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def bind(run_module, root):
    def run(irq=None, without=None, others=None, **metrics):
        topology = gather(Host(str(root)))
        made = plan({**topology, "npus": [npu for npu in topology["npus"] if npu["pci"] != without]})
        state = of_plan(topology, made, {"irq": irq or IRQ, "metrics": {**METRICS, **metrics}, **(others or {})})
        return run_module("host_files", root=str(root), state=json.loads(json.dumps(state)))

    return run


def run(root, path=TEXTFILE):
    """Run the timer's program, and return the metrics as ``{name and labels: value}``."""
    assert writing.main(["--root", str(root)]) == 0
    lines = (root / path[1:]).read_text().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def drift(metrics):
    """Return the causes of drift that there are, with their numbers."""
    causes = {name: value for name, value in metrics.items() if name.startswith("npu_affinity_drifted_objects{")}
    return {re.search('cause="([^"]*)"', name)[1]: value for name, value in causes.items() if value}


def move_an_interrupt(root, pci=FIRST):
    """Put an interrupt of completions elsewhere, as somebody with a shell would."""
    names = {line.split(":")[0].strip(): line.split()[-1] for line in (root / "proc/interrupts").read_text().splitlines()[1:]}
    irq = next(irq for irq in names if names[irq] == binding.CQ and (root / f"sys/bus/pci/devices/{pci}/msi_irqs/{irq}").exists())
    (root / f"proc/irq/{irq}/smp_affinity_list").write_text("15\n")


def nothing(_root):
    """Leave the host as it was bound."""


def forget(root):
    """Let the driver have no interrupts."""
    (root / "proc/interrupts").write_text("      CPU0\n")


def test_a_host_as_it_was_bound(bind, root):
    assert bind()["changed"]
    found = run(root)
    assert drift(found) == {}
    values = ("bound", "verify_success", "npus", "lost_npus", "new_npus", "local_ratio")
    assert [found[f"npu_affinity_{name}"] for name in values] == [1, 1, 2, 0, 0, 1]
    assert found['npu_affinity_info{strategy="topo_affinity",version="1.0.0"}'] == 1
    assert found["npu_affinity_last_verify_timestamp_seconds"] >= found["npu_affinity_last_bind_timestamp_seconds"] > 1.7e9
    assert (root / TEXTFILE[1:]).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (root / FOLDER[1:]).iterdir()] == ["npu_affinity.prom"]


def test_every_metric_is_declared_as_prometheus_wants_it(bind, root):
    bind(others={"hugepages": HUGEPAGES, "nic": NIC})
    run(root)
    text = (root / TEXTFILE[1:]).read_text()
    for metric in samples.METRICS:
        assert text.count(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n{metric.name}") == 1
        assert metric.name.startswith("npu_affinity_") and metric.help.endswith(".")
        assert metric.name.endswith("_total") is (metric.kind == "counter")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    labels = {metric.name: metric.labels for metric in samples.METRICS}
    for line in lines:
        name, _brace, rest = line.rpartition(" ")[0].partition("{")
        assert tuple(re.findall(r"(\w+)=", rest)) == labels[name], line


def test_processes_outside_the_pool_are_counted_for_each_npu(bind, root):
    bind()
    work_outside(root)

    def outside():
        found, series = run(root), 'npu_affinity_unconfined_processes{code="NPU_WORK_OUTSIDE_POOL",device="npu",npu="%d"}'
        return [found[series % npu] for npu in (0, 1)]

    assert outside() == [0, 1]
    work_outside(root, npu=0, pid=8, cpus="0-47")
    assert outside() == [1, 1], "each process by its own NPU, of one service"
    shutil.rmtree(root / "proc/8")
    (root / "proc/7/status").write_text("Name:\tpython3\nCpus_allowed_list:\t16-31\n")
    assert outside() == [0, 0]


def test_huge_pages_are_counted_for_each_node(bind, root):
    series = 'npu_affinity_hugepages{node="%d",size="2048kB",state="%s"}'
    bind(others={"hugepages": HUGEPAGES})
    folder = root / "sys/devices/system/node/node0/hugepages/hugepages-2048kB"
    (folder / "nr_hugepages").write_text("30\n")
    (folder / "free_hugepages").unlink()
    (folder / "free_hugepages").write_text("25\n")
    found = run(root)
    assert [found[series % (0, state)] for state in ("wanted", "granted", "free")] == [40, 30, 25]
    assert [found[series % (1, state)] for state in ("wanted", "granted", "free")] == [10, 10, 10]


def test_queue_interrupts_are_counted_for_each_function(bind, root):
    series = 'npu_affinity_nic_queues{pci="0000:7d:00.0",state="%s"}'
    bind(others={"nic": NIC})
    (root / "proc/irq/121/smp_affinity_list").write_text("15\n")
    moved = root / "proc/irq/122/smp_affinity_list"
    moved.write_text("15\n")
    moved.chmod(0o444)
    found = run(root)
    assert [found[series % state] for state in ("near", "elsewhere", "fixed")] == [2, 1, 1]


INTERRUPTS = 'compared_objects{kind="interrupts"}'
HAPPENED = [
    pytest.param({}, move_an_interrupt, {"irqbalance": 1}, {"bound": 1, INTERRUPTS: 4}, id="an interrupt was moved"),
    pytest.param(
        {},
        lambda root: (root / f"sys/bus/pci/devices/{SECOND}").unlink(),
        {"lost card": 1},
        {"lost_npus": 1, "npus": 2},
        id="a card dropped off the bus",
    ),
    pytest.param({}, lambda root: (root / PLAN[1:]).unlink(), {"manual change": 1}, {"bound": 0, "npus": 0}, id="the plan was removed"),
    pytest.param({"without": SECOND}, nothing, {"new card": 1}, {"npus": 1, "new_npus": 1}, id="a card is new"),
    pytest.param({"irq": {**IRQ, "failure": "fail"}}, forget, {"driver reload": 4}, {}, id="interrupts are gone"),
    pytest.param({"irq": {**IRQ, "failure": "warn"}}, forget, {}, {}, id="interrupts that need not be bound are gone"),
    pytest.param({"irq": {**IRQ, "enabled": False}}, nothing, {}, {"bound": 1, INTERRUPTS: None}, id="role irq is off"),
]


@pytest.mark.parametrize("settings, happen, causes, values", HAPPENED)
def test_what_happened_to_a_host(bind, root, settings, happen, causes, values):
    bind(**settings)
    happen(root)
    found = run(root)
    assert drift(found) == causes
    assert {name: found.get(f"npu_affinity_{name}") for name in values} == values


def test_a_change_that_waits_for_the_drain_of_a_node_is_counted(run_module, root):
    simulator.generate({**MACHINE, "kubelet": {"policy": "none"}}, root)
    (root / FOLDER[1:]).mkdir(parents=True, exist_ok=True)
    read_drop_ins(root)
    topology = gather(Host(str(root)))
    kubelet = {"enabled": True, "options": {}, "topology_policy": "none", "reserved": ""}
    state = of_plan(topology, plan(topology), {"metrics": METRICS, "kubelet": kubelet})
    waiting = []
    for wait in (None, 1):
        done = run_module("host_files", root=str(root), state=json.loads(json.dumps(state)), kubelet_wait=wait)
        assert not done.get("failed"), done
        waiting.append(run(root)["npu_affinity_pending_changes"])
    assert waiting == [1, 0]


def test_what_the_units_put_back_is_counted(bind, root):
    bind()
    move_an_interrupt(root)
    assert FEATURE.program(["--root", str(root)]) == 0
    for _time in range(2):
        move_an_interrupt(root, SECOND)
        assert FEATURE.program(["--root", str(root), "--pci", SECOND]) == 0
    assert FEATURE.program(["--root", str(root)]) == 0
    found = run(root)
    counted = {name: value for name, value in found.items() if "_total" in name}
    assert counted == {
        'npu_affinity_rebinds_total{trigger="check"}': 1,
        'npu_affinity_rebinds_total{trigger="driver"}': 2,
        'npu_affinity_interrupts_rebound_total{trigger="check"}': 1,
        'npu_affinity_interrupts_rebound_total{trigger="driver"}': 2,
    }
    assert drift(found) == {}


def test_a_host_that_cannot_be_compared_says_so_and_since_when(bind, root, monkeypatch, capsys):
    bind()
    before = run(root)

    def fail(*_arguments, **_options):
        raise ValueError("npu-smi: no answer")

    monkeypatch.setattr(samples, "compare", fail)
    found = run(root)
    assert "could not be compared with its plan: npu-smi: no answer" in capsys.readouterr().out
    assert found["npu_affinity_verify_success"] == 0 and "npu_affinity_bound" not in found and drift(found) == {}
    last = "npu_affinity_last_verify_timestamp_seconds"
    assert found[last] == before[last]


def test_the_file_goes_when_it_is_not_wanted(bind, root, run_module):
    textfile, other = root / TEXTFILE[1:], FOLDER + "/other.prom"
    bind()
    run(root)
    assert bind(textfile=other)["changed"] and textfile.exists()
    run(root, other)
    assert [path.name for path in (root / FOLDER[1:]).iterdir()] == ["other.prom"]
    assert not bind(textfile=other)["changed"]
    done = bind(enabled=False)
    assert other in done["removed"] and list((root / FOLDER[1:]).iterdir()) == []
    assert writing.main(["--root", str(root)]) == 0 and list((root / FOLDER[1:]).iterdir()) == []
    bind()
    run(root)
    assert run_module("unbind", root=str(root), features=["metrics"])["changed"] and not textfile.exists()
    bind()
    run(root)
    run_module("unbind", root=str(root))
    assert list((root / FOLDER[1:]).iterdir()) == [] and not (root / "etc/npu-affinity").exists()


def test_a_file_of_others_is_refused_unwritten(bind, root):
    (root / TEXTFILE[1:]).write_text("up 1\n")
    done = bind()
    assert done["failed"] and "npu_affinity.prom exists and is not managed by npu.affinity" in done["msg"]
    assert not (root / "etc/npu-affinity").exists()


@pytest.mark.parametrize(
    ("textfile", "remark"),
    [
        (TEXTFILE, "No metrics are written: there is no folder /var/lib/prometheus/node-exporter. Install node exporter"),
        ("", "No metrics are written: no node exporter with a folder for text files was found. Install node exporter"),
    ],
)
def test_a_host_without_node_exporter_is_bound_with_a_remark(bind, root, capsys, textfile, remark):
    shutil.rmtree(root / FOLDER[1:])
    done = bind(textfile=textfile)
    assert done["changed"] and [sentence for sentence in done["remarks"] if sentence.startswith(remark)]
    assert (root / "etc/npu-affinity/plan.json").exists()
    assert writing.main(["--root", str(root)]) == 0
    assert remark in capsys.readouterr().out


UNIT, DEFAULTS, DROP_IN = (
    "usr/lib/systemd/system/%s.service",
    "etc/default/prometheus-node-exporter",
    "etc/systemd/system/%s.service.d/x.conf",
)
EXPORTERS = [
    ("nothing is installed", {}, None),
    ("the folder of Debian's package", {"var/lib/prometheus/node-exporter/": ""}, FOLDER),
    (
        "that of the example of node exporter",
        {"var/lib/node_exporter/textfile_collector/": ""},
        "/var/lib/node_exporter/textfile_collector",
    ),
    (
        "an option of the unit",
        {UNIT % "node_exporter": "[Service]\nExecStart=/usr/bin/node_exporter --collector.textfile.directory=/srv/text --web.x\n"},
        "/srv/text",
    ),
    (
        "an option with a blank, on a further line",
        {UNIT % "node-exporter": '[Service]\nExecStart=/usr/bin/node_exporter \\\n  --collector.textfile.directory "/srv/text"\n'},
        "/srv/text",
    ),
    (
        "the environment file of the unit, without its comments",
        {
            UNIT % "prometheus-node-exporter": "[Service]\nEnvironmentFile=-/etc/default/prometheus-node-exporter\nExecStart=/x $ARGS\n",
            DEFAULTS: '# ARGS="--collector.textfile.directory=/no"\nARGS="--collector.textfile.directory /srv/env"\n',
        },
        "/srv/env",
    ),
    (
        "a drop-in before the unit",
        {
            UNIT % "node_exporter": "[Service]\nExecStart=/x --collector.textfile.directory=/srv/old\n",
            DROP_IN % "node_exporter": "[Service]\nExecStart=\nExecStart=/x --collector.textfile.directory=/srv/new\n",
        },
        "/srv/new",
    ),
]


@pytest.mark.parametrize(("files", "folder"), [case[1:] for case in EXPORTERS], ids=[case[0] for case in EXPORTERS])
def test_metrics_go_where_the_node_exporter_of_the_host_reads(tmp_path, files, folder):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            (tmp_path / path).mkdir()
        else:
            (tmp_path / path).write_text(text)
    assert textfile.folder_of_exporter(Host(str(tmp_path))) == folder


def test_by_default_the_metrics_are_in_the_folder_that_is_read(bind, root):
    bind(textfile="")
    assert writing.main(["--root", str(root)]) == 0
    assert (root / TEXTFILE[1:]).exists()


@pytest.mark.parametrize("textfile", ["npu.prom", "/var/lib/npu_affinity.txt"])
def test_names_that_node_exporter_does_not_read_are_refused(textfile):
    with pytest.raises(ValueError, match="npu_affinity_metrics_textfile is '.*', and node exporter reads"):
        of_plan({}, {"npus": []}, {"metrics": {**METRICS, "textfile": textfile}})

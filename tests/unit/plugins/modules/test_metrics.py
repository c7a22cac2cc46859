# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of a simulated host that module host_files has bound: as they are, after something happened to it, and when nobody wants them."""

import json
import pathlib
import re
import shutil

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.metrics import textfile
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._command import metrics as program
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.fakes.small_host import read_drop_ins
from tests.fakes.changes import move_an_interrupt, work_outside
from tests.fakes.bound import MACHINE, SETTINGS, TEXTFILE
from tests.simulator import generate as simulator

FIRST, SECOND = "0000:c1:00.0", "0000:01:00.0"
FOLDER = TEXTFILE.rpartition("/")[0]
IRQ = {**SETTINGS["irq"], "irqbalance": "leave", "wait": 0, "rebind_limit": 1}
HUGEPAGES = {**SETTINGS["hugepages"], "hugepages": {"size": "2M", "node": {0: 40, 1: 10}}}
METRICS, NIC = SETTINGS["metrics"], SETTINGS["nic"]


@pytest.fixture
def bind(run_module, root):
    def run(irq=None, others=None, **metrics):
        topology = gather(Host(str(root)))
        state = of_plan(topology, plan(topology), {"irq": irq or IRQ, "metrics": {**METRICS, **metrics}, **(others or {})})
        return run_module("host_files", root=str(root), state=json.loads(json.dumps(state)))

    return run


def run(root, path=TEXTFILE):
    """Run the timer's program, and return the metrics as ``{name and labels: value}``."""
    assert program.main(["--root", str(root)]) == 0
    lines = (root / path[1:]).read_text().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def drift(metrics):
    """Return the causes of drift that there are, with their numbers."""
    causes = {name: value for name, value in metrics.items() if name.startswith("npu_affinity_drifted_objects{")}
    return {re.search('cause="([^"]*)"', name)[1]: value for name, value in causes.items() if value}


VARYING = r"(?m)^# (HELP|TYPE) .*\n|^npu_affinity_drifted_objects.* 0\n|(?<=_seconds )[\d.]+$|(?<=version=\")[\d.]+"


def test_the_whole_text_of_a_bound_host(bind, root):
    """Huge pages are missing on a node, queues of a network function are elsewhere, and two processes of a service are outside."""
    assert bind(textfile="", others={"hugepages": HUGEPAGES, "nic": NIC})["changed"], "the folder is found"
    folder = root / "sys/devices/system/node/node0/hugepages/hugepages-2048kB"
    (folder / "nr_hugepages").write_text("30\n")
    (folder / "free_hugepages").unlink()
    (folder / "free_hugepages").write_text("25\n")
    for number, mode in ((121, 0o644), (122, 0o444)):
        (root / f"proc/irq/{number}/smp_affinity_list").write_text("15\n")
        (root / f"proc/irq/{number}/smp_affinity_list").chmod(mode)
    work_outside(root)
    work_outside(root, npu=0, pid=8, cpus="0-47")
    found = run(root)
    assert found["npu_affinity_last_verify_timestamp_seconds"] >= found["npu_affinity_last_bind_timestamp_seconds"] > 1.7e9
    text = (root / TEXTFILE[1:]).read_text()
    assert re.sub(VARYING, "", text) == pathlib.Path(__file__).with_name("metrics.prom").read_text()
    for metric in program.METRICS:
        assert text.count(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n{metric.name}") == 1
        assert metric.name.startswith("npu_affinity_") and metric.kind == ("counter" if metric.name.endswith("_total") else "gauge")
    assert (root / TEXTFILE[1:]).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (root / FOLDER[1:]).iterdir()] == ["npu_affinity.prom"]


def lose_interrupts(root):
    (root / "proc/interrupts").write_text("      CPU0\n")


INTERRUPTS = 'compared_objects{kind="interrupts"}'
HAPPENED = {  # what test_agreement.py does not show
    "the plan was removed": ({}, lambda root: (root / PLAN[1:]).unlink(), {"manual change": 1}, {"bound": 0, "npus": 0}),
    "interrupts are gone": ({"irq": {**IRQ, "failure": "fail"}}, lose_interrupts, {"driver reload": 4}, {"bound": 1, INTERRUPTS: 4}),
    "interrupts that need not be bound are gone": ({"irq": {**IRQ, "failure": "warn"}}, lose_interrupts, {}, {}),
    "role irq is off": ({"irq": {**IRQ, "enabled": False}}, None, {}, {"bound": 1, INTERRUPTS: None}),
}


@pytest.mark.parametrize("settings, happen, causes, values", HAPPENED.values(), ids=HAPPENED)
def test_what_happened_to_a_host(bind, root, settings, happen, causes, values):
    bind(**settings)
    happen and happen(root)
    found = run(root)
    assert drift(found) == causes
    assert {name: found.get(f"npu_affinity_{name}") for name in values} == values


def test_a_change_that_waits_for_the_drain_of_a_node_is_counted(run_module, root):
    simulator.generate({**MACHINE, "kubelet": {"policy": "none"}}, root)
    (root / FOLDER[1:]).mkdir(parents=True)
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


COUNTED = ("rebinds", "interrupts_rebound")


def test_what_the_units_put_back_is_counted(bind, root):
    bind()
    move_an_interrupt(root, FIRST)
    assert FEATURE.program(["--root", str(root)]) == 0
    for _time in range(2):
        move_an_interrupt(root, SECOND)
        assert FEATURE.program(["--root", str(root), "--pci", SECOND]) == 0
    assert FEATURE.program(["--root", str(root)]) == 0
    found = run(root)
    totals = {name: [found[f'npu_affinity_{name}_total{{trigger="{why}"}}'] for why in ("check", "driver")] for name in COUNTED}
    assert totals == dict.fromkeys(COUNTED, [1, 2]) and drift(found) == {}


def test_a_host_that_cannot_be_compared_says_so_and_since_when(bind, root, monkeypatch, capsys):
    bind()
    before = run(root)

    def fail(*_arguments, **_options):
        raise ValueError("npu-smi: no answer")

    monkeypatch.setattr(program, "compare", fail)
    found = run(root)
    assert "could not be compared with its plan: npu-smi: no answer" in capsys.readouterr().out
    assert found["npu_affinity_verify_success"] == 0 and "npu_affinity_bound" not in found and drift(found) == {}
    last = "npu_affinity_last_verify_timestamp_seconds"
    assert found[last] == before[last]
    text = (root / TEXTFILE[1:]).read_text()
    (root / TEXTFILE[1:]).write_text(re.sub(f"^{last} .*", f"{last} +Inf", text, flags=re.MULTILINE))
    assert last not in run(root), "a number that no run writes is not taken over"


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
    assert program.main(["--root", str(root)]) == 0 and list((root / FOLDER[1:]).iterdir()) == []
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


UNWRITTEN = "No metrics are written: "
REMARKS = [(TEXTFILE, f"there is no folder {FOLDER}. Install"), ("", "no node exporter with a folder for text files was found. Install")]


@pytest.mark.parametrize("textfile, remark", REMARKS)
def test_a_host_without_node_exporter_is_bound_with_a_remark(bind, root, capsys, textfile, remark):
    shutil.rmtree(root / FOLDER[1:])
    done = bind(textfile=textfile)
    assert done["changed"] and [sentence for sentence in done["remarks"] if sentence.startswith(UNWRITTEN + remark)]
    assert program.main(["--root", str(root)]) == 0
    assert UNWRITTEN + remark in capsys.readouterr().out


UNIT, DEFAULTS = "usr/lib/systemd/system/%s.service", "etc/default/prometheus-node-exporter"
DROP_IN, COLLECTOR = "etc/systemd/system/node_exporter.service.d/x.conf", "/var/lib/node_exporter/textfile_collector"
OPTION, START = "--collector.textfile.directory", "[Service]\nExecStart=/x "
EXPORTERS = {
    "nothing is installed": ({}, None),
    "the folder of Debian's package": ({f"{FOLDER[1:]}/x": ""}, FOLDER),
    "that of the example of node exporter": ({f"{COLLECTOR[1:]}/x": ""}, COLLECTOR),
    "an option of the unit": ({UNIT % "node_exporter": f"{START}{OPTION}=/srv/text --web.x\n"}, "/srv/text"),
    "an option with a blank, on a further line": ({UNIT % "node-exporter": f'{START} \\\n  {OPTION} "/srv/a"\n'}, "/srv/a"),
    "the environment file of the unit, without its comments": (
        {UNIT % "node-exporter": f"{START}$A\nEnvironmentFile=-/{DEFAULTS}\n", DEFAULTS: f'# A="{OPTION}=/no"\nA="{OPTION} /srv/b"\n'},
        "/srv/b",
    ),
    "a drop-in before the unit": (
        {UNIT % "node_exporter": f"{START}{OPTION}=/srv/old\n", DROP_IN: f"[Service]\nExecStart=\nExecStart=/x {OPTION}=/srv/c\n"},
        "/srv/c",
    ),
}


@pytest.mark.parametrize("files, folder", EXPORTERS.values(), ids=EXPORTERS)
def test_metrics_go_where_the_node_exporter_of_the_host_reads(tmp_path, files, folder):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert textfile.folder_of_exporter(Host(str(tmp_path))) == folder


@pytest.mark.parametrize("textfile", ["npu.prom", "/var/lib/npu_affinity.txt"])
def test_names_that_node_exporter_does_not_read_are_refused(textfile):
    with pytest.raises(ValueError, match="npu_affinity_metrics_textfile is '.*', and node exporter reads"):
        of_plan({}, {"npus": []}, {"metrics": {**METRICS, "textfile": textfile}})


MADE_UP = (
    program.Metric("a_ratio", "One\nof two \\ ways."),
    program.Metric("b_total", "How often.", ("why",)),
    program.Metric("c_seconds", "Not measured."),
)
TOTALS = [({"why": 'a "b" \\'}, 2), ({"why": "c\nd"}, 3)]
WRITTEN = r"""# ours
# HELP a_ratio One\nof two \\ ways.
# TYPE a_ratio gauge
a_ratio 0.987654
# HELP b_total How often.
# TYPE b_total counter
b_total{why="a \"b\" \\"} 2
b_total{why="c\nd"} 3
"""


@pytest.mark.parametrize(
    "samples, text",
    [({}, "# ours\n"), ({"c_seconds": []}, "# ours\n"), ({"b_total": TOTALS, "a_ratio": [({}, 0.98765432)]}, WRITTEN)],
)
def test_the_text_of_metrics(samples, text):
    assert program.text("ours", MADE_UP, samples) == text


LAST = [("a_seconds 12\n", 12), ("# a_seconds 1\na_seconds_b 2\n", None), ("a_seconds x\n", None), ("", None), (None, None)]
LAST += [("a_seconds NaN\n", None), ("a_seconds +Inf\n", None)]


@pytest.mark.parametrize("before, value", LAST)
def test_a_value_of_the_last_run(before, value):
    assert program.value_of(before, "a_seconds") == value

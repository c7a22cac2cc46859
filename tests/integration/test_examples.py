# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every example of a document and of a plugin's documentation runs in check mode over one simulated host, with the checkout's ansible.cfg.

Examples are the lists of tasks and plays in ``EXAMPLES`` and in YAML blocks, and Jinja expressions in other blocks. ``not run by the tests:
REASON`` in the comment right before one leaves it out: ``<!-- … -->`` before a block, ``# …`` before a task.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from typing import NamedTuple

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs
from tests.integration.conftest import REPOSITORY, Fleet
from tests.simulator.generate import load
from tests.unit.docs.test_commands import PAGES, commands

BLOCK = re.compile(r"(?P<comment><!--(?:(?!-->).)*-->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
EXPRESSION = re.compile(r"^\{\{.*?\}\}$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^(?P<comment>(?:#.*\n)*)(?P<text>- .*\n(?:(?:[ ].*)?\n)*)", re.MULTILINE)
NOT_RUN = re.compile(r"not run by the tests: \w+")
IN_CHECK_MODE = {"Command would have run if not in check mode", "Nothing is packed in check mode."}
ROOTED = sorted(path.stem for path in REPOSITORY.glob("plugins/modules/*.py") if path.stem != "step")
"""Modules with an option ``root``."""
PRINTS = "ANSIBLE_DISPLAY_OK_HOSTS=true"
ON_HOST = {
    "etc/default/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d\n",
    "usr/local/hami-vnpu-core/limiter": "#!/bin/sh\n",
    "usr/local/hami-vnpu-core/libvnpu.so": "",
    "usr/local/hami-vnpu-core/ld.so.preload": "/usr/local/hami-vnpu-core/libvnpu.so\n",
    "var/lib/prometheus/node-exporter/other.prom": "",
}
"""Files of ``node1`` that examples take for granted."""
SHARES = [{"name": "infer-a", "memory_mib": 28672, "core": 20}]
VARIABLES = {
    "docs/workloads.md": {"npu_affinity_workloads": [{"name": "llm-a", "npus": [0, 1]}]},
    "docs/vnpu.md": {"npu_affinity_vnpus": [{"name": "a", "npu": 0, "memory_mib": 28672, "core": 20}], "shares": SHARES},
}
"""What a page says of variables in words, by page."""


class Example(NamedTuple):
    """``item`` is a task or a play; ``place`` is where it stands, a path of the repository."""

    place: str
    item: dict


def of_text(place, text):
    """The items of a YAML list, but those with the comment."""
    items = [(found["comment"], yaml.safe_load(found["text"])) for found in ITEM.finditer(f"{text}\n")]
    assert [item for _comment, (item,) in items] == yaml.safe_load(text), f"{place}: a list of another shape"
    return [Example(place, item) for comment, (item,) in items if not NOT_RUN.search(comment)]


def of_plugin(path):
    found = re.search(r'^EXAMPLES = r?"""\n(.*?)"""', path.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{path} has no examples"
    return of_text(str(path.relative_to(REPOSITORY)), found[1].removeprefix("---\n"))


def of_page(path):
    found = []
    place = str(path.relative_to(REPOSITORY))
    for block in BLOCK.finditer(path.read_text()):
        if NOT_RUN.search(block["comment"] or ""):
            continue
        if block["language"] == "yaml":
            if isinstance(next(yaml.safe_load_all(block["text"])), list):  # others are variables and files of other programs
                found += of_text(place, block["text"].removeprefix("---\n"))
        else:
            found += [Example(place, {"ansible.builtin.debug": {"msg": text}}) for text in EXPRESSION.findall(block["text"])]
    return found


PLUGINS = [path for folder in ("modules", "filter", "lookup") for path in sorted(REPOSITORY.glob(f"plugins/{folder}/*.py"))]
EXAMPLES = [example for path in PLUGINS for example in of_plugin(path)] + [example for path in PAGES for example in of_page(path)]
PLAYS = [example for example in EXAMPLES if example.item.keys() & {"hosts", "ansible.builtin.import_playbook"}]
TASKS = [example for example in EXAMPLES if example not in PLAYS]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """``node1`` with a history of two binds and a kubelet, and the files that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    machine = {**load("a2_8x24"), "kubelet": {"policy": "none"}}
    hosts = Fleet(folder, {"node1": machine})
    inventory = yaml.safe_load(hosts.inventory.read_text())
    inventory["all"]["children"] = {"npu_hosts": {"hosts": {"node1": None}}}
    inventory["all"]["vars"]["ansible_become"] = False
    hosts.inventory.write_text(yaml.safe_dump(inventory))
    tree = hosts.tree("node1")
    for name, text in ON_HOST.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    for name in ("measures/node1", "summaries", "image"):
        (folder / name).mkdir(parents=True)
    for strategy in ("even_split", "auto"):
        bound = hosts.succeed("bind", npu_affinity_strategy=strategy)
    (folder / "summaries/one.json").write_text(json.dumps(bound.summary))
    (folder / "last_time.json").write_text("{}")
    (folder / "npu-affinity-device-share.service").write_text("# Managed by npu.affinity: changes are overwritten.\n[Service]\n")
    for playbook, variables in (("collect", {"archives": folder / "archives"}), ("plan", {"plan_file": folder / "fleet.json"})):
        hosts.succeed(playbook, **{f"npu_affinity_{name}": str(path) for name, path in variables.items()})
    return hosts


def here(hosts, item):
    """An example with places of the test's for those that it names, and without waiting."""
    tree, folder = hosts.tree("node1"), hosts.folder
    text = json.dumps(item)
    for named, ours in {
        "/srv/simulated/node1": tree,
        "/srv/captures/replay node-17": tree / "usr/local/Ascend/driver/tools/npu-smi",
        "/srv/captures/replay-gpu node-17": "/bin/true",
        "/srv/captures/node-17": tree,
        "/srv/images/node": folder / "image",
        "/tmp/": f"{folder}/tmp/",
        '"src": "archives"': f'"src": "{folder}/archives"',
        '"fleet.html"': f'"{folder}/fleet.html"',
        '"npu_affinity_reports": "reports"': f'"npu_affinity_reports": "{folder}/reports"',
        '"seconds": 60': '"seconds": 1',
    }.items():
        text = text.replace(named, str(ours))
    return json.loads(text)


def run(hosts, plays):
    """Run plays in check mode; a module that is given no root has that of its host."""
    for play in plays:
        if "hosts" in play:
            play["module_defaults"] = {f"npu.affinity.{name}": {"root": "{{ npu_affinity_root }}"} for name in ROOTED}
            play["module_defaults"]["npu.affinity.measure_info"]["seconds"] = 1
    playbook = hosts.folder / "examples.yml"
    playbook.write_text(yaml.safe_dump(plays, sort_keys=False))
    return hosts.play(str(playbook), "--check", npu_affinity_measures=str(hosts.folder / "measures"))


def failures(run):
    """Of each task that failed, the name and the reason."""
    return [f"{entry['task']}: {entry['result'].get('msg')}" for entry in run.results if entry["outcome"] == "failed"]


def test_every_task_of_the_documents_runs(hosts):
    plan = "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan }}"
    manifest = "{{ ({'a': ansible_facts['npu_affinity_topology']} | npu.affinity.volcano(cpus=24, npus=1)).job | to_nice_yaml }}"
    files = [("measures/node1/before.json", "{{ measured | to_json }}"), ("llm.yml", manifest)]
    written = [
        {"ansible.builtin.copy": {"dest": f"{{{{ playbook_dir }}}}/{name}", "content": content}, "check_mode": False}
        for name, content in files
    ]
    plays = [
        {"hosts": "all", "tasks": [{"npu.affinity.topology_facts": {}}, {"ansible.builtin.set_fact": {"npu_affinity_plan": plan}}]},
        {
            "hosts": "node1",
            "tasks": [
                {"ansible.builtin.include_role": {"name": "npu.affinity.plan"}},
                {"npu.affinity.measure_info": {}, "register": "measured"},
                *written,
            ],
        },
    ]
    for place in dict.fromkeys(example.place for example in TASKS):
        tasks = [
            {**here(hosts, example.item), "name": f"{place}: {example.item.get('name', '')}"} for example in TASKS if example.place == place
        ]
        plays.append({"hosts": "node1", "vars": VARIABLES.get(place, {}), "tasks": tasks})
    for play in plays:
        play |= {"gather_facts": False, "ignore_errors": True}
    done = run(hosts, plays)
    assert failures(done) == [], "\n".join(failures(done))
    wanted = [task["name"] for play in plays[2:] for task in play["tasks"]]
    ran = {entry["task"] for entry in done.results if entry["outcome"] == "ok" or entry["result"].get("msg") in IN_CHECK_MODE}
    assert set(wanted) - ran == set()
    assert len(wanted) > 90


def test_every_play_of_the_documents_runs_and_prints(hosts, monkeypatch):
    pages = [path for path in PAGES if "ansible.builtin.debug" in path.read_text() and path.parent.name == "docs"]
    assert [path.name for path in pages if PRINTS not in path.read_text()] == [], "ansible.cfg hides what debug prints"
    monkeypatch.setenv(*PRINTS.split("="))
    done = run(hosts, [here(hosts, example.item) for example in PLAYS])
    assert failures(done) == [], "\n".join(failures(done))
    debugged = [entry for entry in done.results if entry["action"] == "ansible.builtin.debug" and entry["outcome"] == "ok"]
    assert debugged and done.output.count("    msg:") + done.output.count("=> ") >= len(debugged)
    assert done.status == 0, done.output
    assert len(PLAYS) > 15


def test_hosts_take_the_example_of_group_vars(hosts):
    text = (REPOSITORY / "docs/examples/group_vars/npu_hosts.yml").read_text()
    done = hosts.succeed("bind", "--check", "--limit", "node1", **yaml.safe_load(text))
    assert "1 would change: node1" in done.output
    options = specs.by_name()
    paragraphs = [yaml.safe_load(paragraph) for paragraph in text.split("\n\n") if "xample" not in paragraph]
    assert {name: value for found in paragraphs for name, value in found.items() if value != options[name]["default"]} == {}


ORDER = ["plan", "bind", "verify", "measure", "history", "collect", "inspect", "report", "place", "rollback", "unbind"]
RUN, TIME = "20261121T100150-03c1", "2026-11-21T18:00"
"""Of a rollback in the documents. The host has another run, which began at another time."""
FOLDERS = ["before", "after", "runs/2026-11-20", "runs/2026-11-21", "site-a"]
"""Of reports, which commands of documents read."""


def typed():
    """The commands of all documents, each once, in an order in which they find what they need: ``(playbook, its arguments)``."""
    found = {}
    for page in PAGES:
        for words in commands(page.read_text()):
            playbooks = [word for word in words if word.startswith("npu.affinity.")]
            if words[0] == "ansible-playbook" and len(playbooks) == 1:
                arguments = words[1:]
                arguments.remove(playbooks[0])
                if "-i" in arguments:
                    del arguments[arguments.index("-i") : arguments.index("-i") + 2]
                found[playbooks[0].removeprefix("npu.affinity."), tuple(arguments)] = True
    return sorted(found, key=lambda command: ORDER.index(command[0]))


@pytest.mark.long
def test_the_commands_of_all_documents(fleet, tmp_path, monkeypatch):
    monkeypatch.setenv("PWD", str(tmp_path))
    hosts = fleet(node001="i310_pro")
    for housekeeping in ("", "0", "0-1"):
        hosts.succeed("bind", npu_affinity_housekeeping=housekeeping)
    hosts.succeed("verify", npu_affinity_reports=str(tmp_path / "reports"))
    for folder in FOLDERS:
        shutil.copytree(tmp_path / "reports", tmp_path / folder)
    (tmp_path / "site-b").mkdir()
    record = json.loads((tmp_path / "site-a/node001.json").read_text())
    (tmp_path / "site-b/node002.json").write_text(json.dumps({**record, "host": "node002"}))
    second = json.loads((hosts.tree("node001") / "etc/npu-affinity/history/2.json").read_text())["run"]
    shown, failed = typed(), []
    for playbook, arguments in shown:
        line = shlex.join(arguments).replace(RUN, second["id"]).replace(TIME, second["time"])
        run = hosts.play(playbook, *shlex.split(line), npu_affinity_measure_seconds=1)
        if run.status:
            failed.append(f"{playbook} {line}: {run.output}")
    assert failed == [], os.linesep.join(failed)
    assert len(shown) > 30 and all(example in str(shown) for example in (RUN, TIME))

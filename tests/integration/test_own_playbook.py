# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles in playbooks of the user: as their documents show them, and without what they need."""

from __future__ import annotations

import hashlib
import re

import pytest
import yaml

from tests import documents
from tests.fakes.small_host import MACHINE
from tests.integration.conftest import touched


def plays():
    """The plays that documents show, but those that import a playbook and those of a whole bind."""
    pages = [documents.readme(role) for role in documents.ROLES]
    pages.append((documents.REPOSITORY / "docs/own-playbook.md").read_text())
    shown = [
        play
        for page in pages
        for text in re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        for play in yaml.safe_load(text)
    ]
    return [play for play in shown if isinstance(play, dict) and "hosts" in play]


@pytest.mark.long
def test_what_documents_show_runs(fleet, tmp_path):
    """In check mode, one play after the other over one host."""
    hosts = fleet(a2=MACHINE)
    (hosts.tree("a2") / "var/lib/prometheus/node-exporter").mkdir(parents=True)
    before = hosts.snapshot("a2")
    (tmp_path / "group.yml").write_text("npu_hosts: {hosts: {a2: }}\n")
    shown = plays()
    assert len(shown) >= 10
    for play in shown:
        play.setdefault("vars", {}).update(npu_affinity_summary={"states": {}})
        play["module_defaults"] = {"npu.affinity.topology_facts": {"root": "{{ npu_affinity_root }}"}}
    (tmp_path / "shown.yml").write_text(yaml.safe_dump(shown, sort_keys=False))
    run = hosts.play(str(tmp_path / "shown.yml"), "--check", "-i", str(tmp_path / "group.yml"), ansible_become=False)
    assert run.status == 0, run.output
    assert touched(before, hosts.snapshot("a2")) == set()


NEEDS = {
    "slices": "run role npu.affinity.plan before it in the same play",
    "irq": "run role npu.affinity.plan before it in the same play",
    "threads": "run role npu.affinity.plan before it in the same play",
    "kubelet": "run role npu.affinity.plan before it in the same play",
    "metrics": "run role npu.affinity.plan before it in the same play",
    "device_share": "run role npu.affinity.plan before it in the same play",
}


def test_a_role_without_what_it_needs_says_what_to_do(fleet, tmp_path):
    hosts = fleet(a2=MACHINE)
    task = {"ansible.builtin.include_role": {"name": "npu.affinity.{{ item }}"}}
    blocks = [{"block": [{**task, "loop": [role]}], "rescue": [{"ansible.builtin.meta": "noop"}]} for role in NEEDS]
    (tmp_path / "alone.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": blocks}]))
    switches = {"npu_affinity_kubelet_enabled": True, "npu_affinity_device_share_enabled": True, "npu_affinity_threads_enabled": True}
    before = hosts.snapshot("a2")
    run = hosts.play(str(tmp_path / "alone.yml"), **switches)
    said = [entry["result"]["msg"] for entry in run.of("a2", "failed")]
    assert len(said) == len(NEEDS), run.output
    for sentence, (role, remedy) in zip(said, NEEDS.items(), strict=True):
        assert sentence.startswith(f"Role npu.affinity.{role} ") and remedy in sentence and "host a2" in sentence
    assert touched(before, hosts.snapshot("a2")) == set()


def test_role_verify_needs_no_settings_of_other_roles(fleet, tmp_path):
    hosts = fleet(a="i310_pro")
    roles = [f"npu.affinity.{role}" for role in ("plan", "slices", "irq")]
    for name, names in (("bind", roles), ("verify", ["npu.affinity.verify"])):
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "roles": names}]))
    assert hosts.play(str(tmp_path / "bind.yml")).status == 0
    run = hosts.play(str(tmp_path / "verify.yml"))
    assert run.status == 0 and "a: 0 of " in run.output, run.output
    run = hosts.play("verify")
    assert run.status == 0 and "a bind would now change" not in run.output, run.output
    run = hosts.play("bind")
    assert run.status == 0 and set(run.modules("a")) == {"npu.affinity.topology_facts"}, run.output
    next(hosts.tree("a").glob("etc/systemd/system/npu-*.slice")).unlink()
    run = hosts.play(str(tmp_path / "verify.yml"))
    assert run.status == 2 and "likely manual change: removed" in run.output, run.output


def test_a_role_says_in_one_line_what_it_did(fleet, tmp_path):
    hosts = fleet(a="i310_pro")
    roles = ["plan", "slices", "irq", "tuning", "metrics", "device_share", "vnpu"]
    play = {"hosts": "all", "gather_facts": False, "roles": [f"npu.affinity.{role}" for role in roles]}
    (tmp_path / "own.yml").write_text(yaml.safe_dump([play]))
    on = {"npu_affinity_metrics_enabled": True, "npu_affinity_tuning": {"swappiness": 10}}

    def lines(*arguments):
        run = hosts.play(str(tmp_path / "own.yml"), *arguments, **on)
        assert run.status == 0, run.output
        return [line for line in run.output.splitlines() if line.startswith("a: role ")]

    first, second = lines(), lines()
    assert re.fullmatch(r"a: role plan found (\d) of \1 accelerators to bind, strategy \w+", first[0])
    assert [line.split()[2] for line in first] == roles
    assert re.fullmatch(r"a: role slices changed the host: \d+ files written", first[1])
    assert second[1:] == [f"a: role {role} changed nothing, the host matches its plan" for role in roles[1:]]


def test_role_vnpu_alone_is_remembered_compared_and_switched_off(fleet, tmp_path):
    hosts, library = fleet(a="i310_pro"), tmp_path / "libvnpu.so"
    library.write_text("library")
    files = [{"name": library.name, "src": str(library), "sha256": hashlib.sha256(library.read_bytes()).hexdigest()}]
    play = {"hosts": "all", "gather_facts": False, "roles": ["npu.affinity.plan", "npu.affinity.vnpu"]}
    (tmp_path / "own.yml").write_text(yaml.safe_dump([play]))
    run = hosts.play(str(tmp_path / "own.yml"), npu_affinity_vnpu_enabled=True, npu_affinity_vnpu_files=files)
    assert run.status == 0 and "a: role vnpu changed the host: 6 files written" in run.output, run.output
    folder = hosts.tree("a") / "usr/local/hami-vnpu-core"
    (folder / library.name).unlink()
    verified = hosts.play("verify")
    assert verified.status and "libvnpu.so: expected" in verified.output, verified.output
    run = hosts.play(str(tmp_path / "own.yml"))
    assert run.status == 0 and not folder.exists() and not folder.with_name("hami-shared-region").exists(), run.output
    assert "feature vnpu: present -> absent" in hosts.play("history").output

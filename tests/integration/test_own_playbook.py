# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles in playbooks of the user: by themselves, and without what they need."""

import json
import re

import yaml

from tests.fakes.small_host import MACHINE, PLAN, UNITS, soft_split

NEED_A_PLAN = ["slices", "irq", "threads", "kubelet", "metrics", "device_share"]


def test_a_role_without_what_it_needs_says_what_to_do(fleet, tmp_path):
    hosts = fleet(a2=MACHINE)
    task = {"ansible.builtin.include_role": {"name": "npu.affinity.{{ item }}"}}
    blocks = [{"block": [{**task, "loop": [role]}], "rescue": [{"ansible.builtin.meta": "noop"}]} for role in NEED_A_PLAN]
    (tmp_path / "alone.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": blocks}]))
    switches = {"npu_affinity_kubelet_enabled": True, "npu_affinity_device_share_enabled": True, "npu_affinity_threads_enabled": True}
    with hosts.untouched():
        run = hosts.play(str(tmp_path / "alone.yml"), **switches)
    said = [entry["result"]["msg"] for entry in run.of("a2", "failed")]
    assert len(said) == len(NEED_A_PLAN), run.output
    for sentence, role in zip(said, NEED_A_PLAN, strict=True):
        assert sentence.startswith(f"Role npu.affinity.{role} ") and "host a2" in sentence
        assert "run role npu.affinity.plan before it in the same play" in sentence


def test_roles_by_themselves_want_what_the_playbooks_want(fleet, tmp_path):
    """With a profile of the user; role verify needs no settings of other roles."""
    hosts = fleet(a="i310_pro")
    tree, bind, verify = hosts.tree("a"), tmp_path / "bind.yml", tmp_path / "verify.yml"
    (tmp_path / "own.yml").write_text("settings: {npu_affinity_strategy: even_split}\n")
    hosts.give({"a": {"npu_affinity_profile": str(tmp_path / "own.yml")}})
    roles = [f"npu.affinity.{role}" for role in ("plan", "slices", "irq")]
    for path, names in ((bind, roles), (verify, ["npu.affinity.verify"])):
        path.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "roles": names}]))
    hosts.succeed(str(bind))
    entries = [json.loads(path.read_text()) for path in (tree / "etc/npu-affinity/history").iterdir()]
    assert len(entries) == 2 and len({entry["run"]["id"] for entry in entries}) == 1, "the roles of one playbook are one run"
    assert json.loads((tree / PLAN[1:]).read_text())["strategy"] == "even_split"
    assert all((tree / UNITS[1:] / name).exists() for name in ("npu.slice", "npu-affinity-irq.service"))
    with hosts.untouched():
        runs = [hosts.succeed(playbook) for playbook in (str(verify), "verify", "bind", str(bind))]
    assert [run.changed("a") for run in runs] == [0] * 4 and set(runs[2].modules("a")) == {"npu.affinity.gather"}
    assert "a: 0 of " in runs[0].output and "a bind would now change" not in runs[1].output
    next(tree.glob("etc/systemd/system/npu-*.slice")).unlink()
    run = hosts.play(str(verify))
    assert run.status == 2 and "likely manual change: removed" in run.output, run.output


def test_a_role_says_in_one_line_what_it_did(fleet, tmp_path):
    hosts = fleet(a="i310_pro")
    roles = ["plan", "slices", "irq", "tuning", "metrics", "device_share", "vnpu"]
    play = {"hosts": "all", "gather_facts": False, "roles": [f"npu.affinity.{role}" for role in roles]}
    (tmp_path / "own.yml").write_text(yaml.safe_dump([play]))
    on = {"npu_affinity_metrics_enabled": True, "npu_affinity_tuning": {"swappiness": 10}}

    def lines(*arguments):
        run = hosts.succeed(str(tmp_path / "own.yml"), *arguments, **on)
        return [line for line in run.output.splitlines() if line.startswith("a: role ")]

    first, second = lines(), lines()
    assert re.fullmatch(r"a: role plan found (\d) of \1 accelerators to bind, strategy \w+", first[0])
    assert [line.split()[2] for line in first] == roles
    assert re.fullmatch(r"a: role slices changed the host: \d+ files written", first[1])
    assert second[1:] == [f"a: role {role} changed nothing, the host matches its plan" for role in roles[1:]]


def test_role_vnpu_alone_is_remembered_compared_and_switched_off(fleet, tmp_path):
    hosts, library = fleet(a="i310_pro"), tmp_path / "libvnpu.so"
    library.write_text("library")
    play = {"hosts": "all", "gather_facts": False, "roles": ["npu.affinity.plan", "npu.affinity.vnpu"]}
    (tmp_path / "own.yml").write_text(yaml.safe_dump([play]))
    run = hosts.succeed(str(tmp_path / "own.yml"), **soft_split(library))
    assert "a: role vnpu changed the host: 6 files written" in run.output, run.output
    folder = hosts.tree("a") / "usr/local/hami-vnpu-core"
    (folder / library.name).unlink()
    verified = hosts.play("verify")
    assert verified.status and "libvnpu.so: expected" in verified.output, verified.output
    run = hosts.succeed(str(tmp_path / "own.yml"))
    assert not folder.exists() and not folder.with_name("hami-shared-region").exists(), run.output
    assert "feature vnpu: on -> off" in hosts.play("history").output

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes is bound: the kubelet is changed only if the user allows it, verified, and restored."""

from __future__ import annotations

import pytest
import yaml

from tests.fakes.node import DROP_IN, FOLDER, NODE, STATE, commands, node, read_drop_ins
from tests.fakes.small_host import MACHINE
from tests.integration.conftest import touched

NODE_ALONE = ("--limit", "node")
UNITS = "etc/systemd/system"


def contents(hosts):
    """Return what the node has, without the state that a kubelet writes again."""
    return {path: found[-1] for path, found in hosts.snapshot("node").items() if path != "/" + STATE}


def test_unbinding_another_feature_leaves_the_kubelet_alone(fleet, tmp_path):
    hosts, log = node(fleet), tmp_path / "kubectl.log"
    variables = {"npu_affinity_kubelet_enabled": True, "npu_affinity_kubelet_restart": True, **commands(log)}
    hosts.succeed("bind", **variables)
    assert log.read_text().split() == ["drain", "uncordon"]
    log.unlink()
    run = hosts.succeed("unbind", npu_affinity_features=["irq"], **variables)
    assert run.changed("node"), run.output
    assert (hosts.tree("node") / DROP_IN).exists() and not log.exists()
    hosts.succeed("verify", **variables)
    run = hosts.succeed("unbind", npu_affinity_features=["kubelet"], **variables)
    assert not (hosts.tree("node") / DROP_IN).exists(), run.output
    assert log.read_text().split() == ["drain", "uncordon"]
    hosts.succeed("verify", **variables)
    assert "feature kubelet: present -> absent" in hosts.play("history").output


def test_a_pending_change_of_the_kubelet_leaves_the_slices(fleet, tmp_path):
    hosts = node(fleet)
    hosts.succeed("bind")
    before = hosts.snapshot("node")
    enabled = {"npu_affinity_kubelet_enabled": True, **commands(tmp_path / "kubectl.log")}
    run = hosts.succeed("bind", **enabled)
    assert "cpuManagerPolicy: none -> static" in run.output, run.output
    assert "1 host by slices" in run.output and "CPU manager is static" not in run.output
    assert [path for path in touched(before, hosts.snapshot("node")) if "history" not in path] == []
    again = hosts.succeed("bind", **enabled)
    assert not again.changed("node") and "cpuManagerPolicy: none -> static" in again.output, again.output
    verified = hosts.succeed("verify", **enabled)
    assert "the kubelet's change is pending: cpuManagerPolicy: none -> static" in " ".join(verified.output.split())
    history = hosts.play("history").output
    assert "feature kubelet: absent -> present" not in history
    restarting = {**enabled, "npu_affinity_kubelet_restart": True}
    with hosts.untouched():
        check = hosts.succeed("bind", "--check", "--diff", **restarting)
    assert check.changed("node"), check.output
    run = hosts.succeed("bind", **restarting)
    assert (hosts.tree("node") / DROP_IN).exists(), run.output
    assert not list((hosts.tree("node") / UNITS).glob("npu*.slice"))
    assert "feature kubelet: absent -> present" in hosts.play("history").output


def test_a_node_without_a_static_kubelet_has_slices_at_once(fleet, tmp_path):
    hosts, log = node(fleet, recordless=NODE), tmp_path / "kubectl.log"
    read_drop_ins(hosts.tree("recordless"))
    restarting = {"npu_affinity_kubelet_restart": True, "npu_affinity_batches": ["100%"], **commands(log)}
    hosts.succeed("bind", npu_affinity_kubelet_enabled=True, **restarting)
    assert not list(hosts.folder.glob(f"*/{UNITS}/npu*.slice"))
    log.unlink()
    (hosts.tree("recordless") / "etc/npu-affinity/previous.json").unlink()
    run = hosts.succeed("bind", **restarting)
    assert "2 hosts by slices" in run.output and sorted(log.read_text().split()) == ["drain"] * 2 + ["uncordon"] * 2, run.output
    for name in hosts.hosts:
        assert not (hosts.tree(name) / DROP_IN).exists(), "slices next to a kubelet that owns the CPUs"
        assert list((hosts.tree(name) / UNITS).glob("npu*.slice"))


def test_an_unchangeable_kubelet_leaves_the_host_as_it_was(fleet, tmp_path):
    hosts = node(fleet)
    hosts.succeed("bind")
    (hosts.tree("node") / "etc/kubernetes").mkdir(exist_ok=True)
    (hosts.tree("node") / FOLDER).write_text("")
    before = contents(hosts)
    log = tmp_path / "kubectl.log"
    run = hosts.play("bind", npu_affinity_kubelet_enabled=True, npu_affinity_kubelet_restart=True, **commands(log))
    assert run.status and contents(hosts) == before, run.output
    assert "go back to the state before this run" not in run.output, "nothing was changed"
    assert log.read_text().split() == ["drain"]


@pytest.mark.long
def test_a_kubelet_follows_the_plan_on_the_users_word_only(fleet, tmp_path):
    hosts = fleet(node={**NODE, "kubelet": {"policy": "none", "version": "1.34.2"}}, bare=MACHINE)
    tree = hosts.tree("node")
    read_drop_ins(tree)
    log = tmp_path / "kubectl.log"
    told = [["/bin/sh", "-c", f"echo {word} >> {log}"] for word in ("drain", "uncordon")]
    variables = {
        "npu_affinity_batches": ["100%"],
        "npu_affinity_kubelet_enabled": True,
        "npu_affinity_kubelet_options": {"distribute-cpus-across-cores": True},
        "npu_affinity_kubelet_topology_policy": "restricted",
        "npu_affinity_kubelet_drain": told[0],
        "npu_affinity_kubelet_uncordon": told[1],
    }

    run = hosts.succeed("bind", "-v", **variables)
    assert "Pods have no CPUs of their own on this node" in run.output
    assert (
        "cpuManagerPolicy: none -> static" in run.output
        and "npu_affinity_kubelet_enabled has no effect on this host: it has no kubelet" in " ".join(run.output.split())
    )
    assert not (tree / FOLDER).exists() and (tree / STATE).exists() and not log.exists()
    assert list((tree / UNITS).glob("npu*.slice")), "a kubelet whose change is pending owns no CPUs yet"
    assert list((hosts.tree("bare") / "etc/systemd/system").glob("npu*.slice"))

    restarting = {**variables, "npu_affinity_kubelet_restart": True}
    run = hosts.succeed("bind", *NODE_ALONE, **restarting)
    assert not list((tree / UNITS).glob("npu*.slice")), "a static kubelet owns the CPUs"
    document = yaml.safe_load((tree / FOLDER / "50-npu-affinity.conf").read_text())
    assert (document["cpuManagerPolicy"], document["topologyManagerPolicy"]) == ("static", "restricted")
    assert (document["reservedSystemCPUs"], document["featureGates"]) == ("0-1,16-17", {"CPUManagerPolicyAlphaOptions": True})
    assert not (tree / STATE).exists() and log.read_text().split() == ["drain", "uncordon"]

    hosts.succeed("verify", *NODE_ALONE, **variables)

    log.unlink()
    off = hosts.succeed("bind", *NODE_ALONE, npu_affinity_batches=["100%"])
    assert (tree / FOLDER / "50-npu-affinity.conf").exists() and not log.exists(), off.output
    assert "cpuManagerPolicy: static -> none" in off.output and "to drain the node and make it" in " ".join(off.output.split())
    told = {name: value for name, value in restarting.items() if name != "npu_affinity_kubelet_enabled"}
    for there in (False, True):
        to = {"npu_affinity_to": "-1"} if there else {}
        check = hosts.play("rollback" if there else "bind", "--check", *NODE_ALONE, **told, **to)
        assert check.changed("node") and not log.exists(), check.output
        moved = hosts.succeed("rollback" if there else "bind", *NODE_ALONE, **told, **to)
        assert (tree / FOLDER / "50-npu-affinity.conf").exists() is there, moved.output
        assert log.read_text().split() == ["drain", "uncordon"]
        log.unlink()
    assert yaml.safe_load((tree / FOLDER / "50-npu-affinity.conf").read_text()) == document

    run = hosts.succeed("unbind", *NODE_ALONE)
    assert (tree / FOLDER / "50-npu-affinity.conf").exists()
    assert "unbind with npu_affinity_kubelet_restart: true" in run.output
    run = hosts.succeed("unbind", *NODE_ALONE, **restarting)
    assert not (tree / FOLDER).exists() and not (tree / "etc/npu-affinity").exists()


def test_settings_kubelet_would_reject_are_refused_untouched(fleet):
    held = {"policy": "static", "default_cpus": "0-15,20-31", "exclusive": {"0f2a4c1e": {"worker": "16-19"}}}
    hosts = fleet(blind=NODE, greedy=NODE, held={**MACHINE, "kubelet": held})
    read_drop_ins(hosts.tree("greedy"))
    hosts.give({"greedy": {"npu_affinity_kubelet_reserved": "0-31"}})
    with hosts.untouched():
        run = hosts.play("bind", npu_affinity_kubelet_enabled=True)
    assert run.status
    assert "The kubelet reads no folder of drop-ins. Start it with --config-dir=/etc/kubernetes/kubelet.conf.d" in run.failure("blind")
    assert "are all CPUs of the host" in run.failure("greedy")
    assert "gave to containers: 16-17 of 0f2a4c1e/worker (which holds 16-19)" in run.failure("held")
    shown = hosts.succeed("plan", "--limit", "held")
    assert "The plan needs CPUs for interrupts" in " ".join(shown.output.split())

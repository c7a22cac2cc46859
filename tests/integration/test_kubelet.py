# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes is bound: the kubelet is changed only if the user allows it, verified, and restored."""

import yaml

from tests.fakes.small_host import KUBELET_DROP_IN, KUBELET_FOLDER, KUBELET_STATE, MACHINE, NODE, commands, node, read_drop_ins

UNITS = "etc/systemd/system"
PENDING = "cpuManagerPolicy: none -> static"


def contents(hosts):
    """Return what the node has, without the state that a kubelet writes again."""
    return {path: found[-1] for path, found in hosts.snapshot("node").items() if path != "/" + KUBELET_STATE}


def slices(tree):
    return list((tree / UNITS).glob("npu*.slice"))


def said(run):
    return " ".join(run.output.split())


def test_a_kubelet_follows_the_plan_on_the_users_word_only(fleet, tmp_path):
    hosts = fleet(node={**NODE, "kubelet": {"policy": "none", "version": "1.34.2"}}, bare=MACHINE)
    tree, log = hosts.tree("node"), tmp_path / "kubectl.log"
    read_drop_ins(tree)

    def drained():
        """Whether the node was drained, and used again, since the last look."""
        words = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        assert words in ([], ["drain", "uncordon"])
        return bool(words)

    off = {"npu_affinity_batches": ["100%"], **commands(log)}
    enabled = {"npu_affinity_kubelet_enabled": True, "npu_affinity_kubelet_options": {"distribute-cpus-across-cores": True}, **off}
    enabled["npu_affinity_kubelet_topology_policy"] = "restricted"
    restart = {"npu_affinity_kubelet_restart": True}
    run = hosts.succeed("bind", "-v", **enabled)
    assert "Pods have no CPUs of their own on this node" in run.output and PENDING in run.output and "2 hosts by slices" in run.output
    assert "npu_affinity_kubelet_enabled has no effect on this host: it has no kubelet" in said(run)
    assert not (tree / KUBELET_FOLDER).exists() and (tree / KUBELET_STATE).exists() and not drained()
    assert slices(tree) and slices(hosts.tree("bare")), "a kubelet whose change is pending owns no CPUs yet"
    again = hosts.succeed("bind", **enabled)
    assert again.summary["states"] == {"unchanged": ["bare", "node"]} and PENDING in again.output, again.output
    assert f"the kubelet's change is pending: {PENDING}" in said(hosts.succeed("verify", **enabled))
    with hosts.untouched():
        check = hosts.succeed("bind", "--check", "--diff", **enabled, **restart)
    assert check.changed("node"), check.output

    hosts.succeed("bind", **enabled, **restart)
    assert drained() and not slices(tree) and not (tree / KUBELET_STATE).exists(), "a static kubelet owns the CPUs"
    document = yaml.safe_load((tree / KUBELET_DROP_IN).read_text())
    assert (document["cpuManagerPolicy"], document["topologyManagerPolicy"]) == ("static", "restricted")
    assert (document["reservedSystemCPUs"], document["featureGates"]) == ("0-1,16-17", {"CPUManagerPolicyAlphaOptions": True})
    hosts.succeed("verify", **enabled)

    run = hosts.succeed("bind", **off)
    assert (tree / KUBELET_DROP_IN).exists() and not drained(), run.output
    assert "cpuManagerPolicy: static -> none" in run.output and "to drain the node and make it" in said(run)
    for playbook, more, there in (("bind", {}, False), ("rollback", {"npu_affinity_to": "-1"}, True)):
        check = hosts.play(playbook, "--check", **off, **restart, **more)
        assert check.changed("node") and not drained(), check.output
        moved = hosts.succeed(playbook, **off, **restart, **more)
        assert ((tree / KUBELET_DROP_IN).exists(), drained()) == (there, True), moved.output
    assert yaml.safe_load((tree / KUBELET_DROP_IN).read_text()) == document
    history = hosts.play("history").output
    assert "feature kubelet: off -> on" in history and "feature kubelet: on -> off" in history

    for features, words, there in ((["irq"], restart, True), (["kubelet"], {}, True), (["kubelet"], restart, False)):
        run = hosts.succeed("unbind", npu_affinity_features=features, **off, **words)
        assert ((tree / KUBELET_DROP_IN).exists(), drained()) == (there, not there), run.output
        assert ("unbind with npu_affinity_kubelet_restart: true" in run.output) == (features == ["kubelet"] and there), run.output
    hosts.succeed("unbind", **off, **restart)
    assert not (tree / KUBELET_FOLDER).exists() and not (tree / "etc/npu-affinity").exists()


def test_a_node_without_a_static_kubelet_has_slices_at_once(fleet, tmp_path):
    hosts, log = node(fleet, recordless=NODE), tmp_path / "kubectl.log"
    read_drop_ins(hosts.tree("recordless"))
    restarting = {"npu_affinity_kubelet_restart": True, "npu_affinity_batches": ["100%"], **commands(log)}
    hosts.succeed("bind", npu_affinity_kubelet_enabled=True, **restarting)
    assert not any(map(slices, map(hosts.tree, hosts.hosts)))
    log.unlink()
    (hosts.tree("recordless") / "etc/npu-affinity/previous.json").unlink()
    run = hosts.succeed("bind", **restarting)
    assert "2 hosts by slices" in run.output and sorted(log.read_text().split()) == ["drain"] * 2 + ["uncordon"] * 2, run.output
    for name in hosts.hosts:
        assert not (hosts.tree(name) / KUBELET_DROP_IN).exists(), "slices next to a kubelet that owns the CPUs"
        assert slices(hosts.tree(name))


def test_an_unchangeable_kubelet_leaves_the_host_as_it_was(fleet, tmp_path):
    hosts = node(fleet)
    hosts.succeed("bind")
    (hosts.tree("node") / "etc/kubernetes").mkdir(exist_ok=True)
    (hosts.tree("node") / KUBELET_FOLDER).write_text("")
    before = contents(hosts)
    log = tmp_path / "kubectl.log"
    run = hosts.play("bind", npu_affinity_kubelet_enabled=True, npu_affinity_kubelet_restart=True, **commands(log))
    assert run.status and contents(hosts) == before, run.output
    assert "go back to the state before this run" not in run.output, "nothing was changed"
    assert log.read_text().split() == ["drain"]

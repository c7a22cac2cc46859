# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that hold NPUs, started by containerd and runc through CRI on a node whose kubelet assigns no CPUs."""

import json
from pathlib import Path

from tests.lab import image
from tests.lab.conftest import drift, said, success
from tests.lab.kernel import numbers
from tests.lab.shapes import ENGINES, ENGINES_V1
from tests.lab.test_adopt import given_back, in_their_pools, look, together

SHAPE = {"engines-v1": ENGINES_V1}.get(image.NAME, ENGINES)
KUBELET = (Path(__file__).parent / "kubelet.py").read_text()
PODS = {"npu_affinity_adopt": "always", "npu_affinity_adopt_pods": True}
# A node without a kubelet, which is too large for the lab: the state of its CPU manager, and containerd as a node has it.
NODE = """
set -e
mkdir -p /run/rootfs/bin /etc/containerd /var/lib/kubelet
cp /usr/bin/busybox /run/rootfs/bin/
for applet in sh sleep grep; do ln -s busybox /run/rootfs/bin/$applet; done
tar -C /run/rootfs -cf /run/rootfs.tar .
cd /run
printf '{"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/sleep", "86400"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:%%s"]}}' "$(sha256sum rootfs.tar | cut -d ' ' -f 1)" >config.json
echo '[{"Config": "config.json", "RepoTags": ["docker.io/library/infer:latest"], "Layers": ["rootfs.tar"]}]' >manifest.json
tar -cf image.tar config.json manifest.json rootfs.tar
containerd config default | sed -e 's,sandbox_image = .*,sandbox_image = "docker.io/library/infer:latest",' \
    -e 's,SystemdCgroup = .*,SystemdCgroup = %s,' >/etc/containerd/config.toml
systemctl restart containerd
ctr --namespace k8s.io images import /run/image.tar
echo '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}' >/var/lib/kubelet/cpu_manager_state
"""
# Ends when it may no longer open its device. The CPUs of its first instructions stay in a file.
PROGRAM = "grep Cpus_allowed_list /proc/self/status >/first; while exec 3<{}; do sleep 1; done"


def start(machine, name, number, seconds=0):
    """Start a pod, and return its container."""
    device = f"/dev/davinci{number}"
    words = f"{name} {device} '{PROGRAM.format(device)}' {seconds}"
    return machine.run(f"python3 - {words}", stdin=KUBELET).strip()


def in_runtime(machine, container):
    """The CPU set that containerd has of a container."""
    info = json.loads(machine.run(f"ctr --namespace k8s.io containers info {container}"))
    return numbers(info["Spec"]["linux"]["resources"].get("cpu", {}).get("cpus", ""))


def test_pods_are_adopted_and_given_back(lab, claims, tmp_path):
    """Pods by containerd's CRI: bind with npu_affinity_adopt_pods, a pod that starts later, unbind"""
    machine = lab.bound(SHAPE).machine
    machine.run(NODE % str(SHAPE is ENGINES).lower())
    first = start(machine, "early", 1)
    before = look(machine, ["by-early"])
    everything = together(before, "by-early")
    verified = lab.play(machine, "verify", "-v")
    claims.true("verify says that the kubelet places pods", "the kubelet places pods" in said(verified), verified.output)
    claims.equal("exit status of bind without a request", success(lab.play(machine, "bind", npu_affinity_adopt="always")), (0, ""))
    claims.equal("CPUs of the pod without a request", together(look(machine, ["by-early"]), "by-early"), everything)
    claims.equal("exit status of bind", success(lab.play(machine, "bind", **PODS)), (0, ""))
    after = in_their_pools(claims, machine, {"by-early": 1}, "after bind")
    claims.equal("CPU set in containerd's record", in_runtime(machine, first), together(after, "by-early"))
    claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path), (0, {}))
    start(machine, "later", 0, seconds=30)
    found = in_their_pools(claims, machine, {"by-early": 1, "by-later": 0}, "after a pod has started later")
    saw = machine.run(f"cat /proc/{found['by-later'][0]}/root/first").split()[-1]
    claims.equal("CPUs of its first instruction", numbers(saw), together(found, "by-later"))
    given_back(claims, lab, machine, ["by-early", "by-later"], everything)
    claims.equal("CPU set in containerd's record after unbind", in_runtime(machine, first), everything)
    claims.equal("processes that still run and may open their device", look(machine, found)["by-early"][0], before["by-early"][0])

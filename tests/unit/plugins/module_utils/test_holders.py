# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.holders import holders


def container(name):
    return name + "a" * (64 - len(name))


GROUPS = {
    "docker, cgroup v2": "0::/system.slice/docker-%s.scope" % container("d0c"),
    "docker, cgroup v1": "12:cpuset:/docker/%s\n1:name=systemd:/docker/%s" % (container("d0c"), container("d0c")),
    "containerd of a kubelet": "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope" % container("d0c"),
    "podman": "0::/machine.slice/libpod-%s.scope/container" % container("d0c"),
}


@pytest.fixture
def host(tmp_path):
    return Host(str(tmp_path))


def run(host, process, comm, group, *targets):
    files = pathlib.Path(host.path("/proc/%s" % process))
    (files / "fd").mkdir(parents=True)
    (files / "comm").write_text(comm + "\n")
    (files / "cgroup").write_text(group + "\n")
    for number, target in enumerate(targets):
        (files / "fd" / str(number)).symlink_to(target)


@pytest.mark.parametrize("group", list(GROUPS.values()), ids=list(GROUPS))
def test_a_container_is_told_by_the_cgroup_of_the_process_that_opened_the_node(host, group):
    run(host, 4711, "python3", group, "/dev/null", "/dev/davinci5")
    assert holders(host, ["/dev/davinci5"]) == "container d0caaaaaaaaa (process 4711 python3)"
    assert holders(host, ["/dev/davinci50", "/dev/davinci"]) == ""


def test_processes_of_the_host_are_named_where_there_is_no_container_and_those_that_ended_are_not(host):
    run(host, 9, "trainer", "0::/user.slice")
    run(host, 10, "trainer", "0::/user.slice", "/dev/davinci0")
    assert holders(host, ["/dev/davinci0"], processes=[9, 4000]) == "process 9 trainer, 10 trainer"


def test_many_are_counted(host):
    for number in range(1, 8):
        run(host, number, "worker", "0::/docker-%s.scope" % container(str(number)), "/dev/davinci0")
    text = holders(host, ["/dev/davinci0"])
    assert text.count("container") == 3 and text.endswith(" and 4 more")

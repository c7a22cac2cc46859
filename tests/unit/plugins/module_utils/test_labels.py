# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SELinux labels. A user's attribute stands in for ``security.selinux``, and a program in the tree for restorecon."""

import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import drop_in
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state import files
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState, atomic_write
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import Undone, apply
from tests.fakes.systemd import MARK, a_file, a_request

ENFORCE = "/sys/fs/selinux/enforce"
RULES = "/etc/udev/rules.d/90-npu-affinity.rules"
UNIT = "/etc/systemd/system/npu-affinity-irq@.service"
KUBELET = "/etc/kubernetes/kubelet.conf.d/50-npu-affinity.conf"
LABEL = b"system_u:object_r:udev_rules_t:s0\0"
RESTORECON = "/usr/sbin/restorecon"
OF_FILES = " ".join(["/etc/systemd", "/etc/systemd/system", UNIT, RULES])
NO_CONTEXT = {"rc": 255, "text": "no such context\n"}
OF_KUBELET = " ".join([os.path.dirname(KUBELET), KUBELET])


class Running(Host):
    """A running machine in a folder, whose systemd always agrees."""

    live = True

    def path(self, path):
        return path if path.startswith(self.root) else self.root + path

    def run(self, argv, stdin="", timeout=None):
        return Host.run(self, argv if argv[0] == self.root + RESTORECON else ["true"], stdin, timeout)


@pytest.fixture
def running(tree):
    """A running machine with restorecon; the switch for SELinux is left to each test."""
    tree.write({RULES: MARK + "one", "/sys/devices/system/cpu/online": "0-7", "/sys/devices/system/node/has_memory": "0"})
    tree.tool(RESTORECON, {OF_FILES: "", OF_KUBELET: ""})
    return Running(tree.root)


def request(text):
    return a_request(files=[a_file(path, MARK + text) for path in (UNIT, RULES)])


@pytest.mark.parametrize("enforce, expected", [("1", LABEL), ("0", LABEL), (None, None)])
@pytest.mark.parametrize("write", [atomic_write, lambda host, path, text: FileState(text, 0o640).write(host, path)])
def test_a_replaced_file_keeps_its_label_where_selinux_is_on(tree, monkeypatch, write, enforce, expected):
    monkeypatch.setattr(files, "LABEL", "user.selinux")
    host = tree.write({RULES: "before", **({ENFORCE: enforce} if enforce else {})})
    place = tree.root + RULES
    try:
        os.setxattr(place, files.LABEL, LABEL)
    except OSError as error:
        pytest.skip("this file system has no attributes: %s" % error)
    write(host, RULES, "after")
    assert host.read(RULES) == "after"
    assert (os.getxattr(place, files.LABEL) if files.LABEL in os.listxattr(place) else None) == expected


def test_files_without_a_label_are_replaced_all_the_same(tree):
    host = tree.write({RULES: "before", ENFORCE: "1"})
    atomic_write(host, RULES, "after")
    assert host.read(RULES) == "after"


def test_a_bind_labels_files_and_new_folders_in_one_call(tree, running):
    tree.write({ENFORCE: "1"})
    apply(running, request("one\n"), check=True)
    assert tree.calls(RESTORECON) == []
    apply(running, request("two\n"))
    assert not apply(running, request("two\n")).changed
    assert tree.calls(RESTORECON) == [OF_FILES]


@pytest.mark.parametrize("files, other", [({}, False), ({ENFORCE: "1"}, True)], ids=["SELinux is off", "another tree"])
def test_what_is_not_this_machines_policy_labels_nothing(tree, running, files, other):
    host = tree.write(files)
    assert apply(host if other else running, request("two\n")).changed
    assert tree.calls(RESTORECON) == []


def test_a_label_that_cannot_be_set_restores_the_files(tree, running):
    before = running.read(RULES)
    tree.write({ENFORCE: "1"})
    tree.tool(RESTORECON, dict.fromkeys((OF_FILES, OF_KUBELET), NO_CONTEXT))
    with pytest.raises(Undone) as raised:
        apply(running, request("two\n"))
    said = str(raised.value)
    assert "ended with status 255: no such context; run it by hand" in said and said.endswith("All files were restored")
    assert (running.read(RULES), running.exists(UNIT)) == (before, False)
    assert len(tree.calls(RESTORECON)) == 2, "the restored files get their labels, too"


def kubelet_change():
    states = FileState(None, None), FileState(MARK + "reservedSystemCPUs: 0-1\n", 0o644)
    return drop_in.Change(KUBELET, {KUBELET: states}, [], [], "none")


def test_the_drop_in_of_the_kubelet_is_labelled_with_its_folder(tree, running):
    tree.write({ENFORCE: "1", "/etc/kubernetes": None})
    drop_in.apply(running, kubelet_change())
    assert tree.calls(RESTORECON) == [OF_KUBELET]


def test_a_drop_in_that_cannot_be_labelled_is_taken_back(tree, running):
    tree.write({ENFORCE: "1", "/etc/kubernetes": None})
    tree.tool(RESTORECON, {OF_KUBELET: NO_CONTEXT})
    with pytest.raises(ValueError, match="no such context; run it by hand.* The drop-in is as it was before"):
        drop_in.apply(running, kubelet_change())
    assert not running.exists(os.path.dirname(KUBELET))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files of a unit set, by systemd.exec(5)."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import OPENMP
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_environment import agrees, environment, set_elsewhere
from tests.fakes.unit_files import ETC, OURS, UNIT, USR, host_with

NAME = "ASCEND_RT_VISIBLE_DEVICES"
OWN = USR + "a-b@.service"
EARLIER, LATER = ETC + UNIT + ".d/10-site.conf", ETC + UNIT + ".d/60-site.conf"
FILE = "/etc/site/1.env"

# Files besides ours, which says 0; the value that counts and the file it is from; that without ours, its file, and whether it wins.
SAID = {
    "nothing but ours": ({}, ("0", OURS), None),
    "the unit": ({OWN: "Environment=%s=3\n" % NAME}, ("0", OURS), ("3", OWN, False)),
    "its instance": ({OWN: "Environment=%s=%%i\n" % NAME}, ("0", OURS), ("1", OWN, False)),
    "an earlier drop-in": ({EARLIER: "Environment=%s=3\n" % NAME, OWN: "Environment=%s=4\n" % NAME}, ("0", OURS), ("3", EARLIER, False)),
    "a later drop-in": ({LATER: "Environment=%s=3\n" % NAME}, ("3", LATER), ("3", LATER, True)),
    "a later drop-in resets": ({LATER: "Environment=\n"}, None, None),
    "an environment file": ({OWN: "EnvironmentFile=-" + FILE + "\n", FILE: '# 1\n%s="3,4"\n' % NAME}, ("3,4", FILE), ("3,4", FILE, True)),
    "one of an instance": ({OWN: "EnvironmentFile=/etc/site/%i.env\n", FILE: NAME + "=3\n"}, ("3", FILE), ("3", FILE, True)),
    "those of a folder": ({OWN: "EnvironmentFile=/etc/site/*.env\n", FILE: NAME + "=3\n"}, ("3", FILE), ("3", FILE, True)),
    "one that is missing": ({OWN: "EnvironmentFile=-/etc/none\n"}, ("0", OURS), None),
    "among others, quoted": ({LATER: "Environment=A=1 '%s=3' \"B=2 3\"\n" % NAME}, ("3", LATER), ("3", LATER, True)),
    "a line that systemd ignores": ({LATER: 'Environment="%s=3\n' % NAME}, ("0", OURS), None),
    "drop-in of feature adopt": ({OURS.replace(".conf", "-adopt.conf"): "Environment=%s=3\n" % NAME}, ("0", OURS), None),
    "another variable": ({LATER: "Environment=X%s=3\n" % NAME}, ("0", OURS), None),
}


@pytest.mark.parametrize("files, counts, elsewhere", list(SAID.values()), ids=list(SAID))
def test_which_value_counts_and_what_others_say(tmp_path, files, counts, elsewhere):
    host = host_with(tmp_path, {OWN: "", OURS: "[Service]\nEnvironment=%s=0\n" % NAME, **files})
    assert environment(host, UNIT) == ({NAME: counts} if counts else {})
    expected = {NAME: dict(zip(("value", "file", "wins"), elsewhere))} if elsewhere else {}
    assert set_elsewhere(host, UNIT) == expected


@pytest.mark.parametrize("name", OPENMP)
def test_variables_that_bind_threads_are_looked_at(tmp_path, name):
    host = host_with(tmp_path, {OWN: "[Service]\nEnvironment=%s=x\n" % name})
    assert set_elsewhere(host, UNIT) == {name: {"value": "x", "file": OWN, "wins": False}}


@pytest.mark.parametrize(
    "unit, value, expected",
    [("a@0\\x2c1.service", "%I", "0,1"), ("a@3.service", "%p%%%i%t", "a%3%t"), ("a@3.service", "%n-%N", "a@3.service-a@3")],
)
def test_specifiers_that_name_the_unit(tmp_path, unit, value, expected):
    host = host_with(tmp_path, {ETC + unit: "[Service]\nEnvironment=%s=%s\n" % (NAME, value)})
    assert environment(host, unit) == {NAME: (expected, ETC + unit)}


@pytest.mark.parametrize(
    "name, found, wanted, agreed",
    [
        (NAME, "0,1", "0,1", True),
        (NAME, "1,0", "0,1", True),
        (NAME, "1", "0,1", True),
        (NAME, "0, 1", "0,1", True),
        (NAME, "2", "0,1", False),
        (NAME, "", "0", False),
        (NAME, "-1", "-1", True),
        ("CUDA_VISIBLE_DEVICES", "GPU-8932f937", "0", False),
        ("CUDA_DEVICE_ORDER", "FASTEST_FIRST", "PCI_BUS_ID", False),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "PCI_BUS_ID", True),
    ],
)
def test_a_value_agrees_that_names_no_other_device(name, found, wanted, agreed):
    assert agrees(name, found, wanted) is agreed

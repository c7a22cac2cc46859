# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd makes of all files of a unit, by systemd.unit(5), and what they set, by systemd.exec(5)."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import OPENMP
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_environment import agrees, environment, set_elsewhere
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import differences, drop_ins, fragment, values

ETC, RUN, USR = "/etc/systemd/system/", "/run/systemd/system/", "/usr/lib/systemd/system/"
UNIT = "a-b@1.service"
OURS = ETC + UNIT + ".d/50-npu-affinity.conf"


WANTED = {"CPUAffinity": "4-7", "NUMAPolicy": "bind", "NUMAMask": "1"}
TEXT = "[Service]\nCPUAffinity=\nCPUAffinity=4-7\nNUMAPolicy=bind\nNUMAMask=\nNUMAMask=1\n"


def test_drop_ins_are_read_by_name_and_the_first_folder_counts(tree):
    expected = [
        ETC + "service.d/05-all.conf",
        RUN + "a-.service.d/10-prefix.conf",
        ETC + "a-b@.service.d/20-template.conf",
        "/etc/systemd/system.control/" + UNIT + ".d/50-CPUAffinity.conf",
        OURS,
        ETC + UNIT + ".d/60-same.conf",
    ]
    others = [RUN + UNIT + ".d/60-same.conf", USR + "a-b@.service.d/60-same.conf", ETC + UNIT + ".d/not.txt", ETC + "b.service.d/70.conf"]
    assert drop_ins(tree.write(dict.fromkeys(expected + others, "")), UNIT) == expected


@pytest.mark.parametrize("path", [ETC + UNIT, USR + "a-b@.service", "/run/systemd/generator/" + UNIT])
def test_a_unit_exists_by_its_own_file_or_that_of_its_template(tree, path):
    assert fragment(tree.write({OURS: TEXT, USR + "a-b.service": ""}), UNIT) is None
    assert fragment(tree.write({path: ""}), UNIT) == path


JOINED = {
    "ours resets what was read before": ({USR + "a-b@.service": "CPUAffinity=0-9\nNUMAMask=0-1\nNUMAPolicy=local\n"}, []),
    "a later drop-in extends it": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=0 1\n"}, [("CPUAffinity", "4-7 0 1", ".d/60.conf")]),
    "one that repeats a part of our files changes nothing": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=5\n"}, []),
    "a later drop-in resets it": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=\n"}, [("CPUAffinity", "", None)]),
    "in two lines": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=0 \\\n1\n"}, [("CPUAffinity", "4-7 0  1", ".d/60.conf")]),
    "not in numbers": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=numa\n"}, [("CPUAffinity", "4-7 numa", ".d/60.conf")]),
    "a later policy wins": ({ETC + UNIT + ".d/60.conf": "NUMAPolicy=local\n"}, [("NUMAPolicy", "local", ".d/60.conf")]),
    "a comment says nothing": ({ETC + UNIT + ".d/60.conf": "#CPUAffinity=0\n; NUMAMask=0\n"}, []),
}


@pytest.mark.parametrize("files, expected", JOINED.values(), ids=JOINED)
def test_what_all_files_say_together(tree, files, expected):
    found = list(differences(tree.write({OURS: TEXT, **files}), UNIT, WANTED))
    assert [(row[0], row[2]) for row in found] == [row[:2] for row in expected]
    assert [row[-1] and row[-1][len(ETC + UNIT) :] for row in found] == [row[-1] for row in expected]


def test_without_the_reset_the_lists_of_a_service_stay(tree):
    host = tree.write({USR + "a-b@.service": "CPUAffinity=0-9\n", OURS: "CPUAffinity=4-7\n"})
    assert values(host, UNIT)["CPUAffinity"] == [(USR + "a-b@.service", "0-9"), (OURS, "4-7")]
    assert list(differences(host, UNIT, {"CPUAffinity": "4-7"})) == [("CPUAffinity", "4-7", "0-9 4-7", USR + "a-b@.service")]


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


@pytest.mark.parametrize("files, counts, elsewhere", SAID.values(), ids=SAID)
def test_which_value_counts_and_what_others_say(tree, files, counts, elsewhere):
    host = tree.write({OWN: "", OURS: "[Service]\nEnvironment=%s=0\n" % NAME, **files})
    assert environment(host, UNIT) == ({NAME: counts} if counts else {})
    expected = {NAME: dict(zip(("value", "file", "wins"), elsewhere))} if elsewhere else {}
    assert set_elsewhere(host, UNIT) == expected


@pytest.mark.parametrize("name", OPENMP)
def test_variables_that_bind_threads_are_looked_at(tree, name):
    host = tree.write({OWN: "[Service]\nEnvironment=%s=x\n" % name})
    assert set_elsewhere(host, UNIT) == {name: {"value": "x", "file": OWN, "wins": False}}


@pytest.mark.parametrize(
    "unit, value, expected",
    [("a@0\\x2c1.service", "%I", "0,1"), ("a@3.service", "%p%%%i%t", "a%3%t"), ("a@3.service", "%n-%N", "a@3.service-a@3")],
)
def test_specifiers_that_name_the_unit(tree, unit, value, expected):
    host = tree.write({ETC + unit: "[Service]\nEnvironment=%s=%s\n" % (NAME, value)})
    assert environment(host, unit) == {NAME: (expected, ETC + unit)}


ORDER = "CUDA_DEVICE_ORDER"
AGREES = [
    *((NAME, found, "0,1", agreed) for found, agreed in (("0,1", True), ("1,0", True), ("1", True), ("0, 1", True), ("2", False))),
    (NAME, "", "0", False),
    (NAME, "-1", "-1", True),
    ("CUDA_VISIBLE_DEVICES", "GPU-8932f937", "0", False),
    (ORDER, "FASTEST_FIRST", "PCI_BUS_ID", False),
    (ORDER, "PCI_BUS_ID", "PCI_BUS_ID", True),
]


@pytest.mark.parametrize("name, found, wanted, agreed", AGREES)
def test_a_value_agrees_that_names_no_other_device(name, found, wanted, agreed):
    assert agrees(name, found, wanted) is agreed

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a host: what is set, refused, restored when it is not wanted any more, set at boot, and undone."""

from __future__ import annotations

import errno
import json
import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.tuning import host_settings
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.host_settings import (
    FILE,
    SECTION,
    main,
    missing,
    places,
    restore,
    settle,
    value_of,
)
from tests.fakes import kernel as fakes

BALANCING, SWAPPINESS = "/proc/sys/kernel/numa_balancing", "/proc/sys/vm/swappiness"
HUGEPAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy%d/scaling_governor"
AVAILABLE = "/sys/devices/system/cpu/cpufreq/policy%d/scaling_available_governors"
FILES = {
    BALANCING: "1",
    SWAPPINESS: "60",
    HUGEPAGES: "always [madvise] never",
    GOVERNOR % 0: "schedutil",
    AVAILABLE % 0: "performance powersave schedutil",
    GOVERNOR % 4: "performance",
    AVAILABLE % 4: "performance powersave schedutil",
}
ALL = {"governor": "performance", "numa_balancing": 0, "transparent_hugepages": "never", "swappiness": 10}


class Kernel(fakes.Kernel):
    """Its huge pages are listed with the chosen word in brackets, as the kernel does."""

    def set_attribute(self, path, value):
        words = (self.read(path) or "").replace("[", "").replace("]", "").split()
        super().set_attribute(path, " ".join("[%s]" % word if word == value else word for word in words) if path == HUGEPAGES else value)


@pytest.fixture
def kernel(tree):
    tree.write(FILES)
    return Kernel(tree.root)


def values(host):
    return {path: value_of(host, path) for path in FILES if path not in (AVAILABLE % 0, AVAILABLE % 4)}


def keep(tree, wanted):
    """What module host_files writes besides."""
    tree.write({FILE: json.dumps(dict(wanted, about="ours"))})


BEFORE = {BALANCING: "1", SWAPPINESS: "60", HUGEPAGES: "madvise", GOVERNOR % 0: "schedutil", GOVERNOR % 4: "performance"}
AFTER = {BALANCING: "0", SWAPPINESS: "10", HUGEPAGES: "never", GOVERNOR % 0: "performance", GOVERNOR % 4: "performance"}


def test_everything_is_set_once_and_put_back(kernel):
    predicted = settle(kernel, ALL, check=True)
    assert values(kernel) == BEFORE and previous.recorded(kernel) == {}
    assert settle(kernel, ALL) == predicted
    assert values(kernel) == AFTER
    assert [step["path"] for step in predicted] == [GOVERNOR % 0, BALANCING, SWAPPINESS, HUGEPAGES]
    assert settle(kernel, ALL) == []
    recorded = previous.recorded(kernel)[SECTION]
    assert recorded == {path: BEFORE[path] for path in (GOVERNOR % 0, BALANCING, SWAPPINESS, HUGEPAGES)}
    steps, failed = restore(kernel, recorded, check=True)
    assert len(steps) == 4 and values(kernel) == AFTER
    assert restore(kernel, recorded) == (steps, failed) == (steps, [])
    assert values(kernel) == BEFORE


@pytest.mark.parametrize("setting", sorted(ALL))
def test_only_what_is_given_is_touched(kernel, setting):
    settle(kernel, {setting: ALL[setting]})
    changed = {path for path, value in values(kernel).items() if value != BEFORE[path]}
    assert changed and changed <= set(places(kernel, setting))


def test_a_setting_that_is_not_given_any_more_is_what_it_was(kernel, tree):
    settle(kernel, ALL)
    keep(tree, ALL)
    less = {"numa_balancing": 0, "swappiness": 20}
    steps = settle(kernel, less)
    assert values(kernel) == dict(BEFORE, **{BALANCING: "0", SWAPPINESS: "20"})
    assert {step["path"] for step in steps} == {GOVERNOR % 0, SWAPPINESS, HUGEPAGES}
    keep(tree, less)
    settle(kernel, {"swappiness": 0})
    keep(tree, {"swappiness": 0})
    assert previous.recorded(kernel)[SECTION][SWAPPINESS] == "60", "the first value is remembered"
    settle(kernel, {})
    assert values(kernel) == BEFORE


# (what the kernel refuses, what is wanted, the sentence)
REFUSALS = [
    ({}, {"governor": "turbo"}, "there is no governor turbo; this host has performance, powersave, schedutil"),
    ({SWAPPINESS: errno.EINVAL}, {"swappiness": 300}, SWAPPINESS + " does not take '300': Invalid argument"),
    ({HUGEPAGES: errno.EROFS}, ALL, HUGEPAGES + " does not take 'never': Read-only file system"),
]


@pytest.mark.parametrize(("refused", "wanted", "sentence"), REFUSALS)
def test_what_the_host_refuses_is_said_and_nothing_stays_changed(kernel, refused, wanted, sentence):
    kernel.refused = refused
    with pytest.raises(ValueError, match=re.escape(sentence)):
        settle(kernel, wanted)
    assert values(kernel) == BEFORE


def test_an_unwritable_setting_is_refused_before_any_change(kernel, monkeypatch):
    monkeypatch.setattr(host_settings.os, "access", lambda path, _mode: not path.endswith(SWAPPINESS))
    for check in (True, False):
        with pytest.raises(ValueError, match=SWAPPINESS + " cannot be written; run as root"):
            settle(kernel, ALL, check)
    assert values(kernel) == BEFORE and not kernel.exists(previous.PATH)


def test_a_value_that_does_not_stick_is_a_failure(kernel, monkeypatch):
    monkeypatch.setattr(Kernel, "set_attribute", lambda self, path, value: None)
    with pytest.raises(ValueError, match="was set to '10' and holds '60'"):
        settle(kernel, {"swappiness": 10})


def test_what_the_host_has_not_got_is_said_and_is_no_failure(tree):
    host = tree.write({SWAPPINESS: "60"})
    assert missing(host, ALL) == ["this host has no %s to set" % name for name in ("governor", "numa_balancing", "transparent_hugepages")]
    assert [step["path"] for step in settle(host, ALL)] == [SWAPPINESS]


def test_undo_says_what_it_could_not_put_back_and_goes_on(kernel):
    settle(kernel, ALL)
    kernel.refused = {SWAPPINESS: errno.EPERM}
    recorded = dict(previous.recorded(kernel)[SECTION], **{GOVERNOR % 9: "schedutil"})
    _steps, failed = restore(kernel, recorded)
    assert failed == [SWAPPINESS + " does not take '60': Operation not permitted"]
    assert values(kernel) == dict(BEFORE, **{SWAPPINESS: "10"})


def test_the_boot_unit_sets_what_was_applied(tree, capsys):
    host = tree.write(dict(FILES, **{HUGEPAGES: "madvise"}))
    assert main(["--root", tree.root]) == 0
    assert capsys.readouterr().out == ""
    keep(tree, ALL)
    assert main(["--root", tree.root]) == 0
    assert SWAPPINESS + ": 60 -> 10\n" in capsys.readouterr().out
    assert values(host) == AFTER
    tree.write({AVAILABLE % 0: "powersave"})
    assert main(["--root", tree.root]) == 1
    assert "there is no governor performance; this host has powersave" in capsys.readouterr().out

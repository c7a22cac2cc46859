# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a host, and the engine for values by them: what is set, refused, recorded, restored, compared, and set at boot."""

import errno
import json
import os
import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import Undone, apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from tests.fakes import kernel as fakes
from tests.fakes.kernel import drift_of, restored

FILE = "/etc/npu-affinity/tuning.json"
BALANCING, SWAPPINESS = "/proc/sys/kernel/numa_balancing", "/proc/sys/vm/swappiness"
HUGEPAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
POLICY = "/sys/devices/system/cpu/cpufreq/policy%d/"
GOVERNOR, AVAILABLE = POLICY + "scaling_governor", POLICY + "scaling_available_governors"
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
BEFORE = {BALANCING: "1", SWAPPINESS: "60", HUGEPAGES: "madvise", GOVERNOR % 0: "schedutil", GOVERNOR % 4: "performance"}
AFTER = {BALANCING: "0", SWAPPINESS: "10", HUGEPAGES: "never", GOVERNOR % 0: "performance", GOVERNOR % 4: "performance"}
CHANGED = (GOVERNOR % 0, BALANCING, SWAPPINESS, HUGEPAGES)


class Kernel(fakes.Kernel):
    """Its huge pages are listed with the chosen word in brackets, as the kernel does."""

    def set_attribute(self, path, value):
        words = (self.read(path) or "").replace("[", "").replace("]", "").split()
        super().set_attribute(path, " ".join("[%s]" % word if word == value else word for word in words) if path == HUGEPAGES else value)


@pytest.fixture
def kernel(tree):
    tree.write(FILES)
    return Kernel(tree.root)


def bind(host, wanted, check=False):
    """Bind in a transaction of nothing else, and return the step."""
    step = FEATURE.step(host, {"live": {"tuning": wanted}}, Choices())
    apply(host, Request(), check, after=[step])
    return step


def unbind(host, check=False):
    return restored(FEATURE.restore, host, check)


def found(host):
    return {path: re.sub(r".*\[(.*)\].*", r"\1", host.read(path)) for path in BEFORE}


def recorded(host):
    return previous.recorded(host).get("tuning", {})


def test_everything_is_set_once_and_restored(kernel):
    predicted = bind(kernel, ALL, check=True)
    assert found(kernel) == BEFORE and recorded(kernel) == {}
    done = bind(kernel, ALL)
    assert found(kernel) == AFTER and done.lines() == predicted.lines()
    assert [row["path"] for row in done.result()] == list(CHANGED)
    assert recorded(kernel) == {path: {"original": BEFORE[path], "given": [AFTER[path]]} for path in CHANGED}
    assert not bind(kernel, ALL).changed
    (_outcome, predicted), (outcome, undone) = unbind(kernel, check=True), unbind(kernel)
    assert found(kernel) == BEFORE and not outcome.failed and predicted.lines() == undone.lines()


def test_one_setting_on_192_cpus_is_one_line(tree):
    for number in range(0, 192, 4):
        related = " ".join(str(number + cpu) for cpu in range(4))
        tree.write({GOVERNOR % number: "schedutil", POLICY % number + "related_cpus": related})
    host = Kernel(tree.root)
    assert bind(host, {"governor": "performance"}).lines() == {"host settings": ["~ governor: schedutil -> performance on 192 CPUs"]}
    assert unbind(host)[1].lines() == {"host settings": ["~ governor: performance -> schedutil on 192 CPUs"]}


def test_a_setting_not_wanted_any_more_is_restored_and_forgotten(kernel):
    bind(kernel, ALL)
    bind(kernel, {"numa_balancing": 0, "swappiness": 20})
    assert found(kernel) == dict(BEFORE, **{BALANCING: "0", SWAPPINESS: "20"})
    assert recorded(kernel) == {BALANCING: {"original": "1", "given": ["0"]}, SWAPPINESS: {"original": "60", "given": ["20"]}}
    kernel.put(GOVERNOR % 0, "powersave")
    bind(kernel, {"swappiness": 0})
    assert found(kernel) == dict(BEFORE, **{SWAPPINESS: "0", GOVERNOR % 0: "powersave"}), "it is not managed any more"
    bind(kernel, {})
    assert kernel.read(SWAPPINESS) == "60" and recorded(kernel) == {}


# (what the kernel refuses, what is wanted, the sentence)
REFUSALS = [
    ({}, {"governor": "turbo"}, "there is no governor turbo; this host has performance, powersave, schedutil"),
    ({}, {"turbo": 1}, "'turbo' is not a setting"),
    ({SWAPPINESS: errno.EINVAL}, {"swappiness": 300}, SWAPPINESS + " does not take '300': Invalid argument"),
    ({HUGEPAGES: errno.EROFS}, ALL, HUGEPAGES + " does not take 'never': Read-only file system"),
]


@pytest.mark.parametrize(("refused", "wanted", "sentence"), REFUSALS)
def test_a_refused_value_is_reported_and_nothing_stays_changed(kernel, refused, wanted, sentence):
    kernel.refused = refused
    with pytest.raises(ValueError, match=re.escape(sentence)):
        bind(kernel, wanted)
    assert found(kernel) == BEFORE and recorded(kernel) == {}


def test_a_value_not_taken_back_stays_recorded_as_given(kernel):
    bind(kernel, {"swappiness": 30})
    refused = {(HUGEPAGES, "always madvise [never]"), (SWAPPINESS, "30")}
    kernel.refuse = lambda path, value: errno.EIO if (path, value) in refused else None
    with pytest.raises(Undone, match="not everything could be restored: .*does not take '30'"):
        bind(kernel, ALL)
    assert recorded(kernel)[SWAPPINESS] == {"original": "60", "given": ["30", "10"]}
    assert drift_of(FEATURE, kernel, {"swappiness": 30}) == {"swappiness": ("30", "10", "interrupted run")}
    kernel.refuse = lambda path, value: None
    kernel.put(SWAPPINESS, "30")
    bind(kernel, {"swappiness": 30, "numa_balancing": 0})
    assert recorded(kernel)[SWAPPINESS] == {"original": "60", "given": ["30"]}, "what is in force, not what was tried last"
    assert unbind(kernel)[0].failed == [] and found(kernel) == BEFORE


def test_drift_is_one_finding_for_each_setting(kernel):
    bind(kernel, ALL)
    assert drift_of(FEATURE, kernel, ALL) == {}
    kernel.put(GOVERNOR % 4, "powersave")
    kernel.put(SWAPPINESS, "5")
    assert drift_of(FEATURE, kernel, ALL) == {
        "governor": ("performance", "performance (1 of 2), powersave (1 of 2)", "manual change"),
        "swappiness": ("10", "5", "manual change"),
    }


def test_an_unwritable_setting_is_refused_before_any_change(kernel, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, _mode: not path.endswith(SWAPPINESS))
    for check in (True, False):
        with pytest.raises(ValueError, match=SWAPPINESS + " cannot be written; run as root"):
            bind(kernel, ALL, check)
    assert found(kernel) == BEFORE and not kernel.exists(previous.PATH)


def test_a_value_that_does_not_stick_is_a_failure(kernel, monkeypatch):
    monkeypatch.setattr(Kernel, "set_attribute", lambda self, path, value: None)
    with pytest.raises(ValueError, match="was set to '10' and holds '60'"):
        bind(kernel, {"swappiness": 10})


def test_a_setting_the_host_lacks_is_a_warning(tree):
    host = tree.write({SWAPPINESS: "60"})
    step = bind(host, ALL)
    assert step.warnings == ["this host has no %s to set" % name for name in ("governor", "numa_balancing", "transparent_hugepages")]
    assert [row["path"] for row in step.result()] == [SWAPPINESS]


@pytest.mark.parametrize("reads", [True, False])
def test_unbind_reports_what_it_could_not_restore_and_goes_on(kernel, monkeypatch, reads):
    bind(kernel, ALL)
    read, failed = Kernel.read, "does not take '60': Operation not permitted" if reads else "cannot be read; run as root (become: true)"
    kernel.refused = {SWAPPINESS: errno.EPERM}
    with monkeypatch.context() as broken:
        broken.setattr(Kernel, "read", lambda host, path: read(host, path) if reads or path != SWAPPINESS else None)
        outcome, _undone = unbind(kernel)
    assert outcome.failed == [f"{SWAPPINESS} {failed}"] and outcome.kept == {"tuning"}
    assert found(kernel) == dict(BEFORE, **{SWAPPINESS: "10"})
    assert recorded(kernel).keys() == {SWAPPINESS}, "what was restored is not managed any more"


def test_the_boot_unit_sets_what_was_applied(tree, capsys):
    host = tree.write(dict(FILES, **{HUGEPAGES: "madvise"}))
    assert FEATURE.program(["--root", tree.root]) == 0
    assert capsys.readouterr().out == ""
    tree.write({FILE: json.dumps(dict(ALL, about="ours"))})
    assert FEATURE.program(["--root", tree.root]) == 0
    assert "swappiness: 60 -> 10\n" in capsys.readouterr().out
    assert found(host) == AFTER and recorded(host)[SWAPPINESS] == {"original": "60", "given": ["10"]}
    tree.write({AVAILABLE % 0: "powersave"})
    assert FEATURE.program(["--root", tree.root]) == 1
    assert "there is no governor performance; this host has powersave" in capsys.readouterr().out
    os.unlink(tree.root + GOVERNOR % 0)
    assert FEATURE.program(["--root", tree.root]) == 0

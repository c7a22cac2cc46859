# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU_AFFINITY_CONF is read as torch_npu reads it, by its published vectors and by release."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.torch_npu import cpus_of, setting

OLD, NEW = (7, 3), (26, 1, 0)
HOST = range(48)
SEVERAL = "1,npu_affine:1,npu0:0-5,npu1:6-7,npu2:8-8,npu2:10-11,npu0:12-19"
CPUS = [
    # the setting, a visible device, its CPUs before 26.1.0 and from it on; the first three are the vectors of upstream's PR 34407
    ("1,npu_affine:1,npu0:0-5", 0, "0-5", "0-5"),
    (SEVERAL, 0, "12-19", "0-5,12-19"),
    ("1,npu_affine:1,npu0:0-5,npu1:10-13,npu0:4-7", 0, "4-7", "0-7"),
    (SEVERAL, 1, "6-7", "6-7"),
    (SEVERAL, 2, "10-11", "8,10-11"),
    (SEVERAL, 3, None, None),  # the driver tells
    ("2,npu0:3", 0, "3", "3"),
    ("mode:2, npu1:4-6", 1, "4-6", "4-6"),
    ("mode:2,npu1:4-6", 0, "0-11", "0-11"),  # its part of the host, by four visible devices
    ("1", 3, "36-47", "36-47"),
    ("1,npu0:8-x,npu100:1-2,other", 0, "0-11", "0-11"),
    ("1,npu0:65530-99999999999", 0, "65530-65535", "65530-65535"),
]


@pytest.mark.parametrize("text, number, before, since", CPUS)
def test_a_visible_device_has_the_cpus_that_its_release_gives_it(text, number, before, since):
    word, made = setting(["LANG=C", "CPU_AFFINITY_CONF=" + text])
    assert word == "CPU_AFFINITY_CONF=" + text
    found = [cpus_of(made, number, 4, HOST, release) for release in (OLD, NEW)]
    assert [cpus if cpus is None else compress(cpus) for cpus in found] == [before, since]


@pytest.mark.parametrize("words", [[], ["CPU_AFFINITY_CONF=0,npu0:0-5"], ["CPU_AFFINITY_CONF=on"], ["MY_CPU_AFFINITY_CONF=1"]])
def test_what_switches_nothing_on_is_no_setting(words):
    assert setting(words) is None


def test_switches_are_on_by_a_number_that_is_not_0():
    assert setting(["CPU_AFFINITY_CONF=2,force:1,bind_irq:1,lazy_bind:0"])[1].switches == {"force", "bind_irq"}

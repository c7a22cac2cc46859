# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated npu-smi answers host code without a process of its own."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._host import host
from tests.fakes import programs


@pytest.fixture(scope="session", autouse=True)
def answers_without_process():
    run = host._run
    host._run = programs.answering(run, host.Result)
    yield
    host._run = run

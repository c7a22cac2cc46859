# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes one JSON line for every task result, so that tests can count what ran on hosts and read what was said."""

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: journal
type: aggregate
short_description: One JSON line for every task result
description: For the tests of npu.affinity.
options: {}
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "journal"

    def _note(self, outcome, result):
        task = getattr(result, "task", None) or result._task
        host = getattr(result, "host", None) or result._host
        values = getattr(result, "result", None) or result._result
        line = {"host": host.get_name(), "action": task.action, "task": task.get_name(), "outcome": outcome, "result": values}
        with open(os.environ["AFFINITY_JOURNAL"], "a") as file:
            file.write(json.dumps(line, default=str) + "\n")

    def v2_runner_on_ok(self, result):
        self._note("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._note("failed", result)

    def v2_runner_on_unreachable(self, result):
        self._note("failed", result)

    def v2_runner_on_skipped(self, result):
        self._note("skipped", result)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which lines of plugins a process executes, its children included."""

import os
import re
import sys

EVENTS = sys.monitoring.events
TOOL = sys.monitoring.COVERAGE_ID
PLUGIN = re.compile(r".*/(?:(plugins/.+)|npu_affinity[^/]*\.zip/npu_affinity/(.+))")
"""Of the file names of code, those of plugins, and of the host code that they install as an archive."""


def plugin_of(name):
    """Return the file of plugins that has a file name of code, or None."""
    found = PLUGIN.fullmatch(name)
    return found and (found[1] or f"plugins/module_utils/{found[2]}")


class Lines:
    """The lines of plugins that were executed since the last :meth:`take`, as ``(file, line)``. Children append theirs to a file."""

    def __init__(self, path):
        self.path = path
        self.found = set()
        self.output = None

    def watch(self, child=True):
        sys.monitoring.use_tool_id(TOOL, "mutation")
        sys.monitoring.register_callback(TOOL, EVENTS.PY_START, self._start)
        sys.monitoring.register_callback(TOOL, EVENTS.LINE, self._line)
        sys.monitoring.set_events(TOOL, EVENTS.PY_START)
        os.register_at_fork(after_in_child=self._forked)
        if child:
            self._forked()

    def take(self):
        """Return what was executed and start again."""
        found, self.found = self.found, set()
        if os.path.exists(self.path):
            with open(self.path) as file:
                found.update((name, int(line)) for name, line in (row.rsplit(" ", 1) for row in file.read().splitlines()))
            os.unlink(self.path)
        sys.monitoring.restart_events()
        return found

    def _forked(self):
        self.found = set()
        self.output = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        sys.monitoring.restart_events()

    def _start(self, code, _offset):
        if plugin_of(code.co_filename):
            sys.monitoring.set_local_events(TOOL, code, EVENTS.LINE)
        return sys.monitoring.DISABLE

    def _line(self, code, line):
        found = plugin_of(code.co_filename), line
        if found not in self.found:
            self.found.add(found)
            if self.output is not None:
                os.write(self.output, f"{found[0]} {line}\n".encode())
        return sys.monitoring.DISABLE

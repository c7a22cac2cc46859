# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the host with its plan, and write the result for node exporter. A timer runs ``python3 -m npu_affinity metrics``."""

from __future__ import annotations

import argparse
from typing import Sequence

from ..._features.metrics import textfile
from ..._features.metrics.places import SETTINGS
from ..._base.outside import say
from ..._host.host import Host
from ..._state.files import MARKER
from ..._state.lock import changing
from . import exposition
from .samples import METRICS, samples

PROGRAM = "npu_affinity metrics"
_HEAD = MARKER + ": metrics of how the CPUs of this host are bound, written by npu-affinity-metrics.timer."


def main(argv: Sequence[str] | None = None) -> int:
    """Write the metrics to the file that role metrics has chosen.

    The lock is held to write, and not while the host is compared: a driver that is loaded meanwhile is bound at once. Returns 0, and 1 with
    a sentence where nothing could be written; that the host could not be compared is a metric.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Write metrics of the binding of this host for node exporter.")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    host = Host(parser.parse_args(argv).root)
    try:
        with changing(host, PROGRAM):  # a bind that is under way ends first
            wanted = textfile.wanted(host)
            none = "There is no %s: no metrics are written." % SETTINGS
            path, remark = (None, none) if wanted is None else textfile.place(host, wanted)
            if path is not None:
                textfile.record(host, path)
        if path is None:
            say(remark)
            return 0
        found, why = samples(host, host.read(path))
        with changing(host, PROGRAM):
            if textfile.wanted(host) == wanted:
                textfile.write(host, path, exposition.text(_HEAD, METRICS, found))
    except (OSError, ValueError) as error:
        say("No metrics are written: %s" % error)
        return 1
    if why:
        say("This host could not be compared with its plan: %s" % why)
    return 0

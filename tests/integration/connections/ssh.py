# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for ssh: runs the command of a simulated host here, and can lose the connection as ssh does, with exit status 255.

The folder ``LOST_CONNECTIONS`` can have a file of the name of a host, with lines ``CALL SECONDS``. The connection of that host is lost at
its call of this number, counted from 1, as many seconds after its command began, which goes on; with ``-`` for the seconds before it
begins. Commands that run have the folder as ``RUNS_FOR`` in their environment. ``HOST.calls`` and ``HOST.lost`` get a dot for each.
"""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ["LOST_CONNECTIONS"])


def main(host, command):
    calls = FOLDER / f"{host}.calls"
    with calls.open("a") as file:
        file.write(".")
    asked = dict(line.split() for line in (FOLDER / host).read_text().splitlines()) if (FOLDER / host).exists() else {}
    moment = asked.get(str(calls.stat().st_size))
    if moment == "-":
        return lost(host)
    process = subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True, env={**os.environ, "RUNS_FOR": str(FOLDER)})
    try:
        return process.wait(float(moment) if moment else None)
    except subprocess.TimeoutExpired:
        return lost(host)


def lost(host):
    with (FOLDER / f"{host}.lost").open("a") as file:
        file.write(".")
    print(f"Connection to {host} closed by remote host.", file=sys.stderr)
    return 255


sys.exit(main(*sys.argv[-2:]))

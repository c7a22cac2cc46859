# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of one pass over the open files of all processes, which tells who uses the NPUs of a host.

    python -m tests.benchmarks.users [PROCESSES] [FILES]

The processes are folders below a temporary root. Sixteen of them hold an NPU; the files of the others are sockets, pipes and
regular files. The second line adds 99 threads to each holder, whose CPUs are read as well. The least of several passes counts.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._users.finding import users

RUNS = 7
HOLDERS = 16
THREADS = (1, 100)
LIMIT_MS = 100
"""For 1,000 processes with 15 files each."""
TARGETS = ("/dev/null", "socket:[81422]", "pipe:[4711]", "/var/log/messages", "anon_inode:[eventpoll]")
STATUS = "Name:\tworker\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n"


def add(root: pathlib.Path, pid: int, files: int, holds: int | None, threads: int) -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("worker\n")
    (folder / "cgroup").write_text(f"0::/system.slice/worker-{pid}.service\n")
    for number in range(files):
        target = f"/dev/davinci{holds}" if holds is not None and number == files - 1 else TARGETS[number % len(TARGETS)]
        (folder / "fd" / str(number)).symlink_to(target)
    for thread in range(threads if holds is not None else 0):
        task = folder / "task" / str(pid + thread)
        task.mkdir(parents=True)
        (task / "status").write_text(STATUS)


def least(processes: int, files: int, threads: int) -> float:
    """Return the ms of CPU time of the fastest pass."""
    npus = [{"kind": "npu", "id": number, "phy_id": number, "pci": f"0000:{number:02x}:00.0"} for number in range(HOLDERS)]
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(processes):
            add(pathlib.Path(folder), 1000 + 200 * number, files, number if number < HOLDERS else None, threads)
        for _run in range(RUNS):
            before = time.process_time()
            found = users(Host(folder), npus)
            times.append(1000 * (time.process_time() - before))
    if len(found) != HOLDERS or any(len(user["npus"]) != 1 for user in found):
        sys.exit(f"{len(found)} users were found, expected {HOLDERS} with one NPU each")
    return min(times)


def main(processes: int, files: int) -> None:
    print(f"users of NPUs among {processes} processes with {files} files each, least of {RUNS} passes")
    wanted = LIMIT_MS * processes * files / 15000
    for threads in THREADS:
        best = least(processes, files, threads)
        limit = f" (at most {wanted:.0f} ms wanted)" if threads == 1 else ""
        print(
            f"  holders with {threads:3} threads {best:8.1f} ms CPU time, {1000 * best / (processes * files):.1f} us for each file{limit}"
        )


if __name__ == "__main__":
    main(*(map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (1000, 15)))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host with workers whose threads have roles."""

from __future__ import annotations

from tests.fakes.two_cards import host_with

MACHINE = host_with([{"npu": number, "bdf": f"0000:{0xC1 + number:02x}:00.0", "node": number // 2} for number in range(4)])
THREADS = {"npu_affinity_threads_enabled": True}


def start(tree, pid, cgroup, device=None):
    """A worker whose threads are on all CPUs, in the tree of a host."""
    folder = tree / "proc" / str(pid)
    for number, name in enumerate(("VLLM::Worker", "acl_thread", "release_thread", "KVCacheSendingT")):
        task = folder / "task" / str(pid + number)
        task.mkdir(parents=True)
        (task / "comm").write_text(name + "\n")
        (task / "status").write_text(f"Name:\t{name}\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t0-31\n")
    (folder / "comm").write_text("VLLM::Worker\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    if device is not None:
        (folder / "fd").mkdir()
        (folder / "fd" / "9").symlink_to(f"/dev/davinci{device}")


def placed(tree, pid):
    """The CPUs of a worker's main thread, acl_thread, release_thread and the one that sends KV caches."""
    texts = [(tree / f"proc/{pid}/task/{pid + number}/status").read_text() for number in range(4)]
    return tuple(text.rpartition("\t")[2].strip() for text in texts)

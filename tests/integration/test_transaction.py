# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bind with every feature that sets something on the running host, which fails at its last step."""

from __future__ import annotations


from tests.fakes.changes import SHARED, shared
from tests.fakes.small_host import write
from tests.fakes.split_host import MACHINE, soft_split
from tests.fakes.thread_host import THREADS, placed, start

HISTORY = "etc/npu-affinity/history"


def state_of(hosts):
    """Return what a host has, apart from logs and from what npu-smi and the runs keep for themselves."""
    found = {path: state for path, state in hosts.snapshot("host").items() if not path.startswith(("/var/log", "/run"))}
    return {path: state if isinstance(state, str) else state[2] for path, state in found.items()}


def test_a_bind_failing_at_its_last_step_changes_nothing(fleet, tmp_path):
    hosts = fleet(host=MACHINE)
    tree, library = hosts.tree("host"), tmp_path / "libvnpu.so"
    library.write_bytes(b"\x7fELF\0\xff\r\nlibrary")
    variables = {**SHARED, **THREADS, **soft_split(library)}
    write(tree, f"/{HISTORY}", "no folder\n")
    start(tree, 4000, "/npu.slice/npu-0.slice/docker-3f.scope")
    before = state_of(hosts)
    check = hosts.succeed("bind", "--check", "--diff", **variables)
    assert "+ /usr/local/hami-vnpu-core/libvnpu.so" in check.output and state_of(hosts) == before, check.output
    run = hosts.play("bind", **variables)
    assert run.status != 0
    reason = run.failure("host")
    assert "/etc/npu-affinity/history cannot be written" in reason, run.output
    assert "All files, directories of soft split, device share settings and threads were restored" in reason
    assert shared(tree) == [] and state_of(hosts) == before
    (tree / HISTORY).unlink()
    run = hosts.succeed("bind", **variables)
    assert shared(tree) == ["0:0", "1:0"] and placed(tree, 4000) != ("0-31",) * 4
    assert [path.name for path in (tree / HISTORY).iterdir()] == ["1.json"]
    assert (tree / "usr/local/hami-vnpu-core/libvnpu.so").read_bytes() == library.read_bytes(), run.output
    (soft_split_of,) = (entry["result"]["vnpu"] for entry in run.of("host", "ok") if entry["action"].endswith("host_files"))
    assert soft_split_of["folders"] == ["/usr/local/hami-shared-region", "/usr/local/hami-vnpu-core"]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a fleet are written, reviewed, and bound as they were reviewed."""

from __future__ import annotations

import pytest

from tests.simulator.faults import lose_card

FEATURES = {"npu_affinity_threads_enabled": True, "npu_affinity_batches": ["100%"]}


@pytest.mark.long
def test_reviewed_changes_are_bound_and_later_moves_are_refused(fleet, tmp_path, monkeypatch):
    """In check mode as well, from a path that is relative to the working directory; a bind that is resumed finds what it wants."""
    hosts = fleet(steady="i310_pro", moved="i310_pro", forgotten="i310_pro", broken="a2_broken")
    monkeypatch.setenv("PWD", str(tmp_path))
    texts = []
    for arguments in ([], ["--check"]):
        planned = hosts.play("plan", *arguments, "--limit", "!forgotten", npu_affinity_plan_file="fleet.json", **FEATURES)
        assert planned.summary["states"] == {"planned": ["moved", "steady"], "refused": ["broken"]}, planned.output
        texts.append([(tmp_path / name).read_text() for name in ("fleet.json", "fleet.md")])
    assert texts[0] == texts[1] and "### moved, steady\n" in texts[0][1]
    lose_card(hosts.tree("moved"), 5)
    reviewed = {"npu_affinity_reviewed": "fleet.json", **FEATURES}
    for arguments, state in ((["--check"], "would change"), ([], "changed"), ([], "unchanged")):
        with hosts.untouched("moved"):
            run = hosts.play("bind", *arguments, **reviewed)
        assert run.summary["states"] == {state: ["steady"], "refused": ["broken", "forgotten", "moved"]}, run.output
        assert "is missing. Write the file again" in run.failure("moved")
        assert "fleet.json has no plan of this host" in run.failure("forgotten")
    run = hosts.play("bind", "--check", "--limit", "steady", **reviewed, npu_affinity_move_memory=True, npu_affinity_interval="20min")
    assert "npu_affinity_move_memory" not in run.failure("steady") and "/npu-affinity-irq.timer: changed" in run.failure("steady")
    run = hosts.play("bind", "--check", "--limit", "steady", **reviewed, npu_affinity_move_memory=True)
    assert "fleet.json says: npu_affinity_move_memory has another value" in run.failure("steady"), run.output
    back = hosts.play("rollback", "--limit", "steady", npu_affinity_to="-1", **reviewed)
    assert "npu_affinity_reviewed is not read here" in back.output
    gone = hosts.succeed("unbind", "--limit", "steady", **reviewed)
    assert "npu_affinity_reviewed is not read here" in gone.output, gone.output

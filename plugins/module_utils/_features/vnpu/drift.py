# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the directories and files for soft split, and containers that share NPUs, with what is wanted. Reads only."""

from __future__ import annotations

from ..._base.findings import EDIT, Cause, Findings, coded
from ..._host.host import Host
from ..comparing import Comparing
from .layout import Layout, checksum, complete, layout_of, look
from .soft_split import check_soft_split


def compare(comparing: Comparing) -> None:
    """Compare the layout of this host, and what limits containers, wherever its files come from."""
    host, findings, wanted = comparing.host, comparing.findings, comparing.wanted
    live, slices = wanted.live.get("vnpu"), wanted.live.get("slices")
    layout = layout_of(live) if live else None
    if layout:
        check_layout(findings, host, layout)
    if wanted.soft_split:
        ours = ["%s/%s" % (layout.folder, name) for name in complete(layout).files] if layout else []
        check_soft_split(
            findings,
            host,
            wanted.soft_split,
            [vnpu for vnpu in slices.get("vnpus", ()) if "template" not in vnpu] if slices else (),
            comparing.idle,
            ours,
        )


def check_layout(findings: Findings, host: Host, layout: Layout) -> None:
    """Compare the directories and files for soft split; a file that someone else placed is drift with the reason why it stays."""
    try:
        report = look(host, layout)
    except ValueError as error:
        findings.differs("files", layout.folder, "as npu_affinity_vnpu_files says", str(error), Cause(EDIT, "placed by someone else"))
        return
    for path in (layout.folder, layout.shared_region):
        if path in report.folders:
            before, after = report.folders[path]
            found = "no such directory" if before is None else "permissions %04o" % before
            findings.differs("files", path, "permissions %04o" % after, found, Cause(EDIT, "changed or removed by hand"))
        else:
            findings.same("files", path)
    for name, digest in complete(layout).files.items():
        path = "%s/%s" % (layout.folder, name)
        if name in report.missing:
            other = checksum(host, path)
            cause = Cause(EDIT, "removed, or other files were named since the last bind")
            findings.differs("files", path, "SHA-256 " + digest, "SHA-256 " + other if other else "no such file", cause)
        else:
            findings.same("files", path)
    findings.remarks += coded("NPU_VNPU_UNSURE", report.warnings)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change can break: ``python -m tests.rota.changes PART...`` prints those of the core's parts that it cannot.

Changes are counted from the last run that passed on this machine, or from ``GITHUB_BASE_REF``. Where neither is known, or a path is in no
row of :data:`AREAS`, everything can break.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterable, Sequence

from .memory import Memory, git

EVERYTHING = "*"
AREAS = [
    # (patterns of paths, parts of the core that can break, patterns of proofs that come first); the first row that fits a path counts
    ("docs/* *.md CHANGELOG.rst changelogs/*", "style ansible-lint docs licence package unit integration", "docs-site"),
    ("tests/unit/* tests/fakes/*", "style licence unit properties integration conformance", "python-*"),
    ("tests/integration/*", "style licence unit integration conformance lab-core", ""),
    ("tests/conformance/*", "style licence unit conformance", ""),
    ("tests/lab/test_*", "style licence unit lab-core", "*:{name}::*"),
    ("tests/lab/*", "style ansible-lint licence unit lab-core", ""),
    *((f"tests/{name}/*", "style licence unit", name) for name in ("browser", "events", "launchers", "metrics", "optimal", "slurm")),
    ("tests/run-matrix", "style licence unit", "python-* core-*"),
    ("extensions/molecule/*", "style ansible-lint licence unit", "molecule-*"),
    ("extensions/patterns/*", "style ansible-lint licence package unit", "importer"),
    ("tests/run-importer", "style licence unit", "importer"),
    ("extensions/eda/*", EVERYTHING, "events"),
    ("roles/metrics/* plugins/*metrics*", EVERYTHING, "metrics"),
    ("plugins/plugin_utils/_report/*", EVERYTHING, "browser"),
    ("plugins/*slurm*", EVERYTHING, "slurm"),
    ("plugins/module_utils/_command/exec.py", EVERYTHING, "launchers slurm"),
    ("plugins/module_utils/_ranks.py", EVERYTHING, "launchers slurm"),
    ("plugins/plugin_utils/_plan/*", EVERYTHING, "optimal more-properties"),
    ("plugins/*/adopt/*", EVERYTHING, "*:test_adopt.py::*"),
    ("plugins/*/hugepages/*", EVERYTHING, "*:test_settings.py::test_pages_*"),
    ("plugins/*/irq/*", EVERYTHING, "*:test_irq.py::*"),
    ("plugins/*/nic/*", EVERYTHING, "*:test_settings.py::test_queues_*"),
    ("plugins/*/threads/*", EVERYTHING, "*:test_workloads.py::*"),
    ("plugins/*/tuning/*", EVERYTHING, "*:test_settings.py::test_settings_*"),
]


def changed(memory: Memory) -> list[str] | None:
    """Return the paths that changed, or None where it is not known since when."""
    base = git("merge-base", "HEAD", f"origin/{os.environ['GITHUB_BASE_REF']}") if os.environ.get("GITHUB_BASE_REF") else memory.passed
    if not base or not git("rev-parse", "--verify", f"{base}^{{commit}}"):
        return None
    return [*git("diff", "--name-only", base).splitlines(), *git("ls-files", "--others", "--exclude-standard").splitlines()]


def area(path: str) -> tuple[str, str]:
    """Return the parts that a change of a path can break, and the proofs that it touches."""
    for patterns, parts, proofs in AREAS:
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns.split()):
            return parts, proofs.format(name=os.path.basename(path))
    return EVERYTHING, ""


def unaffected(parts: Iterable[str], paths: Sequence[str] | None) -> list[str]:
    """Return the parts that a change of these paths cannot break; none where no path changed: then the machine is what is new."""
    if not paths:
        return []
    broken = {part for path in paths for part in area(path)[0].split()}
    return [] if EVERYTHING in broken else [part for part in parts if part not in broken]


def touched(proofs: Iterable[str], paths: Sequence[str] | None) -> list[str]:
    """Return the proofs that a change of these paths touches."""
    patterns = {pattern for path in paths or [] for pattern in area(path)[1].split()}
    return [proof for proof in proofs if any(fnmatch.fnmatchcase(proof, pattern) for pattern in patterns)]


if __name__ == "__main__":
    print(*unaffected(sys.argv[1:], changed(Memory.load())))

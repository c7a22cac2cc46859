# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the comparison of plans, or write it: ``python -m tests.compare --write``. Its files change only if a result does."""

from __future__ import annotations

import argparse
import datetime
import pathlib
import sys

from tests.compare import page, picture
from tests.compare.machines import shapes
from tests.compare.results import results

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGE = DOCS / "comparison-of-plans.md"
PICTURE = DOCS / "images/comparison-of-plans.svg"
DATA = DOCS / "data/comparison-of-plans.csv"


def made(date: str, record: bool = False) -> dict[pathlib.Path, str]:
    """Return the texts of the files by path."""
    rows = results(shapes(), record)
    return {PAGE: page.text(rows, date), PICTURE: picture.svg(rows), DATA: page.csv(rows)}


def written_on() -> str:
    """Return the date of the page, today if it has none."""
    found = page.DATE.search(PAGE.read_text()) if PAGE.exists() else None
    return found[1] if found else today()


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compare", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files; without it, fail if one would change")
    write = parser.parse_args(arguments).write
    date = written_on()
    files = made(date, record=write)
    changed = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if write and changed:
        files[PAGE] = files[PAGE].replace(date, today(), 1)
        for path in {*changed, PAGE}:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[path])
    for path in changed:
        print(f"{'written' if write else 'not up to date'}: {path.relative_to(DOCS.parent)}")
    if changed and not write:
        sys.exit("run make compare")


if __name__ == "__main__":
    main(sys.argv[1:])

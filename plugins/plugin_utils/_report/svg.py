# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look of a plan's picture: its colours in both schemes, its style sheet, and the SVG elements that it is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.sax.saxutils import escape

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines

TEXT, BOLD, MONO = 6.6, 7.8, 6.4
"""Width of a character in pixels in a wide font: which one a viewer has is not known."""

PALETTE = (
    # light scheme: main cells, role cells, text on role cells; dark scheme: the same
    ("#fbd88f", "#e69f00", "#000", "#7a4e00", "#e69f00", "#000"),
    ("#93bfe0", "#0072b2", "#fff", "#0a4a75", "#3d9fdb", "#000"),
    ("#cdb89a", "#7a5a2e", "#fff", "#4d3c24", "#b08d5c", "#000"),
    ("#cdeafb", "#56b4e9", "#000", "#2c6382", "#9ad6f7", "#000"),
    ("#f0b48f", "#d55e00", "#000", "#7d2f00", "#e8772a", "#000"),
    ("#e6bfd5", "#cc79a7", "#000", "#693353", "#d98cb8", "#000"),
    ("#faf3a0", "#e8d700", "#000", "#6d680d", "#f0e442", "#000"),
    ("#93d4be", "#009e73", "#000", "#00523c", "#19b88c", "#000"),
)
"""The colours of Okabe and Ito with brown for their black. Consecutive ones differ with any kind of colour vision."""

LOOKS = 2 * len(PALETTE)
"""How many NPUs can be told apart: those from the second half on are hollow, outlined in the colour of the first half."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _style() -> str:
    shapes = _rules(
        {
            "": "font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px;max-width:100%;height:auto",
            ".mono": "font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:10.5px",
            ".title": "font-size:20px;font-weight:600",
            ".bold,.start,.badge": "font-weight:700",
            ".badge": "font-size:13px;text-anchor:middle",
            ".end": "text-anchor:end",
            ".cells": "font-size:11px;text-anchor:middle",
            ".cells .start": "font-size:9px;text-anchor:start",
            ".cells .end": "font-size:9px;text-anchor:end",
            ".cell": "stroke-width:4;stroke-linejoin:round",
            ".line,.group": "fill:none",
            ".long": "font-size:9px",
            ".irq .line": "stroke-width:6;stroke-linecap:round",
            ".offline .cell": "stroke-width:1;stroke-dasharray:3 2",
            ".left .cell": "stroke-width:1",
            ".shared .line": "stroke-width:2",
            ".absent": "stroke-dasharray:3 2",
        }
    )
    return f"{shapes}{_rules(_scheme(0))}@media(prefers-color-scheme:dark){{{_rules(_scheme(1))}}}"


def _rules(rules: Mapping[str, str]) -> str:
    """Return CSS rules that hold inside a picture only."""
    return "".join(f".npu-plan {selectors.replace(',', ',.npu-plan ')}".rstrip() + f"{{{rule}}}" for selectors, rule in rules.items())


def _scheme(dark: int) -> dict[str, str]:
    ink, quiet, alarm = (("#1b1f24", "#59636e", "#b3001b"), ("#e6edf3", "#9aa4af", "#ff8d85"))[dark]
    page, frame, border, grey, stroke = (
        ("#fff", "#f4f6f8", "#cdd4db", "#e2e6ea", "#a3adb7"),
        ("#0d1117", "#161c24", "#39414a", "#2a3038", "#66707b"),
    )[dark]
    rules = {
        "text": f"fill:{ink}",
        ".quiet,.state text": f"fill:{quiet}",
        ".alarm,.shared text": f"fill:{alarm}",
        ".page": f"fill:{page}",
        ".frame": f"fill:{frame};stroke:{border}",
        ".box": f"fill:{page};stroke:{border}",
        ".group,.state .line": f"stroke:{stroke}",
        ".state .cell,.state .chip": f"fill:{grey};stroke:{grey}",
        ".offline .cell,.left .cell": f"fill:none;stroke:{stroke}",
        ".shared .line": f"stroke:{alarm}",
    }
    for number in range(LOOKS):
        hollow = number >= len(PALETTE)
        main, role, text = PALETTE[number % len(PALETTE)][3 * dark : 3 * dark + 3]
        rules |= {
            f".c{number} .cell": f"fill:{page};stroke:{role};stroke-width:2" if hollow else f"fill:{main};stroke:{main}",
            f".c{number} .role .cell": f"fill:{role};stroke:{role}",
            f".c{number} .chip": f"fill:{page};stroke:{role};stroke-width:2" if hollow else f"fill:{role};stroke:{role}",
            f".c{number} .role text": f"fill:{text}",
            f".c{number} .badge": f"fill:{ink if hollow else text}",
            f".c{number} .line": f"stroke:{text}",
        }
    return rules


STYLE = _style()


def title(content: str) -> str:
    """Return what a viewer shows for an element that holds it (and a screen reader reads)."""
    return f"<title>{escape(clean(content))}</title>"


def text(x: int, y: int, kind: str, content: str) -> str:
    """Return a line of text at its baseline; ``kind`` are its classes."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{style}>{escape(clean(content))}</text>'


def rect(kind: str, x: int, y: int, width: int, height: int, radius: int) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>'


def group(kind: str, content: str) -> str:
    return f'<g class="{kind}">{content}</g>'


def clean(content: str) -> str:
    """Return a text without characters that XML cannot hold, such as those of a name that was no UTF-8, and with others that nobody sees
    escaped."""
    return shown_lines(_NOT_XML.sub("\ufffd", content))


def fit(content: str, room: int, character: float) -> str:
    """Return as much of a text as there is room for (pixels)."""
    most = max(0, int(room / character))
    return content if len(content) <= most else content[: most - 1] + "…" if most > 1 else ""

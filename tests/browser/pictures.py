# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of the report in the documentation: ``make pictures`` takes them again (it needs pngquant).

``docs/images/pictures.json`` has a digest of what each shows: elements with their classes and texts, and the style sheet. Unlike pixels,
these are the same with any font and any version of the browser.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.npu.affinity.plugins.plugin_utils._report.page import report_html
from tests.browser.conftest import Page, browser
from tests.browser.fleet import before, demonstration

IMAGES = Path(__file__).parents[2] / "docs/images"
DIGESTS = IMAGES / "pictures.json"
COMPARE = """
const box = document.querySelector('select[aria-label="Compare with"]');
box.value = [...box.options].find(option => option.text.includes('even_split')).value;
box.dispatchEvent(new Event('change'));
document.querySelector('.bar input[type=checkbox]').click();
"""
PICTURES = {
    # name: part of the page, colour scheme, what happens first
    "report-fleet": ("", "light", ""),
    "report-plan": ("#host=a2-02", "light", ""),
    "report-host": ("#host=a2-01", "light", ""),
    "report-640": ("#host=a3-01", "dark", ""),
    "report-compare": ("#host=a3-02", "light", COMPARE),
}
END = 'const end = document.querySelector("section[aria-label=Picture] ~ h2");'
"""What follows the picture of a host is cut off."""
SHOWN = (
    END
    + """
const elements = [...document.querySelectorAll("style, #app *")].filter(one => !end || one.compareDocumentPosition(end) & 4);
const text = one => [...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data).join("");
return elements.map(one => `${one.tagName} ${one.getAttribute("class") || ""} ${text(one)}`).join("\\n");
"""
)
HEIGHT = (
    END
    + """
document.documentElement.style.overflow = "hidden";
document.activeElement.blur();
return Math.floor(end ? end.getBoundingClientRect().top : document.getElementById("app").scrollHeight);
"""
)


def opened(page: Page) -> Iterator[tuple[str, str]]:
    """Open the page for each picture; yield its name and the digest of what it shows."""
    hosts = demonstration()
    for host in hosts:
        if host.get("refused"):
            host["refused"] = "No NPU of this host can be planned: npu-smi cannot answer (unavailable): dcmi module initialize failed."
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        options = {"generated": "2026-11-20 18:00 UTC", "earlier": before(), "strategies": ["even_split"]}
        path.write_text(report_html(hosts, title="Training site", **options))
        for name, (part, scheme, script) in PICTURES.items():
            page.size(1300, 800)
            page.scheme(scheme)
            page.open(path, part)
            page.run(script)
            yield name, hashlib.sha256(page.run(SHOWN).encode()).hexdigest()


def take() -> None:
    digests = {}
    with browser() as page:
        for name, digests[name] in opened(page):
            page.size(1300, page.run(HEIGHT))
            picture = IMAGES / f"{name}.png"
            page.driver.save_screenshot(str(picture))
            subprocess.run(["pngquant", "--force", "--skip-if-larger", "--strip", "--speed=1", "--ext=.png", "128", picture], check=True)
    DIGESTS.write_text(json.dumps(digests, indent=2) + "\n")


if __name__ == "__main__":
    take()

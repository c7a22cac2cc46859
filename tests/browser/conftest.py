# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A headless Chromium that opens pages from files, and says what its console said."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --hide-scrollbars --force-color-profile=srgb"
)


class Page:
    """A page in the browser, as a user works with it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, path: Path, fragment: str = "") -> Page:
        self.driver.get("about:blank")
        self.driver.get(f"{path.as_uri()}{fragment}")
        return self

    def all(self, selector: str) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The texts of elements, read in one go."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map(element => element.textContent)", selector)

    def until(self, holds: Callable[[], bool]) -> bool:
        """Whether something comes to hold within ten seconds: the browser reports some actions as done before they are."""
        deadline = time.monotonic() + 10
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def shows(self, selector: str, beginning: str) -> bool:
        """Whether the first such element's text comes to begin so."""
        return self.until(lambda: any(text.strip().startswith(beginning) for text in self.texts(selector)[:1]))

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def keys(self, *keys: str) -> None:
        """Type into whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def size(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        )

    def scheme(self, scheme: str) -> None:
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})


@contextmanager
def browser() -> Iterator[Page]:
    """A browser with an empty profile of its own, gone afterwards."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        raise RuntimeError("Chromium and chromedriver are needed and were not found; run 'make browser', or install them.")
    with tempfile.TemporaryDirectory(prefix="npu-affinity-browser-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=chromedriver))
        try:
            yield Page(driver)
        finally:
            driver.quit()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Page]:
    with browser() as page:
        yield page

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as somebody reads it: a fleet that is sorted and searched, a host that is opened, with the mouse and without."""

import csv
import json

import pytest
from selenium.webdriver.common.keys import Keys

from ansible_collections.npu.affinity.plugins.plugin_utils._report.page import report_html
from tests.browser import pictures
from tests.browser.fleet import before, demonstration, thousand

NASTY = "<img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    hosts = demonstration()
    evil = next(host for host in hosts if host["host"] == "gpu-01")
    evil["remarks"] = [NASTY]
    evil["topology"]["npus"][0]["name"] = NASTY
    evil["topology"]["machine"]["product"] = NASTY
    evil["host"] = f"gpu-01 {NASTY}"
    path.write_text(report_html(hosts, title="Demo", generated="today", strategies=["global_slice"]))
    return path


@pytest.fixture
def page(chromium, small):
    """The small fleet, just opened; whatever is done with it, its console must stay silent."""
    chromium.size(1360, 900)
    chromium.scheme("light")
    chromium.open(small)
    yield chromium
    assert chromium.console() == []


def written(page, folder, records, **options):
    """Open the report on other hosts."""
    (folder / "report.html").write_text(report_html(records, **options))
    return page.open(folder / "report.html")


def hosts(page):
    return page.texts("#fleet tbody td.host")


def head(page, title):
    return next(button for button in page.all("#fleet th button") if button.text.startswith(title))


def type_into_search(page, words):
    search = page.one("input[type=search]")
    search.clear()
    search.send_keys(words)


def test_the_worst_come_first_and_every_state_has_a_word(page):
    assert page.texts("#fleet tbody .state") == [
        *["drifted"] * 2,
        *("refused", "no answer", "bound, workloads not", "bound with warnings", "not bound"),
        *["bound"] * 3,
        "no accelerator",
    ]
    assert hosts(page)[:2] == ["a2-01", "a3-01"]
    assert page.texts(".tile b") == ["2", "1", "1", "1", "1", "1", "3", "1"]
    assert page.shows("#fleet th[aria-sort=ascending]", "State")


ORDERS = [("Host", "a2-01", "web-01", "web-01"), ("CPUs", "a3-03", "a3-02", "a3-01"), ("Differs", "a2-02", "a2-01", "a2-01")]


@pytest.mark.parametrize("title, first, last, turned", ORDERS)
def test_a_click_on_a_head_sorts_and_a_second_one_turns_it_round(page, title, first, last, turned):
    head(page, title).click()
    upwards = hosts(page)
    assert (upwards[0], upwards[-1]) == (first, last)
    head(page, title).click()
    assert hosts(page)[0] == turned
    assert page.one("#fleet th[aria-sort=descending]").text.startswith(title)


SEARCHES = [("irqbalance", ["a2-01", "a3-01"]), ("LOST card", ["a2-01"]), ("a3 global", ["a3-01", "a3-02"]), ("nothing at all", [])]


@pytest.mark.parametrize("words, found", SEARCHES)
def test_search_looks_at_names_causes_and_strategies(page, words, found):
    type_into_search(page, words)
    assert hosts(page) == found
    assert page.one("[role=status]").text == f"{len(found)} of 11 hosts"


def test_tiles_and_causes_narrow_the_table(page):
    page.all(".tile")[1].click()
    assert hosts(page) == ["a2-03"]
    page.all(".tile")[1].click()
    next(button for button in page.all(".bar button") if button.text.startswith("lost card")).click()
    assert hosts(page) == ["a2-01"]
    assert page.one("input[type=search]").get_attribute("value") == "lost card"


def test_npus_and_gpus_are_counted_apart_and_bound_ones_filled(page):
    assert "67 NPUs, 8 GPUs" in page.one("header .quiet").text
    rows = "[...document.querySelectorAll('#fleet tbody tr')]"
    filled = dict(zip(hosts(page), page.run(f"return {rows}.map(row => !!row.querySelector('.strip .ok'))"), strict=True))
    assert filled["a2-02"] and filled["odd-01"] and not filled["a5-01"]
    assert "bound with warnings" in page.texts("#fleet tbody .s-warned")
    assert "Connection timed out" in dict(zip(hosts(page), page.texts("#fleet td.why"), strict=True))["a3-03"]


def test_what_changed_since_an_earlier_run_can_be_picked_out(page, tmp_path):
    later = written(page, tmp_path, demonstration(), earlier=before())
    buttons = {button.get_attribute("data-since"): button for button in later.all("[data-since]")}
    assert {key: button.text for key, button in buttons.items()} == {"new": "new drift 1", "fixed": "fixed 1", "still": "still drifted 2"}
    for key, found in (("new", ["a2-01"]), ("fixed", ["a2-02"]), ("still", ["a2-01", "a3-01"])):
        buttons[key].click()
        assert hosts(later) == found
    buttons["still"].click()
    assert len(hosts(later)) == 11
    later.all("#fleet tbody a")[0].click()
    assert later.texts("#drift .fresh") == ["new"]
    later.keys("n")
    later.run("location.hash = '#host=a2-02'")
    assert later.shows("#fixed li", "NPU 0 dev0_sq_task")


def test_hosts_of_one_plan_stand_together(page):
    head(page, "Host").click()
    page.one(".tools input").click()
    groups = page.texts("#fleet tr.group")
    assert groups[0] == "no plan · 3 hosts"
    assert "global_slice, 16 NPUs, 40 CPUs each, 100 % local, Atlas 800T A3 · 1 host" in groups
    assert hosts(page)[:3] == ["a2-03", "a3-03", "web-01"] and len(hosts(page)) == 11
    page.one(".tools input").click()
    assert page.all("#fleet tr.group") == []


@pytest.mark.parametrize("fragment", ["#host=a2-02", "#host=a2-02%3A9100"])
def test_services_and_workloads_of_a_host(page, small, fragment):
    page.open(small, fragment)
    texts = "[...row.cells].map(cell => cell.innerText.replace(/\\s+/g, ' '))"
    rows = page.run(f"return [...document.querySelectorAll('#users tbody tr')].map(row => {texts})")
    assert rows == [
        ["vllm@0.service service", "NPU 0", "144-167", "3"],
        ["tp.service service", "NPU 1, NPU 2, 9 (not in the plan)", "96-119,168-191", "2-3"],
        ["llm-a workload, llm-a.service", "NPU 3", "120-143", "2"],
    ]


def downloaded(page, folder, ending):
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    page.one(f"#{ending}").click()
    assert page.until((folder / f"npu-affinity.{ending}").exists)
    return folder / f"npu-affinity.{ending}"


def test_the_table_can_be_downloaded_as_it_is_shown(page, tmp_path):
    type_into_search(page, "a3")
    rows = list(csv.DictReader(downloaded(page, tmp_path, "csv").open(newline="")))
    assert [row["host"] for row in rows] == hosts(page)
    assert rows[0] | {"state": "drifted", "npus": "16", "gpus": "0", "cpus": "640", "differs": "2", "local": "1"} == rows[0]
    found = json.loads(downloaded(page, tmp_path, "json").read_text())
    assert [host["host"] for host in found] == hosts(page)
    assert [entry["cause"] for entry in found[0]["drift"]] == ["irqbalance", "changed cpuset"]


@pytest.mark.parametrize("fragment", ["", "#host=a2-01", "#host=a2-02"])
def test_a_phone_shows_every_column(page, small, fragment):
    page.size(390, 844)
    page.open(small, fragment)
    assert page.run("return document.documentElement.scrollWidth") <= 390
    cells = "[...document.querySelectorAll('tbody td[data-title]')].filter(cell => cell.childNodes.length)"
    assert page.run(f"return {cells}.filter(cell => cell.getBoundingClientRect().right > innerWidth || !cell.offsetHeight).length") == 0
    of_fleet = {"Host", "State", "Why", "Accelerators", "CPUs", "Differs", "Strategy", "Local", "Machine"}
    assert set(page.run(f"return {cells}.map(cell => cell.dataset.title)")) >= ({"Pool", "IRQ", "Slice"} if fragment else of_fleet)


def test_the_keyboard_alone_reaches_everything(page):
    page.one("body").send_keys("/")
    page.keys("a3-0")
    page.keys(Keys.ARROW_DOWN, "j")
    assert page.driver.switch_to.active_element.text == "a3-03"
    page.keys("k")
    page.keys(Keys.ENTER)
    assert page.shows("h1", "a3-01")
    page.keys("n")
    assert page.shows("h1", "a3-03")
    page.keys("p")
    assert page.shows("h1", "a3-01")
    page.run("document.querySelector('svg.picture').focus()")
    page.keys(Keys.ARROW_RIGHT)
    assert page.shows(".readout", "CPU 0 · NUMA node 0 · sibling 320")
    page.keys(Keys.ARROW_RIGHT)
    assert page.shows(".readout", "CPU 1 ")
    page.keys(Keys.ARROW_DOWN)
    assert page.shows(".readout", "CPU 321 ")
    page.keys("?")
    assert page.one("dialog").is_displayed()
    page.keys(Keys.ESCAPE)
    assert page.until(lambda: not page.all("dialog"))
    page.keys(Keys.ESCAPE)
    assert page.driver.switch_to.active_element.text == "a3-01"
    assert hosts(page) == ["a3-01", "a3-03", "a3-02"]


@pytest.mark.parametrize("keys, shown", [(["n", "n"], "a3-02"), (["n", "n", "p"], "a3-01"), (["Escape", "n"], "Demo")])
def test_each_of_several_keys_acts_on_what_the_last_one_showed(page, small, keys, shown):
    page.open(small, "#host=a2-02")
    page.run("for (const key of arguments[0]) document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))", keys)
    assert page.texts("h1") == [shown]


def test_back_and_forward_show_what_was_shown(page):
    page.all("#fleet tbody a")[1].click()
    page.keys("n")
    page.driver.back()
    assert page.shows("h1", "a3-01")
    page.driver.back()
    assert page.shows("h1", "Demo")
    page.driver.forward()
    assert page.shows("h1", "a3-01")


def test_nothing_is_drawn_until_a_host_is_opened(page):
    assert page.all("[data-cpu]") == []
    page.all("#fleet tbody a")[1].click()
    cells = page.run("return [...document.querySelectorAll('.picture [data-cpu]')].map(cell => Number(cell.dataset.cpu))")
    assert sorted(cells) == list(range(640))
    assert len(page.all(".picture .npu")) == 16
    assert len(page.all(".picture .node")) == 8


def cell(page, cpu):
    return page.one(f".picture [data-cpu='{cpu}']")


def test_drift_is_marked_where_it_is_and_said_in_words(page, small):
    page.open(small, "#host=a3-01")
    red = page.run("return [...document.querySelectorAll('.picture .cell:has(.drift)')].map(cell => Number(cell.dataset.cpu))")
    assert sorted(red) == [5, *range(240, 248), 281]
    assert [box.get_attribute("data-npu") for box in page.all(".npu.drift")] == ["3", "6"]
    assert page.texts("#drift tbody b") == ["NPU 6 cq_update_irq", "npu-3.slice CPUs"]
    page.run("arguments[0].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))", cell(page, 281))
    assert "NPU 6 cq_update_irq: expected CPUs 281, found CPUs 5" in page.one(".readout").text
    row = next(row.text for row in page.all("#npus tbody tr") if "NPU 3 " in row.text)
    assert "220-239,540-559 → 220-247,540-559" in row.replace("\n", "")


def choose(page, label, words):
    page.run(
        "const box = document.querySelector(`select[aria-label='${arguments[0]}']`);"
        "box.value = [...box.options].find(option => option.text === arguments[1]).value; box.dispatchEvent(new Event('change'))",
        label,
        words,
    )


def test_two_strategies_are_compared_cpu_by_cpu(page, small):
    page.open(small, "#host=a3-02")
    assert page.all(".picture .split") == []
    choose(page, "Compare with", "strategy global_slice")
    assert len(page.all(".picture .split")) == 640
    assert "strategy global_slice" in page.one(".legend").text
    page.run("arguments[0].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))", cell(page, 0))
    before = page.one(".readout").text
    assert before.startswith("CPU 0 · NUMA node 0 · sibling 1 · cache 0-79 · ")
    assert "· plan in force: NPU 12, IRQ → strategy global_slice: NPU 0, IRQ" in before
    page.one("h1").send_keys("x")
    page.run("arguments[0].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))", cell(page, 0))
    assert "strategy global_slice: NPU 0, IRQ → plan in force: NPU 12, IRQ" in page.one(".readout").text
    page.one("input[type=checkbox]").click()
    assert page.texts("figcaption") == ["strategy global_slice", "plan in force"]
    assert len(page.all("svg.picture")) == 2


def test_an_npu_shows_what_is_its_alone(page, small):
    page.open(small, "#host=a2-02")
    button = next(button for button in page.all("#npus button") if button.text == "NPU 3")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    mine = page.run("return [...document.querySelectorAll('.cell.on')].map(cell => Number(cell.dataset.cpu)).sort((a, b) => a - b)")
    assert len(mine) == 24 and mine[-1] - mine[0] == 23
    button.click()
    assert page.all(".on") == []


def test_memory_of_processes_by_node(page, small):
    page.open(small, "#host=a3-01")
    bars = [drawing.get_attribute("aria-label") for drawing in page.all(".memory svg")]
    assert len(bars) == 16
    assert bars[1] == "node 4: 47.6 GiB, node 7: 20.5 GiB"
    assert "69.9 % local" in page.texts(".memory > div")[3]
    page.open(small, "#host=a3-02")
    assert page.all(".memory") == []


def test_what_a_host_calls_itself_stays_text(page, small):
    assert any(NASTY in name for name in hosts(page))
    next(link for link in page.all("#fleet tbody a") if NASTY in link.text).click()
    assert NASTY in page.one("h1").text
    assert page.all("img") == []
    assert NASTY in page.texts("#npus tbody td")[1]
    assert page.driver.title != "owned"


def test_a_host_that_said_nothing_still_has_a_page(page, small):
    page.open(small, "#host=a3-03")
    assert page.shows("h1", "a3-03")
    assert "no topology" in page.one(".pictures").text
    page.open(small, "#host=nobody")
    assert page.all("#fleet") != []


def test_light_and_dark_by_the_system_and_by_the_switch(page, small):
    paper = "return getComputedStyle(document.body).backgroundColor"
    assert page.run(paper) == "rgb(255, 255, 255)"
    page.scheme("dark")
    assert page.run(paper) == "rgb(13, 17, 23)"
    page.one(".theme").click()
    assert page.shows(".theme", "Theme: light")
    assert page.run(paper) == "rgb(255, 255, 255)"
    page.all("#fleet tbody a")[0].click()
    page.keys("t")
    page.scheme("light")
    assert page.shows(".theme", "Theme: dark")
    assert page.run(paper) == "rgb(13, 17, 23)"
    page.keys("t")


SPOKEN = """
const needs = [...document.querySelectorAll('button, a, select, input, [role=application], svg[role=img]')];
const name = one => (one.getAttribute('aria-label') || one.textContent || one.closest('label')?.textContent || '').trim();
return needs.filter(one => !name(one)).map(one => one.outerHTML);
"""


@pytest.mark.parametrize("fragment", ["", "#host=a2-01"])
def test_everything_that_can_be_used_has_a_name(page, small, fragment):
    page.open(small, fragment)
    assert page.run(SPOKEN) == []


LEAST_CONTRAST = """
const part = value => { value /= 255; return value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4; };
const light = rgb => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(Number).map(part); return .2126 * r + .7152 * g + .0722 * b; };
const contrast = (...colours) => { const [a, b] = colours.map(light).sort((x, y) => y - x); return (a + .05) / (b + .05); };
const least = values => values.reduce((one, other) => Math.min(one, other), 21);
"""
OF_CELLS = """
return least([...document.querySelectorAll('.cell:not(.split)')].map(cell => {
  const fill = getComputedStyle(cell.querySelector('.fill')).fill, text = cell.querySelector('text');
  return !text || fill === 'none' ? 21 : contrast(fill, getComputedStyle(text).fill);
}));
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("host", ["a2-01", "a3-01", "odd-01"])
def test_numbers_on_cells_can_be_read(page, small, scheme, host):
    page.scheme(scheme)
    page.open(small, f"#host={host}")
    assert page.run(LEAST_CONTRAST + OF_CELLS) >= 4.5


OF_WORDS = """
const ground = one => { const own = getComputedStyle(one).backgroundColor; return /, 0\\)$/.test(own) ? ground(one.parentElement) : own; };
const words = [...document.querySelectorAll('.tile b, .tile .state')];
const looks = words.map(one => [getComputedStyle(one), ground(one), one.closest('.tile')]);
for (const head of document.querySelectorAll('th.sort button')) looks.push([getComputedStyle(head, '::after'), ground(head), head]);
return least(looks.map(([style, under, box]) =>
  style.opacity * getComputedStyle(box).opacity === 1 ? contrast(under, style.color) : 0));
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tiles_without_hosts_and_arrows_of_heads_can_be_read(page, tmp_path, scheme):
    page.scheme(scheme)
    written(page, tmp_path, [{"host": "node1"}])
    assert any(not tile.is_enabled() for tile in page.all(".tile"))
    assert page.run(LEAST_CONTRAST + OF_WORDS) >= 4.5


def test_sixteen_npus_have_sixteen_looks(page, small):
    page.open(small, "#host=a3-02")
    of_cells = "cell => getComputedStyle(cell.querySelector('.fill'))"
    of_boxes = "box => getComputedStyle(box.querySelector('.chip'))"
    for selector, style in ((".cell.main", of_cells), (".npu", of_boxes)):
        looks = f"[...document.querySelectorAll('{selector}')].map({style}).map(style => style.fill + style.stroke)"
        assert page.run(f"return new Set({looks}).size") == 16


def test_what_differs_and_what_to_type_stand_above_the_picture(page, small):
    page.open(small, "#host=a3-01")
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    assert page.run(top, "#drift") < page.run(top, "svg.picture")
    assert page.texts(".command code")[0] == "ansible-playbook npu.affinity.bind --limit a3-01"
    button = page.one(".command button")
    button.click()
    assert page.until(lambda: button.text == "Copied")


def test_hosts_of_an_inventory_group_can_be_shown_alone(page):
    choose(page, "Group", "training")
    assert hosts(page) == ["a3-01", "a3-03", "a3-02"]
    choose(page, "Group", "all groups")
    assert len(hosts(page)) == 11


def test_every_npu_user_is_listed_and_outside_ones_come_first(page, small):
    page.open(small, "#host=duo-01")
    cells = page.run("return [...document.querySelectorAll('#holders tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))")
    assert [row[0] for row in cells] == [
        "vllm.service (pid 70, NPU 0)\noutside its pool",
        "container serve (pid 73, NPU 0)\noutside its pool",
        "container llm (pid 71, 72, NPU 1)",
    ]
    bind, update, nothing = (row[3] for row in cells)
    assert bind.startswith("bind with npu_affinity_adopt: now, or add {unit: vllm.service")
    assert update.startswith("docker update ") and nothing == ""
    assert len(page.all("#holders .command button")) == 1, "prose is not copied as a command"


def test_print_shows_the_picture_and_leaves_out_what_is_to_click(page, small):
    page.open(small, "#host=a2-01")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert page.one("svg.picture").is_displayed()
    assert not any(box.is_displayed() for box in page.all("nav, select, .readout"))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


FRAME = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())))"


@pytest.fixture(scope="module")
def ten_thousand(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(report_html(thousand(10000)))
    return path


def shown(page):
    """The hosts of the rows that are in the window, once what is near it was drawn."""
    page.driver.execute_async_script(FRAME)
    rows = "[...document.querySelectorAll('#fleet tbody tr')].filter(row => row.querySelector('td.host'))"
    inside = "row => row.getBoundingClientRect().bottom > 0 && row.getBoundingClientRect().top < innerHeight"
    return page.run(f"return {rows}.filter({inside}).map(row => row.querySelector('td.host').textContent)")


def test_ten_thousand_hosts_open_within_three_seconds(page, ten_thousand):
    """Three seconds of the browser's own time, whatever else this machine does."""
    page.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    page.open(ten_thousand)
    page.driver.execute_async_script(FRAME)
    metrics = {entry["name"]: entry["value"] for entry in page.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    page.driver.execute_cdp_cmd("Performance.disable", {})
    assert metrics["TaskDuration"] < 3
    assert page.one("[role=status]").text == "10000 hosts" and page.run("return document.querySelectorAll('*').length") < 10000


def test_ten_thousand_hosts_scroll_and_are_sorted_and_searched(page, ten_thousand):
    page.open(ten_thousand)
    head(page, "Host").click()
    assert shown(page)[0] == "node1"
    page.run("scrollTo(0, document.documentElement.scrollHeight / 2)")
    assert page.until(lambda: len(shown(page)) > 5)
    middle = shown(page)
    assert 4500 < int(middle[0].removeprefix("node")) < 5500
    assert middle == [f"node{int(middle[0].removeprefix('node')) + place}" for place in range(len(middle))]
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    assert page.until(lambda: shown(page)[-1:] == ["node10000"])
    next(anchor for anchor in page.all("#fleet tbody a") if anchor.text == "node9990").click()
    assert page.shows("h1", "node9990")
    page.keys(Keys.ESCAPE)
    assert page.until(lambda: page.run("return document.activeElement.textContent") == "node9990" and "node9990" in shown(page))
    page.one(".tools input").click()
    assert page.shows("#fleet tr.group", "no plan") or page.texts("#fleet tr.group")
    type_into_search(page, "node777")
    assert sorted(hosts(page)) == ["node777", *(f"node777{number}" for number in range(10))]


def test_what_is_printed_has_all_hosts(page, tmp_path):
    written(page, tmp_path, thousand())
    assert len(hosts(page)) < 1000
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert len(hosts(page)) == 1000


@pytest.mark.parametrize("scheme, width", [("light", 1360), ("dark", 400)])
def test_drift_over_time_is_a_table(page, tmp_path, scheme, width):
    first = {"host": "a", "bound": True, "drift": [{"cause": "irqbalance"}] * 4, "time": "2026-11-20T02:00:00Z"}
    second = [{"host": "a", "bound": True, "drift": [{"cause": NASTY}]}, {"host": "b", "msg": "no answer"}]
    page.size(width, 900)
    page.scheme(scheme)
    written(page, tmp_path, demonstration(), runs=[{"name": "first", "records": [first]}, {"name": NASTY, "records": second}])
    assert page.texts("#runs tbody th") == ["2026-11-20 02:00:00 UTC", NASTY]
    assert page.texts("#runs tbody td.number") == ["1", "1", "4", "4", "0", "1 of 2", "1", "1", "0", "1"]
    assert page.texts("#runs thead th") == ["Run", "Compared", "Hosts differ", "Objects differ", "irqbalance", NASTY]
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_pictures_of_the_documentation_show_the_page(chromium):
    assert dict(pictures.opened(chromium)) == json.loads(pictures.DIGESTS.read_text()), "make pictures"

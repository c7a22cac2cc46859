# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import itertools
import re
import xml.etree.ElementTree as ET
from collections import defaultdict

import pytest
from planner_hosts import host


from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._report.drawing import CELL_HEIGHT, CELL_WIDTH, plan_svg
from ansible_collections.npu.affinity.plugins.plugin_utils._report.svg import MONO, PALETTE

SVG = "{http://www.w3.org/2000/svg}"


def entry(npu, pci, pool, kind="npu", roles=True):
    cpus = expand(pool)
    split = {"irq": "", "main": pool, "acl": "", "release": ""}
    if roles:
        split = {"irq": compress(cpus[:2]), "main": compress(cpus[2:-2]), "acl": str(cpus[-2]), "release": str(cpus[-1])}
    return {"id": npu, "pci": pci, "pool": pool, **split, "mems": "0", "slice": f"{kind}-{npu}.slice"}


def drawn(topology, pools, **changes):
    """Return a plan with these pools, and its topology."""
    topology["machine"]["product"] = "Test server"
    for npu in topology["npus"]:
        npu["name"] = "910B9"
    cards = list(zip(topology["npus"], pools, strict=False))
    made = {"strategy": "topo_affinity", "requested": "auto", "reason": "That is the rule for this family.", "housekeeping": ""}
    made |= {"cpus": topology["cpus"]["online"], "lost": [], "repaired": [], "warnings": [], "violations": []}
    made["npus"] = [entry(npu["id"], npu["pci"], pool, npu["kind"], npu["kind"] == "npu") for npu, pool in cards]
    made["quality"] = {"disjoint": True, "whole_cores": True, "local": 1.0, "own_node": 1.0, "balance": 0, "smallest": 24, "idle": ""}
    return {**made, **changes}, topology


def eight_nodes():
    """192 CPUs without SMT in clusters of 4, the NPUs in pairs on every second node."""
    pools = ["0-23", "24-47", "48-71", "72-95", "96-119", "120-143", "144-167", "168-191"]
    nics = [nic("0000:7d:00.0", "eth0", 0, {"10": "0-1", "20": "2-7"}), nic("0000:7d:00.1", "", 0, {})]
    return drawn(host([0, 0, 2, 2, 4, 4, 6, 6], caches=4, nics=nics), pools)


def nic(pci, name, numa, distances):
    return {"pci": pci, "name": name, "driver": "hns3", "numa": numa, "distances": distances}


def large():
    """640 CPUs, siblings far apart, 16 NPUs."""
    pools = [f"{20 * npu}-{20 * npu + 19},{320 + 20 * npu}-{339 + 20 * npu}" for npu in range(16)]
    return drawn(host([npu // 2 for npu in range(16)], cores=40, threads=2, numbering="far"), pools)


def gpus():
    """Two nodes with SMT, caches of four cores, and GPUs, which have no roles."""
    pools = [f"{8 * gpu}-{8 * gpu + 7},{32 + 8 * gpu}-{39 + 8 * gpu}" for gpu in range(4)]
    return drawn(host([0, 0, 1, 1], nodes=2, cores=16, threads=2, numbering="far", caches=4, family="gpu"), pools)


def everything_else():
    """Sparse nodes, CPUs kept, idle, not divided, offline and lost, an NPU without node, one without pool, overlapping pools."""
    plan, topology = drawn(
        host([0, None, 4, 77], nodes=[0, 4, 9], cores=[8, 8, 4], threads=2),
        ["2-9", "8-13", "16-23"],
        cpus="2-31",
        housekeeping="0-1",
        lost=[entry(5, "0000:77:00.0", "24-29")],
        warnings=["One card is gone."],
        violations=["NPU 0 and NPU 1 share CPUs 8-9."],
    )
    topology["cpus"]["offline"] = "40-42"
    topology["numa"].append({"id": 12, "cpus": "", "memory_mib": 1024, "distances": {}})
    plan["quality"].update(disjoint=False, local=0.5, idle="14-15,30-31")
    return plan, topology


def without_numa():
    return drawn(host([None], nodes=1, cores=12, numa=[]), ["2-9"])


def without_npus():
    return drawn(host([], nodes=2, cores=8), [])


def unreadable():
    return drawn({**host([], nodes=1, numa=[]), "cpus": {"online": "", "offline": "", "isolated": "", "siblings": [], "caches": []}}, [])


MACHINES = [eight_nodes, large, gpus, everything_else, without_numa, without_npus, unreadable]
every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)


class Picture:
    """What can be seen in a picture: cells by CPU with place, owner, kind and text, without those of the legend."""

    def __init__(self, plan, topology, title="a2-01"):
        self.source = plan_svg(plan, topology, title)
        self.root = ET.fromstring(self.source)
        self.width, self.height = (int(size) for size in self.root.get("viewBox").split()[2:])
        self.groups = [group for group in self.root.findall(f"{SVG}g") if "transform" not in group.attrib]
        self.titles = [group.findtext(f"{SVG}title") for group in self.groups]
        self.cells = defaultdict(list)
        self.corners = []
        for number, group in enumerate(self.groups):
            for cells in group.findall(f"{SVG}g"):
                self._read(number, group, cells)

    def _read(self, number, group, cells):
        corners = [(int(x) - 2, int(y) - 2) for x, y in re.findall(r"M(\d+) (\d+)", cells.find(f"{SVG}path").get("d"))]
        self.corners += corners
        written = defaultdict(list)
        for text in cells.findall(f"{SVG}text"):
            x, y = int(text.get("x")), int(text.get("y"))
            home = next(corner for corner in corners if 0 < x - corner[0] < CELL_WIDTH and 0 < y - corner[1] < CELL_HEIGHT)
            written[home].append((text.get("class", ""), text.text))
        dots = cells.get("class").split().count("irq")
        for corner in corners:
            texts = dict(written[corner])
            cell = {
                "at": corner,
                "owner": number,
                "look": group.get("class"),
                "mark": "dot" if dots else texts.get("end bold", ""),
                "start": texts.get("start", ""),
            }
            self.cells[int(texts.get("", texts.get("long")))].append(cell)

    def cell(self, cpu):
        (cell,) = self.cells[cpu]
        return cell

    def titled(self, beginning):
        (number,) = [number for number, title in enumerate(self.titles) if title.startswith(beginning)]
        return number

    def lines(self):
        """Return the CPUs of every line of cells, from left to right."""
        boxes = [rect for rect in self.root.iter(f"{SVG}rect") if rect.get("class") == "frame"]
        frames = [[int(box.get(key)) for key in ("x", "y", "width", "height")] for box in boxes]
        lines = defaultdict(list)
        for cpu, (cell,) in self.cells.items():
            x, y = cell["at"]
            (frame,) = [
                number
                for number, (left, top, width, height) in enumerate(frames)
                if left <= x <= left + width - CELL_WIDTH and top <= y <= top + height - CELL_HEIGHT
            ]
            lines[frame, y].append((x, cpu))
        return {key: [cpu for place, cpu in sorted(line)] for key, line in lines.items()}


def texts(element):
    return ["".join(text.itertext()) for text in element.iter(f"{SVG}text")]


@every_machine
def test_every_cpu_of_the_machine_is_drawn_exactly_once(machine):
    plan, topology = machine()
    picture = Picture(plan, topology)
    cpus = expand(topology["cpus"]["online"]) + expand(topology["cpus"]["offline"])
    assert {cpu: len(cells) for cpu, cells in picture.cells.items()} == dict.fromkeys(cpus, 1)


@every_machine
def test_no_cell_covers_another_one_or_leaves_the_page(machine):
    picture = Picture(*machine())
    for (x, y), (other_x, other_y) in itertools.combinations(picture.corners, 2):
        assert abs(x - other_x) >= CELL_WIDTH or abs(y - other_y) >= CELL_HEIGHT
    assert all(0 <= x <= picture.width - CELL_WIDTH and 0 <= y <= picture.height - CELL_HEIGHT for x, y in picture.corners)


@every_machine
def test_the_cpus_of_a_frame_are_those_of_one_numa_node(machine):
    plan, topology = machine()
    frames = defaultdict(set)
    for (frame, _place), line in Picture(plan, topology).lines().items():
        frames[frame].update(line)
    nodes = [set(expand(node["cpus"])) for node in topology["numa"] if node["cpus"]]
    without_node = set(expand(topology["cpus"]["online"]) + expand(topology["cpus"]["offline"])).difference(*nodes)
    assert list(map(compress, frames.values())) == list(map(compress, nodes + [without_node] * bool(without_node)))


@every_machine
def test_threads_of_a_core_stand_above_each_other(machine):
    plan, topology = machine()
    picture = Picture(plan, topology)
    for core in topology["cpus"]["siblings"]:
        first, second = (picture.cell(cpu)["at"] for cpu in expand(core))
        assert second == (first[0], first[1] + CELL_HEIGHT)


@every_machine
def test_every_npu_has_its_number_name_function_and_pool(machine):
    plan, topology = machine()
    picture = Picture(plan, topology)
    pools = {(entry["id"], entry["pci"]): entry["pool"] for entry in plan["npus"]}
    for npu in topology["npus"]:
        label = f"{npu['kind'].upper()} {npu['id']}"
        words = texts(picture.groups[picture.titled(f"{label} (910B9, {npu['pci']}")])
        assert {str(npu["id"]), f"{label}910B9", npu["pci"]} <= set(words)
        assert f"pool {pools[npu['id'], npu['pci']]}" in words if (npu["id"], npu["pci"]) in pools else "not in this plan" in words


@every_machine
def test_each_run_of_an_npus_cpus_starts_with_its_number(machine):
    picture = Picture(*machine())
    for line in picture.lines().values():
        previous = None
        for cpu in line:
            cell = picture.cell(cpu)
            numbered = picture.titles[cell["owner"]].startswith(("NPU", "GPU", "in more than one pool"))
            assert bool(cell["start"]) == (numbered and cell["owner"] != previous), cpu
            previous = cell["owner"]


@pytest.mark.parametrize("machine", [eight_nodes, large])
def test_roles_are_marked_by_more_than_colour(machine):
    plan, topology = machine()
    picture = Picture(plan, topology)
    for npu in plan["npus"]:
        for role, mark in (("irq", "dot"), ("main", ""), ("acl", "A"), ("release", "R")):
            assert {picture.cell(cpu)["mark"] for cpu in expand(npu[role])} == {mark}
    legend = texts(picture.root)
    assert {"main", "IRQ", "ACL", "release"} <= set(legend)


def test_cpus_for_kv_caches_are_marked_where_there_are_some():
    plan, topology = eight_nodes()
    assert "KV" not in texts(Picture(plan, topology).root)
    first = plan["npus"][0]
    *main, one, other = expand(first["main"])
    plan["npus"][0] = {**first, "main": compress(main), "kv": f"{one},{other}"}
    picture = Picture(plan, topology)
    assert {picture.cell(cpu)["mark"] for cpu in (one, other)} == {"K"}
    assert {"KV", "main"} <= set(texts(picture.root))
    assert f"KV {one}" in " ".join(picture.titles).replace(f"{one},{other}", str(one))


def test_gpus_have_pools_without_roles():
    picture = Picture(*gpus())
    assert {cell["mark"] for (cell,) in picture.cells.values()} == {""}
    assert not {"main", "IRQ", "ACL", "release"} & set(texts(picture.root))
    assert picture.titles[0] == "GPU 0 (910B9, 0000:01:00.0, NUMA node 0); pool 0-7,32-39, main 0-7,32-39, memory nodes 0; gpu-0.slice"


@every_machine
def test_npus_that_touch_have_different_colours(machine):
    picture = Picture(*machine())
    for line in picture.lines().values():
        for cell, following in itertools.pairwise(map(picture.cell, line)):
            assert cell["owner"] == following["owner"] or cell["look"] != following["look"]


def test_eight_npus_have_eight_colours():
    picture = Picture(*eight_nodes())
    assert len({cell["look"] for (cell,) in picture.cells.values()}) == 8


def test_cpus_that_no_npu_uses_say_why():
    picture = Picture(*everything_else())
    assert [title for title in picture.titles if not title.startswith("NPU")] == [
        "housekeeping: 0-1",
        "in more than one pool (NPU 0, NPU 1): 8-9",
        "idle (in no pool): 14-15,30-31",
        "not divided: 32-39",
        "offline: 40-42",
    ]
    looks = {cpu: picture.cell(cpu)["look"] for cpu in (0, 8, 14, 24, 32, 40)}
    assert len(set(looks.values())) == 6
    assert picture.cell(8)["start"] == "0+1"


def test_what_is_not_attached_here_says_where_it_is():
    picture = Picture(*everything_else())
    words = texts(picture.root)
    assert {"NPU 1, node unknown", "NPU 5, node unknown", "no NUMA node known", "lost; its pool is kept"} <= set(words)
    assert "Without CPUs: NUMA node 12." in words


@pytest.mark.parametrize(("homes", "guest"), [([0, 0], 1), ([1, 1], 0)])
def test_an_npu_is_named_on_the_nodes_that_lend_it_cpus(homes, guest):
    picture = Picture(*drawn(host(homes, nodes=2, cores=8), ["0-7", "8-15"]))
    for number, words in enumerate(map(texts, picture.groups)):
        assert f"NPU {number}910B9" in words
        assert (f"NPU {number}, attached to node {homes[0]}" in words) == (number == guest)


def test_the_header_says_how_and_how_good():
    plan, topology = everything_else()
    words = "\n".join(texts(Picture(plan, topology, "a2-07").root)).replace("\u00a0", " ")
    assert words.startswith("a2-07\nTest server, 4 NPUs, 43 CPUs, 4 NUMA nodes\nstrategy: topo_affinity (requested: auto). That is the")
    assert "housekeeping: 0-1" in words
    assert "pools OVERLAP" in words
    assert "1 warning" in words
    assert "1 broken invariant: NPU 0 and NPU 1 share CPUs 8-9." in words


def test_a_pool_of_many_ranges_is_printed_in_full_within_its_box():
    pool = compress(range(0, 192, 2))
    plan, topology = drawn(host([0]), [pool])
    group = Picture(plan, topology).groups[0]
    box = next(rect for rect in group.iter(f"{SVG}rect") if rect.get("class") == "box")
    lines = [text for text in group.findall(f"{SVG}text") if text.get("class") == "mono"]
    assert "".join(line.text for line in lines) == f"pool {pool}"
    for line in lines:
        assert int(line.get("x")) + len(line.text) * MONO <= int(box.get("x")) + int(box.get("width"))
        assert int(line.get("y")) <= int(box.get("y")) + int(box.get("height"))


def test_npus_and_gpus_of_one_host_are_told_apart():
    plan, topology = drawn(host([0, 0], nodes=1, cores=16), ["0-7", "8-15"])
    topology["npus"][1].update(kind="gpu", id=0)
    plan["npus"][1] = entry(0, topology["npus"][1]["pci"], "8-15", "gpu", roles=False)
    picture = Picture(plan, topology)
    assert (picture.cell(0)["start"], picture.cell(8)["start"]) == ("N0", "G0")
    assert "Test server, 1 NPU, 1 GPU, 16 CPUs, 1 NUMA node" in texts(picture.root)


@pytest.mark.parametrize(("machine", "limit"), [(eight_nodes, 50_000), (large, 100_000), (gpus, 30_000)])
def test_a_picture_is_small(machine, limit):
    assert len(Picture(*machine()).source.encode()) < limit


@every_machine
def test_a_picture_stands_for_itself_and_beside_others(machine):
    picture = Picture(*machine())
    assert picture.root.get("role") == "img"
    assert picture.root.get("aria-label") == picture.root.findtext(f"{SVG}title") == "Plan of a2-01"
    elements = {"svg", "title", "desc", "style", "rect", "g", "path", "text", "tspan"}
    assert {element.tag.removeprefix(SVG) for element in picture.root.iter()} <= elements
    assert not [element for element in picture.root.iter() if "id" in element.attrib or any("href" in key for key in element.attrib)]
    style = picture.root.findtext(f"{SVG}style")
    assert "url(" not in style
    assert "@import" not in style
    selectors = re.sub(r"@media\([^)]*\)\{|\{[^}]*\}", ",", style).replace("}", "").split(",")
    assert all(selector.startswith(".npu-plan") for selector in selectors if selector)


def test_dark_is_a_scheme_of_its_own():
    light, dark = Picture(*eight_nodes()).root.findtext(f"{SVG}style").split("@media(prefers-color-scheme:dark)")
    for rule in (".npu-plan text{", ".npu-plan .page{", ".npu-plan .c0 .cell{", ".npu-plan .shared .line{stroke:"):
        in_light, in_dark = (re.search(re.escape(rule) + "[^}]*", part).group() for part in (light, dark))
        assert in_light != in_dark


HOSTILE = "<script>&\"'\x00\x1b[1m\udcff]]>\ufffe π"


def test_network_adapters_are_drawn_on_their_node_with_distances():
    plan, topology = eight_nodes()
    picture = plan_svg(plan, topology)
    assert ">Network: eth0, 0000:7d:00.1<" in picture
    assert "<title>eth0 (hns3, 0000:7d:00.0), NUMA distance 10 to NPU 0-1, 20 to NPU 2-7; 0000:7d:00.1 (hns3)</title>" in picture
    topology["nics"] = [nic("0000:7d:00.0", "<b>", None, {})]
    assert "Network" not in plan_svg(plan, topology)
    topology["nics"] = [nic("0000:7d:00.0", "<b>", 1, {})]
    assert ">Network: &lt;b&gt;<" in plan_svg(plan, topology)


def test_names_cannot_break_the_picture():
    plan, topology = eight_nodes()
    for place, key in ((topology["npus"][0], "name"), (topology["machine"], "product"), (plan, "reason"), (plan["npus"][0], "slice")):
        place[key] = HOSTILE
    plan["violations"] = [HOSTILE]
    picture = Picture(plan, topology, HOSTILE)
    assert picture.root.get("aria-label") == "Plan of <script>&\"'\ufffd\ufffd[1m\ufffd]]>\ufffd π"
    assert not list(picture.root.iter(f"{SVG}script"))
    picture.source.encode("utf-8")


@every_machine
def test_drawing_is_repeatable_and_leaves_the_plan_unchanged(machine):
    plan, topology = machine()
    before = copy.deepcopy((plan, topology))
    assert plan_svg(plan, topology, "x") == plan_svg(*machine(), "x")
    assert (plan, topology) == before


DICHROMACY = {
    "trichromat": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanope": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranope": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanope": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency" (2009), severity 1."""


def cielab(colour, vision):
    """Return a colour such as #e69f00 as an eye sees it, in CIELAB (D65)."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    red, green, blue = (max(0, sum(weight * value for weight, value in zip(row, linear, strict=True))) for row in DICHROMACY[vision])
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", DICHROMACY)
@pytest.mark.parametrize("use", [0, 1, 3, 4], ids=["light main", "light role", "dark main", "dark role"])
def test_consecutive_colours_differ_for_every_eye(vision, use):
    seen = [cielab(colours[use], vision) for colours in PALETTE]
    for number, colour in enumerate(seen):
        difference = sum((one - other) ** 2 for one, other in zip(colour, seen[number - 1], strict=True)) ** 0.5
        assert difference > 15, (PALETTE[number][use], PALETTE[number - 1][use])


def test_a_pool_that_is_no_cpulist_is_refused_with_a_sentence():
    plan, topology = eight_nodes()
    plan["npus"][3]["pool"] = "72-95,x"
    with pytest.raises(ValueError, match="pool of NPU 3: 'x' in '72-95,x' is not a CPU number"):
        plan_svg(plan, topology)

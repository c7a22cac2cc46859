# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What leaves a host in an archive: secrets are planted wherever hosts have them, and looked for in the whole document."""

import json
import pathlib
import re
import shutil

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.module_utils._drift.in_force import compare, comparison
from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import without_names
from ansible_collections.npu.affinity.plugins.module_utils._state.history import Applied, keep
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import reading
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather

from tests.simulator import generate as simulator
from tests.fakes.kernel import bind
from tests.fakes.states import a_state
from tests.fakes.small_host import two_cards

SECRET = "sk-%03d-5ecre7"
"""The secret of a shape by its number."""
IRQBALANCE = {"installed": True, "active": False, "unit": "debian", "options": "--interval=30"}
MACHINE = {**two_cards(0, 1), "cpus": {"per_node": 8}, "irqbalance": IRQBALANCE}
UNIT = "vllm@0.service"
UNITS = "etc/systemd/system/"
MARK = "# Managed by npu.affinity: changes are overwritten.\n"
QUESTIONS = {"units": [UNIT]}
SERVICE = "[Service]\nExecStart=/usr/bin/vllm\n"
STATUS = "Name:\tpython3\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-15\n"


SHAPES = yaml.safe_load(pathlib.Path(__file__).with_name("secrets.yml").read_text())
PLACES = {"unit": UNITS + UNIT, "kubelet": UNITS + "kubelet.service", "env": "etc/vllm.env", "cmdline": "proc/77/cmdline"}
"""Paths with a short name there."""
FIRST = {"id": 0, "pci": "0000:c1:00.0", "pool": "0-7", "irq": "0-1", "slice": "npu-0.slice"}
PLAN = {"schema": 1, "npus": [FIRST, {"id": 1, "pci": "0000:01:00.0", "pool": "8-15", "irq": "8-9", "slice": "npu-1.slice"}]}
FILES = {
    "etc/npu-affinity/plan.json": json.dumps(PLAN),
    "proc/77/comm": "python3\n",
    "proc/77/status": STATUS,
    "proc/77/stat": "77 (python3) S 1 1\n",
    "proc/77/cmdline": "/usr/bin/python3\0",
    "proc/77/environ": "OMP_PROC_BIND=true\0",
    "proc/77/cgroup": "0::/npu.slice/npu-0.slice\n",
    "sys/fs/cgroup/npu.slice/npu-0.slice/cgroup.procs": "77\n",
    "sys/fs/cgroup/npu.slice/npu-0.slice/cpuset.cpus.effective": "0-7\n",
    UNITS + UNIT: SERVICE,
}
SERVICES = [{"name": UNIT, "settings": {"CPUAffinity": "0"}, "devices": {"CUDA_VISIBLE_DEVICES": "0"}}]
STATE = a_state(
    plan=PLAN,
    features={"irq": "present"},
    expected=[{"unit": "npu-0.slice", "cpus": "0-7", "mems": ""}],
    live={"slices": {"services": SERVICES, "bound_by": "host", "workloads": [], "vnpus": []}},
    files=[
        {"path": f"/{UNITS}{UNIT}.d/50-npu-affinity.conf", "content": MARK + "[Service]\n# About it\nAllowedCPUs=1\n", "mode": "0644"},
        {"path": "/usr/local/lib/npu-affinity/irqbalance-policy", "content": "#!/bin/sh\n" + MARK + "exit 0\n", "mode": "0755"},
    ],
)


def files_of(shape, secret):
    """Return the files of a shape as hosts have them."""
    files = {}
    for name, text in shape.items():
        path, text = PLACES.get(name, name), text.replace("%s", secret)
        section = "[Service]\n" if path.startswith(UNITS) and "[Service]" not in text else ""
        files[path] = section + text + ("" if name == "cmdline" else "\n")
    return files


def together(shapes):
    """Put shapes onto as few hosts as can have them at once: a host has each path once."""
    hosts = []
    for number, (name, shape) in enumerate(shapes.items()):
        files = files_of(shape, SECRET % number)
        host = next((host for host in hosts if not set(host["files"]) & set(files)), None)
        if host is None:
            hosts.append(host := {"files": {}, "secrets": {}})
        host["files"].update(files)
        host["secrets"][SECRET % number] = name
    return hosts


HOSTS = together(SHAPES)


@pytest.fixture(scope="module")
def bound(tmp_path_factory):
    """A host whose interrupts are where the plan wants them, except for one: the comparison looks for the process that moves it."""
    root = tmp_path_factory.mktemp("bound") / "host"
    simulator.generate(MACHINE, root)
    write(root, FILES)
    keep(Host(str(root)), Applied("bind", STATE))
    bind(Host(str(root)), PLAN)
    table = (root / "proc/interrupts").read_text().splitlines()
    number = next(line.split(":")[0].strip() for line in table if line.endswith(" cq_update_irq"))
    (root / "proc/irq" / number / "smp_affinity_list").write_text("7\n")
    return root


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def tree(bound, tmp_path):
    """Return a host that is bound, with further files."""

    def make(files):
        write(shutil.copytree(bound, tmp_path / "host", symlinks=True), files)
        return tmp_path / "host"

    return make


@pytest.fixture
def pack(run_module, tmp_path):
    """Let the module archive the host below a root; the text of the archive, and the document as the controller reads it."""

    def run(root, **arguments):
        target = tmp_path / "packed.json"
        result = run_module("host_archive", dest=str(target), root=str(root), **{"host": "node-7", **QUESTIONS, **arguments})
        assert result["changed"], result
        assert target.stat().st_mode & 0o777 == 0o600
        return target.read_text(), reading.read(str(target))

    return run


@pytest.mark.parametrize("anonymous", [False, True], ids=["named", "anonymous"])
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: " + ".join(host["secrets"].values())[:60])
def test_no_secret_of_a_host_is_in_its_archive(tree, pack, host, anonymous):
    text, archive = pack(tree(host["files"]), anonymous=anonymous)
    assert [name for secret, name in host["secrets"].items() if secret in text] == []
    assert "5ecre7" not in text
    broken = {"record of what was there before", "record that is cut short"} & set(host["secrets"].values())
    assert broken or archive["compared"]["drift"]  # the host was compared, so its files were read


@pytest.mark.parametrize("machine", [MACHINE, "duo", "l40s_384", "a2_broken", "odd_nodes", "i310_pro"])
def test_an_archive_has_what_its_host_says(pack, machine, tmp_path):
    root = tmp_path / "host"
    simulator.generate(machine, root)
    write(root, {UNITS + UNIT: SERVICE})
    _text, archive = pack(root)
    here = gather(Host(str(root)), others=True, **QUESTIONS)
    compared = comparison(Host(str(root)), compare(Host(str(root)), here, True))
    assert archive["topology"] == plain(here, root)
    assert archive["compared"] == plain(compared, root)
    assert [entry["command"] for entry in archive["tools"] if entry["rc"] == 0] or not here["npus"]


def plain(value, root):
    return json.loads(json.dumps(value).replace(str(root), ""))


def test_files_of_the_state_in_force_are_digests(bound, pack):
    text, archive = pack(bound)
    assert re.fullmatch("[0-9a-f]{64}", archive["in_force"]["files"][0]["content"]) and "About it" not in text
    assert {finding["object"]: finding["found"] for finding in archive["compared"]["drift"]}[STATE["files"][0]["path"]] == "no such file"


LINES = [("AllowedCPUs=3", "AllowedCPUs=3"), ("Environment=A=b", "other lines, which an archive does not have")]


@pytest.mark.parametrize("line, found", LINES)
def test_lines_that_someone_wrote_stay_on_the_host(tree, pack, line, found):
    path = UNITS + UNIT + ".d/50-npu-affinity.conf"
    _text, archive = pack(tree({path: f"{MARK}[Service]\n# About it\n{line}\n"}))
    (finding,) = [finding for finding in archive["compared"]["drift"] if finding["object"] == "/" + path]
    assert finding["found"] == found and "found %s;" % found in finding["sentence"]


def test_the_command_by_which_a_tool_is_run_stays_on_the_host(tree, pack):
    root = tree({})
    wrapped = "env TOKEN=%s %s" % (SECRET % 1, root / "usr/local/Ascend/driver/tools/npu-smi")
    text, archive = pack(root, npu_smi=wrapped, settings={"npu_affinity_npu_smi": wrapped, "npu_affinity_smt": "threads"})
    assert "5ecre7" not in text and {"npu-smi info", "npu-smi info -m"} <= {entry["command"] for entry in archive["tools"]}
    assert archive["settings"] == {"npu_affinity_smt": "threads"}
    assert [npu["name"] for npu in archive["topology"]["npus"]] == ["910B3", "910B3"]


# the text: what is left of it, for a host web01 of inventory name web01.example.com
NAMES = {
    **dict.fromkeys(("web01", "Web01", "web01.example.com", "web01-example-com"), "removed"),
    "WEB01.EXAMPLE.COM.": "removed.",
    "web01-eth0": "removed-eth0",
    "backup-web01.service": "backup-removed.service",
    "WEB01_data data_web01 backupWeb01Data web01data": "removed_data data_removed backupremovedData removeddata",
    "web01_example_com-x": "removed-x",
    "vg\\x2dweb01.mount": "vg\\x2dremoved.mount",
    "http://web01:80/ user@web01 /srv/web01/x": "http://removed:80/ user@removed /srv/removed/x",
    "cobweb01x web011 web0 web webserver01": "cobweb01x web011 web0 web webserver01",
    "\tSerial Number : 2102": "\tSerial Number : removed",
    "NPU 0 Die ID : 0 1": "NPU 0 Die ID : removed",
    "uuid: GPU-0a1b2c3d-aaaa-bbbb-cccc-1234567890ab": "uuid: removed",
}


@pytest.mark.parametrize("text, kept", NAMES.items())
def test_names_and_serial_numbers_are_taken_out_of_texts(text, kept):
    assert without_names(["web01", "web01.example.com"])(text) == kept


def test_an_anonymous_archive_has_no_name_and_no_author(bound, tree, pack):
    root = tree({"etc/hostname": "web01\n", f"{UNITS}{UNIT}.d/60-web01.conf": "[Service]\nCPUAffinity=0\n"})
    keep(Host(str(root)), Applied("bind", {**STATE, "notes": {}, "features": {}}, "alice", "ticket of bob"))
    text, archive = pack(root, host="web01.example.com", anonymous=True, settings={"npu_affinity_services": [{"unit": "web01.service"}]})
    assert re.findall("(?i)web01|alice|bob", text) == []
    assert archive["settings"] == {"npu_affinity_services": [{"unit": "removed.service"}]} and archive["compared"]["last_change"]["id"] == 2


@pytest.mark.parametrize("name", ["node1", "npu-0", "c1", "cpu0", "10.0.0.5", "slice", "topology"])
def test_an_anonymous_archive_is_read_for_any_name(bound, name, tmp_path, run_module):
    target = tmp_path / "packed.json"
    options = {"host": name, "root": str(bound), **QUESTIONS}
    result = run_module("host_archive", dest=str(target), anonymous=True, **options)
    assert ["The name slice of this host stays" in str(text) for text in result.get("warnings", [])] == [True] * (name == "slice")
    hidden = reading.read(str(target))
    run_module("host_archive", dest=str(target), **options)
    named = reading.read(str(target))
    assert hidden["host"] == "removed" and hidden["topology"]["npus"] == named["topology"]["npus"]
    assert hidden["compared"]["checked"] == named["compared"]["checked"]

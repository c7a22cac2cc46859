# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Are the simulated hosts what their descriptions say, and does their npu-smi behave as the published one?"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import pathlib
import re
import subprocess
from stat import filemode

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand, from_mask
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from tests.simulator import driver, npu_smi
from tests.simulator.faults import lose_card, set_faults
from tests.simulator.generate import generate, generate_fleet, load, merge
from tests.simulator.reboot import reboot
from tests.simulator.site import write as write_site

SIMULATOR = pathlib.Path(driver.__file__).parent
MACHINES = sorted(path.stem for path in (SIMULATOR / "machines").glob("*.yml"))


@pytest.fixture(scope="session")
def unchanged(tmp_path_factory):
    """Return a function machine name -> tree that no test changes."""
    folder = tmp_path_factory.mktemp("simulated")

    def tree(machine):
        generate(machine, folder / machine)
        return folder / machine

    return tree


@pytest.fixture
def host(tmp_path):
    """Return a function machine (name or description) -> :class:`Simulated` of its own."""

    def make(machine):
        target = tmp_path / "host"
        generate(machine, target)
        return Simulated(target)

    return make


def small(machine):
    """Return a machine's description with four CPUs a node, for tests that have nothing to do with CPUs."""
    return merge(load(machine), {"cpus": {"per_node": 4, "cores_per_cluster": 2}})


class Simulated:
    """A simulated host: its tree, and its npu-smi as ``host("info -m")`` -> (exit status, text)."""

    def __init__(self, tree):
        self.tree = pathlib.Path(tree)

    def __call__(self, words, stdin="", uid=0):
        """Run the tree's program in this process: starting Python hundreds of times is what would cost."""
        output = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
            patch.setenv("NPU_SMI_UID", str(uid))
            patch.setattr("sys.stdin", io.StringIO(stdin))
            status = npu_smi.main(str(self.tree), words.split())
        return status, output.getvalue()

    def start(self, *words, stdin=""):
        """Run the tree's program as the host code does."""
        done = subprocess.run([str(self.tree) + driver.NPU_SMI, *words], input=stdin, text=True, capture_output=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout

    def read(self, path):
        return (self.tree / path).read_text().rstrip("\n")


# --- trees ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "cpus", "nodes", "npus", "first_npu", "its_node"),
    [
        ("a2_8x24", 192, 8, 8, "0000:c1:00.0", 6),
        ("a2_4x48", 192, 4, 8, "0000:c1:00.0", 3),
        ("a2_910b2c_16", 192, 2, 16, "0000:5a:00.0", 0),
        ("a3_640_adjacent", 640, 8, 16, "0000:9d:00.0", 4),
        ("a3_640_split", 640, 8, 16, "0000:9d:00.0", 4),
        ("a5", 256, 2, 8, "0000:11:00.0", 0),
        ("duo", 128, 4, 4, "0000:01:00.0", 0),
        ("i310_pro", 64, 2, 2, "0000:81:00.0", 1),
        ("n310", 48, 2, 8, "0000:01:00.0", 0),
        ("n910a", 192, 8, 8, "0000:c1:00.0", 6),
        ("odd_nodes", 43, 4, 3, "0000:c1:00.0", 8),
    ],
)
def test_npu_host(unchanged, machine, cpus, nodes, npus, first_npu, its_node):
    host = Host(unchanged(machine))
    assert len(expand(host.read("/sys/devices/system/cpu/online"))) == cpus
    assert len(host.names("/sys/devices/system/node", "node*")) == nodes
    devices = host.names("/sys/bus/pci/devices")
    classes = {bdf: host.read("/sys/bus/pci/devices/%s/class" % bdf) for bdf in devices}
    accelerators = [bdf for bdf in devices if classes[bdf] == "0x120000"]
    assert len(accelerators) == npus
    assert first_npu in accelerators
    assert host.read_number("/sys/bus/pci/devices/%s/numa_node" % first_npu) == its_node
    huawei = {bdf for bdf in devices if host.read("/sys/bus/pci/devices/%s/vendor" % bdf) == "0x19e5"}
    assert huawei - set(accelerators), "other functions of the same vendor must be there, to be told apart"


def test_gpu_host(unchanged):
    host = Host(unchanged("l40s_384"))
    classes = [host.read("/sys/bus/pci/devices/%s/class" % bdf) for bdf in host.names("/sys/bus/pci/devices")]
    assert classes.count("0x030200") == 8
    assert host.find_program("npu-smi", ["/usr/local/Ascend/driver/tools"]) is None
    assert host.find_program("nvidia-smi", ["/usr/bin"])


@pytest.mark.parametrize("machine", MACHINES)
def test_cpus_cores_and_caches_agree(unchanged, machine):
    host = Host(unchanged(machine))
    online = set(expand(host.read("/sys/devices/system/cpu/online")))
    present = set(expand(host.read("/sys/devices/system/cpu/present")))
    assert online <= present <= set(expand(host.read("/sys/devices/system/cpu/possible")))
    of_nodes = [expand(host.read("/sys/devices/system/node/%s/cpulist" % name)) for name in host.names("/sys/devices/system/node", "node*")]
    assert sorted(cpu for cpus in of_nodes for cpu in cpus) == sorted(online)
    node_of = {cpu: index for index, cpus in enumerate(of_nodes) for cpu in cpus}
    for cpu in present:
        folder = "/sys/devices/system/cpu/cpu%d" % cpu
        siblings = expand(host.read(folder + "/topology/thread_siblings_list") or "")
        assert (cpu in siblings) == (cpu in online)
        for sibling in siblings:
            assert host.read("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % sibling) == host.read(
                folder + "/topology/core_cpus_list"
            )
            assert node_of[sibling] == node_of[cpu]
        if cpu in online:
            shared = [expand(host.read("%s/cache/index%d/shared_cpu_list" % (folder, index))) for index in range(4)]
            assert shared[0] == shared[1] == shared[2] == siblings
            assert set(siblings) <= set(shared[3]) <= online
            assert host.read(folder + "/cache/index3/level") == "3"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_functions_interrupts_are_found_by_vectors_and_name(unchanged, machine):
    host = Host(unchanged(machine))
    lines = host.read("/proc/interrupts").split("\n")
    columns = len(lines[0].split())
    assert columns == len(expand(host.read("/sys/devices/system/cpu/online")))
    names = {}
    for line in lines[1:]:
        number, _colon, rest = line.partition(":")
        fields = rest.split()
        if number.strip().isdigit():
            assert all(field.isdigit() for field in fields[:columns])
            names[number.strip()] = fields[-1]
    for bdf in host.names("/sys/bus/pci/devices"):
        vectors = host.names("/sys/bus/pci/devices/%s/msi_irqs" % bdf)
        requested = [number for number in vectors if number in names]
        for number in requested:
            mask = from_mask(host.read("/proc/irq/%s/smp_affinity" % number))
            assert mask == set(expand(host.read("/proc/irq/%s/smp_affinity_list" % number)))
            assert set(expand(host.read("/proc/irq/%s/effective_affinity_list" % number))) <= mask
        assert not any(host.exists("/proc/irq/" + number) for number in vectors if number not in names)
        if host.read("/sys/bus/pci/devices/%s/class" % bdf) == "0x120000" and machine != "n310":
            of_function = [names[number] for number in requested]
            assert of_function.count("sq_send_trigger_irq") == 1
            assert of_function.count("cq_update_irq") == 16
            assert len(vectors) > len(requested), "some vectors are allocated and not requested"


@pytest.mark.parametrize("machine", MACHINES)
def test_links_are_relative_lead_somewhere_and_stay_inside(unchanged, machine):
    tree = unchanged(machine)
    links = [os.path.join(folder, name) for folder, folders, files in os.walk(tree) for name in folders + files]
    links = [path for path in links if os.path.islink(path)]
    opened = [path for path in links if "/fd/" in path]
    assert all(os.path.exists(str(tree) + os.readlink(path)) for path in opened), "these say what a process has open, as the kernel does"
    links = sorted(set(links) - set(opened))
    assert links
    for path in links:
        assert not os.readlink(path).startswith("/")
        assert os.path.exists(path)
        assert os.path.realpath(path).startswith(os.path.realpath(tree) + "/")


SIBLINGS, NODE = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", "/sys/devices/system/node/node%d/cpulist"
CLUSTER, CACHE = "/sys/devices/system/cpu/cpu9/topology/cluster_cpus_list", "/sys/devices/system/cpu/cpu9/cache/index3/shared_cpu_list"
NUMBERS = {
    "a3_640_adjacent": {SIBLINGS % 41: "40-41", NODE % 1: "80-159"},
    "a3_640_split": {SIBLINGS % 41: "41,361", NODE % 1: "40-79,360-399"},
    "l40s_384": {SIBLINGS % 300: "108,300", CACHE: "8-15,200-207"},
    "a2_8x24": {SIBLINGS % 7: "7"},
    "duo": {CLUSTER: "8-11"},
    "a2_4x48": {CLUSTER: None},
    "odd_nodes": {
        "/sys/devices/system/node/online": "0,2,8,250",
        "/sys/devices/system/node/has_cpu": "0,2,8",
        "/sys/devices/system/node/has_memory": "0,8,250",
        NODE % 250: "",
        "/sys/devices/system/node/node0/distance": "10 12 20 80",
        "/sys/devices/system/cpu/offline": "5,40-43,48-63",
        "/sys/devices/system/cpu/isolated": "30-31",
        "/sys/devices/system/cpu/cpu5/online": "0",
        SIBLINGS % 4: "4",
        "/sys/bus/pci/devices/0000:81:00.0/numa_node": "-1",
        "/sys/bus/pci/devices/0000:81:00.0/local_cpulist": "0-4,6-39,44-47",
    },
}


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_numbers_of_cpus_and_nodes(unchanged, machine):
    host = Host(unchanged(machine))
    assert {path: host.read(path) for path in NUMBERS[machine]} == NUMBERS[machine]


def test_cpus_dealt_to_the_nodes_one_by_one(host):
    machine = {"cpus": {"per_node": 8, "packages": 2, "smt": "split", "order": "round_robin"}, "nodes": {"count": 2}}
    simulated = host(machine)
    assert simulated.read("sys/devices/system/node/node0/cpulist") == "0,2,4,6,8,10,12,14"
    assert simulated.read("sys/devices/system/cpu/cpu3/topology/thread_siblings_list") == "3,11"
    assert simulated.read("sys/devices/system/cpu/cpu3/cache/index3/shared_cpu_list") == "1,3,5,7,9,11,13,15"
    assert simulated.read("sys/devices/system/cpu/cpu3/topology/physical_package_id") == "1"


def test_unusual_nodes(unchanged):
    host = Host(unchanged("odd_nodes"))
    assert re.search(r"^Node 2 MemTotal: +0 kB$", host.read("/sys/devices/system/node/node2/meminfo"), re.M)
    assert not host.exists("/sys/bus/pci/devices/0000:82:00.0")
    state = json.loads(host.read("/var/lib/kubelet/cpu_manager_state"))
    assert state["defaultCpuSet"] == "0-4,6-15,20-39,44-47"
    assert host.read("/etc/sysconfig/irqbalance").endswith('IRQBALANCE_ARGS="--hintpolicy=exact"')
    assert not host.exists("/sys/fs/cgroup/system.slice/irqbalance.service")


@pytest.mark.parametrize(
    ("state", "checksum"),
    [
        ({"policy": "none"}, 1353318690),
        ({"policy": "none", "default_cpus": "0-7"}, 2740534728),
        ({"policy": "static", "default_cpus": "0-63"}, 1058907510),
    ],
)
def test_kubelet_state_has_the_checksum_that_kubelet_computes(host, state, checksum):
    """The sums are published ones: kubernetes issues and blog posts with the files of real nodes."""
    simulated = host({"cpus": {"per_node": 8}, "kubelet": state})
    assert json.loads(simulated.read("var/lib/kubelet/cpu_manager_state"))["checksum"] == checksum


@pytest.mark.parametrize(
    ("cgroup", "there", "missing"),
    [
        ("v2", ["cgroup.controllers", "system.slice/irqbalance.service/cgroup.procs"], ["cpuset", "unified", "systemd"]),
        ("v1", ["cpuset/cpuset.cpus", "systemd/system.slice/irqbalance.service"], ["cgroup.controllers", "unified"]),
        ("hybrid", ["unified/cgroup.controllers", "cpuset", "systemd/system.slice/irqbalance.service"], ["cgroup.controllers"]),
    ],
)
def test_cgroup_versions(host, cgroup, there, missing):
    simulated = host({"cgroup": cgroup, "cpus": {"per_node": 4}})
    mounted = simulated.tree / "sys/fs/cgroup"
    assert all((mounted / path).exists() for path in there)
    assert not any((mounted / path).exists() for path in missing)


def test_written_affinity_is_effective_unless_kernel_managed(host):
    simulated = host("odd_nodes")
    machine = Host(simulated.tree)
    vectors = machine.names("/sys/bus/pci/devices/0000:c1:00.0/msi_irqs")
    mailbox, queue = vectors[:2]
    machine.set_attribute("/proc/irq/%s/smp_affinity_list" % queue, "32-33")
    assert machine.read("/proc/irq/%s/effective_affinity_list" % queue) == "32-33"
    before = machine.read("/proc/irq/%s/effective_affinity_list" % mailbox)
    file = simulated.tree / "proc/irq" / mailbox / "smp_affinity_list"
    assert not file.stat().st_mode & 0o222
    if os.access(file, os.W_OK):
        machine.set_attribute("/proc/irq/%s/smp_affinity_list" % mailbox, "0")
    assert machine.read("/proc/irq/%s/effective_affinity_list" % mailbox) == before != "0"


def test_kernel_threads_and_workers(unchanged):
    host = Host(unchanged("a2_8x24"))
    names = {pid: host.read("/proc/%s/comm" % pid) for pid in host.names("/proc", "[0-9]*")}
    assert {"dev%d_sq_task" % device for device in range(8)} <= set(names.values())
    assert all(len(name) <= 15 for name in names.values())
    worker = next(pid for pid, name in names.items() if name == "VLLMWorker_TP")
    threads = {host.read("/proc/%s/task/%s/comm" % (worker, task)) for task in host.names("/proc/%s/task" % worker)}
    assert threads == {"VLLMWorker_TP", "acl_thread", "release_thread"}
    status = dict(line.split(":\t") for line in host.read("/proc/%s/status" % worker).split("\n"))
    assert from_mask(status["Cpus_allowed"]) == set(expand(status["Cpus_allowed_list"])) == set(range(192))
    assert status["Mems_allowed_list"] == "0-7"


def test_generating_again_keeps_state_until_descriptions_change(tmp_path):
    target = tmp_path / "host"
    small = {"cpus": {"per_node": 4}}
    generate(small, target)
    (target / "etc/mark").write_text("from the first run")
    generate(small, target)
    assert (target / "etc/mark").exists()
    generate({"cpus": {"per_node": 8}}, target)
    assert not (target / "etc/mark").exists()
    assert Host(target).read("/sys/devices/system/cpu/online") == "0-7"
    assert [path.name for path in tmp_path.iterdir()] == ["host"], "nothing temporary is left behind"


def test_modes_of_a_tree_do_not_depend_on_the_umask(tmp_path):
    modes = {}
    for umask in (0o022, 0o077):
        before = os.umask(umask)
        try:
            generate(small("a2_8x24"), tmp_path / str(umask))
            assert os.umask(umask) == umask, "the one of the caller stays"
        finally:
            os.umask(before)
        tree = tmp_path / str(umask)
        modes[umask] = {path.relative_to(tree): path.stat().st_mode for path in (tree, *tree.rglob("*")) if not path.is_symlink()}
    assert modes[0o077] == modes[0o022]


def test_a_directory_that_is_no_tree_is_left_alone(tmp_path):
    (tmp_path / "work.txt").write_text("not ours")
    with pytest.raises(ValueError, match="not a simulated host's tree"):
        generate("a2_8x24", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["work.txt"]


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ({"cpus": {"per_node": 4}, "numa": 2}, "unknown keys numa"),
        ({"cpus": {"per_node": 4, "sockets": 2}}, r"machine.cpus: unknown keys sockets"),
        ({"cpus": {}}, "'per_node' is missing"),
        ({"cpus": {"per_node": 3, "smt": "split"}}, "not a whole number of cores"),
        ({"cpus": {"per_node": 4, "offline": "9"}}, "offline '9' must be some of the CPUs 0-3"),
        ({"cpus": {"per_node": 4}, "cgroup": "v3"}, "cgroup is 'v3', expected one of v2, v1, hybrid"),
        (
            {"cpus": {"per_node": 4}, "gpus": {"name": "x", "memory_mib": 1, "cards": [{"bdf": "a:1", "node": 7}]}},
            "a:1 is on NUMA node 7",
        ),
        (
            {"cpus": {"per_node": 4}, "npus": {"family": "a9", "cards": [{"npu": 0, "bdf": "a:1"}]}},
            "family 'a9' is unknown",
        ),
    ],
)
def test_a_wrong_description_is_refused_with_reason_and_no_files(tmp_path, description, sentence):
    with pytest.raises(ValueError, match=sentence):
        generate(description, tmp_path / "host")
    assert not list(tmp_path.iterdir())


def test_unknown_machine_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"one of a2_4x48, a2_8x24"):
        load("a7")


def test_fleet(tmp_path):
    fleet = tmp_path / "fleet.yml"
    fleet.write_text(
        "hosts:\n  first: {machine: i310_pro, vars: {npu_affinity_min_cpus: 6}}\n"
        "  second: {machine: i310_pro, group: others, change: {systemd: 250, npus: {name: 310P9}}}\n"
    )
    folder = tmp_path / "fleet"
    generate_fleet(fleet, folder, {"third": "n310"})
    inventory = yaml.safe_load((folder / "inventory.yml").read_text())
    assert set(inventory["npu_hosts"]["hosts"]) == {"first", "third"}
    assert inventory["npu_hosts"]["hosts"]["first"]["npu_affinity_min_cpus"] == 6
    second = inventory["others"]["hosts"]["second"]
    assert second == {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "npu_affinity_root": str(folder / "second"),
    }
    assert Host(folder / "second").exists("/usr/lib/systemd/libsystemd-shared-250.so")
    assert "310P9" in Simulated(folder / "second")("info -m")[1]
    assert "310P3" in Simulated(folder / "first")("info -m")[1]


# --- npu-smi: what there is -------------------------------------------------------------------------------------------


def mapping(text):
    """Return the rows of ``info -m`` as mappings of its header's words, by splitting at two blanks."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def topo(text):
    """Return {label: (links, affinity or None)} of the device rows of ``info -t topo``."""
    head = text.splitlines()[0].split()
    labels = [word for word in head if not word.startswith("NIC") and word not in ("CPU", "Affinity")]
    rows = [line.split() for line in text.partition("Legend")[0].splitlines()[1:] if line]
    return {row[0]: (row[1 : 1 + len(labels)], row[-1] if re.fullmatch(r"[\d,-]+", row[-1]) else None) for row in rows if row[0] in labels}


@pytest.mark.parametrize(
    ("machine", "chips", "name", "affinity"),
    [
        ("a2_8x24", 8, "Ascend 910B3", {"NPU0": "144-167", "NPU2": "96-119", "NPU7": "48-71"}),
        ("a2_4x48", 8, "Ascend 910B3", {"NPU0": "144-191", "NPU7": "48-95"}),
        ("a2_910b2c_16", 16, "Ascend 910B2C", {"NPU0": "0-47,96-143", "NPU15": "48-95,144-191"}),
        ("a3_640_split", 16, "Ascend910", {"Phy-ID0": None, "Phy-ID15": None}),
        ("a5", 8, "Ascend950DT", {"NPU0": "0-63,128-191"}),
        ("duo", 8, "Ascend 310P3", {"NPU2": "0-31", "NPU6": "64-95"}),
        ("n910a", 8, "Ascend 910A", {"NPU0": "144-167"}),
        ("odd_nodes", 3, "Ascend 910B4", {"NPU1": "32-39,44-47", "NPU4": "0-4,6-15"}),
    ],
)
def test_mapping_and_topology(unchanged, machine, chips, name, affinity):
    simulated = Simulated(unchanged(machine))
    status, text = simulated("info -m")
    rows = [row for row in mapping(text) if row["Chip Name"] != "Mcu"]
    assert status == 0
    assert [row["Chip Name"] for row in rows] == [name] * chips
    if machine != "a5":
        assert [row["Chip Logic ID"] for row in rows] == [str(number) for number in range(chips)]
    status, text = simulated("info -t topo")
    found = topo(text)
    assert status == 0
    assert {label: found[label][1] for label in affinity} == affinity
    for position, (links, _cpus) in enumerate(found.values()):
        assert [index for index, link in enumerate(links) if link == "X"] == [position]


def test_relations_between_npus(unchanged):
    def links(machine, label):
        return topo(Simulated(unchanged(machine))("info -t topo")[1])[label][0]

    assert links("a3_640_split", "Phy-ID1")[:4] == ["SIO", "X", "HCCS_SW", "HCCS_SW"]
    assert links("a2_910b2c_16", "NPU1") == ["HCCS", "X"] + ["HCCS"] * 6 + ["SYS"] * 8
    assert links("duo", "NPU5") == ["SYS", "SYS", "X", "PHB"]
    assert links("a5", "NPU4") == ["SYS"] * 4 + ["X", "UB", "UB", "UB"]


@pytest.mark.parametrize(
    ("machine", "layout", "width"),
    [
        ("a2_8x24", "newest", 99),
        ("a2_8x24", "release", 98),
        ("a3_640_split", "release", 98),
        ("a3_640_split", "wide", 116),
        ("duo", "newest", 106),
        ("n910a", "release", 93),
        ("n310", "release", 80),
        ("a5", "newest", 116),
        ("a5", "release", 99),
    ],
)
def test_every_release_has_its_table(host, machine, layout, width):
    simulated = host(merge(small(machine), {"driver": {"layout": layout}}))
    status, text = simulated("info")
    assert status == 0
    assert {len(line) for line in text.splitlines()} == {width}
    chips = json.loads(simulated.read("simulator/machine.json"))["chips"]
    assert [line.split("|")[-3].strip() for line in text.splitlines() if re.search(r"\| 0000:", line)] == [
        chip["bdf"].upper() for chip in chips
    ]
    assert ("NIC0" in simulated("info -t topo")[1]) == (layout == "newest" and machine not in ("n310",))


def test_processes_are_listed_by_card(unchanged):
    text = Simulated(unchanged("a2_8x24"))("info")[1]
    assert re.search(r"\| 1 +0 +\| 21418 +\| VLLMWorker_TP +\| 28673 +\|", text)
    assert "No running processes found in NPU 2" in text


def test_the_affinity_column_follows_sysfs(host):
    simulated = host("a2_8x24")
    (simulated.tree / "sys/bus/pci/devices/0000:c1:00.0/numa_node").write_text("-1\n")
    (simulated.tree / "sys/devices/system/node/node4/cpulist").write_text("96-118\n")
    found = topo(simulated("info -t topo")[1])
    assert found["NPU0"][1] == "0-23", "like the real tool: no node is taken for node 0"
    assert found["NPU2"][1] == "96-118"


def test_a_trees_program_answers_for_its_tree_and_logs_calls(host):
    simulated = host("i310_pro")
    assert simulated.start("info", "-m") == simulated("info -m")
    assert simulated.start("set", "-t", "device-share", "-i", "4", "-d", "1")[0] == 200
    assert simulated.start("set", "-t", "device-share", "-i", "4", "-d", "1", stdin="Y\n")[0] == 0
    assert answer(simulated, "shared") == '["4:0"]'
    calls = simulated.read("var/log/npu-smi-calls.log").splitlines()
    assert calls == ["info -m"] * 2 + ["set -t device-share -i 4 -d 1"] * 2
    assert (simulated.tree / "simulator/npu_smi.py").read_text() == (SIMULATOR / "npu_smi.py").read_text()


# --- npu-smi: sessions ------------------------------------------------------------------------------------------------

_HEAD, *SESSIONS = (pathlib.Path(__file__).parent / "sessions.txt").read_text().split("\n\n# ")


def answer(simulated, command):
    """Return what a command of a session prints."""
    command, _typed, typed = command.partition(" <<<")
    word, _blank, rest = command.partition(" ")
    if word == "faults":
        set_faults(simulated.tree, **json.loads(rest))
    elif word == "lose":
        lose_card(simulated.tree, int(rest))
    elif word == "reboot":
        reboot(simulated.tree)
    elif word == "shared":
        state = simulated.tree / driver.SHARE_STATE[1:]
        return state.read_text() if state.exists() else "[]"
    elif word == "cat":
        return simulated.read(rest)
    elif word == "ls":
        path = simulated.tree / rest
        return filemode(path.stat().st_mode) if path.exists() else "none"
    else:
        user, _words, words = command.partition("npu-smi")
        status, text = simulated(words, typed.strip().replace(",", "\n") + "\n" * bool(typed), int(user.partition("=")[2] or 0))
        return text + f"[{status}]" * bool(status)
    return ""


@pytest.mark.parametrize("session", SESSIONS, ids=[session.partition(" (")[0] for session in SESSIONS])
def test_a_session(host, session):
    heading, *commands = session.rstrip("\n").split("\n$ ")
    simulated = host(small(heading.rpartition("(")[2].rstrip(")")))
    for command, _newline, expected in (text.partition("\n") for text in commands):
        found = answer(simulated, command)
        assert doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), (command, found)


RECOVER = "set -t device-share-cfg-recover -d %d"


def test_a_reboot_resets_affinities_and_ends_workers(host):
    simulated = host("a2_8x24")
    machine = Host(simulated.tree)
    queue = machine.names("/sys/bus/pci/devices/0000:c1:00.0/msi_irqs")[1]
    machine.set_attribute("/proc/irq/%s/smp_affinity_list" % queue, "144")
    machine.set_attribute("/sys/devices/virtual/workqueue/dev0_sq_send_wq/cpumask", "1")
    (simulated.tree / "etc/systemd/system/npu.slice").write_text("[Slice]\n")
    reboot(simulated.tree)
    assert machine.read("/proc/irq/%s/smp_affinity_list" % queue) == "144-167"
    assert from_mask(machine.read("/sys/devices/virtual/workqueue/dev0_sq_send_wq/cpumask")) == set(range(192))
    assert "No running processes found in NPU 0" in simulated("info")[1]
    assert not machine.exists("/proc/21417")
    assert machine.exists("/etc/systemd/system/npu.slice")


# --- npu-smi: what goes wrong -----------------------------------------------------------------------------------------


def test_an_npu_smi_that_does_not_answer(host):
    simulated = host(small("i310_pro"))
    set_faults(simulated.tree, sleep=30)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([str(simulated.tree) + driver.NPU_SMI, "info"], timeout=0.5, check=False, capture_output=True)


def test_a_card_that_drops_off_the_bus(host):
    simulated = host(small("a2_8x24"))
    lose_card(simulated.tree, 3)
    machine = Host(simulated.tree)
    assert "0000:82:00.0" not in machine.names("/sys/bus/pci/devices")
    assert machine.read("/proc/interrupts").count("sq_send_trigger_irq") == 7


def test_an_incomplete_installation_is_told_after_the_table(host):
    assert (
        host(merge(small("i310_pro"), {"driver": {"installed": False}}))("info")[1]
        .splitlines()[-1]
        .startswith("[WARNING]The driver package may not be completely installed")
    )


# --- nvidia-smi -------------------------------------------------------------------------------------------------------


def nvidia_smi(tree, *words):
    done = subprocess.run([str(tree) + driver.NVIDIA_SMI, *words], text=True, capture_output=True, check=False)
    return done.returncode, done.stdout


def test_nvidia_smi(unchanged):
    tree = unchanged("l40s_384")
    status, text = nvidia_smi(tree, "--query-gpu=index,uuid,pci.bus_id,name,memory.total", "--format=csv")
    lines = text.splitlines()
    assert status == 0
    assert lines[0] == "index, uuid, pci.bus_id, name, memory.total [MiB]"
    assert re.fullmatch(r"5, GPU-[0-9a-f-]{36}, 00000000:A1:00\.0, NVIDIA L40S, 46068 MiB", lines[6])


def test_nvidia_smi_without_driver_and_with_a_gpu_in_a_guest(host):
    simulated = host("l40s_384")
    lent = simulated.tree / "sys/bus/pci/devices/0000:21:00.0/driver"
    vfio = simulated.tree / "sys/bus/pci/drivers/vfio-pci"
    vfio.mkdir()
    link = lent.parent.resolve() / "driver"
    link.unlink()
    link.symlink_to(vfio)
    assert "00000000:21:00.0" not in nvidia_smi(simulated.tree, "--query-gpu=pci.bus_id", "--format=csv,noheader")[1]
    set_faults(simulated.tree, nvidia_error=True)
    assert nvidia_smi(simulated.tree, "--query-gpu=pci.bus_id", "--format=csv,noheader")[0] == 9


# --- against recorded runs of the real program ------------------------------------------------------------------------

SHARED = os.environ.get("SHARED")
RECORDED = {"A2-910B3": "a2_8x24", "A3": "a3_640_adjacent", "310P-Duo": "duo", "910A": "n910a"}
NOT_COVERED = {"-l", "temp", "ecc", "work-mode", "memory", "usages", "health", "common", "power", "product", "proc-mem", "phyid-remap"}


def edit_description(tree, change):
    path = pathlib.Path(str(tree) + driver.DESCRIPTION)
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))


def forget_numa(tree):
    for path in pathlib.Path(tree).glob("sys/devices/pci*/*/numa_node"):
        path.write_text("-1\n")


def fall_ill(tree):
    def change(description):
        for chip, health in zip(description["chips"], ("OK", "Warning", "Alarm", "Critical"), strict=False):
            chip["health"] = health

    edit_description(tree, change)


def enter_container(tree):
    set_faults(tree, container=[12, 13])
    edit_description(tree, lambda description: [process.update(card=6) for process in description["processes"]])


SITUATIONS = {
    "A2-910B3-busy": lambda tree: set_faults(tree, busy=[0]),
    "A2-910B3-container-plain": lambda tree: set_faults(tree, container=True),
    "A2-910B3-nodriver": lambda tree: set_faults(tree, error=-8005),
    "A2-910B3-numa-minus1": forget_numa,
    "A2-910B3-onelost": lambda tree: lose_card(tree, 3),
    "A2-910B3-warning": fall_ill,
    "A3-container-2die": enter_container,
}


@pytest.fixture(scope="session")
def situation(tmp_path_factory):
    """Return a function product of the recorded runs -> tree in that situation, without device share set."""
    folder = tmp_path_factory.mktemp("situations")

    def tree(product):
        target = folder / product
        if not target.exists():
            generate(RECORDED[next(name for name in RECORDED if product.startswith(name))], target)
            SITUATIONS.get(product, str)(target)
        for state in (driver.SHARE_STATE, "/etc/device_share.cfg"):
            pathlib.Path(str(target) + state).unlink(missing_ok=True)
        return target

    return tree


def recorded_runs():
    index = pathlib.Path(SHARED, "npu-smi-runs", "index.json") if SHARED else None
    if index is None or not index.is_file():
        return
    for file, run in sorted(json.loads(index.read_text()).items()):
        known = run["product"] in RECORDED or run["product"] in SITUATIONS
        if run["argv"] and known and not NOT_COVERED.intersection(run["argv"]):
            yield pytest.param(index.parent / file, run, id=file)


COMPARED = {"NPU ID", "Chip ID", "Chip Count", "PCIe Bus Info", "Chip Name", "Chip Type", "Status", "Message"}
COMPARED |= {"Health", "Health Status", "Device-share Status", "Device-share config recover mode"}


def normalised(text):
    """Return what must be equal: words and layout, not temperatures, amounts, serial numbers, names of boards, or help texts."""
    lines = []
    for text_line in text.partition("Usage:")[0].splitlines():
        key, colon, _value = text_line.partition(" : ")
        if colon and key.strip() not in COMPARED:
            text_line = key + colon
        elif text_line.startswith("\tProcess id:"):
            text_line = re.sub(r":\S+", ":", text_line)
        elif text_line.startswith("|") and re.search(r"\d", text_line):
            cells = text_line.split("|")
            text_line = "|".join(cells[:2] + [re.sub(r"[\d.]+", "0", cell) for cell in cells[2:]])
        lines.append(" ".join(text_line.split()))
    return lines


@pytest.mark.skipif(not SHARED, reason="needs the recorded runs of the real program (environment variable SHARED)")
@pytest.mark.parametrize(("file", "run"), list(recorded_runs()))
def test_same_words_as_the_real_program(situation, file, run):
    stdin = "" if "EOF" in run["stdin"] else run["stdin"]
    uid = 0 if run["user"] == "root" else 1000
    simulated = Simulated(situation(run["product"]))
    before = re.search(r"-after-(chip0-set1|set1|on)\.txt$", file.name)
    if before:
        card = next((word for word in run["argv"] if word.isdigit()), "")
        steps = {"on": RECOVER % 1, "set1": "set -t device-share -i %s -d 1", "chip0-set1": "set -t device-share -i %s -c 0 -d 1"}
        step = steps[before.group(1)]
        simulated(step % card if card else step, stdin="Y\n")
    status, text = simulated(" ".join(run["argv"]), stdin=stdin, uid=uid)
    assert normalised(text) == normalised(file.read_text())
    assert status == run["rc"]


@pytest.mark.skipif(not SHARED, reason="needs the recorded runs of the real program (environment variable SHARED)")
@pytest.mark.parametrize("product", ["A2-910B3", "A3", "310P-Duo"])
def test_same_recovery_file_as_the_real_program(host, product):
    simulated = host(small(RECORDED[product]))
    card = 2 if product == "310P-Duo" else 0
    steps = [RECOVER % 1, "set -t device-share -i %d -d 1" % card, "set -t device-share -i %d -c 0 -d 0" % card, RECOVER % 0]
    names = ["1-after-recover-on", "2-after-card-on", "3-after-chip0-off", "4-after-recover-off"]
    for words, name in zip(steps, names, strict=True):
        assert simulated(words, stdin="Y\n")[0] == 0
        recorded = pathlib.Path(SHARED, "npu-smi-runs", "%s-etc-device_share.cfg-%s.txt" % (product, name)).read_text()
        assert simulated.read("etc/device_share.cfg") + "\n" == recorded


def test_a_site_is_written_to_a_folder_that_is_named_from_here(tmp_path, monkeypatch):
    site = tmp_path / "site.yml"
    group = {"machine": "duo", "hosts": 2, "busy": [[0]], "kubelet": [None], "cpus_per_npu": 4}
    site.write_text(json.dumps({"groups": {"duo": group}}))
    monkeypatch.chdir(tmp_path)
    write_site(site, pathlib.Path("out"))
    facts = json.loads((tmp_path / "out/facts/duo-02.json").read_text())["npu_affinity_topology"]
    assert [npu["busy"] for npu in facts["npus"]] == [True] + [False] * (len(facts["npus"]) - 1)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host is packed and opened elsewhere, and says there what it says itself; what an archive does not have is not known."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._state.host_code import FIRST_LINE
from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import Request, collect
from ansible_collections.npu.affinity.plugins.module_utils._archive.opening import archives, open_archive
from ansible_collections.npu.affinity.plugins.module_utils._archive.anonymizing import Anonymous
from ansible_collections.npu.affinity.plugins.module_utils._archive.scrubbing import Known, scrub
from ansible_collections.npu.affinity.plugins.module_utils._drift.in_force import compare
from ansible_collections.npu.affinity.plugins.module_utils._drift.sentences import result_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.unknown import leave_out_unknown
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._features.comparing import Wanted
from ansible_collections.npu.affinity.plugins.module_utils._state.history.entries import Applied, keep
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host
from ansible_collections.npu.affinity.plugins.module_utils._host.recorded import MANIFEST, host_at
from ansible_collections.npu.affinity.plugins.module_utils._host.recorded import Recorded
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import Systemd
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather

from tests.fakes.two_cards import two_cards

SMALL = two_cards(0, 1)
QUESTIONS = {"units": ["vllm@0.service", "irqbalance.service"]}


def reopened(root, tmp_path, **request):
    """The host below a root, packed and opened."""
    target = tmp_path / "host.tar.gz"
    collect(str(root), 30, Request("node1", **request)).write(str(target))
    return open_archive(str(target), str(tmp_path / "opened"), {})


def without_root(value, root):
    return json.loads(json.dumps(value).replace(str(root), ""))


@pytest.mark.parametrize(
    ("machine", "anonymous"),
    [(SMALL, True), *((machine, False) for machine in (SMALL, "duo", "l40s_384", "a2_broken", "odd_nodes"))],
)
def test_a_simulated_host_has_the_same_topology_in_its_archive(tmp_path, generate, machine, anonymous):
    root = tmp_path / "host"
    generate(machine, root)
    opened = reopened(root, tmp_path, questions=QUESTIONS, anonymous=anonymous)
    assert (opened.name, opened.manifest["host"]) == (("host", "removed") if anonymous else ("node1", "node1"))
    host = host_at(opened.folder)
    assert without_root(gather(host, **QUESTIONS), opened.folder) == without_root(gather(Host(str(root)), **QUESTIONS), root)
    assert host.unknown == []


def test_this_machine_has_the_same_topology_in_its_archive(tmp_path):
    opened = reopened("/", tmp_path)
    here, there = gather(Host("/")), gather(host_at(opened.folder))
    assert {name: there[name] for name in ("cpus", "numa", "npus", "kubelet", "irqbalance", "machine", "problems")} == {
        name: here[name] for name in ("cpus", "numa", "npus", "kubelet", "irqbalance", "machine", "problems")
    }


def manifest_of(**values):
    return json.dumps(
        {"schema": 1, "version": "1.0.0", "time": "", "host": "node1", "source": "npu.affinity.collect", "commands": [], **values}
    )


def packed(path, members):
    """Write a tar of ``{name: text, or link, or TarInfo}``."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            entry = tarfile.TarInfo(name)
            data = b""
            if isinstance(text, tuple):
                entry.type, entry.linkname = text
            else:
                data = text.encode()
                entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return str(path)


def test_what_systemd_said_is_replayed(tmp_path):
    command = ["systemctl", "show", "--property=Id,ActiveState", "a.service"]
    entry = {"argv": command, "rc": 0, "file": "commands/systemctl_show"}
    path = packed(
        tmp_path / "x.tar.gz",
        {"commands/systemctl_show": "Id=a.service\nActiveState=active\n", MANIFEST: manifest_of(live=True, commands=[entry])},
    )
    host = host_at(open_archive(path, str(tmp_path / "opened"), {}).folder)
    assert host.answers and not host.live
    assert Systemd(host).show(["ActiveState"], ["a.service"]) == {"a.service": {"ActiveState": "active"}}
    with pytest.raises(CommandError, match="the archive does not have the answer of 'systemctl is-active b.service'"):
        Systemd(host).active(["b.service"])
    assert host.unknown == ["systemctl is-active b.service"]


def test_a_command_that_hung_hangs_in_the_record(tmp_path):
    entry = {"argv": ["npu-smi", "info"], "error": "'npu-smi info' did not answer within 30 s and was killed"}
    path = packed(tmp_path / "x.tar.gz", {"proc/uptime": "1\n", MANIFEST: manifest_of(commands=[entry])})
    host = host_at(open_archive(path, str(tmp_path / "opened"), {}).folder)
    with pytest.raises(CommandError, match="did not answer within 30 s"):
        host.run(["npu-smi", "info"])
    assert host.unknown == []


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("/sys/a", True),
        ("/sys/missing", True),
        ("/sys/missing/inside", True),
        ("/etc/link", True),
        ("/sys/never-asked", False),
        ("/proc/1/comm", False),
        ("/", True),
    ],
)
def test_what_was_never_looked_at_is_not_missing(tmp_path, asked, known):
    members = {"sys/a": "1\n", MANIFEST: manifest_of(absent=["/sys/missing"], links={"/etc/link": "/nowhere"})}
    host = host_at(open_archive(packed(tmp_path / "x.tar.gz", members), str(tmp_path / "opened"), {}).folder)
    host.exists(asked)
    assert (host.unknown == []) is known


def test_names_are_those_that_were_listed(tmp_path):
    values = {"folders": {"/proc": ["[0-9]*"]}, "names": {"/proc": ["7", "8"]}, "absent": ["/dev"]}
    members = {"proc/7/comm": "a\n", MANIFEST: manifest_of(**values)}
    host = host_at(open_archive(packed(tmp_path / "x.tar.gz", members), str(tmp_path / "opened"), {}).folder)
    assert host.names("/proc", "[0-9]*") == ["7", "8"] and host.names("/dev", "davinci*") == [] and host.unknown == []
    host.names("/proc", "b*")
    assert host.unknown == ["/proc"]


@pytest.fixture
def bound_tree(tmp_path, generate):
    root = tmp_path / "host"
    generate(SMALL, root)
    npus = [
        {"id": npu["id"], "pci": npu["pci"], "pool": "0-3", "irq": "0-1", "slice": "npu-%d.slice" % npu["id"]}
        for npu in gather(Host(str(root)))["npus"]
    ]
    (root / "etc/npu-affinity").mkdir()
    (root / "etc/npu-affinity/plan.json").write_text(json.dumps({"schema": 1, "npus": npus}))
    return root


def with_programs(root):
    """Put programs into a tree, as every host has them, and return files that name them."""
    for program in ("usr/bin/systemctl", "usr/bin/dash"):
        (root / program).parent.mkdir(parents=True, exist_ok=True)
        (root / program).write_bytes(b"\x7fELF" + bytes(1 << 17))
        (root / program).chmod(0o755)
    (root / "bin").mkdir()
    (root / "bin/sh").symlink_to("../usr/bin/dash")
    texts = {
        "/etc/udev/rules.d/90-npu-affinity.rules": FIRST_LINE + 'ACTION=="bind", RUN+="/usr/bin/systemctl --no-block start a"\n',
        "/usr/local/lib/npu-affinity/irqbalance-policy": f"#!/bin/sh\n{FIRST_LINE}exit 0\n",
    }
    for path, text in texts.items():
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_text(text)
        (root / path[1:]).chmod(0o755)
    return [{"path": path, "content": text, "mode": "0755"} for path, text in texts.items()]


def test_a_comparison_by_an_archive_finds_the_same(tmp_path, bound_tree):
    root = bound_tree
    files = with_programs(root)
    (root / "proc/sys/vm").mkdir(parents=True, exist_ok=True)
    (root / "proc/sys/vm/swappiness").write_text("0\n")
    share = {"enabled": True, "npus": [], "only_ours": True}
    plan = json.loads((root / "etc/npu-affinity/plan.json").read_text())
    state = {"features": {"irq": "present"}, "files": files, "plan": plan, "absent": {}, "hardware": {}}
    keep(Host(str(root)), Applied("bind", dict(state, live={"tuning": {"swappiness": 0}, "device_share": share}), "alice"))
    opened = reopened(root, tmp_path)
    here, there = host_at(str(root)), host_at(opened.folder)
    (_bound, expected), (bound, found) = compare(here)[:2], compare(there)[:2]
    assert {"tuning", "device_share", "interrupts"} <= found.checked.keys()
    assert there.unknown == []
    leave_out_unknown(there, found)
    assert bound and found.drift
    assert without_root([result_of(entry) for entry in found.drift], opened.folder) == without_root(
        [result_of(entry) for entry in expected.drift], root
    )
    assert found.checked == expected.checked and found.remarks == expected.remarks


def test_an_archive_keeps_the_permissions_of_directories(tmp_path, bound_tree):
    root = bound_tree
    region = root / "usr/local/hami-shared-region"
    layout = {"folder": "/usr/local/hami-vnpu-core", "shared_region": "/usr/local/hami-shared-region", "shared_mode": "1777", "files": {}}
    region.mkdir(parents=True)
    region.chmod(0o1777)
    plan = json.loads((root / "etc/npu-affinity/plan.json").read_text())
    state = {"features": {"vnpu": "present"}, "files": [], "plan": plan, "absent": {}, "hardware": {}, "live": {"vnpu": layout}}
    keep(Host(str(root)), Applied("bind", state, "alice"))
    drift = compare(host_at(reopened(root, tmp_path).folder)).findings.drift
    assert drift and region.name not in str(list(map(result_of, drift)))


@pytest.mark.parametrize(("mode", "kept"), [(0o1777, 0o1777), (0o7750, 0o1750), (0, 0o700)])
def test_a_directory_of_an_archive_stays_readable(tmp_path, mode, kept):
    folder = tarfile.TarInfo("sys/b")
    folder.type, folder.mode = tarfile.DIRTYPE, mode
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("sys/a"))
        archive.addfile(folder)
        archive.addfile(tarfile.TarInfo("sys/b/c"))
    root = open_archive(str(tmp_path / "x.tar"), str(tmp_path / "opened"), {}).folder
    assert os.stat(root + "/sys/b").st_mode & 0o7777 == kept and os.path.exists(root + "/sys/b/c")
    assert os.stat(root).st_mode & 0o7777 == 0o700


def test_what_is_not_known_is_neither_drift_nor_as_planned(tmp_path, bound_tree):
    root = bound_tree
    archive = collect(str(root), 30, Request("node1"))
    lacking = {name: data for name, data in archive.members.items() if not name.startswith("proc/irq")}
    target = tmp_path / "host.tar.gz"
    archive._replace(members=lacking).write(str(target))
    host = host_at(open_archive(str(target), str(tmp_path / "opened"), {}).folder)
    findings = verify(host, Wanted())[1]
    leave_out = [entry.kind for entry in findings.drift]
    assert "interrupts" in leave_out
    leave_out_unknown(host, findings)
    assert "interrupts" not in [entry.kind for entry in findings.drift] + list(findings.checked)
    assert any(text.startswith("The archive does not have all requested data: interrupts (/proc/irq/") for text in findings.remarks)

    findings.drift.clear()
    with pytest.raises(ValueError, match="whether this host is as planned is not known, because these could not be compared: interrupts"):
        leave_out_unknown(host, findings)


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"sys/a": "", "/etc/passwd": ""}, "'/etc/passwd', which is outside of the archive"),
        ({"sys/a": "", "../x": ""}, "'../x', which is outside of the archive"),
        ({"sys/a": "", MANIFEST: manifest_of(links={"/a": "/tmp", "/a/b": "x"})}, "a/b lies behind another link"),
        ({"sys/a": "", MANIFEST: manifest_of(links={"/" + MANIFEST: "/tmp/x"})}, "cannot be opened: File exists"),
        ({"sys/a": "", MANIFEST: manifest_of(links={"/../../x": "y"})}, "is outside of the archive"),
        ({"sys/a": "", MANIFEST: "{}"}, "is not what playbook npu.affinity.collect writes"),
        ({"sys/a": "", MANIFEST: manifest_of(schema=99)}, "of a newer version of the collection"),
        ({"sys/a": "", MANIFEST: manifest_of(absent={})}, "'absent' has another shape"),
        ({"README": "hello"}, "it is no archive of a host"),
    ],
)
def test_an_unsafe_archive_is_refused(tmp_path, members, error):
    path = packed(tmp_path / "x.tar.gz", members)
    with pytest.raises(ValueError, match=error):
        open_archive(path, str(tmp_path / "opened"), {})
    assert not (tmp_path / "x").exists()


def test_links_and_devices_of_an_archive_are_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of the controller\n")
    members = {
        "sys/a": "",
        "proc/interrupts": (tarfile.SYMTYPE, str(secret)),
        "etc": (tarfile.SYMTYPE, str(tmp_path)),
        "sys/hard": (tarfile.LNKTYPE, "/etc/passwd"),
        "dev/sda": (tarfile.BLKTYPE, ""),
    }
    host = host_at(open_archive(packed(tmp_path / "x.tar", members), str(tmp_path / "opened"), {}).folder)
    assert host.read("/proc/interrupts") is None and host.read("/etc/secret") is None
    assert not os.path.lexists(host.root + "/dev/sda") and not os.path.lexists(host.root + "/sys/hard")


def test_what_is_too_large_or_broken_is_refused(tmp_path, monkeypatch):
    from ansible_collections.npu.affinity.plugins.module_utils._archive import opening

    monkeypatch.setattr(opening, "LARGEST", 1000)
    with pytest.raises(ValueError, match="sys/a has 0 MiB, and the limit is 0"):
        open_archive(packed(tmp_path / "x.tar.gz", {"sys/a": "x" * 1001}), str(tmp_path / "opened"), {})
    monkeypatch.setattr(opening, "TOGETHER", 1500)
    with pytest.raises(ValueError, match="members or 0 MiB"):
        open_archive(packed(tmp_path / "y.tar.gz", {"sys/a": "x" * 900, "sys/b": "x" * 900}), str(tmp_path / "opened"), {})
    (tmp_path / "z.tar.gz").write_bytes((tmp_path / "y.tar.gz").read_bytes()[:60])
    with pytest.raises(ValueError, match="z.tar.gz cannot be read as an archive"):
        open_archive(str(tmp_path / "z.tar.gz"), str(tmp_path / "opened"), {})


LSPCI = """c1:00.0 Processing accelerators [1200]: Huawei Technologies Co., Ltd. Device [19e5:d802] (rev 20)
\tSubsystem: Huawei Technologies Co., Ltd. Device [19e5:3003]
\tNUMA node: 1
0000:01:00.0 Processing accelerators [1200]: Huawei Technologies Co., Ltd. Device [19e5:d802] (rev 20)
02:00.0 Ethernet controller [0200]: Mellanox Technologies MT27800 Family [ConnectX-5] [15b3:1017]
\tNUMA node: 0
"""
CPU, NODE = "sosreport-node1-x/sys/devices/system/cpu/", "sosreport-node1-x/sys/devices/system/node/"


def sosreport(**more):
    members = {
        "sosreport-node1-x/version.txt": "sosreport: 4.0\n",
        CPU + "online": "0-3\n",
        "sosreport-node1-x/sos_commands/pci/lspci_-nnvv": LSPCI,
    }
    for node, cpus in enumerate(("0-1", "2-3")):
        members["%snode%d/cpulist" % (NODE, node)] = cpus + "\n"
        members["%snode%d/distance" % (NODE, node)] = "10 20\n" if node == 0 else "20 10\n"
    return {**members, **{"sosreport-node1-x/" + name: text for name, text in more.items()}}


def test_a_sosreport_gives_what_it_has(tmp_path):
    path = packed(tmp_path / "sosreport-node1-x.tar.xz", sosreport())
    opened = open_archive(path, str(tmp_path / "opened"), {})
    host = host_at(opened.folder)
    topology = gather(host)
    assert opened.name == "sosreport-node1-x" and opened.manifest["source"] == "sosreport"
    assert [node["cpus"] for node in topology["numa"]] == ["0-1", "2-3"]
    assert topology["npus"] == [] and [(npu["pci"], npu["numa"]) for npu in topology["unlisted"]] == [
        ("0000:01:00.0", None),
        ("0000:c1:00.0", 1),
    ]
    assert any("npu-smi was not found" in text for text in topology["problems"])
    (said,) = host.untold()
    assert "answers of npu-smi (npu-smi)" in said and "interrupts" not in said
    host = host_at(opened.folder)
    findings = verify(host, Wanted())[1]
    with pytest.raises(ValueError, match="whether this host is bound is not known: the archive does not have /etc/npu-affinity/plan.json"):
        leave_out_unknown(host, findings)


MAPPING = """\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t0                              0                              0                              Ascend 910B3
\t0                              1                              -                              Mcu
"""


def test_texts_of_npu_smi_beside_a_sosreport_are_read(tmp_path):
    board = "	NPU ID : 0\n	PCIe Bus Info : 0000:C1:00.0\n	Chip Name : 910B3\n"
    texts = {"npu-smi/npu-smi_info_-m": MAPPING, "npu-smi/npu-smi_info_-t_board_-i_0_-c_0.txt": board}
    path = packed(tmp_path / "a.tar.gz", sosreport(**texts))
    topology = gather(host_at(open_archive(path, str(tmp_path / "opened"), {}).folder))
    assert [(npu["id"], npu["name"], npu["pci"], npu["numa"], npu["family"]) for npu in topology["npus"]] == [
        (0, "910B3", "0000:c1:00.0", 1, "a2")
    ]
    assert any("does not have the answer of 'npu-smi info -t topo'" in text for text in topology["problems"])


def test_a_folder_of_archives(tmp_path):
    packed(tmp_path / "b.tar.gz", sosreport())
    packed(tmp_path / "a.tgz", sosreport())
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "unpacked/sos_commands").mkdir(parents=True)
    assert [os.path.basename(path) for path in archives(str(tmp_path))] == ["a.tgz", "b.tar.gz", "unpacked"]
    assert archives(str(tmp_path / "unpacked")) == [str(tmp_path / "unpacked")]
    with pytest.raises(ValueError, match="nowhere' is neither a file nor a folder: name what playbook npu.affinity.collect wrote"):
        archives(str(tmp_path / "nowhere"))


def test_an_archive_that_was_unpacked_by_hand(tmp_path):
    path = packed(tmp_path / "x.tar.gz", sosreport())
    (tmp_path / "by-hand").mkdir()
    subprocess.run(["tar", "-xf", path, "-C", str(tmp_path / "by-hand")], check=True)
    opened = open_archive(str(tmp_path / "by-hand/sosreport-node1-x"), str(tmp_path / "opened"), {})
    assert gather(host_at(opened.folder))["cpus"]["online"] == "0-3"


def test_two_archives_of_one_name(tmp_path):
    taken = {}
    path = packed(tmp_path / "x.tar.gz", {"sys/a": "", MANIFEST: manifest_of()})
    assert [open_archive(path, str(tmp_path / "opened"), taken).name for _round in range(3)] == ["node1", "x", "x-3"]


UNIT = """[Unit]
Description=secret
[Service]
Environment=HF_TOKEN=hf_secret ASCEND_RT_VISIBLE_DEVICES=0,1 "CUDA_VISIBLE_DEVICES=0, 1"
EnvironmentFile=-/etc/vllm.env
ExecStart=/usr/bin/vllm --api-key secret
CPUAffinity=0-3
"""
KUBELET = """[Service]
Environment="KUBELET_ARGS=--config=/var/lib/kubelet/config.yaml" HTTPS_PROXY=http://user:secret@proxy
ExecStart=/usr/bin/kubelet $KUBELET_ARGS --cpu-manager-policy static --token secret --node-ip=secret
"""


@pytest.mark.parametrize(
    ("path", "text", "kept"),
    [
        (
            "/proc/7/environ",
            "A=secret\0CUDA_VISIBLE_DEVICES=1\0HF_TOKEN=secret\0SGLANG_SET_CPU_AFFINITY=1\0",
            "CUDA_VISIBLE_DEVICES=1\0SGLANG_SET_CPU_AFFINITY=1",
        ),
        ("/proc/7/cmdline", "/usr/bin/python3\0-c\0secret\0", "/usr/bin/python3\0\0\0"),
        (
            "/proc/7/cmdline",
            '/usr/bin/python3\0/usr/bin/vllm\0serve\0--api-key=secret\0--additional-config\0{"enable_cpu_binding": false, "x": "secret"}',
            '/usr/bin/python3\0/usr/bin/vllm\0serve\0\0--additional-config\0{"enable_cpu_binding": false}',
        ),
        (
            "/proc/7/cmdline",
            "/bin/sh\0/opt/set.sh\0--config=secret\0--numa_bind_nodes=1",
            "/bin/sh\0/opt/set.sh\0--config=\0--numa_bind_nodes=",
        ),
        ("/proc/7/root/opt/set.sh", "#!/bin/sh\nPASSWORD=secret\necho 1 > /proc/irq/7/smp_affinity_list\n", "#!/bin/sh\n# smp_affinity\n"),
        ("/opt/other.sh", "#!/bin/sh\nPASSWORD=secret\n", "#!/bin/sh\n"),
        ("/etc/cron.d/backup", "# x\n* * * * * root TOKEN=secret /opt/set.sh --key secret\n", "/opt/set.sh\n"),
        ("/opt/notes", "secret", ""),
        ("/proc/7/cmdline", "/usr/sbin/irqbalance\0--foreground\0", "/usr/sbin/irqbalance\0--foreground\0"),
        (
            "/proc/7/cmdline",
            "/usr/bin/kubelet\0--token=secret\0--config\0/a.yaml\0--reserved-cpus=0",
            "/usr/bin/kubelet\0--config\0/a.yaml\0--reserved-cpus=0",
        ),
        ("/proc/7/maps", "7f-8f r /secret.so\n7f-8f r /hami-vnpu-core/libvnpu.so\n", "7f-8f r /hami-vnpu-core/libvnpu.so\n"),
        (
            "/etc/systemd/system/vllm.service",
            UNIT,
            "[Unit]\n[Service]\nEnvironment=ASCEND_RT_VISIBLE_DEVICES=0,1 'CUDA_VISIBLE_DEVICES=0, 1'\n"
            "EnvironmentFile=-/etc/vllm.env\nExecStart=/usr/bin/vllm\nCPUAffinity=0-3\n",
        ),
        (
            "/usr/lib/systemd/system/kubelet.service",
            KUBELET,
            "[Service]\nEnvironment=KUBELET_ARGS=--config=/var/lib/kubelet/config.yaml\n"
            "ExecStart=/usr/bin/kubelet --cpu-manager-policy static $KUBELET_ARGS\n",
        ),
        ("/etc/vllm.env", "HF_TOKEN=secret\nASCEND_RT_VISIBLE_DEVICES=0\n", "ASCEND_RT_VISIBLE_DEVICES=0\n"),
        ("/etc/default/irqbalance", "#secret\nIRQBALANCE_ARGS=--interval=30\n", "IRQBALANCE_ARGS=--interval=30\n"),
        (
            "/etc/kubelet.yaml",
            "cpuManagerPolicy: static\nstaticPodURLHeader: {Authorization: [secret]}\n",
            '{\n "cpuManagerPolicy": "static"\n}\n',
        ),
        (
            "/etc/npu-affinity/previous.json",
            '{"files": {"/a": {"content": "secret", "mode": "0644"}}}',
            '{\n "files": {\n  "/a": {\n   "content": "",\n   "mode": "0644"\n  }\n }\n}\n',
        ),
        (
            "/etc/systemd/system/npu.slice",
            "# Managed by npu.affinity\n[Slice]\nAllowedCPUs=1\n",
            "# Managed by npu.affinity\n[Slice]\nAllowedCPUs=1\n",
        ),
        ("/proc/interrupts", "   CPU0\n  1: 2 GICv3 a\n", "   CPU0\n  1: 2 GICv3 a\n"),
    ],
)
def test_secrets_stay_on_the_host(path, text, kept):
    assert scrub(path, text.encode(), Known({"/etc/kubelet.yaml"})).decode() == kept


@pytest.mark.parametrize(
    ("member", "text", "kept"),
    [
        (
            "commands/x",
            "	Serial Number                  : 1023\n	VDie ID : 14 22\n	Board ID : 0x30\n",
            "	Serial Number                  : removed\n	VDie ID : removed\n	Board ID : 0x30\n",
        ),
        ("commands/x", "0, GPU-0a1b2c3d-0000-1111-2222-333344445555, L40S\n", "0, removed, L40S\n"),
        ("var/lib/kubelet/config.yaml", "a: node1.example.com, node1; node12; my-node1\n", "a: removed, removed; node12; my-removed\n"),
        (
            "etc/npu-affinity/history/1.json",
            '{\n "author": "alice",\n "reason": "for bob"\n}\n',
            '{\n "author": "removed",\n "reason": "removed"\n}\n',
        ),
        ("proc/1/comm", "node1\n", "removed\n"),
    ],
)
def test_names_and_numbers_are_taken_out(member, text, kept):
    assert Anonymous(["node1", "node1.example.com"]).member(member, text.encode()).decode() == kept


def test_only_an_opened_archive_is_a_record(tmp_path):
    assert not isinstance(host_at(str(tmp_path)), Recorded) and not isinstance(host_at("/"), Recorded)
    (tmp_path / MANIFEST).write_text(manifest_of())
    assert isinstance(host_at(str(tmp_path)), Recorded)

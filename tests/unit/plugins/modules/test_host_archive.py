# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What leaves a host in an archive: secrets are planted wherever hosts have them, and looked for in the whole document."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._apply.comparison import comparison
from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import without_names
from ansible_collections.npu.affinity.plugins.module_utils._state.history.entries import Applied, keep
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import bind
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import reading
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather

from tests.simulator import generate as simulator
from tests.fakes.two_cards import two_cards

SECRET = "sk-%03d-5ecre7"
"""The secret of a shape by its number."""
MACHINE = {
    **two_cards(0, 1),
    "cpus": {"per_node": 8},
    "irqbalance": {"installed": True, "active": False, "unit": "debian", "options": "--interval=30"},
}
UNIT = "vllm@0.service"
UNITS = "etc/systemd/system/"
MARK = "# Managed by npu.affinity: changes are overwritten.\n"
QUESTIONS = {"units": [UNIT]}
STATUS = "Name:\tpython3\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-15\n"


def unit(*lines):
    return "[Service]\n%s\n" % "\n".join(lines)


def command(*words):
    return "\0".join(words) + "\0"


# what users have on their hosts, by a name for it: {path: text}, each with the secret in it
SHAPES = {
    "environment file": {UNITS + UNIT: unit("EnvironmentFile=/etc/vllm.env"), "etc/vllm.env": 'VLLM_ARGS="--model /m --api-key %s"\n'},
    "environment file, bare": {UNITS + UNIT: unit("EnvironmentFile=/etc/vllm.env"), "etc/vllm.env": "VLLM_ARGS=--api-key=%s\n"},
    "environment file, continued": {
        UNITS + UNIT: unit("EnvironmentFile=-/etc/vllm.env"),
        "etc/vllm.env": "HF_HOME=/m \\\n--token \\\n%s\nCUDA_VISIBLE_DEVICES=0\n",
    },
    "environment file, value of a known variable": {
        UNITS + UNIT: unit("EnvironmentFile=/etc/*.env"),
        "etc/vllm.env": 'OMP_PROC_BIND="false\nHF_TOKEN=%s"\n',
    },
    "environment file of the kubelet": {
        UNITS + "kubelet.service": unit("ExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS"),
        "etc/default/kubelet": "KUBELET_EXTRA_ARGS=--token=%s --reserved-cpus=0\n",
    },
    "kubeadm's flags": {
        UNITS + "kubelet.service": unit("ExecStart=/usr/bin/kubelet"),
        "var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--config=/a.yaml --registry-password %s"\n',
    },
    "Environment of a service": {UNITS + UNIT: unit('Environment="VLLM_ARGS=--model /m --api-key %s"')},
    "Environment, several in a line": {UNITS + UNIT: unit("Environment=A=1 'TOKEN=--%s' CUDA_VISIBLE_DEVICES=0 B=%s")},
    "Environment, continued": {UNITS + UNIT: unit("Environment=A=1 \\", "  ARGS=--api-key=%s \\", "  B=2", "Nice=1")},
    "Environment, comment in between": {UNITS + UNIT: unit("Environment=A=1 \\", "# token %s", '  "TOKEN=%s"')},
    "Environment, unbalanced": {UNITS + UNIT: unit('Environment="ARGS=--api-key %s')},
    "Environment of the kubelet": {
        UNITS + "kubelet.service": unit("ExecStart=/usr/bin/kubelet $ARGS"),
        UNITS + "kubelet.service.d/10.conf": unit('Environment="ARGS=--token=%s --cpu-manager-policy=static"'),
    },
    "ExecStart of a service": {
        UNITS + UNIT: unit("ExecStart=/usr/bin/vllm serve /m --api-key %s", "ExecStartPre=/bin/login /%s"),
        UNITS + "multi-user.target.wants/" + UNIT: "",
    },
    "ExecStart, continued": {UNITS + UNIT: unit("ExecStart=/usr/bin/vllm \\", "  --api-key=%s \\", "  --port 1")},
    "ExecStart of the kubelet": {UNITS + "kubelet.service": unit("ExecStart=/usr/bin/kubelet --token %s --bootstrap=%s $%s-x")},
    "ExecStart of irqbalance": {
        UNITS + "irqbalance.service": unit(
            "EnvironmentFile=/etc/default/irqbalance", "ExecStart=/usr/sbin/irqbalance --foreground --token=%s $OPTIONS %s"
        )
    },
    "other settings of a unit": {UNITS + UNIT: "# %s\n[Unit]\nDescription=%s\n[Service]\nSetCredential=a:%s\nCPUAffinity=0\n"},
    "drop-in that was copied from our own": {UNITS + UNIT + ".d/60-mine.conf": MARK + unit("Environment=HF_TOKEN=%s", "CPUAffinity=1")},
    "our drop-in with a line of someone": {
        UNITS + UNIT + ".d/50-npu-affinity.conf": MARK + unit("Environment=HF_TOKEN=%s", "# %s", "AllowedCPUs=1")
    },
    "policy of irqbalance with a line of someone": {
        "usr/local/lib/npu-affinity/irqbalance-policy": "#!/bin/sh\n" + MARK + "TOKEN=%s\n  */0000:c1:00.0) exit 0;;\n"
    },
    "command line": {"proc/77/cmdline": command("/usr/bin/python3", "-m", "vllm.entrypoints.api", "--api-key", "%s", "--token=%s")},
    "command line, title of a process": {"proc/77/cmdline": "vllm serve --api-key %s\0\0\0\0"},
    "command line, title of one word": {"proc/77/cmdline": "vllm:--api-key=%s"},
    "command line, title with a path": {"proc/77/cmdline": "/usr/bin/irqbalance --token %s\0"},
    "command line, title of the kubelet": {"proc/77/cmdline": "kubelet --token=%s --config=/a.yaml\0"},
    "command line, secret like a path": {"proc/77/cmdline": command("/usr/bin/mysql", "-p", "/%s", "/opt/x?token=%s")},
    "command line of irqbalance": {"proc/77/cmdline": command("/usr/sbin/irqbalance", "--foreground", "--token=%s", "%s")},
    "command line of the kubelet": {
        "proc/77/cmdline": command("/usr/bin/kubelet", "--token", "%s", "--kubeconfig=%s", "--config", "/a.yaml")
    },
    "configuration of vLLM": {
        "proc/77/cmdline": command(
            "vllm", "serve", "--additional-config", '{"enable_cpu_binding": "%s", "token": "%s"}', "--numa-bind-%s=1"
        )
    },
    "name of a process": {
        "proc/77/comm": "x --%s\n",
        "proc/77/stat": "77 (x --%s) S 1 1\n",
        "proc/77/status": STATUS.replace("python3", "x -%s"),
    },
    "environment of a process": {
        "proc/77/environ": command("HF_TOKEN=%s", "A=--%s", "CPU_AFFINITY_CONF=1,%s", "OMP_PROC_BIND=%s-%s-%s-%s")
    },
    "script": {
        "proc/77/cmdline": command("/bin/sh", "/opt/set.sh"),
        "opt/set.sh": "#!/usr/bin/env TOKEN=%s sh\n%s > /proc/irq/1/smp_affinity\n",
    },
    "program": {"proc/77/cmdline": command("/opt/server"), "opt/server": "\x7fELF token %s"},
    "cron": {"etc/cron.d/backup": "* * * * * root TOKEN=%s /opt/backup.sh --key %s /%s\n"},
    "configuration of the kubelet": {
        "var/lib/kubelet/config.yaml": "cpuManagerPolicy: static\nstaticPodURLHeader: {Authorization: [%s]}\nregistryPassword: %s\n"
    },
    "configuration of the kubelet, JSON": {
        "var/lib/kubelet/config.json": '{"cpuManagerPolicy": "static", "featureGates": {"a": {"token": "%s"}}, "token": "%s"}',
        UNITS + "kubelet.service": unit("ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.json"),
    },
    "record of what was there before": {
        "etc/npu-affinity/previous.json": '{"files": {"/a": {"content": "%s", "mode": "0644"}, "/b": {"content": ["%s"]}}, "x": "%s"}'
    },
    "record that is cut short": {"etc/npu-affinity/previous.json": '{"files": {"/a": {"content": "%s'},
    "who moved interrupts, of an older version": {
        "run/npu-affinity/rebinds.json": json.dumps(
            {"0000:c1:00.0": {"a": {"since": 1, "count": 4, "who": "likely process 7 (vllm --key %s) of a.service: vLLM places them"}}}
        )
    },
    "state of the CPU manager": {"var/lib/kubelet/cpu_manager_state": '{"policyName": "none", "defaultCpuSet": "", "token": "%s"}'},
    "profile of TuneD": {"proc/77/cmdline": command("/usr/sbin/tuned"), "etc/tuned/active_profile": "balanced\n%s=1\n"},
}
PLAN = {
    "schema": 1,
    "npus": [
        {"id": number, "pci": pci, "pool": pool, "irq": irq, "slice": "npu-%d.slice" % number}
        for number, pci, pool, irq in ((0, "0000:c1:00.0", "0-7", "0-1"), (1, "0000:01:00.0", "8-15", "8-9"))
    ],
}
FILES = {
    "etc/npu-affinity/plan.json": json.dumps(PLAN),
    "proc/77/comm": "python3\n",
    "proc/77/status": STATUS,
    "proc/77/stat": "77 (python3) S 1 1\n",
    "proc/77/cmdline": command("/usr/bin/python3"),
    "proc/77/environ": command("OMP_PROC_BIND=true"),
    "proc/77/cgroup": "0::/npu.slice/npu-0.slice\n",
    "sys/fs/cgroup/npu.slice/npu-0.slice/cgroup.procs": "77\n",
    "sys/fs/cgroup/npu.slice/npu-0.slice/cpuset.cpus.effective": "0-7\n",
    UNITS + UNIT: unit("ExecStart=/usr/bin/vllm"),
}
STATE = {
    "runtime": False,
    "python": "",
    "soft_split": "",
    "plan": PLAN,
    "hardware": {},
    "absent": {},
    "features": {"irq": "present"},
    "expected": [{"unit": "npu-0.slice", "cpus": "0-7", "mems": ""}],
    "live": {
        "slices": {
            "services": [{"name": UNIT, "settings": {"CPUAffinity": "0"}, "devices": {"CUDA_VISIBLE_DEVICES": "0"}}],
            "bound_by": "host",
            "workloads": [],
            "vnpus": [],
        },
    },
    "files": [
        {"path": "/" + UNITS + UNIT + ".d/50-npu-affinity.conf", "content": MARK + unit("# About it", "AllowedCPUs=1"), "mode": "0644"},
        {"path": "/usr/local/lib/npu-affinity/irqbalance-policy", "content": "#!/bin/sh\n" + MARK + "exit 0\n", "mode": "0755"},
    ],
    **{key: [] for key in ("owned", "enabled", "started", "stopped", "programs")},
}


def together(shapes):
    """Put shapes onto as few hosts as can have them at once: a host has each path once."""
    hosts = []
    for number, (name, shape) in enumerate(shapes.items()):
        secret = SECRET % number
        files = {path: text.replace("%s", secret) for path, text in shape.items()}
        host = next((host for host in hosts if not set(host["files"]) & set(files)), None)
        if host is None:
            hosts.append(host := {"files": {}, "secrets": {}})
        host["files"].update(files)
        host["secrets"][secret] = name
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
    """A host that is bound, and has further files."""

    def make(files):
        shutil.copytree(bound, tmp_path / "host", symlinks=True)
        write(tmp_path / "host", files)
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
    write(root, {"etc/systemd/system/" + UNIT: unit("ExecStart=/usr/bin/vllm")})
    _text, archive = pack(root)
    here = gather(Host(str(root)), others=True, **QUESTIONS)
    compared = comparison(Host(str(root)), {"topology": here, "must_be_bound": True}, None, None)
    assert archive["topology"] == plain(here, root)
    assert archive["compared"] == plain(compared, root)
    assert [entry["command"] for entry in archive["tools"] if entry["rc"] == 0] or not here["npus"]


def plain(value, root):
    return json.loads(json.dumps(value).replace(str(root), ""))


def test_files_of_the_state_in_force_are_digests(bound, pack):
    text, archive = pack(bound)
    assert re.fullmatch("[0-9a-f]{64}", archive["in_force"]["files"][0]["content"]) and "About it" not in text
    path = STATE["files"][0]["path"]
    found = {finding["object"]: finding["found"] for finding in archive["compared"]["drift"] if finding["kind"] == "files"}
    assert found[path] == "no such file"


@pytest.mark.parametrize(
    ("line", "found"), [("AllowedCPUs=3", "AllowedCPUs=3"), ("Environment=A=b", "other lines, which an archive does not have")]
)
def test_lines_that_someone_wrote_stay_on_the_host(tree, pack, line, found):
    path = UNITS + UNIT + ".d/50-npu-affinity.conf"
    _text, archive = pack(tree({path: MARK + unit("# About it", line)}))
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
    "web01": "removed",
    "web01.example.com": "removed",
    "WEB01.EXAMPLE.COM.": "removed.",
    "web01-eth0": "removed-eth0",
    "backup-web01.service": "backup-removed.service",
    "Web01": "removed",
    "WEB01_data": "removed_data",
    "data_web01": "data_removed",
    "backupWeb01Data": "backupremovedData",
    "web01data": "removeddata",
    "web01-example-com": "removed",
    "web01_example_com-x": "removed-x",
    "vg\\x2dweb01.mount": "vg\\x2dremoved.mount",
    "http://web01:80/": "http://removed:80/",
    "user@web01": "user@removed",
    "/srv/web01/x": "/srv/removed/x",
    "cobweb01x web011 web0 web": "cobweb01x web011 web0 web",
    "webserver01": "webserver01",
}


@pytest.mark.parametrize(("text", "kept"), NAMES.items())
def test_names_of_a_host_are_taken_out_of_texts(text, kept):
    assert without_names(["web01", "web01.example.com"])(text) == kept


@pytest.mark.parametrize("line", ["\tSerial Number : 2102", "NPU 0 Die ID : 0 1", "uuid: GPU-0a1b2c3d-aaaa-bbbb-cccc-1234567890ab"])
def test_serial_numbers_are_taken_out_of_texts(line):
    assert without_names([])(line) == line.partition(": ")[0] + ": removed"


def test_an_anonymous_archive_has_no_name_and_no_author(bound, tree, pack):
    root = tree({"etc/hostname": "web01\n", UNITS + UNIT + ".d/60-web01.conf": unit("CPUAffinity=0")})
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

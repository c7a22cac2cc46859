# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What comes from outside, damaged at random: it is read, or refused in a sentence, and takes no time.

Of hosts, the targets are all kinds of files and answers that looking at them reads, so a new reader is one by itself. Texts that only
running hosts have, answers of vendors' tools, and documents that the controller reads, are in a table. ``FUZZ=50`` draws as many damages
of each (``make fuzz``).
"""

import contextlib
import io
import json
import os
import random
import re
import tempfile
import time
import types
from pathlib import Path
from unittest import mock

import pytest

from ansible_collections.npu.affinity.extensions.eda.plugins.event_filter import host_alerts
from ansible_collections.npu.affinity.plugins.module_utils import _measure, _npu_smi, _nvidia_smi
from ansible_collections.npu.affinity.plugins.module_utils._drift.in_force import compare, comparison
from ansible_collections.npu.affinity.plugins.module_utils._base import cpulist
from ansible_collections.npu.affinity.plugins.module_utils._command import explaining
from ansible_collections.npu.affinity.plugins.module_utils._command.state import record_of
from ansible_collections.npu.affinity.plugins.module_utils._command import metrics
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages import pages
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import rebinds
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import settings as kubelet_settings
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import state_file
from ansible_collections.npu.affinity.plugins.module_utils._features.threads import memory
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import isolation
from ansible_collections.npu.affinity.plugins.module_utils._smi.tables import damaged_rows
from ansible_collections.npu.affinity.plugins.module_utils._state import plan_file, previous, systemd
from ansible_collections.npu.affinity.plugins.module_utils._state.history import in_force
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import reading
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import host as placement_host
from ansible_collections.npu.affinity.plugins.plugin_utils._review import file as review_file
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import profile
from tests import upgrade
from tests.fakes.small_host import MACHINE
from tests.simulator.generate import generate

DRAWN = int(os.environ.get("FUZZ", "1"))
WORKERS = 6
"""How many tests share the kinds."""
WORDS = "|-1|0-|5-2|,|0,|99999999999999999999|0x|0-9999999|²|nan|null|true|[]|{}|a=b=c|:|/|..|%|ffffffff,|\x00|\udcff|\u2028|\x1b[2J"
VALUES = [None, True, -1, 1 << 70, 1.5, "", "\x00", "0-", "../x", [], {}, [None], {"": []}]
REFUSED = (ValueError, OSError, CommandError)


class DamagedHost(Host):
    """A host whose files and answers of one ``kind`` are damaged by a ``draw``; ``kinds`` are those that were read."""

    def __init__(self, root):
        self.kinds = None
        super().__init__(str(root))
        self.kind, self.draw, self.damaged, self.kinds, self.answers = None, None, [], set(), {}

    def _read(self, name, content):
        kind = re.sub(r"\d+", "N", re.sub(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", "PCI", name))
        self.kinds.add(kind)
        if kind != self.kind:
            return content
        self.damaged.append(damaged(self.draw, content))
        return self.damaged[-1]

    def open(self, path):
        file = super().open(path)
        if file is None or path.endswith(".zip"):
            return file
        with file:
            return io.BytesIO(self._read(path, file.read()))

    def resolve(self, path):
        """Return where a file lies; the largest ones are opened there."""
        place = super().resolve(path)
        if self.kinds is None or not re.search("/proc/(interrupts|[0-9]+/numa_maps)$", path) or not os.path.isfile(place):
            return place
        with open(place, "rb") as file, open(self.root + "/damaged", "wb") as copy:
            copy.write(self._read(path, file.read()))
        return self.root + "/damaged"

    def run(self, argv, stdin="", timeout=None):
        words = tuple(argv)
        if words not in self.answers:
            self.answers[words] = super().run(argv, stdin, timeout)
        answer = self.answers[words]
        output = self._read(" ".join([os.path.basename(words[0]), *words[1:]]), answer.output.encode()).decode("utf-8", "replace")
        return answer._replace(output=output, errors="")


def damaged(draw, content):
    """Return content with a damage, such as one of a broken disk, another program, or somebody who wants to do harm."""
    if draw.random() < 0.4:
        try:
            document = json.loads(content)
        except ValueError:
            pass
        else:
            return json.dumps(with_another_value(draw, document)).encode()
    lines = content.split(b"\n")
    for _damage in range(draw.randint(1, 3)):
        place = draw.randrange(len(lines))
        line, word = lines[place], draw.choice(WORDS.split("|")).encode("utf-8", "surrogateescape")
        cut = draw.randint(0, len(line))
        tokens = re.split(rb"([\s,:=|/\"-]+)", line)
        tokens[draw.randrange(len(tokens))] = word
        lines[place : place + 1] = draw.choice(
            [[], [line[:cut]], [line[cut:]], [line, line], [line[:cut] + word + line[cut:]], [b"".join(tokens)], [word], [line * 50]]
        ) or [b""]
    content = b"\n".join(lines)
    return content[: draw.randint(0, len(content))] if draw.random() < 0.2 else content


def with_another_value(draw, value):
    """Return a document in which one value is another, or one key is gone."""
    inner = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    if not inner or draw.random() < 0.15:
        return draw.choice(VALUES)
    key = draw.choice(inner)
    value = value.copy()
    if draw.random() < 0.2:
        del value[key]
    else:
        value[key] = with_another_value(draw, value[key])
    return value


def simulated_time():
    """Return a clock on which time passes at once."""
    passed = [0.0]
    return types.SimpleNamespace(monotonic=lambda: sum(passed), sleep=passed.append)


def looks(host):
    """What reads a host, each apart, because one that refuses hides what the next one reads."""
    yield lambda: previous.recorded(host)
    topology = gather(host, others=True, vnpus=True, device_share=True, units=["vllm@0.service"])
    yield lambda: comparison(host, compare(host, topology, True, None, in_force(host)))
    found = record_of(host)
    for pid in host.names("/proc", "[0-9]*"):
        yield lambda pid=pid: list(explaining.of_process(found, int(pid)))
    for npu in found.npus:
        yield lambda npu=npu: list(explaining.of_npu(found, npu))
    yield lambda: list(explaining.of_cpu(found, 2))
    if found.plan:
        yield lambda: mock.patch.object(_measure, "time", simulated_time())(_measure.measure)(host, found.plan, seconds=1, interval=0.5)


@contextlib.contextmanager
def sentences():
    """Let something be refused, in a sentence."""
    try:
        yield
    except REFUSED as error:
        assert str(error)


def look(host):
    """Look at a host with everything that reads one."""
    with contextlib.suppress(*REFUSED):
        for read in looks(host):
            with sentences():
                read()


def write(tree, files):
    for path, text in files.items():
        (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tree / path[1:]).write_text(text)


NODE = {**MACHINE, "cgroup": "v1", "kubelet": {"policy": "static", "reserved": "0", "exclusive": {"pod": {"main": "2-3"}}}}
GPUS = {
    "architecture": "x86_64",
    "cpus": {"per_node": 8},
    "nodes": {"count": 2},
    "gpus": {"name": "NVIDIA L40S", "memory_mib": 46068, "cards": [{"bdf": "0000:01:00.0", "node": 0, "mig": 2}]},
}
NUMA_MAPS = "7f0000000000 default anon=6 dirty=6 active=3 N0=2 N1=4 kernelpagesize_kB=4\n7f0000100000 bind:0 file=/lib/x N0=1\n"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """A bound host with work on its NPUs, a node of Kubernetes and a host with GPUs, and the kinds that only each of them has."""
    folder = tmp_path_factory.mktemp("damaged")
    recorded, _before = upgrade.restored(sorted(upgrade.RECORDED.glob("*.txz"))[-1], folder)
    generate(NODE, folder / "node")
    generate(GPUS, folder / "gpus")
    for pid in (path.name for path in recorded.tree("v2").glob("proc/[0-9]*")):
        work = {"numa_maps": NUMA_MAPS, "environ": "OMP_NUM_THREADS=4\0X=\0", "cgroup": "0::/npu.slice/npu-1.slice/vllm@0.service\n"}
        write(recorded.tree("v2"), {f"/proc/{pid}/{name}": text for name, text in work.items()})
    found, seen = {}, set()
    for name in ("v2", "node", "gpus"):
        host = DamagedHost(folder / name)
        look(host)
        found |= {(name, kind): host for kind in host.kinds - seen}
        seen |= host.kinds
    return found


def draws(seed, name):
    for number in range(DRAWN):
        yield random.Random(f"{seed} {name} {number}")


@contextlib.contextmanager
def refused_in_time(name, shown):
    """Fail for an error that no caller expects, and for what takes long."""
    begun = time.process_time()
    try:
        with sentences():
            yield
    except Exception as error:
        raise AssertionError(f"{name}, damaged as {shown[-1][:2000]!r}: {type(error).__name__}: {error}") from error
    assert time.process_time() - begun < 20, f"{name}, damaged as {shown[-1][:2000]!r}, takes too long"


@pytest.mark.parametrize("share", range(WORKERS))
def test_every_damaged_file_and_answer_is_read_or_refused(hosts, seed, share):
    assert len(hosts) > 90
    for (name, kind), host in sorted(hosts.items(), key=lambda item: item[0])[share::WORKERS]:
        for draw in draws(seed, kind):
            host.kind, host.draw, host.damaged = kind, draw, [b""]
            with refused_in_time(f"{kind} of {name}", host.damaged):
                look(host)
            host.kind = None


def on_disk(read):
    """What reads the file of a text."""

    def through_a_file(text):
        with tempfile.NamedTemporaryFile("w", suffix=".yml", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            read(file.name)

    return through_a_file


def loaded(read):
    """What reads a JSON document that somebody else has parsed."""
    return lambda text: read(json.loads(text))


PARSERS = [getattr(module, name) for module in (_npu_smi, _nvidia_smi) for name in vars(module) if name.startswith("parse_")]


def by_all_parsers(text):
    for parse in [*PARSERS, damaged_rows]:
        with sentences():
            parse(text)
    assert _npu_smi.classify_error(text, 1)["error"] in _npu_smi.NEXT_STEP


LABELS = {"alertname": "NpuAffinityDrift", "inventory_hostname": "a2-01", "instance": "a2-01:9100"}
ALERT = {"status": "firing", "labels": LABELS, "annotations": {"summary": "drift"}, "startsAt": "2026-11-20T10:00:00Z"}
ARCHIVE = {"schema": 1, "host": "a", "time": "2026-11-20T10:00:00Z", "version": "1.0.0", "settings": {}}
REVIEWED = {"hosts": {"a": {"plan": "0"}}, **{name: {"0": {}} for name in review_file.TABLES.values()}}
STATE = '{"policyName": "static", "defaultCpuSet": "0-3", "entries": {"p": {"c": "4-5"}}, "checksum": 5}'
SAVED = '{"ansible_facts": {"npu_affinity_topology": {"cpus": {"online": "0-3"}}}}'
TEXTS = {
    # what it is: its reader, and an example
    "systemd's properties": (systemd.settings, "AllowedCPUs=0-3 8\nSlice=npu-0.slice\n[Unit]\n# x\n"),
    "configuration of the kubelet": (kubelet_settings.read, "a: static\nkubeReserved: {cpu: 500m}\nfeatureGates:\n  A: true # b\n"),
    "JSON of the kubelet": (kubelet_settings.read, '{"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}}'),
    "state of the kubelet": (state_file.parse, STATE),
    "new state of the kubelet": (state_file.parse, json.dumps({"data": '{"policyName":"none","defaultCpuSet":""}', "dataChecksum": 1})),
    "version of the kubelet": (state_file.minor_of, "Kubernetes v1.36.2"),
    "counts of rebinds": (rebinds._parsed, '{"0000:c1:00.0": {"irq 7": {"times": [1, 2], "since": 5}}}'),
    "metrics": (lambda text: metrics.value_of(text, "npu"), "# HELP npu x\nnpu 1.5\n"),
    "pages by node": (memory.pages_by_node, NUMA_MAPS),
    "the kernel's command line": (lambda text: list(isolation.parameters(text)), 'quiet isolcpus=0-3 dyndbg="a b" -- x'),
    "a cpulist": (cpulist.expand, "0-3,8,10-11"),
    "a CPU mask": (cpulist.from_mask, "ff,00000000"),
    "a size of huge pages": (pages.size_of, "2M"),
    "a plan": (plan_file.parsed, '{"schema": 1, "npus": [{"id": 0, "pool": "0-3"}]}'),
    "alerts": (loaded(lambda payload: host_alerts.main({"payload": payload})), json.dumps({"alerts": [ALERT]})),
    "archives": (on_disk(reading.read), json.dumps({**ARCHIVE, "topology": {"schema": 1, "cpus": {}}})),
    "profiles": (on_disk(profile.read), "settings: {npu_affinity_strategy: even_split}\ninclude: latency\n"),
    "plans that were reviewed": (
        lambda text: review_file.refusal("a", {}, {"plans.json": text}),
        json.dumps({**REVIEWED, "schema": review_file.SCHEMA, "version": review_file.VERSION}),
    ),
    "facts that were saved": (lambda text: placement_host._saved({}, text), SAVED),
}
for parser, answers in json.loads((Path(__file__).parent / "module_utils/smi_answers.json").read_text()).items():
    TEXTS.update({f"{parser}: {claim}": (by_all_parsers, "\n".join(answer["text"])) for claim, answer in list(answers.items())[:5]})


@pytest.mark.parametrize("name", TEXTS)
def test_every_damaged_text_is_read_or_refused(name, seed):
    read, example = TEXTS[name]
    read(example) if name != "archives" else None
    for draw in draws(seed, name):
        for _more in range(30):
            shown = [damaged(draw, example.encode()).decode("utf-8", "surrogateescape")]
            with refused_in_time(name, shown):
                read(shown[0])

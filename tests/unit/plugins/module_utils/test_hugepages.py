# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages of nodes: granted as far as memory allows, never taken from those who use them, compared, set at boot, and restored."""

from __future__ import annotations

import errno
import json
import os
import re
import types

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages import pages as of_feature
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages.feature import FEATURE, GRANTED
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages.pages import on_command_line, shortages, size_of
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.hugepages import facts, kept_free, pages, path_of, place_of, size_text
from ansible_collections.npu.affinity.plugins.module_utils._state import files, previous, values
from ansible_collections.npu.affinity.plugins.module_utils._state.step import Check
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import Undone, apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from tests.fakes.kernel import compared, drift_of, originals, restored

FILE = FEATURE.owned[0]
SIZE = 2048
MEMORY = 16 << 30
COMMAND_LINE = "/proc/cmdline"
FREE = re.compile(r"(?<=MemFree: )\d+")


def wish(counts, size=SIZE):
    return {"size": size, "nodes": {str(node): count for node, count in counts.items()}}


WANTED = wish({0: 1000, 1: 2000})


class Kernel(Host):
    """Nodes whose kernel grants no more pages than ``most``, and keeps those in use as surplus, as hugetlb does."""

    most = 1 << 30
    refuses = None
    written = ()

    def set_attribute(self, path, value):
        if path == self.refuses:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.written = (*self.written, int(value))
        node, size = map(int, re.search(r"node(\d+)/hugepages/hugepages-(\d+)kB", path).groups())
        now = pages(self, size, node)
        pool = min(int(value), max(self.most, now.pool))
        total = max(pool, now.used)
        free = self.read_number(path.replace("nr_", "free_")) + total - now.total
        for name, number in (("nr", total), ("free", free), ("surplus", total - pool)):
            super().set_attribute(path.replace("nr_", name + "_"), str(number))
        meminfo = path.partition("/hugepages")[0] + "/meminfo"
        left = int(FREE.search(self.read(meminfo)).group()) - (total - now.total) * size
        super().set_attribute(meminfo, FREE.sub(str(left), self.read(meminfo)))


def node(tree, number, total=0, free=None, room=MEMORY, size=SIZE):
    folder = path_of(size, number).rpartition("/")[0]
    meminfo = f"Node {number} MemTotal: {MEMORY >> 10} kB\nNode {number} MemFree: {room >> 10} kB"
    numbers = {"nr": total, "free": total if free is None else free, "surplus": 0}
    tree.write({f"{folder}/{name}_hugepages": value for name, value in numbers.items()})
    tree.write({folder.partition("/hugepages")[0] + "/meminfo": meminfo})


@pytest.fixture
def kernel(tree, monkeypatch):
    """Node 0 has 10 pages, node 1 none, node 2 30, of which 20 are in use.

    Each request is made once: what the kernel does not grant, it does not have.
    """
    monkeypatch.setattr(of_feature, "AGAIN", 0)
    node(tree, 0, 10)
    node(tree, 1)
    node(tree, 2, 30, free=10)
    return Kernel(tree.root)


def with_free(tree, number, count):
    tree.write({path_of(SIZE, number).replace("nr_", "free_"): count})


def counts(host):
    return [pages(host, SIZE, number).pool for number in range(3)]


def step_of(host, wanted):
    return FEATURE.step(host, {"live": {"hugepages": wanted}}, Choices())


def recorded(host):
    return {place_of(path)[1]: int(count) for path, count in originals(host, FEATURE).items()}


def bind(host, wanted=None, check=False):
    step = step_of(host, WANTED if wanted is None else wanted)
    step.look(check)
    if not check:
        step.run()
    return step


def test_pages_are_granted_recorded_and_restored(kernel):
    predicted = bind(kernel, check=True)
    assert counts(kernel) == [10, 0, 30] and not kernel.exists(previous.PATH)
    step = bind(kernel)
    assert counts(kernel) == [1000, 2000, 30]
    assert kernel.written == (522, 1000, 512, 1024, 1536, 2000), "a gibibyte at a time"
    lines = ["~ node 0: 10 -> 1000 huge pages of 2 MiB", "~ node 1: 0 -> 2000 huge pages of 2 MiB"]
    assert step.lines() == predicted.lines() == {"host settings": lines}
    assert step.changed and step.remarks == [] and recorded(kernel) == {0: 10, 1: 0}
    assert not bind(kernel).changed
    assert not restored(FEATURE.restore, kernel, check=True)[0].failed and counts(kernel)[1] == 2000
    restored(FEATURE.restore, kernel)
    assert counts(kernel) == [10, 0, 30]


def test_a_shortage_is_reported_and_not_retried_before_a_reboot(kernel, tree):
    kernel.most = 700
    step = bind(kernel)
    assert counts(kernel) == [700, 700, 30] and kernel.written == (522, 1000, 512, 1024)
    short = ["node %d: 700 of %s huge pages of 2 MiB" % row for row in ((0, "1,000"), (1, "2,000"))]
    assert [sentence.partition(";")[0] for sentence in step.remarks] == short
    assert all("reboot to get the rest" in sentence for sentence in step.remarks)
    again = bind(kernel)
    assert not again.changed and again.remarks == step.remarks and len(kernel.written) == 4
    os.unlink(tree.root + GRANTED)  # as a boot does
    kernel.most = 5000
    assert bind(kernel).changed and counts(kernel) == [1000, 2000, 30]


@pytest.mark.parametrize(("wanted", "reached"), [(2000, 2000), (9000, 3600)], ids=["a kernel that hesitates", "one that has no more"])
def test_a_short_answer_is_tried_again_for_some_seconds(tree, monkeypatch, wanted, reached):
    class Hesitant(Kernel):
        """Grants 60 % of every other write, and never more than 3,600 pages."""

        def set_attribute(self, path, value):
            now = self.read_number(path)
            part = (int(value) - now) * (6 if len(self.written) % 2 == 0 else 10) // 10
            super().set_attribute(path, str(min(3600, now + part)))

    now = [0.0]
    monkeypatch.setattr(of_feature, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s)))
    node(tree, 1, room=MEMORY * 2)
    host = Hesitant(tree.root)
    step = bind(host, wish({1: wanted}))
    assert [row["after"] for row in step.result()] == [str(reached)] and pages(host, SIZE, 1).pool == reached
    assert json.loads(host.read(GRANTED)) == {path_of(SIZE, 1): [wanted, reached]} and now[0] <= 10


def test_a_node_keeps_memory_for_everything_else(tree):
    node(tree, 1, room=kept_free(MEMORY) + (100 * SIZE << 10) + 4096)
    host, wanted = Kernel(tree.root), wish({1: 2000})
    predicted, done = bind(host, wanted, check=True), bind(host, wanted)
    assert predicted.lines() == done.lines() == {"host settings": ["~ node 1: 0 -> 100 huge pages of 2 MiB"]}
    assert pages(host, SIZE, 1).pool == 100 and host.written == (100,)
    assert not bind(host, wanted).changed and not bind(host, wanted, check=True).changed


@pytest.mark.parametrize(("memory", "kept"), [(320 << 20, 32 << 20), (16 << 30, (16 << 30) // 10), (512 << 30, 8 << 30)])
def test_a_tenth_of_a_node_stays_free_up_to_8_gib(memory, kept):
    assert kept_free(memory) == kept


@pytest.mark.parametrize(("promised", "wanted", "reached"), [(0, 25, 25), (0, 20, 20), (0, 5, 20), (0, 0, 20), (4, 0, 24)])
def test_pages_in_use_or_promised_are_never_taken(kernel, tree, promised, wanted, reached):
    tree.write({"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages": promised})
    bind(kernel, wish({2: wanted}))
    assert pages(kernel, SIZE, 2)[:2] == (reached, reached - 20 - promised) or promised
    assert counts(kernel)[2] == reached and drift_of(FEATURE, kernel, wish({2: wanted})) == {}
    assert not bind(kernel, wish({2: wanted})).changed


@pytest.mark.parametrize("check", [False, True])
def test_pages_kept_in_use_are_reported_and_later_lowered(kernel, tree, check):
    few = wish({2: 5})
    remark = "node 2 keeps %d huge pages of 2 MiB, because processes use them, and 5 are wanted; stop these processes and run again"
    for used in (30, 20):  # first none can be removed, then some
        with_free(tree, 2, 30 - used)
        step = bind(kernel, few, check)
        assert step.changed is (used < 30) and step.remarks == [remark % used + " [NPU_HUGEPAGES_CHANGED]"]
    bind(kernel, few)
    assert drift_of(FEATURE, kernel, few) == {} and bind(kernel, few).remarks == step.remarks
    with_free(tree, 2, 20)
    assert drift_of(FEATURE, kernel, few) == {"huge pages of 2 MiB on node 2": ("5", "20", "changed settings")}
    assert bind(kernel, few).remarks == [] and counts(kernel)[2] == 5 and drift_of(FEATURE, kernel, few) == {}


def test_undo_leaves_pages_in_use_says_so_and_ends_later(kernel, tree):
    bind(kernel)
    with_free(tree, 0, 900)
    outcome, _undone = restored(FEATURE.restore, kernel)
    (sentence,) = outcome.failed
    assert counts(kernel) == [100, 0, 30] and outcome.kept == {"hugepages"}
    assert sentence.startswith("node 0 keeps 100 huge pages of 2 MiB, because processes use them, and had 10 before the first bind; stop")
    with_free(tree, 0, 100)
    outcome, undone = restored(FEATURE.restore, kernel)
    assert counts(kernel) == [10, 0, 30] and not outcome.kept
    undone.undo()
    assert counts(kernel)[0] == 100


def test_a_node_with_pages_in_use_stays_recorded(kernel, tree, monkeypatch, capsys):
    rest = wish({1: 50})
    bind(kernel)
    with_free(tree, 0, 900)
    apply(kernel, Request(), after=[step_of(kernel, rest)])
    assert counts(kernel)[0] == 100 and recorded(kernel) == {0: 10, 1: 0}
    with_free(tree, 0, 100)
    tree.write({FILE: json.dumps(rest)})
    monkeypatch.setattr(values, "Host", Kernel)
    assert FEATURE.program(["--root", tree.root]) == 0 and "node 0: 100 -> 10 huge pages" in capsys.readouterr().out
    assert recorded(kernel) == {1: 0}


def test_larger_pages_are_removed_before_smaller_ones_come(tree):
    node(tree, 0)
    node(tree, 0, size=32768)
    host = Kernel(tree.root)
    bind(host, wish({0: 300}, 32768))
    wanted = wish({0: 4800})
    predicted, done = bind(host, wanted, check=True), bind(host, wanted)
    lines = ["~ node 0: 300 -> 0 huge pages of 32 MiB", "~ node 0: 0 -> 4800 huge pages of 2 MiB"]
    assert predicted.lines() == done.lines() == {"host settings": lines}
    done.undo()
    assert (pages(host, 32768, 0).pool, pages(host, SIZE, 0).pool) == (300, 0)


def failed_bind(host, wanted, meanwhile=lambda: None):
    """Bind in a transaction of which a later step fails, after something has happened meanwhile."""

    def fail():
        meanwhile()
        raise ValueError("a later step failed")

    later = Check(list)
    later.run = fail
    with pytest.raises(Undone) as failure:
        apply(host, Request(), after=[step_of(host, wanted), later])
    return str(failure.value)


USED = "node 0 keeps 600 huge pages of 2 MiB, because processes use them, and had 10 before this run"
LOST = "node 1 has 1,500 huge pages of 2 MiB of the 3,000 that it had before this run"
FAILED = [
    (0, wish({0: 1000, 1: 50}), lambda host: with_free(host, 0, 400), USED, [600, 0, 30], {0: 10, 1: 0}),
    (3000, wish({1: 100}), lambda host: setattr(host, "most", 1500), LOST, [10, 1500, 30], {1: 3000}),
]


@pytest.mark.parametrize(("total", "wanted", "meanwhile", "said", "left", "record"), FAILED, ids=["used", "not returned"])
def test_a_failed_bind_names_what_stays_and_keeps_its_record(kernel, tree, total, wanted, meanwhile, said, left, record):
    node(tree, 1, total)
    kernel.write = tree.write
    failure = failed_bind(kernel, wanted, lambda: meanwhile(kernel))
    assert said in failure and "were restored" not in failure
    assert counts(kernel) == left and recorded(kernel) == record


def test_pages_that_are_not_returned_are_reported_and_recorded(kernel, tree):
    node(tree, 1, 3000)
    bind(kernel, wish({1: 100}))
    kernel.most = 1500
    short = "node 1 has 1,500 huge pages of 2 MiB of the 3,000 that it had before the first bind"
    for _run in range(2):
        assert [text.partition(";")[0] for text in bind(kernel, wish({})).remarks] == [short]
    outcome, _undone = restored(FEATURE.restore, kernel)
    assert [text.partition(";")[0] for text in outcome.failed] == [short]
    assert counts(kernel)[1] == 1500 and outcome.kept == {"hugepages"}
    kernel.most = 5000
    outcome, _undone = restored(FEATURE.restore, kernel)
    assert counts(kernel)[1] == 3000 and not outcome.failed and not outcome.kept


def test_pages_are_restored_if_the_granted_counts_are_not_saved(kernel, tree, monkeypatch):
    def full(host, path, *_text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(files, "atomic_write", full)
    failed_bind(kernel, WANTED)
    assert counts(kernel) == [10, 0, 30]
    assert bind(kernel).remarks == [] and counts(kernel) == [1000, 2000, 30] and not kernel.exists(GRANTED)


def test_check_mode_of_unbind_predicts_what_the_memory_allows(kernel, tree):
    node(tree, 1, 3000)
    bind(kernel, wish({1: 100}))
    node(tree, 1, 100, room=kept_free(MEMORY) + (500 * SIZE << 10) + 4096)
    (outcome, predicted), (after, done) = restored(FEATURE.restore, kernel, check=True), restored(FEATURE.restore, kernel)
    assert predicted.lines() == done.lines() == {"host settings": ["~ node 1: 100 -> 600 huge pages of 2 MiB"]}
    assert outcome.failed == after.failed and outcome.kept == after.kept == {"hugepages"}


def test_nodes_skipped_for_lack_of_time_are_set_by_the_next_bind(kernel, monkeypatch):
    clock = iter([0.0, 0.0, *[120] * 9])
    monkeypatch.setattr(of_feature.time, "monotonic", lambda: next(clock))
    bind(kernel, wish({0: 500, 1: 500}))
    assert counts(kernel) == [500, 0, 30]
    monkeypatch.undo()
    assert bind(kernel, wish({0: 500, 1: 500})).changed and counts(kernel)[1] == 500


def test_a_kernel_refusal_takes_a_bind_back(kernel):
    kernel.refuses = path_of(SIZE, 1)
    with pytest.raises(Undone, match=f"{path_of(SIZE, 1)} does not take 512: Invalid argument. All huge pages were restored"):
        apply(kernel, Request(), after=[step_of(kernel, WANTED)])
    assert counts(kernel) == [10, 0, 30] and not kernel.exists(previous.PATH) and not kernel.exists(GRANTED)


@pytest.mark.parametrize("wanted", [{}, {"size": 2048}, {"size": "2M", "nodes": {}}, wish({0: -1}), wish({}, 0)])
def test_what_is_no_number_of_pages_is_refused(kernel, wanted):
    with pytest.raises(ValueError, match="the requested huge pages have"):
        bind(kernel, wanted)


FIRST, SECOND = "huge pages of 2 MiB on node 0", "huge pages of 2 MiB on node 1"


def test_shortages_and_manual_changes_are_drift_with_a_cause(kernel):
    assert drift_of(FEATURE, kernel, wish({0: 4, 2: 20})) == {
        FIRST: ("4", "10", "manual change"),
        "huge pages of 2 MiB on node 2": ("20", "30", "manual change"),
    }
    kernel.most = 1500
    bind(kernel)
    assert drift_of(FEATURE, kernel, WANTED) == {SECOND: ("2000", "1500", "memory shortage")}
    assert compared(FEATURE, kernel, WANTED).checked == {"hugepages": [FIRST, SECOND]}
    kernel.set_attribute(path_of(SIZE, 0), "40")
    kernel.set_attribute(path_of(SIZE, 1), "40")
    assert drift_of(FEATURE, kernel, WANTED) == {FIRST: ("1000", "40", "manual change"), SECOND: ("2000", "40", "manual change")}
    bind(kernel)
    assert counts(kernel) == [1000, 1500, 30]


def test_pages_of_1_gib_are_compared_and_never_written(tree):
    path = path_of(1 << 20, 0)
    host = tree.write({path: 1, path.replace("nr_", "free_"): 1, path.replace("nr_", "surplus_"): 0})
    step = bind(host, wish({0: 4}, 1 << 20))
    assert not step.changed and host.read(path) == "1" and not host.exists(previous.PATH)
    (sentence,) = step.remarks
    assert sentence.startswith("node 0: 1 of 4 huge pages of 1 GiB; only the kernel command line reserves pages of this size")
    assert drift_of(FEATURE, host, wish({0: 4}, 1 << 20)) == {"huge pages of 1 GiB on node 0": ("4", "1", "memory shortage")}


@pytest.mark.parametrize(("kernel", "drift"), [("5.10.0-153.aarch64", {}), ("6.6.0-1", {0: ("4", "6", "manual change")})])
def test_more_pages_of_1_gib_are_drift_if_set_by_node(tree, kernel, drift):
    node(tree, 0, 6, size=1 << 20)
    host = tree.write({"/proc/sys/kernel/osrelease": kernel})
    found = {f"huge pages of 1 GiB on node {number}": said for number, said in drift.items()}
    assert drift_of(FEATURE, host, wish({0: 4}, 1 << 20)) == found


def test_a_vanished_node_is_drift_and_does_not_stop_the_others(kernel):
    (short,) = shortages(kernel, SIZE, {0: 10, 7: 5})
    assert short.sentence.startswith("node 7: 0 of 5 huge pages of 2 MiB; the kernel does not offer")
    assert bind(kernel, wish({0: 20, 7: 5})).changed and counts(kernel)[0] == 20


# (kernel command line, the huge page size of /proc/meminfo, whether it sets those that the feature sets)
COMMAND_LINES = [
    ("quiet hugepages=1024", 2048, True),
    ("quiet hugepages=1024", 524288, False),
    ("hugepagesz=2M hugepages=0:10,1:20 quiet", 524288, True),
    ("hugepagesz=1G hugepages=16", 2048, False),
    ("default_hugepagesz=1G hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=512", 1048576, True),
    ("quiet transparent_hugepage=never nohugepages=1", 2048, False),
]


@pytest.mark.parametrize(("words", "usual", "found"), COMMAND_LINES)
def test_a_kernel_command_line_with_the_same_pages_is_reported(kernel, tree, words, usual, found):
    tree.write({COMMAND_LINE: words, "/proc/meminfo": f"MemTotal: 1 kB\nHugepagesize:    {usual} kB"})
    sentences = on_command_line(kernel, SIZE)
    assert bool(sentences) is found and all("npu-affinity-hugepages.service sets other numbers at each boot" in text for text in sentences)


def test_the_boot_unit_sets_applied_pages_and_reports_shortages(kernel, tree, capsys, monkeypatch):
    monkeypatch.setattr(values, "Host", Kernel)
    monkeypatch.setattr(Kernel, "most", 700)
    assert FEATURE.program(["--root", tree.root]) == 0 and counts(kernel)[1] == 0
    tree.write({FILE: json.dumps(WANTED)})
    assert FEATURE.program(["--root", tree.root]) == 0
    said = capsys.readouterr().out
    assert "node 0: 10 -> 700 huge pages of 2 MiB\n" in said and "node 1: 700 of 2,000 huge pages of 2 MiB; the rest" in said
    monkeypatch.setattr(Kernel, "most", 5000)
    assert FEATURE.program(["--root", tree.root]) == 0 and counts(kernel) == [1000, 2000, 30]
    tree.write({FILE: json.dumps({"size": SIZE, "nodes": [1]})})
    assert FEATURE.program(["--root", tree.root]) == 1 and "unexpected form" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["[]", "{", '{"2048": 5}', '{"2048": {"1": []}}', '{"x": {"1": [1, 2]}}'])
def test_a_broken_note_of_what_was_granted_is_ignored(kernel, tree, text):
    tree.write({GRANTED: text})
    assert bind(kernel).changed and counts(kernel)[1] == 2000


def test_facts_have_the_pages_by_size_and_node(kernel, tree):
    tree.write({path_of(1 << 20, 2): 4})
    assert facts(kernel) == {"2048": {"0": 10, "1": 0, "2": 30}, "1048576": {"2": 4}}
    assert "hugepages_before" not in gather(kernel)
    bind(kernel)
    assert gather(kernel)["hugepages_before"] == {"2048": {"0": 10, "1": 0}}
    for broken in ("[]", "{", '{"hugepages": [1]}', '{"hugepages": {"2048": {"0": "x"}}}'):
        tree.write({previous.PATH: broken})
        assert "hugepages_before" not in gather(kernel)
    assert [size_text(size) for size in (64, 2048, 524288, 1 << 20)] == ["64 KiB", "2 MiB", "512 MiB", "1 GiB"]
    assert [size_of(text) for text in ("64K", "2M", "1g")] == [64, 2048, 1 << 20]

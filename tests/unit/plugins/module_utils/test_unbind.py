# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories of a running machine that was bound and is to be what it was before, also when a run is killed or a step fails."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import shutil

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._apply.apply import switched_off
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import traces
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host, Result
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import binding
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.step import Options
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import SwitchedOff, unbind
from tests.fakes.kernel import split, tuned
from tests.fakes.share import Box, share
from tests.fakes.systemd import a_request, MARK, UNITS, a_file, slice_text
from tests.fakes.machine import (
    CHANGES_SOMETHING,
    FILES_OF_SLICES,
    FUNCTION,
    IRQBALANCE,
    PLAN,
    POLICY,
    VENDOR_UNITS,
    WANTS,
    Killed,
    Machine,
    Steps,
    bind,
    run_roles,
    snapshot,
)

LINK = "%s/%s" % (WANTS, IRQBALANCE)
SWAPPINESS = "/proc/sys/vm/swappiness"


@pytest.fixture
def machine(tmp_path):
    return Machine(str(tmp_path))


def tune(machine):
    tuned(machine, swappiness=10)
    assert machine.read(SWAPPINESS) == "10"


@pytest.mark.parametrize("reapplies", [True, False], ids=["systemd 252", "systemd 257"])
def test_unbind_restores_the_machine_and_no_workload_is_stopped(machine, reapplies):
    machine.reapplies = reapplies
    machine.put(SWAPPINESS, "60\n")
    before = snapshot(machine.root)
    bind(machine)
    tune(machine)
    split(machine, names={"limiter": b"limiter"})
    assert machine.effective("npu-0.slice") == ("0-3", "0")
    assert machine.effective("system.slice") == ("4-7", "0-1")
    bound = snapshot(machine.root)
    machine.calls.clear()
    predicted = unbind(machine, check=True)
    assert snapshot(machine.root) == bound and predicted.restored["irq"].changed
    assert not CHANGES_SOMETHING & {call.split()[0] for call in machine.calls}
    report = unbind(machine)
    assert snapshot(machine.root) == before
    assert report.changed and report.bound and not (report.failed or report.warnings or report.kept)
    assert (sorted(predicted.changes), predicted.actions) == (sorted(report.changes), report.actions)
    assert "remove /usr/local/hami-vnpu-core/limiter" in report.actions
    assert predicted.settings() == report.settings() == [{"path": SWAPPINESS, "before": "10", "after": "60"}]
    assert machine.lost == [] and "inside.service" in machine.running
    assert machine.restarted == [IRQBALANCE]
    assert report.restart_needed == ["inside.service"]
    assert report.slices_left == predicted.slices_left == ["npu-0.slice", "npu.slice"]
    assert machine.effective("npu-0.slice") == machine.effective("npu.slice") == machine.effective("system.slice") == ("0-7", "0-1")
    assert not machine.running & {"npu-1.slice", "npu-affinity-irq.timer"}
    assert not machine.exists("/run/systemd/system.control")


def test_unbind_widens_cpusets_before_removing_units_and_once(machine):
    bind(machine)
    unbind(machine)
    order = [call.split()[0] for call in machine.calls if call.split()[0] in ("set-property", "disable", "daemon-reload", "stop")]
    assert order == ["stop"] + ["set-property"] * 3 + ["disable"] * 3 + ["daemon-reload", "stop"]
    assert "set-property --runtime system.slice AllowedCPUs=0-7" in machine.calls
    assert "reset-failed npu-affinity-*" in machine.calls
    assert [call for call in machine.calls if call.startswith("stop")] == ["stop npu-affinity-irq.timer", "stop npu-1.slice"]
    before = snapshot(machine.root)
    machine.calls.clear()
    again = unbind(machine)
    assert not (again.bound or again.changed or again.actions)
    assert (snapshot(machine.root), machine.calls) == (before, [])


def test_a_service_that_names_a_slice_keeps_it_without_a_process(machine):
    machine.put(UNITS + "/oneshot.service", "[Service]\nSlice=npu-1.slice\nRemainAfterExit=yes\n")
    bind(machine)
    machine.running.add("oneshot.service")
    report = unbind(machine)
    assert machine.lost == []
    assert "oneshot.service" in report.restart_needed
    assert "npu-1.slice" in machine.running and "npu-1.slice" in report.slices_left
    assert machine.effective("npu-1.slice") == ("0-7", "0-1")


def test_a_machine_that_was_never_bound_is_left_alone(machine):
    machine.put(UNITS + "/npu-mine.slice", "[Slice]\nAllowedCPUs=0\n")
    os.makedirs(machine.path(UNITS + "/npu-mine.slice.d"))
    machine.put(UNITS + "/inside.service.d/50-npu-affinity.conf", "[Service]\n# mine, in spite of its name\n")
    before = snapshot(machine.root)
    assert not unbind(machine).changed
    assert snapshot(machine.root) == before
    assert machine.calls == []


@pytest.mark.parametrize("text", ["", MARK, "[Slice]\nhalf a fi"])
def test_what_our_programs_and_killed_runs_left_goes_too(machine, text):
    before = snapshot(machine.root)
    machine.put(UNITS + "/.npu-affinity-936", text)
    bind(machine)
    assert not machine.exists(UNITS + "/.npu-affinity-936")
    for folder in (UNITS, UNITS + "/inside.service.d", "/etc/udev/rules.d", "/etc/npu-affinity"):
        machine.put(folder + "/.npu-affinity-x1", "")
    unbind(machine)
    assert snapshot(machine.root) == before


@pytest.mark.parametrize("how, recorded", [("link", {"running": True}), ("hand", {"running": True, "enabled": False})])
def test_a_stopped_irqbalance_runs_again_as_it_was_started(machine, how, recorded):
    if how == "hand":
        os.unlink(machine.path(LINK))
    before = snapshot(machine.root)
    bind(machine, irqbalance="stop")
    assert IRQBALANCE not in machine.running and not machine.exists(LINK)
    assert previous.recorded(machine)[IRQBALANCE] == recorded
    report = unbind(machine)
    assert snapshot(machine.root) == before
    assert IRQBALANCE in machine.running and machine.restarted == []
    assert "start irqbalance.service" in report.actions


def test_irq_undone_alone_restores_the_link_of_irqbalance(machine):
    link, target = machine.path(LINK), os.readlink(machine.path(LINK))
    bind(machine, irqbalance="stop")
    unbind(machine, features=["irq"])
    assert os.readlink(link) == target and IRQBALANCE in machine.running
    assert LINK not in previous.recorded(machine).get("files", {})
    assert unbind(machine).warnings == [] and os.readlink(link) == target


def test_of_two_stopped_units_the_remaining_one_runs_again(machine):
    machine.put("%s/a.service" % VENDOR_UNITS, "[Service]\n[Install]\nWantedBy=multi-user.target\n")
    machine.running.add("a.service")
    apply(machine, a_request(stopped=["a.service", IRQBALANCE]))
    assert not machine.running & {"a.service", IRQBALANCE}
    os.unlink(machine.path("%s/a.service" % VENDOR_UNITS))
    assert unbind(machine).warnings == ["a.service was stopped by a bind and is not installed any more"]
    assert IRQBALANCE in machine.running and not machine.exists("/etc/npu-affinity")


def test_a_trees_stopped_unit_is_enabled_without_a_known_link(machine):
    tree = Host(machine.root)
    os.unlink(machine.path(LINK))
    previous.record(tree, IRQBALANCE, {"running": True})
    assert "enable " + IRQBALANCE in unbind(tree).actions
    assert os.path.islink(machine.path(LINK))


@pytest.mark.parametrize("how", ["masked", "enabled"])
def test_foreign_files_and_links_regain_their_mode_and_bytes(machine, how):
    own = machine.path(UNITS + "/npu-1.slice")
    with open(own, "wb") as file:
        file.write(b"[Unit]\nDescription=caf\xe9\n")
    os.chmod(own, 0o640)
    if how == "masked":
        os.symlink("/dev/null", machine.path(UNITS + "/npu.slice"))
    else:
        machine.put(UNITS + "/npu.slice", "[Slice]\nAllowedCPUs=0-7\n[Install]\nWantedBy=multi-user.target\n")
        os.symlink("../npu.slice", machine.path(WANTS + "/npu.slice"))
    before = snapshot(machine.root)
    bind(machine)
    bind(machine, files=[a_file(UNITS + "/gpu.slice", slice_text("4"))])
    report = unbind(machine)
    assert snapshot(machine.root) == before
    assert {path for path, (_before, after) in report.changes.items() if after.text is not None} >= {UNITS + "/npu-1.slice"}


def test_a_released_unit_regains_links_that_its_file_lacks(machine):
    link = machine.path("%s/graphical.target.wants/%s" % (UNITS, IRQBALANCE))
    os.makedirs(os.path.dirname(link))
    os.symlink("%s/%s" % (VENDOR_UNITS, IRQBALANCE), link)
    before = snapshot(machine.root)
    apply(machine, a_request(stopped=[IRQBALANCE]))
    assert IRQBALANCE not in machine.running and not os.path.islink(link)
    apply(machine, a_request(released=[IRQBALANCE]))
    assert IRQBALANCE in machine.running
    after = snapshot(machine.root)
    assert {path: after.get(path) for path in before} == before


def test_what_someone_else_wrote_since_stays(machine):
    machine.put(UNITS + "/npu-1.slice", "[Slice]\nAllowedCPUs=0\n")
    bind(machine)
    machine.put(UNITS + "/npu-1.slice", "[Slice]\nAllowedCPUs=1\n")
    machine.put("/etc/npu-affinity/notes", "mine")
    report = unbind(machine)
    assert report.warnings == [UNITS + "/npu-1.slice was changed by someone else since the first bind and stays as it is"]
    assert machine.read(UNITS + "/npu-1.slice").endswith("AllowedCPUs=1")
    assert machine.names("/etc/npu-affinity") == ["notes"]


def test_memory_moves_to_a_foreign_slices_nodes_only_on_request(machine):
    machine.put(UNITS + "/npu-0.slice", "[Slice]\nAllowedMemoryNodes=1\n")
    before = snapshot(machine.root)
    bind(machine)
    bound = snapshot(machine.root)
    with pytest.raises(ValueError, match="npu-0.slice has running processes: changing its memory nodes from 0 to 1"):
        unbind(machine)
    assert snapshot(machine.root) == bound
    unbind(machine, Options(move_memory=True))
    assert snapshot(machine.root) == before
    assert machine.effective("npu-0.slice")[1] == "1"


def test_without_a_record_files_are_removed_with_a_warning(machine):
    bind(machine)
    os.unlink(machine.path(previous.PATH))
    report = unbind(machine)
    assert "previous.json is missing" in report.warnings[0]
    assert not machine.exists("/etc/npu-affinity")
    assert machine.read("/proc/irq/61/smp_affinity_list") == "0"


def test_an_npu_added_after_the_bind_is_recorded_by_its_unit(machine):
    before = snapshot(machine.root)
    bind(machine)
    late = "0000:c2:00.0"
    machine.put("/sys/bus/pci/devices/%s/msi_irqs/90" % late, "msix")
    machine.put("/proc/irq/90/smp_affinity_list", "5\n")
    machine.put("/proc/interrupts", machine.read("/proc/interrupts") + "\n   90: 0 MSI 90 Edge %s\n" % binding.SQ)
    machine.put(binding.PLAN, json.dumps({"about": MARK, "npus": PLAN["npus"] + [{"id": 1, "pci": late, "pool": "4-7", "irq": "4"}]}))
    FEATURE.program(["--root", machine.root, "--pci", late])
    assert machine.read("/proc/irq/90/smp_affinity_list") == "4"
    unbind(machine)
    assert machine.read("/proc/irq/90/smp_affinity_list") == "5"
    after = snapshot(machine.root)
    assert {path for path in before if after.get(path) != before[path]} == {"/proc/interrupts"}


def test_a_refused_interrupt_is_named_and_restored_later(machine):
    before = snapshot(machine.root)
    bind(machine)
    place = machine.path("/proc/irq/62/smp_affinity_list")
    os.rename(place, place + ".away")
    os.makedirs(place)
    report = unbind(machine)
    assert len(report.failed) == 1 and "cq_update_irq cannot be read at /proc/irq/<n>/" in report.failed[0]
    assert report.kept == {"irq"}
    assert machine.names("/etc/npu-affinity") == ["previous.json"]
    os.rmdir(place)
    os.rename(place + ".away", place)
    assert not unbind(machine).failed
    assert snapshot(machine.root) == before


def test_a_live_set_that_stays_narrow_fails_and_is_tried_again(machine):
    bind(machine)
    stubborn, machine.follow = machine.follow, lambda unit: None
    report = unbind(machine)
    assert report.failed[0] == "npu.slice has no setting for CPUs any more and is still confined to 0-3; restart its processes"
    assert report.kept == {"interrupted"}
    machine.follow = stubborn
    assert not unbind(machine).failed
    assert machine.effective("npu-0.slice") == machine.effective("system.slice") == ("0-7", "0-1")
    assert not unbind(machine).changed


def original(value, *given):
    return {"original": value, "given": list(given)}


FILE = {"content": "text", "mode": "0644"}
PAGES = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
PROCESS = dict(original(""), npus=[], group="/a", title="a")
BROKEN = [
    ("of a newer version", {}, "it is unknown"),
    ("tuning", {"/etc/passwd": original("60")}, "'/etc/passwd' is not a setting"),
    ("tuning", {SWAPPINESS: original(60)}, "original of /proc/sys/vm/swappiness of it is 60"),
    ("tuning", {SWAPPINESS: "60"}, "/proc/sys/vm/swappiness of it is '60'"),
    ("vnpu", {"files": {"/usr/local/x": "digest"}, "modes": {}, "folders": []}, "'/usr/local/x' has no checksums"),
    ("interrupted", {}, "it is not a list of names"),
    ("folders", [1], "it is not a list of names"),
    ("folders", "/etc", "it is not a list of names"),
    (IRQBALANCE, "stopped", "it does not say whether the unit was running and enabled"),
    (IRQBALANCE, {"running": "yes"}, "it does not say whether the unit was running and enabled"),
    ("irq", [1], "it is [1]"),
    ("irq", {FUNCTION: original("0-3")}, "'0000:c1:00.0' is nothing that has an affinity"),
    ("irq", {FUNCTION + " workqueue ../a": original("0-3")}, "'0000:c1:00.0 workqueue ../a' is nothing that has an affinity"),
    ("irq", {"%s 1 %s" % (FUNCTION, binding.SQ): original("0-x")}, "0000:c1:00.0 1 sq_send_trigger_irq: '0-x' in '0-x' is not a CPU"),
    ("files", {UNITS + "/npu.slice": "text"}, "a file of it has neither content and mode nor a link"),
    ("files", {UNITS + "/npu.slice": dict(FILE, mode="rw")}, "a file of it has neither content and mode nor a link"),
    ("files", {"relative": FILE}, "'relative' is not an absolute path"),
    ("device_share", {"one": original("on")}, "'one' is not a chip whose device share is on or off"),
    ("kubelet", {"path": "relative", "folders": []}, "'relative' is not an absolute path"),
    ("hugepages", [1], "it is [1]"),
    ("hugepages", {"/etc/passwd": original("1")}, "'/etc/passwd' is not a setting"),
    ("hugepages", {PAGES.replace("node0", "node0/../a"): original("1")}, "is not an absolute path"),
    ("hugepages", {PAGES.replace("2048", "2M"): original("1")}, "hugepages-2MkB/nr_hugepages does not set huge pages"),
    ("hugepages", {PAGES: original("-1")}, "{'original': '-1', 'given': []} is not a number of huge pages"),
    ("hugepages", {PAGES: original("1", "\u00b2")}, "is not a number of huge pages"),
    ("hard_vnpu", {"0": original("none")}, "'0: none' is neither the hard vNPUs of an NPU nor a switch of the driver"),
    ("hard_vnpu", {"0:0": original("100")}, "'0:0: 100' is neither the hard vNPUs of an NPU nor a switch of the driver"),
    ("adopt", {"1": PROCESS}, "'1' is neither a service, a container nor a process"),
    ("nic", {"eth0 1 a": original("0-3")}, "'eth0 1 a' is nothing that has an affinity"),
    ("nic", {FUNCTION + " 1 a": original(4)}, "original of 0000:c1:00.0 1 a of it is 4"),
]
NO_RECORDS = [
    ("", "is not valid JSON"),
    ('{"irq": ', "is not valid JSON"),
    ("[]", "does not hold sections"),
    ('{"schema": 2, "irq": {}}', "was written by a newer version of npu.affinity: it has schema 2, "),
    ('{"irqbalance.service\\n": {}}', r"section 'irqbalance.service\n' cannot be restored (ValueError: it is unknown)"),
    *((json.dumps({name: content}), why) for name, content, why in BROKEN),
]


@pytest.mark.parametrize("run", [unbind, run_roles])
@pytest.mark.parametrize("text, sentence", NO_RECORDS)
def test_a_broken_record_is_refused_before_anything_is_touched(machine, text, sentence, run):
    bind(machine)
    machine.put(previous.PATH, text)
    before = snapshot(machine.root)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        run(machine)
    assert snapshot(machine.root) == before
    assert not CHANGES_SOMETHING & {call.split()[0] for call in machine.calls}


# --- device share ---------------------------------------------------------------------------------------------------


@pytest.fixture
def box(tmp_path):
    """A machine with three cards and the simulated npu-smi."""
    vendor = Box(tmp_path, "a2")
    machine = Machine(str(tmp_path))
    machine.box = vendor
    return machine


@pytest.mark.parametrize("content", ["", "device-share-recover:enable\n[device-share-config start]\n[device-share-config end]\n"])
def test_device_share_and_the_driver_s_file_are_put_back(box, content):
    path = "/etc/device_share.cfg"
    if content:
        box.put(path, content)
        os.chmod(box.path(path), 0o600)
    before = snapshot(box.root)
    bind(box, share=True)
    assert len(box.box.shared) == 3 and box.read(path) + "\n" != content
    predicted, report = unbind(box, check=True), unbind(box)
    assert box.box.shared == [] and not (report.failed or report.kept)
    lines = report.restored["device_share"].lines()["device share"]
    assert lines == predicted.restored["device_share"].lines()["device share"]
    assert lines == ["~ card 0-2 chip 0: on -> off", "~ %s: as before the first bind" % path]
    assert snapshot(box.root) == before


def test_device_share_can_be_left_for_later(box):
    before = snapshot(box.root)
    bind(box, share=True)
    report = unbind(box, Options(device_share=False))
    assert report.kept == {"device_share"} and not report.restored["device_share"].changed and len(box.box.shared) == 3
    box.calls.clear()
    assert not unbind(box, Options(device_share=False)).changed and box.calls == []
    report = unbind(box)
    assert report.changed and not report.failed
    assert box.box.shared == [] and snapshot(box.root) == before


def test_a_tool_that_does_not_answer_holds_up_nothing_else(box):
    bind(box, share=True)
    box.box.faults(error=-8005)
    report = unbind(box)
    assert "device share could not be restored" in report.failed[0] and "-8005" in report.failed[0]
    assert box.names("/etc/npu-affinity") == ["previous.json"]
    assert box.effective("npu-0.slice") == ("0-7", "0-1")


def test_a_card_that_came_after_the_first_change_is_put_back_too(box):
    box.box.by_hand("-i 2 -d 1")
    share(box, 0)
    box.box.by_hand("-i 2 -d 0")
    share(box)
    assert previous.recorded(box)["device_share"]["2:0"] == {"original": "off", "given": ["on"]}
    unbind(box)
    assert box.box.shared == []


# --- killed, and failing, at every step -----------------------------------------------------------------------------


class Twins(Steps):
    """Runs that end at each of their steps, on copies of a machine."""

    def __init__(self, monkeypatch, folder):
        Steps.__init__(self, monkeypatch)
        self.folder = folder

    def copied(self, machine, name):
        """Return a copy of a machine, with what its systemd knows."""
        twin = copy.copy(machine)
        twin.root = "%s/%s" % (self.folder, name)
        shutil.copytree(machine.root, twin.root, symlinks=True)
        for known in ("loaded", "running", "states", "lost", "restarted", "read_at_start", "calls"):
            setattr(twin, known, copy.deepcopy(getattr(machine, known)))
        return twin

    def of(self, machine, error, function, *arguments, least=30):
        return self.endings(functools.partial(self.copied, machine), error, function, *arguments, least=least)


@pytest.fixture
def twins(monkeypatch, tmp_path_factory):
    return Twins(monkeypatch, tmp_path_factory.mktemp("ended"))


def assert_free(machine, before, step):
    """Assert that nothing of a bind is left, neither on the disk nor in systemd nor in the live sets."""
    assert snapshot(machine.root) == before, step
    assert machine.effective("system.slice") == ("0-7", "0-1"), step
    assert not machine.running & {"npu-affinity-irq.timer", "npu-1.slice"}, step
    assert IRQBALANCE in machine.running and machine.lost == [], step
    assert set(machine.loaded) <= {"inside.service", "outside.service", "between.service"}, step


def assert_same_sets(machine, other, step):
    for unit in ("npu.slice", "npu-0.slice", "system.slice"):
        assert machine.effective(unit) == other.effective(unit), "%s, %s" % (unit, step)


def assert_same(machine, other, step):
    """Assert that two machines are the same on the disk, in systemd and in the live sets."""
    assert snapshot(machine.root) == snapshot(other.root), step
    assert (machine.running, machine.loaded, machine.lost) == (other.running, other.loaded, []), step
    assert_same_sets(machine, other, step)


NO_SPACE = OSError(28, "No space left on device")
WAYS = {"killed": (Killed(), "policy"), "killed, irqbalance stopped": (Killed(), "stop"), "a command or a file fails": (NO_SPACE, "stop")}


@pytest.mark.parametrize("error, irqbalance", WAYS.values(), ids=WAYS)
def test_an_unbind_that_ends_at_any_step_is_finished_by_the_next(machine, twins, error, irqbalance):
    machine.put("/etc/udev/rules.d/90-npu-affinity.rules", "# mine")
    before = snapshot(machine.root)
    bind(machine, irqbalance)
    for step, twin in twins.of(machine, error, unbind):
        told = " ".join(twins.sentences)
        assert not told or error.strerror in told or "interrupt vectors" in told, step
        unbind(twin)
        assert_free(twin, before, step)
        assert twin.effective("npu-0.slice") == ("0-7", "0-1"), step
        assert irqbalance == "stop" or IRQBALANCE in twin.restarted, step
        assert not unbind(twin, check=True).changed, step


def fail_at_any_step(machine, twins, said, function, *arguments, least=30):
    """Assert that a run that fails at any step leaves a copy as the machine was; return the copy on which it does not fail."""
    for step, twin in twins.of(machine, NO_SPACE, function, *arguments, least=least):
        told = "".join(twins.sentences[:1])
        if not (twins.finished or told.startswith(previous.PATH)):  # else all is done, except perhaps for the note that a run is under way
            assert said in told and "failed as well" not in told, step
            assert_same(twin, machine, step)
    return twin


def test_a_bind_that_fails_at_any_step_changes_nothing(machine, twins):
    bind(machine)
    request = a_request(
        files=FEWER_SLICES + [a_file(POLICY, MARK + "[Service]\nEnvironment=IRQBALANCE_ARGS=\n")],
        owned=[UNITS + "/npu.slice", UNITS + "/npu-*", UNITS + "/*.d/50-npu-affinity.conf"],
        restarted=[{"unit": IRQBALANCE, "files": [POLICY]}],
    )
    fail_at_any_step(machine, twins, NO_SPACE.strerror, apply, request, least=15)


@pytest.mark.parametrize("irqbalance", ["policy", "stop"])
def test_features_off_in_a_bind_that_fails_stay_as_they_were(machine, twins, irqbalance):
    machine.put(SWAPPINESS, "60\n")
    bind(machine, irqbalance)
    tune(machine)
    split(machine, names={"limiter": b"limiter"})
    request = a_request(files=FEWER_SLICES, owned=[UNITS + "/npu-*.slice"])

    def switch_off(twin):
        apply(twin, request, before=[SwitchedOff(twin, None, False, ["irq", "tuning", "vnpu"])])

    off = fail_at_any_step(machine, twins, "features that were to be switched off (irq, tuning, vnpu) were restored", switch_off)
    assert off.read(SWAPPINESS) == "60"
    assert not {"irq", "tuning", "vnpu", IRQBALANCE} & set(previous.recorded(off))
    assert "npu-affinity-irq.timer" not in off.running and IRQBALANCE in off.running


def test_features_off_in_a_killed_bind_are_off_after_the_next(machine, twins):
    bind(machine)
    state = {"absent": traces(["irq", "slices"], {})}

    def switch_off(twin):
        off = switched_off(twin, state, Choices())
        apply(twin, a_request(), before=[off] if off else ())

    straight = twins.copied(machine, "straight")
    switch_off(straight)
    for step, twin in twins.of(machine, Killed(), switch_off):
        switch_off(twin)
        assert_same(twin, straight, step)


TOO_MUCH = {"expected": [{"unit": "npu-0.slice", "cpus": "6-7"}]}
REFUSED = {
    "the first": a_request(FILES_OF_SLICES, enabled=["npu.slice"], started=["npu.slice", "npu-0.slice", "npu-1.slice"], **TOO_MUCH),
    "a later one": a_request(
        [a_file(POLICY, MARK + "[Service]\nEnvironment=IRQBALANCE_ARGS=\n")],
        owned=[UNITS + "/npu-affinity-irq.*", UNITS + "/npu-1.slice", UNITS + "/*.service.d/50-npu-affinity.conf"],
        restarted=[{"unit": IRQBALANCE, "files": [POLICY]}],
        **TOO_MUCH,
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_a_refused_bind_restarts_and_enables_units_as_they_were(machine, twins, which):
    if which == "the first":
        machine.do_daemon_reload([])
    else:
        bind(machine)
    before = twins.copied(machine, "before")
    with pytest.raises(ValueError, match="npu-0.slice should have CPUs 6-7.*All files were restored"):
        apply(machine, REFUSED[which])
    assert_same(machine, before, "refused")
    assert machine.effective("system.slice") == before.effective("system.slice")
    assert which == "the first" or machine.read_at_start[IRQBALANCE] == before.loaded[IRQBALANCE]


def test_a_bind_killed_at_any_step_can_be_undone(machine, twins):
    before = snapshot(machine.root)
    for step, twin in twins.of(machine, Killed(), bind, "stop"):
        unbind(twin)
        assert_free(twin, before, step)


FEWER_SLICES = [
    a_file(entry["path"], entry["content"].replace("AllowedCPUs=0-3", "AllowedCPUs=0-2").replace("npu-1.slice", "npu-0.slice"))
    for entry in FILES_OF_SLICES
    if not entry["path"].endswith("/npu-1.slice")
]
KILLED_BINDS = {
    "the first, which tells irqbalance": (None, ("policy",)),
    "of another plan, which stops irqbalance": (("policy",), ("stop", False, FEWER_SLICES)),
}


@pytest.mark.parametrize("earlier, arguments", KILLED_BINDS.values(), ids=KILLED_BINDS)
def test_a_bind_killed_at_any_step_is_finished_by_the_next(machine, twins, earlier, arguments):
    if earlier:
        bind(machine, *earlier)
    straight = twins.copied(machine, "straight")
    run_roles(straight, *arguments)
    for step, twin in twins.of(machine, Killed(), run_roles, *arguments, least=15):
        run_roles(twin, *arguments)
        assert_same(twin, straight, step)
        assert twin.read_at_start == straight.read_at_start, step
        twin.calls.clear()
        run_roles(twin, *arguments)
        assert not CHANGES_SOMETHING & {call.split()[0] for call in twin.calls}, step


def test_an_unbind_killed_at_any_step_can_be_followed_by_a_bind(machine, twins):
    bind(machine)
    another = {"files": FEWER_SLICES, "move_memory": True}
    straight = twins.copied(machine, "straight")
    run_roles(straight, **another)
    for step, twin in twins.of(machine, Killed(), unbind):
        run_roles(twin, **another)
        assert (twin.loaded, twin.lost) == (straight.loaded, []), step
        assert_same_sets(twin, straight, step)


# --- steps that cannot be done, while the others are -----------------------------------------------------------------


def failing(machine, fails, sentence):
    """Let systemctl fail where a function of its arguments says so."""
    machine.run = lambda argv, *more: Result(argv, 1, sentence) if fails(argv) else Machine.run(machine, argv, *more)


def masked(machine):
    """Mask irqbalance as an administrator does, and let systemctl refuse it as systemd does."""
    mask, verbs = "%s/%s" % (UNITS, IRQBALANCE), ("enable", "start", "restart")
    os.symlink("/dev/null", machine.path(mask))
    failing(machine, lambda argv: argv[1] in verbs and IRQBALANCE in argv and machine.exists(mask), "Unit %s is masked." % IRQBALANCE)


@pytest.mark.parametrize("irqbalance", ["stop", "policy"])
def test_a_masked_irqbalance_is_reported_and_finished_later(machine, irqbalance):
    before = snapshot(machine.root)
    bind(machine, irqbalance)
    masked(machine)
    predicted, report = unbind(machine, check=True), unbind(machine)
    assert len(report.failed) == 1 and "systemctl unmask irqbalance.service" in report.failed[0]
    assert predicted.failed == report.failed and predicted.kept == report.kept
    assert report.kept == ({IRQBALANCE} if irqbalance == "stop" else {"interrupted"})
    assert set(snapshot(machine.root)) - set(before) == {UNITS + "/" + IRQBALANCE, "/etc/npu-affinity", "/etc/npu-affinity/previous.json"}
    assert machine.effective("npu-0.slice") == ("0-7", "0-1")
    assert unbind(machine).failed == report.failed
    os.unlink(machine.path(UNITS + "/" + IRQBALANCE))
    assert not unbind(machine).failed
    assert IRQBALANCE in (machine.running if irqbalance == "stop" else machine.restarted)
    assert snapshot(machine.root) == before and not unbind(machine).bound


def test_a_bind_reports_a_masked_irqbalance_and_does_the_rest(machine):
    bind(machine, "stop")
    masked(machine)
    report = apply(machine, a_request(files=[a_file(UNITS + "/npu-1.slice", slice_text("0-1"))], released=[IRQBALANCE]))
    assert report.warnings == ["irqbalance.service was stopped by an earlier bind and has been masked since: it stays stopped"]
    assert list(report.changes) == [UNITS + "/npu-1.slice"] and IRQBALANCE in previous.recorded(machine)


@pytest.mark.parametrize("folder", ["/lib/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system"])
def test_an_irqbalance_installed_elsewhere_is_started_again(machine, folder):
    os.makedirs(machine.path(folder), exist_ok=True)
    os.rename(machine.path("%s/%s" % (VENDOR_UNITS, IRQBALANCE)), machine.path("%s/%s" % (folder, IRQBALANCE)))
    before = snapshot(machine.root)
    bind(machine, "stop")
    machine.do_enable = lambda names: None
    assert not unbind(machine).warnings and IRQBALANCE in machine.running
    assert snapshot(machine.root) == before


FAILING = [
    ("stop", {"interrupted"}),
    ("daemon-reload", {"files", "folders", "interrupted", IRQBALANCE}),
    ("enable", {IRQBALANCE}),
    ("start", {IRQBALANCE}),
]


@pytest.mark.parametrize(("verb", "kept"), FAILING)
def test_a_failing_step_prevents_no_other_and_is_finished_later(box, verb, kept):
    box.put(SWAPPINESS, "60\n")
    before = snapshot(box.root)
    bind(box, "stop", share=True)
    tuned(box, swappiness=0)
    failing(box, lambda argv: argv[:2] == ["systemctl", verb], "Connection timed out")
    report = unbind(box)
    assert "Connection timed out" in report.failed[0] and report.kept >= kept
    assert box.box.shared == [] and box.read(SWAPPINESS) == "60"
    assert box.read("/proc/irq/61/smp_affinity_list") == "0-3"
    failing(box, lambda argv: False, "")
    assert not unbind(box).failed
    assert IRQBALANCE in box.running and "npu-affinity-irq.timer" not in box.running
    assert snapshot(box.root) == before

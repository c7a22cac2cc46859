# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever slices a host gets, and whatever runs in them: it has what was asked for, or what it had, and at last it gets it all back."""

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import CHANGES_SOMETHING, Machine, snapshot
from tests.fakes.systemd import a_request, MARK, UNITS, a_file

SLICES = ("npu-0.slice", "npu-1.slice")
SYSTEM = "system.slice"
WORKER = "inside.service"
NODES = {"": {0, 1}, "0": {0}, "1": {1}, "0-1": {0, 1}}
cpulists = st.sets(st.integers(0, 7), min_size=1).map(compress)
slices = st.dictionaries(st.sampled_from(SLICES), st.tuples(cpulists, st.sampled_from(sorted(NODES))))


class Wish:
    """What a bind asks for: ``{slice: (CPUs, memory nodes)}``, the CPUs of system.slice, the slice of the worker, and what else it says.

    ``too_much``: whether it expects CPUs that the host has not.
    """

    def __init__(self, values, system, home, move_memory, too_much):
        self.values = values
        self.system = system
        self.move_memory = move_memory
        self.too_much = too_much and values
        self.home = home if home in values else None

    def __repr__(self):
        return "Wish(%r)" % vars(self)

    def request(self):
        files = []
        for unit, (cpus, mems) in self.values.items():
            text = MARK + "[Slice]\nAllowedCPUs=%s\n" % cpus + ("AllowedMemoryNodes=%s\n" % mems if mems else "")
            files.append(a_file("%s/%s" % (UNITS, unit), text))
        if self.home:
            files.append(a_file("%s/%s.d/50-npu-affinity.conf" % (UNITS, WORKER), MARK + "[Service]\nSlice=%s\n" % self.home))
        if self.system:
            files.append(a_file("%s/%s.d/50-npu-affinity.conf" % (UNITS, SYSTEM), MARK + "[Slice]\nAllowedCPUs=%s\n" % self.system))
        expected = [{"unit": unit, "cpus": "8-9" if self.too_much else cpus, "mems": mems} for unit, (cpus, mems) in self.values.items()]
        return a_request(
            files=files,
            owned=[UNITS + "/npu-*.slice", UNITS + "/*.d/50-npu-affinity.conf"],
            started=sorted(self.values),
            expected=expected,
            move_memory=self.move_memory,
        )


wishes = st.builds(
    Wish, slices, st.just("") | cpulists, st.sampled_from(SLICES), st.booleans(), st.sampled_from([False, False, False, True])
)


def moves_memory(machine, before, after):
    """Whether a slice in use would lose memory nodes."""
    populated = [unit for unit in SLICES if "populated 1" in (machine.read(cgroup(unit) + "/cgroup.events") or "")]
    old, new = ({unit: NODES[wish.values[unit][1]] if unit in wish.values else NODES[""] for unit in populated} for wish in (before, after))
    return any(old[unit] - new[unit] for unit in populated)


def cgroup(unit):
    return "/sys/fs/cgroup/npu.slice/" + unit


def live_sets(machine):
    return {unit: machine.effective(unit) for unit in SLICES + (SYSTEM,)}


def attempt(machine, request, check=False):
    """Return the report, or the sentence of the refusal."""
    try:
        return apply(machine, request, check)
    except ValueError as error:
        return str(error)


@settings(max_examples=9, deadline=None)
@given(wanted=st.lists(wishes, min_size=1, max_size=3), works=st.booleans())
def test_a_host_is_as_requested_or_unchanged_and_fully_restored(tmp_path_factory, wanted, works):
    with tempfile.TemporaryDirectory(dir=str(tmp_path_factory.getbasetemp())) as folder:
        machine = Machine(folder)
        untouched = snapshot(folder)
        in_force = Wish({}, "", None, False, False)
        for wish in wanted:
            in_force = bind(machine, in_force, wish)
            if works and WORKER not in machine.running:
                machine.begin(WORKER)
        unbind(machine)
        assert snapshot(folder) == untouched
        assert machine.lost == [] and machine.restarted == []
        assert set(live_sets(machine).values()) <= {("0-7", "0-1"), (None, None)}
        assert not unbind(machine).changed


def bind(machine, in_force, wish):
    """Apply a wish and return what is in force afterwards."""
    before, running, sets = snapshot(machine.root), set(machine.running), live_sets(machine)
    machine.calls.clear()
    predicted = attempt(machine, wish.request(), check=True)
    assert snapshot(machine.root) == before and not changing_calls(machine)
    refused = moves_memory(machine, in_force, wish) and not wish.move_memory
    assert refused is (isinstance(predicted, str) and "would move their pages" in predicted)
    done = attempt(machine, wish.request())
    if refused or wish.too_much:
        assert isinstance(done, str) and (done == predicted or "should have CPUs 8-9" in done)
        after = snapshot(machine.root)
        assert {path: after[path] for path in before if path != previous.PATH} == {
            path: state for path, state in before.items() if path != previous.PATH
        }
        assert (machine.running, machine.lost, live_sets(machine)) == (running, [], sets)
        return in_force
    assert (list(predicted.changes), predicted.actions) == (list(done.changes), done.actions)
    for unit, (cpus, mems) in wish.values.items():
        assert machine.effective(unit) == (cpus, mems or machine.effective(unit)[1])
        assert unit in machine.running
    assert machine.effective(SYSTEM) == (wish.system or "0-7", "0-1")
    machine.calls.clear()
    assert not apply(machine, wish.request()).changed and not changing_calls(machine)
    return wish


def changing_calls(machine):
    return CHANGES_SOMETHING & {call.split()[0] for call in machine.calls}

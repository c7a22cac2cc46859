# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies in the place of the collection's files: a bind, its check, verify, unbind and the boot unit end in time, with a sentence."""

import json
import os
import re
import shutil
import socket

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from tests.fakes.bound import host_in, state_of
from tests.fakes.programs import run_main

PROGRAMS = "ansible_collections.npu.affinity.plugins.module_utils._command.main"
PLAN = "/etc/npu-affinity/plan.json"
PREVIOUS = "/etc/npu-affinity/previous.json"
SLICE = "/etc/systemd/system/npu-0.slice"
CODE = "/usr/local/lib/npu-affinity/npu_affinity.zip"
MEMORY = "/run/npu-affinity/unchangeable.json"
REBINDS = "/run/npu-affinity/rebinds.json"
LOCK = "/run/npu-affinity.lock"
ENTRY = "/etc/npu-affinity/history/1.json"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A simulated host, its desired state, and a copy of it that is bound."""
    root = tmp_path_factory.mktemp("machine")
    return root, state_of(gather(Host(str(host_in(root / "before")))))


@pytest.fixture
def host(machine, tmp_path, run_module):
    """A bound host of its own for one test."""
    root, state = machine
    if not (root / "bound").exists():
        shutil.copytree(root / "before", root / "bound", symlinks=True)
        assert run_module("host_files", root=str(root / "bound"), state=state)["changed"]
    shutil.copytree(root / "bound", tmp_path / "host", symlinks=True)
    return tmp_path / "host"


@pytest.fixture
def say(host, machine, run_module):
    """Return what a bind, its check, verify, unbind or the boot unit says of the host."""

    def run(action):
        if action == "boot unit":
            found = run_main(PROGRAMS, "irq", "--root", str(host), "--rebind-limit", "4")
            assert not found.stderr
            return found.stdout
        module = {"unbind": "unbind", "verify": "binding_info"}.get(action, "host_files")
        options = {"state": machine[1]} if module == "host_files" else {}
        return json.dumps(run_module(module, root=str(host), _ansible_check_mode=action == "check", **options))

    return run


def place(host, path, kind):
    place = host / path[1:]
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a fifo":
        os.mkfifo(place)
    elif kind == "a directory":
        place.mkdir()
    else:
        folder = os.open(place.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{folder}/{place.name}")  # the path of a socket is short
        os.close(folder)


ACTIONS = ("check", "bind", "verify", "unbind")
PLACES = [
    (SLICE, "a fifo", ACTIONS),
    (SLICE, "a directory", ACTIONS),
    (PLAN, "a fifo", (*ACTIONS, "boot unit")),
    (PLAN, "a directory", ("bind", "unbind", "boot unit")),
    (PREVIOUS, "a fifo", (*ACTIONS, "boot unit")),
    (PREVIOUS, "a socket", ("bind", "unbind")),
    (CODE, "a fifo", ("bind", "unbind")),
    (LOCK, "a fifo", ("bind", "unbind", "boot unit")),
    (LOCK, "a directory", ("bind", "boot unit")),
    *((path, "a fifo", ("unbind",)) for path in (MEMORY, REBINDS)),
]


@pytest.mark.parametrize("path, kind, actions", PLACES)
def test_what_is_no_file_is_named_and_not_waited_for(host, say, path, kind, actions):
    place(host, path, kind)
    for action in actions:
        said = say(action)
        assert path in said and re.search("remove or rename it|in the meantime", said), (action, said)
        assert "Errno" not in said and "Traceback" not in said
    assert (host / path[1:]).exists(), "and nothing was done to it"


def test_what_is_no_file_and_not_wanted_belongs_to_somebody_else(host, say):
    foreign = host / "etc/systemd/system/npu-77.slice"
    os.mkfifo(foreign)
    (host / "etc/systemd/system/.npu-affinity-1").mkdir()
    assert '"changed": false' in say("bind") and '"failed"' not in say("unbind") and foreign.is_fifo()


RECORDS = ["", "[]", "null", "[" * 100000, '{"a": {"b": {"since": "x", "times": [null]}}}']
OTHER_SHAPES = [
    (MEMORY, '{"0000:c1:00.0": {"0 sq_send_trigger_irq": {"wanted": 5, "state": []}}}'),
    (REBINDS, '{"0000:c1:00.0": {"0 sq_send_trigger_irq": {"times": ["now", {}]}}}'),
    (REBINDS, '{"0000:c1:00.0": {"0 sq_send_trigger_irq": {"times": [1e999]}}}'),
    (PREVIOUS, '{"irq": []}'),
    (PREVIOUS, '{"device_share": {"\\u00b2:0": {"original": "on", "given": []}}}'),
    (PLAN, '{"npus": [{"id": 0, "pool": "0-3", "pci": 5}]}'),
    (ENTRY, '{"time": 5}'),
    *((path, text) for path in (MEMORY, REBINDS) for text in RECORDS),
    *((path, "[]") for path in (PREVIOUS, PLAN, ENTRY)),
]


@pytest.mark.parametrize("path, text", OTHER_SHAPES, ids=[f"{os.path.basename(path)} {text[:60]}" for path, text in OTHER_SHAPES])
def test_a_record_of_another_shape_is_a_sentence(host, say, path, text):
    (host / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (host / path[1:]).write_text(text)
    said = say("boot unit")
    assert path not in (PREVIOUS, PLAN) or path in said
    if path in (PREVIOUS, ENTRY):
        said = say("unbind")
        assert "Traceback" not in said and (path == ENTRY or path in said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_mode_of_a_replaced_file_come_back(root, bind, run_module):
    unit = root / SLICE[1:]
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text("[Slice]\n")
    os.chown(unit, 1234, 4321)
    unit.chmod(0o640)

    def rights():
        found = unit.stat()
        return found.st_uid, found.st_gid, found.st_mode & 0o7777

    assert bind()["changed"] and rights() == (1234, 4321, 0o644)
    recorded = json.loads((root / PREVIOUS[1:]).read_text())["files"][SLICE]
    assert recorded == {"content": "[Slice]\n", "mode": "0640", "owner": "1234:4321"}
    os.chown(unit, 0, 0)
    run_module("unbind", root=str(root))
    assert unit.read_text() == "[Slice]\n" and rights() == (1234, 4321, 0o640)


def test_modes_do_not_depend_on_the_umask(machine, tmp_path, run_module):
    root, state = machine
    made = {}
    for umask in (0o022, 0o077):
        host = tmp_path / oct(umask)
        shutil.copytree(root / "before", host, symlinks=True)
        shutil.rmtree(host / "etc/systemd", ignore_errors=True)
        before = os.umask(umask)
        try:
            assert run_module("host_files", root=str(host), state=state)["changed"]
            run_main(PROGRAMS, "irq", "--root", str(host))
        finally:
            os.umask(before)
        places = (place for place in host.rglob("*") if not place.is_symlink())
        made[umask] = {str(place.relative_to(host)): oct(place.stat().st_mode & 0o7777) for place in places}
    assert made[0o077] == made[0o022]
    found = [made[0o077][path] for path in ("etc/npu-affinity", PLAN[1:], PREVIOUS[1:], "etc/npu-affinity/history")]
    assert found == ["0o755", "0o644", "0o600", "0o700"]


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.mark.parametrize("module", ["binding_info", "gather", "topology_facts", "host_files"])
def test_what_a_module_returns_has_no_control_characters(host, run_module, machine, module):
    hostile = "\x1b[2J![](//host)\r\u202e"
    unit = host / SLICE[1:]
    unit.write_text(unit.read_text().replace("AllowedCPUs=", f"AllowedCPUs={hostile}"))
    (host / "proc/sys/kernel/osrelease").write_text(f"{hostile}\n")
    result = run_module(module, root=str(host), **({"state": machine[1], "_ansible_diff": True} if module == "host_files" else {}))

    def texts(value):
        members = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
        return [value] if isinstance(value, str) else [text for member in members for text in texts(member)]

    found = texts(result)
    assert any("\\x1b[2J" in text for text in found) and not any(map(CONTROL.search, found))

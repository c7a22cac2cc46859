# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules are killed, and disks fill up, at many moments of a bind. Always, the next run finishes, and unbind restores everything.

One host is bound by the playbook, and another by playbooks that are killed and meet a full disk. For the other moments the modules of that
bind are run by themselves, with the arguments that the playbook gave them: that is what changes a host, and costs a tenth.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.fakes.changes import SHARED, VENDOR, shared, state, touched
from tests.fakes.small_host import MACHINE, THREADS, UNITS, placed, soft_split, start, write
from tests.integration.conftest import REPOSITORY, Fleet

INJECTION = Path(__file__).parent / "injection"
VARIABLES = {
    "npu_affinity_batches": ["100%"],
    "npu_affinity_device_share_enabled": True,
    "npu_affinity_housekeeping": "1",
    "npu_affinity_irqbalance": "stop",
    "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}],
}
RECORD = "/etc/npu-affinity/previous.json"
HISTORY = "/etc/npu-affinity/history"
LOCK = "/run/npu-affinity.lock"
"""A killed run leaves the file; the lock itself ends with the process."""
MASKS = ("/smp_affinity", "/effective_affinity")
"""In a tree no kernel keeps them in step with the lists, which are what is read."""
CHANGING = ("npu.affinity.host_files",)
HOSTS, MOMENTS = 5, 20
SAID = {"EROFS": "Read-only file system", "ENOSPC": "No space left on device"}


def settings(tree, how, steps):
    """What ``injection/sitecustomize.py`` reads from the environment."""
    values = {"ROOT": str(tree), "COUNT": f"{tree}.steps", "HOW": how, "AT": ",".join(map(str, steps))}
    return {"PYTHONPATH": str(INJECTION), **{f"FAULT_{name}": value for name, value in values.items()}}


def steps_of(tree):
    count = Path(f"{tree}.steps")
    return count.stat().st_size if count.exists() else 0


def with_faults(hosts, moments):
    """Give hosts an interpreter that injects faults, ``{host: (how, steps)}``; return ansible's arguments."""
    interpreters = {}
    for host, (how, steps) in moments.items():
        interpreter = hosts.folder / f"python-{host}"
        words = " ".join(f"'{name}={value}'" for name, value in settings(hosts.tree(host), how, steps).items())
        interpreter.write_text(f"#!/bin/sh\nexec env {words} '{sys.executable}' \"$@\"\n")
        interpreter.chmod(0o755)
        interpreters[host] = {"ansible_python_interpreter": str(interpreter)}
    inventory = hosts.folder / "faults.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": interpreters}}))
    return "-i", str(inventory), "--limit", ",".join(moments)


def run_modules(tree, modules, how="", steps=()):
    """Run modules one after the other until one fails or is killed; return the last one's result, None when it was killed."""
    environment = {**os.environ, **settings(tree, how, steps)}
    environment["PYTHONPATH"] += os.pathsep + str(REPOSITORY / "build")
    result = None
    for action, arguments in modules:
        command = [sys.executable, "-m", f"ansible_collections.{action.replace('affinity.', 'affinity.plugins.modules.')}"]
        text = json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, "root": str(tree)}})
        process = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if process.returncode == -signal.SIGKILL:
            return None
        result = json.loads(process.stdout)
        if result.get("failed"):
            return result
    return result


def compared(tree):
    """What a tree holds, without the history, which has the time."""
    return {path: found for path, found in state(tree).items() if not path.endswith(MASKS) and not path.startswith(HISTORY)}


def assert_whole(tree, before, after, when):
    """Assert that each file of a tree is as before or as after a whole bind, except for temporary ones, which nobody reads."""
    now = compared(tree)
    named = {path for path in now if "/.npu-affinity-" not in path and path not in (RECORD, LOCK)}
    assert [path for path in sorted(named) if now[path] not in (before.get(path), after.get(path))] == [], when
    assert before.keys() & after.keys() <= now.keys(), when


@pytest.fixture(scope="module")
def bound(tmp_path_factory):
    """Equal hosts, the first of them bound in one go: its states before and after, the number of steps that it took, and its modules."""
    names = ["straight", "played", "off", "kept", *(f"{fault}{number}" for fault in ("killed", "full") for number in range(HOSTS))]
    hosts = Fleet(tmp_path_factory.mktemp("faults"), dict.fromkeys(names, MACHINE))
    before = compared(hosts.tree("straight"))
    run = hosts.succeed("bind", *with_faults(hosts, {"straight": ("", [])}), **VARIABLES, ansible_inject_invocation=True)
    results = [(entry["action"], entry["result"]) for entry in run.of("straight") if entry["action"] in CHANGING]
    modules = [(action, result["invocation"]["module_args"]) for action, result in results]
    assert [action for action, _arguments in modules] == list(CHANGING)
    tree = hosts.tree("straight")
    return SimpleNamespace(hosts=hosts, before=before, after=compared(tree), steps=steps_of(tree), modules=modules)


def test_modules_killed_at_twenty_moments_are_finished_or_undone(bound):
    assert bound.steps > 100
    for number in range(HOSTS):
        tree = bound.hosts.tree(f"killed{number}")
        moments = [1 + moment * bound.steps // MOMENTS for moment in range(number, MOMENTS, HOSTS)]
        for _moment in moments:
            assert run_modules(tree, bound.modules, "killed", moments) is None
            assert_whole(tree, bound.before, bound.after, f"{steps_of(tree)} steps")
        last = run_modules(tree, bound.modules, "killed", moments)
        assert last and not last.get("failed"), last
        assert touched(compared(tree), bound.after) == set(), moments
        if not number:
            assert [run_modules(tree, [module])["changed"] for module in bound.modules] == [False]
        assert run_modules(tree, [("npu.affinity.unbind", {})])["changed"]
        assert touched(compared(tree), bound.before) == set(), moments


def test_a_full_or_read_only_disk_is_reported_and_finished_later(bound):
    ways = [("EROFS", 1), ("ENOSPC", 8), *(("ENOSPC", int(bound.steps * share)) for share in (1 / 8, 1 / 4, 1 / 3))]
    for number, (how, moment) in enumerate(ways):
        tree, when = bound.hosts.tree(f"full{number}"), (how, moment)
        failed = run_modules(tree, bound.modules, how, [moment])
        assert failed["failed"] and SAID[how] in failed["msg"] and "failed as well" not in failed["msg"], (when, failed)
        assert_whole(tree, bound.before, bound.after, when)
        assert not list(tree.rglob(".npu-affinity-*")), when
        last = run_modules(tree, bound.modules)
        assert not last.get("failed"), (when, last)
        assert touched(compared(tree), bound.after) == set(), when


@pytest.mark.headline
def test_playbooks_killed_or_on_a_full_disk_are_finished_later(bound):
    hosts, tree = bound.hosts, bound.hosts.tree("played")
    for how, steps in (("killed", [bound.steps // 3]), ("ENOSPC", [bound.steps // 8])):
        run = hosts.play("bind", *with_faults(hosts, {"played": (how, steps)}), **VARIABLES)
        assert run.status != 0 and run.of("played", "failed"), how
        assert SAID.get(how, "") in run.failure("played"), run.failure("played")
        assert_whole(tree, bound.before, bound.after, how)
    hosts.succeed("bind", "--limit", "played", **VARIABLES)
    assert touched(compared(tree), bound.after) == set()
    hosts.succeed("unbind", "--limit", "played", **VARIABLES)
    assert touched(compared(tree), bound.before) == set()


@pytest.mark.headline
def test_edited_files_are_corrected_and_nothing_else_is_written(bound):
    tree = bound.hosts.tree("straight")
    edited, removed = (UNITS + name for name in ("npu-1.slice", "npu-affinity-irq.timer"))
    (tree / edited[1:]).write_text((tree / edited[1:]).read_text().replace("AllowedCPUs=", "AllowedCPUs=0,"))
    (tree / removed[1:]).unlink()
    run = bound.hosts.succeed("bind", "--limit", "straight", **VARIABLES)
    assert run.files("straight") == ({edited, removed}, set())
    assert touched(compared(tree), bound.after) == set()
    again = bound.hosts.play("bind", "--limit", "straight", **VARIABLES)
    assert again.changed("straight") == 0


OFF = {f"npu_affinity_{name}_enabled": False for name in ("irq", "device_share", "metrics")} | {"npu_affinity_tuning": {}}
TUNED = {"npu_affinity_tuning": {"swappiness": 0}, "npu_affinity_metrics_enabled": True}
FAILURES = 12


def test_features_off_in_a_bind_that_fails_stay_as_they_were(bound):
    hosts, tree = bound.hosts, bound.hosts.tree("off")
    (tree / "var/lib/prometheus/node-exporter").mkdir(parents=True)
    (tree / "proc/sys/vm").mkdir(parents=True, exist_ok=True)
    (tree / "proc/sys/vm/swappiness").write_text("60\n")
    hosts.succeed("bind", "--limit", "off", **{**VARIABLES, **TUNED})
    look = hosts.play("bind", "--limit", "off", "--check", **{**VARIABLES, **TUNED, **OFF}, ansible_inject_invocation=True)
    module = [(entry["action"], entry["result"]["invocation"]["module_args"]) for entry in look.of("off") if entry["action"] == CHANGING[0]]
    before = state(tree)
    hosts.copy("off", "kept")
    done = run_modules(tree, module, "once")
    assert done["changed"] and not done.get("failed"), done
    entry = json.loads((tree / HISTORY[1:] / f"{done['history']}.json").read_text())
    assert [name for name, found in entry["state"]["features"].items() if f"npu_affinity_{name}_enabled" in OFF and found != "absent"] == []
    sections = json.loads((tree / RECORD[1:]).read_text()).keys()
    assert not {"irq", "irqbalance.service", "tuning", "device_share", "metrics"} & sections
    count, after = steps_of(tree), compared(tree)
    assert count > 60 and (tree / "proc/sys/vm/swappiness").read_text() == "60\n" and shared(tree) == []
    hosts.copy("kept", "off")
    failures = 0
    for moment in range(1, count + 1, max(1, count // FAILURES)):
        Path(f"{tree}.steps").unlink(missing_ok=True)
        result = run_modules(tree, module, "once", [moment])
        if not result.get("failed"):
            assert [path for path in touched(compared(tree), after) if path != LOCK] == [], moment
            hosts.copy("kept", "off")
            continue
        failures += 1
        now = {path: found for path, found in state(tree).items() if path != LOCK}
        assert {path: (now.get(path), before.get(path)) for path in touched(now, before)} == {}, (moment, result["msg"])
        assert len(shared(tree)) == 2
    assert failures > FAILURES / 2


@pytest.mark.headline
def test_a_bind_failing_at_its_last_step_changes_nothing(fleet, tmp_path):
    hosts = fleet(host=MACHINE)
    tree, library = hosts.tree("host"), tmp_path / "libvnpu.so"
    library.write_bytes(b"\x7fELF\0\xff\r\nlibrary")
    variables = {**SHARED, **THREADS, **soft_split(library)}
    write(tree, HISTORY, "no folder\n")
    start(tree, 4000, "/npu.slice/npu-0.slice/docker-3f.scope")
    kept = (*VENDOR, "/run")
    before = state(tree, kept)
    check = hosts.succeed("bind", "--check", "--diff", **variables)
    assert "+ /usr/local/hami-vnpu-core/libvnpu.so" in check.output and state(tree, kept) == before, check.output
    run = hosts.play("bind", **variables)
    assert run.status != 0
    reason = run.failure("host")
    assert "/etc/npu-affinity/history cannot be written" in reason, run.output
    assert "All files, directories of soft split, device share settings and threads were restored" in reason
    assert shared(tree) == [] and state(tree, kept) == before
    (tree / HISTORY[1:]).unlink()
    run = hosts.succeed("bind", **variables)
    assert shared(tree) == ["0:0", "1:0"] and placed(tree, 4000) != ("0-31",) * 4
    assert [path.name for path in (tree / HISTORY[1:]).iterdir()] == ["1.json"]
    assert (tree / "usr/local/hami-vnpu-core/libvnpu.so").read_bytes() == library.read_bytes(), run.output
    (soft_split_of,) = (entry["result"]["vnpu"] for entry in run.of("host", "ok") if entry["action"].endswith("host_files"))
    assert soft_split_of["folders"] == ["/usr/local/hami-shared-region", "/usr/local/hami-vnpu-core"]

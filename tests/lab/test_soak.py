# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Half an hour of operations and faults in random order, after which verify finds nothing and unbind leaves nothing: ``make soak``.

``SOAK_MINUTES`` is how long, and ``SEED`` decides the order: the same one gives the same operations again, as many as there is time for.
"""

import json
import os
import random
import time
from collections import Counter

import pytest

from tests.lab import soak
from tests.lab.conftest import REPOSITORY, drift, success
from tests.lab.image import ARCHITECTURE, NAME, PLATFORMS, SUITE
from tests.lab.test_engines import PREPARE
from tests.lab.test_undo import as_before

SHAPE = soak.SHAPE
MINUTES = int(os.environ.get("SOAK_MINUTES") or 30)
SEED = int(os.environ.get("SEED") or random.randrange(10000))
RECORD = REPOSITORY / "build/soak" / f"{NAME}-{SUITE}-{ARCHITECTURE}.json"


@pytest.mark.soak
def test_soak(lab, claims, tmp_path):
    """A machine, A2-like or with container engines: operations and faults in random order"""
    print(f"SEED={SEED} SOAK_MINUTES={MINUTES}", flush=True)
    machine = lab.fresh(SHAPE)
    machine.run("systemctl enable --now irqbalance && sync" + (f"; set -e\n{PREPARE}" if soak.CONTAINERS else ""))
    before, files = machine.look(), machine.files()
    run = soak.Soak(lab, machine, claims, tmp_path)
    run.bind(soak.INVENTORIES[0])
    done, findings = operate(run)
    findings += [error] if (error := finding(end, run, before, files)) else []
    keep(done, findings)
    claims.equal(f"findings of seed {SEED} after {done.total()} operations", findings, [])


def operate(run):
    """Run one operation after the other while there is time; return how many of each, and what was wrong."""
    done, findings, until = Counter(), [], time.monotonic() + 60 * MINUTES
    while time.monotonic() < until:
        number = done.total()
        name, chance = soak.chosen(SEED, number)
        begun = time.monotonic()
        error = finding(soak.OPERATIONS[name].act, run, chance) or finding(run.sound)
        done[name] += 1
        print(f"{number:4} {time.monotonic() - begun:5.0f} s  {name}{f': {error}' if error else ''}", flush=True)
        if error:
            findings.append(f"{number} {name}: {error}")
            run.options, run.settled = None, False
    return done, findings


def finding(act, *arguments):
    """What was wrong with an operation, or None. A playbook that breaks, or a command of the guest that fails, is wrong as well."""
    try:
        act(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def end(run, before, files):
    """Claim that one more bind sets everything right, and that unbind leaves nothing."""
    soak.online(run, None)
    soak.stop_workers(run, None)
    run.bind(soak.INVENTORIES[0])
    run.sound()
    run.as_bound()
    run.claims.equal("exit status and drift", drift(run.lab, run.machine, run.folder), (0, {}))
    run.claims.equal("exit status of unbind", success(run.play("unbind")), (0, ""))
    as_before(run.claims, run.machine, {**before, "functions": {}}, files)  # irqbalance moves their interrupts
    run.claims.equal("our processes that are left", run.sound()["processes"], [])


def keep(done, findings):
    """Write what was done for the table in docs/evidence.md."""
    faults = {name: times for name, times in done.items() if soak.OPERATIONS[name].fault}
    operations = {name: times for name, times in done.items() if name not in faults}
    record = {"image": NAME, "suite": SUITE, "architecture": PLATFORMS[ARCHITECTURE], "seed": SEED, "minutes": MINUTES}
    record |= {"operations": operations, "faults": faults, "findings": findings}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=2) + "\n")

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that tests run without a new Python for each call, which costs more than most programs do.

The simulated npu-smi, and a tool of fixture ``tree`` in its place, answer in the process of the test, except where they are to be slow.
Modules and installed programs run in a fork. Tests whose claims are about processes start real ones.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback

from tests.simulator import npu_smi

PLACE = "/usr/local/Ascend/driver/tools/npu-smi"
TOOL = """import json, sys, time
with open(__file__ + ".calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
with open(__file__ + ".json") as answers:
    answer = json.load(answers).get(" ".join(sys.argv[1:]), {"rc": 215, "text": "Error parameter of -t\\n"})
time.sleep(answer.get("sleep", 0))
sys.stdout.write(answer.get("text", ""))
sys.exit(answer.get("rc", 0))
"""
"""A program that answers its arguments, joined by blanks, from the file next to it."""

ONE_AT_A_TIME = threading.Lock()
"""Host code queries npu-smi in threads, and these have the same standard output."""

LIMIT = 120
"""Seconds that a fork gets."""


SIMULATED = ("npu_smi.main(ROOT, sys.argv[1:])", '"""A stand-in for npu-smi that lives in a simulated host\'s tree')
"""What is in the two forms of the simulated npu-smi: one that imports it, and its source."""


def answering(run, result):
    """Wrap the function by which host code runs commands and makes results."""

    @functools.wraps(run)
    def answered(argv, stdin, limit):
        answer = None
        if os.path.basename(argv[0]) == "npu-smi" and os.access(argv[0], os.X_OK):
            with open(argv[0]) as file:
                text = file.read()
            if text.endswith(TOOL):
                answer = answer_of_tool(argv[0], " ".join(argv[1:]))
            elif argv[0].endswith(PLACE) and any(part in text for part in SIMULATED):
                answer = answer_of_host(argv[0][: -len(PLACE)], argv[1:], stdin)
        return run(argv, stdin, limit) if answer is None else result(tuple(argv), *answer)

    return answered


def answer_of_tool(path, words):
    """Return the exit status and output of a tool, or None where it is slow."""
    with open(path + ".json") as file:
        answer = json.load(file).get(words, {"rc": 215, "text": "Error parameter of -t\n"})
    if "sleep" in answer:
        return None
    with open(path + ".calls", "a") as calls:
        calls.write(words + "\n")
    return answer.get("rc", 0), answer.get("text", "")


def answer_of_host(root, words, stdin):
    """Return the exit status and output of the simulated npu-smi, or None where it is slow."""
    with open(os.path.join(root, npu_smi.DESCRIPTION)) as file:
        if '"sleep"' in file.read():
            return None
    output = io.StringIO()
    with ONE_AT_A_TIME, contextlib.redirect_stdout(output):
        before, sys.stdin = sys.stdin, io.StringIO(stdin)
        try:
            status = npu_smi.main(root, words)
        except Exception:  # how a program of Python ends
            status = 1
            output.write(traceback.format_exc())
        finally:
            sys.stdin = before
    return status, output.getvalue()


def run_main(name, *words, text=""):
    """Run a module's function ``main`` in a fork, as ``python -m`` runs the module, and return what ``subprocess.run`` does."""
    main = importlib.import_module(name).main
    files = [os.memfd_create(stream) for stream in ("stdin", "stdout", "stderr")]
    os.write(files[0], text.encode())
    os.lseek(files[0], 0, os.SEEK_SET)
    child = os.fork()
    if not child:
        be(main, files, [name, *words])
    if not select.select([os.pidfd_open(child)], [], [], 2 * LIMIT)[0]:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    texts = []
    for file in files:
        os.lseek(file, 0, os.SEEK_SET)
        with open(file, encoding="utf-8") as opened:
            texts.append(opened.read())
    return subprocess.CompletedProcess([name, *words], os.waitstatus_to_exitcode(status), *texts[1:])


def be(main, files, argv):
    """Be the process of a program from its start to its end."""
    status = 1
    try:
        signal.alarm(LIMIT)
        gc.disable()
        atexit._clear()  # what this process inherited is for its parent to do
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
        sys.argv = argv
        leave_controller()
        status = main() or 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def leave_controller():
    """Let Ansible's part of modules behave as on hosts, also where a test has imported Ansible's controller."""
    internal = sys.modules.get("ansible.module_utils._internal")
    if internal is not None:
        internal.is_controller = False
        internal.import_controller_module = lambda _name: None
        internal.get_controller_serialize_map = dict

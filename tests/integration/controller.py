# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook that is started once: every run is a fork of a process that has it imported.

Each run has arguments, environment, folder, output and exit status as the command has them, and runs the code that the command runs.
Saved are the start and the imports (0.3 s), the archives of modules, which are built once for all workers (0.5 s for each module), and
what every module compiles and imports on every host (0.3 s; see ``modules/server.py``): two thirds of a run. What the settings of Ansible
in the environment are cannot change after the imports, so that there is a process for each combination of them. Tests of ansible-runner
and of real processes run the command itself.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BUILT = tempfile.TemporaryDirectory(prefix="npu-affinity-built-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
"""Archives of modules and their bytecode, for all workers: Ansible locks each while it builds it."""


class Controller:
    """A process that runs ansible-playbook when asked to, one run after the other, and one that runs modules for it."""

    def __init__(self, environment):
        self.folder = tempfile.TemporaryDirectory(prefix="npu-affinity-controller-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        socket = str(Path(self.folder.name, "socket"))
        archives = Path(BUILT.name, hashlib.sha256(environment.get("ANSIBLE_COLLECTIONS_PATH", "").encode()).hexdigest())
        archives.mkdir(exist_ok=True)
        self.environment = {
            "ANSIBLE_LOCAL_TEMP": self.folder.name,
            "MODULE_ARCHIVES": str(archives),
            "TMPDIR": self.folder.name,
            "MODULE_SERVER": socket,
            "PYTHONPATH": first_on_path(HERE / "modules", environment),
        }
        self.modules = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "modules/server.py"), socket, str(Path(self.folder.name, "on_hosts")), str(HERE.parents[1])],
            env={**environment, "BYTECODE_CACHE": BUILT.name, "PYTHONPATH": first_on_path(HERE / "bytecode", environment)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        self.modules.stdout.readline()
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            env={**environment, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments, folder, environment, timeout):
        """Return one run as ``subprocess.run`` does, both outputs in ``stdout``; ``timeout`` is in seconds."""
        output = Path(self.folder.name) / "output"
        request = {
            "arguments": arguments,
            "folder": str(folder),
            "environment": {**environment, **self.environment},
            "timeout": timeout,
            "output": str(output),
        }
        print(json.dumps(request), file=self.process.stdin, flush=True)
        status = json.loads(self.process.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, stdout=output.read_text(), stderr="")

    def close(self):
        self.process.communicate()
        self.modules.terminate()
        self.modules.communicate()
        self.folder.cleanup()


def first_on_path(folder, environment):
    return os.pathsep.join(filter(None, [str(folder), environment.get("PYTHONPATH")]))


_controllers = {}


def ansible_playbook(arguments, folder, environment, timeout=600):
    """Run ansible-playbook in a folder, as ``subprocess.run`` would."""
    settings = frozenset(pair for pair in environment.items() if pair[0].startswith(("ANSIBLE_", "PYTHON")))
    if settings not in _controllers:
        _controllers[settings] = Controller(environment)
    return _controllers[settings].run(arguments, folder, environment, timeout)


def close():
    """End the processes."""
    while _controllers:
        _controllers.popitem()[1].close()


def serve():
    """Read requests, one JSON line each, and answer each with the exit status of its run."""
    import gc
    import warnings

    import ansible.executor.module_common
    import ansible.executor.process.worker
    import ansible.plugins.strategy.linear  # noqa: F401
    from ansible import constants
    from ansible.cli.playbook import PlaybookCLI
    from ansible.plugins import loader

    os.symlink(os.environ["MODULE_ARCHIVES"], Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"))
    constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.01  # looking for results every millisecond takes CPU from those who work on them
    loader.init_plugin_loader()
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    for name in ("assert", "copy", "debug", "fail", "normal", "set_fact", "validate_argument_spec"):
        loader.action_loader.get(f"ansible.builtin.{name}", class_only=True)
    loader.callback_loader.get("ansible.builtin.default", class_only=True)
    loader.connection_loader.get("ansible.builtin.local", class_only=True)
    loader.shell_loader.get("sh", class_only=True)
    loader.filter_loader.get("ansible.builtin.bool")
    loader.filter_loader.get("npu.affinity.plan")
    loader.action_loader.get("npu.affinity.step", class_only=True)
    loader.lookup_loader.get("npu.affinity.settings", class_only=True)
    for kind in (loader.become_loader, loader.callback_loader, loader.connection_loader, loader.shell_loader):
        list(kind.all(class_only=True))
    gc.disable()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            run_once(PlaybookCLI, request)
        _child, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run_once(command, request):
    """Be one run of the command, from its start to its end."""
    import atexit
    import signal

    from ansible.config.manager import cleanup_tmp_file

    from ansible_collections.npu.affinity.plugins.plugin_utils._steps import task

    task.RUN.update(task.new_run())
    signal.alarm(request["timeout"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(descriptor, stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["ansible-playbook", *request["arguments"]]
    status = 255
    try:
        command.cli_executor(sys.argv)
    except SystemExit as end:
        status = end.code or 0
    finally:
        atexit.unregister(cleanup_tmp_file)  # what was built for modules is for the next run too
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()

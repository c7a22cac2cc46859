# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules as Python started for each would, in forks of a process that has Ansible's part of every module imported.

``python server.py SOCKET FOLDER [CHECKOUT]`` serves until it gets SIGTERM. A module arrives as an archive of sources, a hundred of them.
Those of Ansible are imported here, once, from where Ansible has them; those of collections come out of the archive as on any host. With a
checkout, the simulated npu-smi answers modules without a process of its own (see ``tests/fakes/programs.py``).
"""

import atexit
import contextlib
import gc
import importlib.machinery
import importlib.util
import os
import signal
import socket
import sys
import types
from pathlib import Path


def import_what_modules_have(folder):
    """Import Ansible's part of modules as it is on hosts: without the rest of Ansible, which says that it is a controller."""
    package = Path(folder, "ansible")
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (ansible,) = importlib.util.find_spec("ansible").submodule_search_locations
    for name in ("module_utils", "modules"):
        (package / name).symlink_to(Path(ansible, name))
    sys.path.insert(0, str(package.parent))
    importlib.import_module("ansible.module_utils.basic")
    importlib.import_module("ansible.module_utils._internal._ansiballz._loader")


class Answering:
    """Finds and loads the file of host code that runs commands, which then asks npu-smi in its own process."""

    def __init__(self, programs):
        self.programs = programs

    def find_spec(self, name, path=None, _target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name.endswith(".module_utils._host.host") else None
        if spec is not None:
            self.load, spec.loader = spec.loader.exec_module, self
        return spec

    def create_module(self, _spec):
        return None

    def exec_module(self, module):
        self.load(module)
        module._run = self.programs.answering(module._run, module.Result)


def import_programs(checkout):
    sys.path.append(checkout)
    programs = importlib.import_module("tests.fakes.programs")
    sys.path.pop()
    return programs


def receive(connection):
    """Return a request and the input and outputs that came with it."""
    data, descriptors, _flags, _address = socket.recv_fds(connection, 1 << 16, 3)
    size = int(data[:8])
    while len(data) < 8 + size:
        data += connection.recv(1 << 16)
    return os.fsdecode(data[8:]), descriptors


def become(request, descriptors):
    """Be the process that handed the request over, and run the program that it would read."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    folder, *pairs = request.split("\0")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(pair.split("=", 1) for pair in pairs)
    sys.argv = [""]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    status = 1
    try:
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), vars(main))
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
    return status


def reap(_signal, _frame):
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve(path, folder, checkout=""):
    import_what_modules_have(folder)
    if checkout:
        sys.meta_path.insert(0, Answering(import_programs(checkout)))
    gc.freeze()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, reap)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(100)
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            connection, _address = listener.accept()
            if not os.fork():
                status = 255
                try:
                    listener.close()
                    status = become(*receive(connection))
                finally:
                    with contextlib.suppress(OSError):
                        connection.send(bytes([status]))
                    os._exit(status)
            connection.close()


if __name__ == "__main__":
    serve(*sys.argv[1:])

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One running guest of the lab: boot it, run commands in it over ssh, save and restore its state, reboot it.

``python -m tests.lab.machine a2`` boots one to look around in, until Enter is pressed.
"""

import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import cache

from . import image, queues, shapes

PATIENCE = 300
"""Seconds after which a wait counts as a fault: many times what a quiet host needs."""
BOOT_SECONDS = 600
BOOT_ATTEMPTS = 3
LINES = 20
"""Of a guest's console, in the message when it does not answer."""
BOOTED, DISK = "booted", "disk.qcow2"
"""The saved state of a guest right after its first boot, and the disk that keeps it."""
KEPT = 12
"""Guests in that state that stay in the cache, of 300 MB each."""
FIRST_PORT = 2240
HERE = Path(__file__).resolve().parent
LOOK, FILES = ((HERE / name).read_text() for name in ("look.py", "files.py"))
NPU_SMI = HERE.parents[1] / "tests/simulator/npu_smi.py"
TOOL = "/usr/local/Ascend/driver/tools/npu-smi"
LAUNCHER = """#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/usr/local/lib/lab")
import npu_smi
sys.exit(npu_smi.main("/", sys.argv[1:]))
"""
"""The guest's npu-smi, which every run asks three questions: the program is compiled once, as a module."""
BYTECODE = "/run/lab"
"""Where the guest's Python keeps what it compiled of Ansible's archives (``guest/customize``)."""
NPU_NAMES = {"a2": "910B3", "a3": "Ascend910"}
CHIPS_PER_CARD = {"a2": 1, "a3": 2}


class Machine:
    """A guest of the given shape, on a fresh overlay of the image. Ends with :meth:`stop`, or with this process."""

    compiled = (0, "")
    """The number of files that Python compiled in the guests of this process, and an archive of them."""

    def __init__(self, shape):
        self.shape = shape
        self._folder = Path(tempfile.mkdtemp(prefix="npu-lab-"))  # a socket's path may have 107 characters only
        guests = cache.root() / "lab-guests"
        guests.mkdir(parents=True, exist_ok=True)
        self._disk = guests / f"{shape.name}-{os.getpid()}.qcow2"
        self._port = _free_port()
        self.serial = guests / f"serial-{self._port}.log"
        self.ssh_config = self._folder / "ssh_config"
        self.ssh_config.write_text(
            f"Host {shape.name}\n HostName 127.0.0.1\n Port {self._port}\n User root\n IdentityFile {image.KEY}\n"
            f" StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n ServerAliveInterval 15\n ServerAliveCountMax 20\n"
            f" ControlMaster auto\n ControlPersist 10m\n ControlPath {self._folder}/ssh\n"
        )
        self._qemu = None
        self.compiled_in = {}  # how many of those files a saved state has

    def boot(self):
        """Make it a guest right after its first boot: one that goes on from the kept :data:`BOOTED` state, where the shape can be saved."""
        for disk in self._disk.parent.glob("*.qcow2"):  # of runs that were killed
            if not Path("/proc", disk.stem.rpartition("-")[2]).exists():
                disk.unlink()
        if not self.shape.saveable:
            self._first_boot()
            self._give_compiled()
            return
        self.resume(cache.folder(f"lab-{BOOTED}", made_of(self.shape), self._boot_and_keep, KEPT), BOOTED)

    def resume(self, folder, state):
        """Go on from a state that a folder of the cache keeps, or from one that came before it."""
        shutil.copy(folder / DISK, self._disk)
        self._start("-loadvm", state)
        self._give_compiled(state)

    def _boot_and_keep(self, folder):
        self._first_boot()
        self.keep(folder, BOOTED)

    def keep(self, folder, state):
        """Save a state, end, and leave the disk, which has all saved states, in a folder of the cache."""
        self.save(state)
        self._control("quit")
        self._qemu.communicate(timeout=PATIENCE)
        shutil.move(self._disk, folder / DISK)

    def _first_boot(self):
        """Boot a fresh guest and describe its NPUs to its npu-smi."""
        command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image.DISK), "-F", "raw", str(self._disk)]
        subprocess.run(command, check=True)
        self._start()
        state = self.run("systemctl is-system-running --wait || true", timeout=BOOT_SECONDS).strip()
        if state != "running":
            failed = self.run("systemctl --failed --plain --no-legend")
            raise RuntimeError(f"guest {self.shape.name} is {state} after its boot: {failed}")
        self.write("/usr/local/lib/lab/npu_smi.py", NPU_SMI.read_text())
        self.write(TOOL, LAUNCHER)
        self.run(f"chmod 755 {TOOL}; python3 -m compileall -q /usr/local/lib/lab")
        self.write("/simulator/machine.json", json.dumps(self._described()))

    def _start(self, *options):
        """Start the guest. An emulated boot that ends or hangs, which a busy host brings about now and then, is started again."""
        for attempt in range(1, BOOT_ATTEMPTS + 1):
            self._launch(*options)
            try:
                self._await_answer("after its start", BOOT_SECONDS)
            except RuntimeError:
                self._qemu.kill()
                self._qemu.communicate()
                if attempt == BOOT_ATTEMPTS:
                    raise
            else:
                return

    def _launch(self, *options):
        control = ["-qmp", "stdio", "-display", "none", "-vga", "none", "-serial", f"file:{self.serial}", "-no-reboot"]
        disk = ["-drive", f"file={self._disk},if=none,id=disk,format=qcow2,discard=unmap,cache=unsafe"]
        disk += ["-device", "virtio-blk-pci,drive=disk,bus=pcie.0"]
        network = ["-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22"]
        network += ["-device", "virtio-net-pci,netdev=net,bus=pcie.0,romfile="]
        near = queues.opened(shapes.QUEUES) if self.shape.nic is not None else []
        if self.shape.nic is not None:
            backend = f"tap,fds={':'.join(map(str, near))}" if near else "hubport,hubid=0"
            network += ["-netdev", f"{backend},id={shapes.NEAR}"]
        command = ["setpriv", "--pdeathsig", "KILL", image.QEMU, *self.shape.arguments(), *disk, *network, *control, *options]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": (self._folder / "qemu.log").open("w")}
        self._qemu = subprocess.Popen(command, **streams, bufsize=0, pass_fds=near)
        for queue in near:
            os.close(queue)
        self._answer("QMP")
        self._control("qmp_capabilities")

    @property
    def runs(self):
        return self._qemu is not None and self._qemu.poll() is None

    def _alive(self):
        if not self.runs:
            raise RuntimeError(f"guest {self.shape.name} has ended: {(self._folder / 'qemu.log').read_text()}{self._console()}")

    def _console(self):
        """How the guest's console ends."""
        text = re.sub(r"\x1b\[[0-9;=]*[A-Za-z]", "", self.serial.read_text(errors="replace")) if self.serial.exists() else ""
        lines = [line for line in text.splitlines() if line.strip()] or ["(nothing)"]
        return "\n".join(["", f"The end of its console ({self.serial}):", *lines[-LINES:]])

    def _described(self):
        """What tests/simulator/npu_smi.py wants to know; physical ids are the driver's numbers of the devices."""
        chips_per_card = CHIPS_PER_CARD[self.shape.family]
        chips = [
            {
                "card": number // chips_per_card,
                "chip": number % chips_per_card,
                "phy": number,
                "bdf": bdf,
                "name": NPU_NAMES[self.shape.family],
                "memory_mib": 65536,
                "health": "OK",
            }
            for number, bdf in sorted((function["number"], bdf) for bdf, function in self.look()["functions"].items())
        ]
        architecture = image.PLATFORMS[image.ARCHITECTURE]
        described = {"family": self.shape.family, "architecture": architecture, "version": "25.5.1", "npu_smi": "25.5.1"}
        described |= {"layout": "release", "mesh": None, "affinity": None, "chips": chips, "processes": [], "faults": {}}
        return described

    def look(self):
        """The kernel's view of the guest, as ``look.py`` gathers it."""
        return json.loads(self.run("python3 -IS -", stdin=LOOK))

    def files(self):
        """Every file and folder that a bind or its undo could touch: ``{path: (mode, owner, group, digest or target)}``."""
        return {path: tuple(state) for path, state in json.loads(self.run("python3 -IS -", stdin=FILES)).items()}

    # --- commands -------------------------------------------------------------------------------------------------------------

    def _ssh(self, command, stdin="", timeout=PATIENCE):
        words = ["ssh", "-F", str(self.ssh_config), "-o", "ConnectTimeout=30", self.shape.name, command]
        try:
            return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 255, "", f"no answer within {timeout} s")

    def run(self, command, stdin="", timeout=PATIENCE):
        """Run a shell command in the guest as root and return its standard output; ``RuntimeError`` when it fails."""
        result = self._ssh(command, stdin, timeout)
        if result.returncode != 0:
            raise RuntimeError(f"'{command}' ended with {result.returncode} in guest {self.shape.name}: {result.stdout}{result.stderr}")
        return result.stdout

    def write(self, path, text):
        self.run(f"mkdir -p $(dirname {path}) && cat > {path}", stdin=text)

    def await_idle(self, *units):
        """Wait until none of the units (shell patterns) is starting or has a job waiting."""
        deadline = time.monotonic() + PATIENCE
        names = " ".join(f"'{unit}'" for unit in units)
        command = f"systemctl list-units --plain --no-legend --state=activating {names}; systemctl list-jobs --no-legend {names}"
        while busy := [line for line in self.run(command).splitlines() if line and "No jobs" not in line]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"still busy after {PATIENCE} s: {busy}")
            time.sleep(0.5)

    def keep_compiled(self):
        """Take along what Python has compiled, for every guest that starts or is restored later: here it lies in memory only."""
        command = f"cd {BYTECODE}; set -- *; [ $# -le {Machine.compiled[0]} ] || {{ echo $#; tar -cz -- * | base64 --wrap=0; }}"
        count, _newline, archive = self.run(command).partition("\n")
        if count:
            Machine.compiled = int(count), archive

    def _give_compiled(self, state=""):
        if Machine.compiled[0] > self.compiled_in.get(state, 0):
            self.run(f"base64 --decode | tar -xz -C {BYTECODE}", stdin=Machine.compiled[1])

    # --- state ----------------------------------------------------------------------------------------------------------------

    def _answer(self, *keys):
        """Read QEMU's messages up to one that has one of the keys."""
        deadline = time.monotonic() + PATIENCE
        while True:
            ready, _write, _error = select.select([self._qemu.stdout], [], [], max(0, deadline - time.monotonic()))
            line = self._qemu.stdout.readline() if ready else b""
            if not line:
                self._qemu.wait(5) if ready else None
                self._alive()
                raise RuntimeError(f"QEMU did not answer within {PATIENCE} s")
            message = json.loads(line)
            if any(key in message for key in keys):
                return message

    def _control(self, command, **arguments):
        self._qemu.stdin.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        message = self._answer("return", "error")
        if "error" in message or (command == "human-monitor-command" and message["return"].strip()):
            raise RuntimeError(f"QEMU refused {command} {arguments}: {message}")

    def save(self, name):
        """Keep the guest's state, memory and disk alike, under a name. Files are written to the disk first."""
        self.run("sync")
        self._disconnect()
        self._control("human-monitor-command", **{"command-line": f"savevm {name}"})

    def restore(self, name):
        """Go back to a saved state; its clock goes on from there."""
        self._disconnect()
        self._control("human-monitor-command", **{"command-line": f"loadvm {name}"})
        self._await_answer(f"after its state {name} was restored")
        self._give_compiled(name)

    def _await_answer(self, when, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while self._ssh("true", timeout=60).returncode != 0:
            self._alive()
            if time.monotonic() > deadline:
                raise RuntimeError(f"guest {self.shape.name} does not answer {when} within {seconds} s.{self._console()}")
            time.sleep(0.5)

    def _disconnect(self):
        """End the ssh connection that commands share: it does not outlive a restored state."""
        command = ["ssh", "-F", str(self.ssh_config), "-O", "exit", self.shape.name]
        subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE)

    def reboot(self):
        """Reboot: the guest shuts down by itself and starts on the same disk."""
        self._ssh("systemctl reboot")
        self._boot_again()

    def cut_power(self):
        """Start again without a shutdown: what the guest has not written to its disk is lost."""
        self._qemu.stdin.write(json.dumps({"execute": "system_reset"}).encode() + b"\n")
        self._boot_again()

    def _boot_again(self):
        self._disconnect()
        try:
            self._qemu.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"guest {self.shape.name} has not shut down within {PATIENCE} s.{self._console()}") from None
        self._start()
        self.run("systemctl is-system-running --wait || true", timeout=BOOT_SECONDS)
        self._give_compiled()

    def pull_network(self):
        """Cut the guest off. ssh, which would find out after a while without answers, ends at once."""
        self._control("set_link", name="net", up=False)
        self._disconnect()

    def plug_network(self):
        self._control("set_link", name="net", up=True)
        self._disconnect()
        self._await_answer("after its network was plugged in again")

    def stop(self):
        """End the guest at once and remove its disk."""
        self._disconnect()
        if self.runs:
            self._qemu.kill()
            self._qemu.wait()
        self._disk.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def made_of(shape):
    """All that decides what a guest is after its first boot."""
    version = subprocess.run([image.QEMU, "--version"], capture_output=True, text=True, check=True).stdout
    sources = [path.read_text() for path in (Path(__file__), NPU_SMI)]
    return [image.IDENTITY.read_text(), version, *shape.arguments(), *sources, LOOK]


def _free_port():
    """A port that nobody listens on. Processes that look for one at the same time begin to look in different places."""
    first = FIRST_PORT + os.getpid() % 100
    for port in range(first, first + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port from {first} on")


def main(name):
    if lacking := image.missing():
        raise SystemExit(lacking)
    image.build()
    machine = Machine(getattr(shapes, name.upper()))
    try:
        machine.boot()
        input(f"ssh -F {machine.ssh_config} {name}\nPress Enter to end it. ")
    finally:
        machine.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

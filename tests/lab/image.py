# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests' disk image: a small Debian with the stand-in for an NPU driver, built once and shared by all checkouts of a user.

``python -m tests.lab.image`` builds it when it is not there or its inputs changed: a minute, five for the other architecture.
``LAB_ARCH`` is amd64 (default) or arm64, ``LAB_CACHE`` the folder that keeps it (default: npu-affinity-lab in the user's cache folder).
Needs root, for mmdebstrap keeps file owners.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHITECTURE = os.environ.get("LAB_ARCH", "amd64")
USERS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = Path(os.environ.get("LAB_CACHE") or USERS_CACHE / "npu-affinity-lab").absolute() / ARCHITECTURE
SUITE = "bookworm"
BUILD_SECONDS = 900
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
QEMU = {"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}.get(ARCHITECTURE, "")
PACKAGES = [f"linux-image-cloud-{ARCHITECTURE}", f"linux-headers-cloud-{ARCHITECTURE}", "make"]
PACKAGES += ["systemd-sysv", "udev", "kmod", "dbus", "openssh-server", "python3", "python3-psutil", "irqbalance", "numactl", "procps"]
LEFT_OUT = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"]

DISK, KERNEL, INITRD, KEY, FIRMWARE = (CACHE / name for name in ("disk.raw", "vmlinuz", "initrd.img", "key", "firmware.fd"))
_STAMP = CACHE / "stamp"


def missing():
    """Return a sentence that says what this machine lacks for the lab, or '' when it lacks nothing."""
    if not QEMU:
        return f"LAB_ARCH is {ARCHITECTURE}; it must be amd64 or arm64."
    programs = [QEMU, "qemu-img", "ssh", "ssh-keygen", "setpriv"]
    if not _up_to_date():
        programs += ["mmdebstrap", "mke2fs"]
        if os.geteuid() != 0:
            return "The lab's image is built by root only; run make lab as root once."
    lacking = [name for name in programs if not shutil.which(name, path=SEARCH_PATH)]
    return f"The lab needs {', '.join(lacking)}; tests/lab/setup installs the packages as root on Debian." if lacking else ""


def _inputs():
    digest = hashlib.sha256(" ".join([SUITE, *PACKAGES]).encode())
    for path in [Path(__file__), *sorted((HERE / "guest").iterdir())]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _up_to_date():
    return _STAMP.exists() and _STAMP.read_text() == _inputs()


def build():
    """Build the image unless it is there already. The log is in the cache's ``build.log``."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another checkout may be building it
        if not _up_to_date():
            _build_logged()


def _build_logged():
    inputs = _inputs()
    _STAMP.unlink(missing_ok=True)
    log = CACHE / "build.log"
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="build.") as work, log.open("w") as output:
        os.chmod(work, 0o755)  # apt drops its rights and must still get in
        try:
            _build(Path(work, "root"), output)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = "\n".join(log.read_text().splitlines()[-20:])
            raise RuntimeError(f"'{error.cmd[0]}' failed while the lab's image was built, see {log}:\n{last}")
    _STAMP.write_text(inputs)


def _build(root, output):
    environment = {**os.environ, "PATH": SEARCH_PATH, "LAB_KEY": f"{KEY}.pub"}

    def run(*command):
        words = [str(word) for word in command]
        streams = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL}
        subprocess.run(words, env=environment, timeout=BUILD_SECONDS, check=True, **streams)

    if not KEY.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", KEY)
    run(
        "mmdebstrap",
        "--variant=minbase",
        f"--architectures={ARCHITECTURE}",
        f"--include={','.join(PACKAGES)}",
        *[f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT],
        f'--setup-hook=install -D -m 644 "{HERE}/guest/initramfs.conf" "$1/etc/initramfs-tools/conf.d/lab"',
        f'--customize-hook="{HERE}/guest/customize" "$1"',
        SUITE,
        root,
    )
    for wanted, pattern in ((KERNEL, "vmlinuz-*"), (INITRD, "initrd.img-*")):
        (found,) = (root / "boot").glob(pattern)
        shutil.copy(found, wanted)
    if ARCHITECTURE == "arm64":
        # The firmware of Debian 12 (edk2 2022.11) shows its flash as memory of no NUMA node, and the kernel then gives up on NUMA.
        firmware = root.with_name("firmware")
        run("mmdebstrap", "--variant=extract", "--include=qemu-efi-aarch64", "trixie", firmware)
        shutil.copy(firmware / "usr/share/qemu-efi-aarch64/QEMU_EFI.fd", FIRMWARE)
    DISK.unlink(missing_ok=True)
    run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, DISK, "2G")


if __name__ == "__main__":
    build()
    print(f"The lab's image is {DISK}.")

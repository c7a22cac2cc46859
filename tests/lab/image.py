# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests' disk image: a small Debian with the stand-in for an NPU driver, built once and shared by all checkouts of a user.

``python -m tests.lab.image`` builds it where none is kept that is made of the same files: a minute, five for the other architecture.
``LAB_ARCH`` is amd64 (default) or arm64. Needs root, for mmdebstrap keeps file owners.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

from tests import cache

HERE = Path(__file__).resolve().parent
ARCHITECTURE = os.environ.get("LAB_ARCH", "amd64")
BYTECODE = HERE.parent / "integration/bytecode/sitecustomize.py"
SUITE = "bookworm"
BUILD_SECONDS = 7200
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
QEMU = {"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}.get(ARCHITECTURE, "")
PACKAGES = [f"linux-image-cloud-{ARCHITECTURE}", f"linux-headers-cloud-{ARCHITECTURE}", "make"]
PACKAGES += ["systemd-sysv", "udev", "kmod", "dbus", "openssh-server", "python3", "python3-psutil", "irqbalance", "numactl", "procps"]
LEFT_OUT = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"]
KEPT = 4
"""Images that stay in the cache, of 700 MB each."""
LINES = 20
"""Of the build's log, in the message when it fails."""

_KIND = "lab"
_MADE_OF = [ARCHITECTURE, SUITE, *PACKAGES, *LEFT_OUT]
_MADE_OF += [path.name + path.read_text() for path in [Path(__file__), BYTECODE, *sorted((HERE / "guest").iterdir())]]
FOLDER = cache.place(_KIND, _MADE_OF)
DISK, KERNEL, INITRD, KEY, FIRMWARE, IDENTITY = (
    FOLDER / name for name in ("disk.raw", "vmlinuz", "initrd.img", "key", "firmware.fd", "identity")
)


def missing():
    """Return a sentence that says what this machine lacks for the lab, or '' when it lacks nothing."""
    if not QEMU:
        return f"LAB_ARCH is {ARCHITECTURE}; it must be amd64 or arm64."
    programs = [QEMU, "qemu-img", "ssh", "ssh-keygen", "setpriv"]
    if not cache.is_made(FOLDER):
        programs += ["mmdebstrap", "mke2fs"]
        if os.geteuid() != 0:
            return "The lab's image is built by root only; run make lab as root once."
    lacking = [name for name in programs if not shutil.which(name, path=SEARCH_PATH)]
    return f"The lab needs {', '.join(lacking)}; tests/lab/setup installs the packages as root on Debian." if lacking else ""


def build():
    """Build the image unless it is there already."""
    cache.folder(_KIND, _MADE_OF, _build_logged, KEPT)


def _build_logged(folder):
    log = folder / "build.log"
    with log.open("w") as output:
        try:
            _build(folder, output)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = "\n".join(log.read_text().splitlines()[-LINES:])
            raise RuntimeError(f"'{error.cmd[0]}' failed while the lab's image was built, see {log}:\n{last}")


def _build(folder, output):
    environment = {**os.environ, "PATH": SEARCH_PATH, "LAB_KEY": f"{KEY}.pub"}

    def run(*command):
        words = [str(word) for word in command]
        streams = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL}
        subprocess.run(words, env=environment, timeout=BUILD_SECONDS, check=True, **streams)

    root = folder / "root"
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
        firmware = folder / "firmware"
        run("mmdebstrap", "--variant=extract", "--include=qemu-efi-aarch64", "trixie", firmware)
        shutil.copy(firmware / "usr/share/qemu-efi-aarch64/QEMU_EFI.fd", FIRMWARE)
        shutil.rmtree(firmware)
    run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, DISK, "2G")
    shutil.rmtree(root)
    IDENTITY.write_text(uuid.uuid4().hex)


if __name__ == "__main__":
    build()
    print(f"The lab's image is {DISK}.")

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests' disk image: a small Debian with the stand-in for an NPU driver, built once and shared by all checkouts of a user.

``python -m tests.lab.image`` builds it in a minute or two where none is kept that is made of the same files. ``LAB_ARCH`` is amd64
(default) or arm64, ``LAB_IMAGE`` lab (default), selinux, engines, engines-v1 (older engines, on a kernel that has cpusets of cgroup v1)
or measure (programs that load a machine and measure it), ``LAB_SUITE`` the release of Debian: one of :data:`SUITES`, by default that of
the kind of image. Needs root, for mmdebstrap keeps file owners.

Packages come from the Debian mirror that this machine's apt uses, and where it uses none from the one that mmdebstrap takes by default.

Nothing of the guest runs while its image is built: one of another architecture takes no longer. What packages write when they are
set up is the same on all of them: they are set up with the programs of this machine, and those of the guest take their place.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import ansible

from tests import cache

HERE = Path(__file__).resolve().parent
ARCHITECTURE = os.environ.get("LAB_ARCH", "amd64")
PYTHON = [HERE.parent / f"integration/{name}.py" for name in ("bytecode/sitecustomize", "modules/sitecustomize", "modules/server")]
"""What makes modules start faster."""
BUILD_SECONDS = 7200
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
QEMU = {"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}.get(ARCHITECTURE, "")
PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
"""What all but Debian calls an architecture."""
FOREIGN = PLATFORMS.get(ARCHITECTURE) != os.uname().machine
PROGRAMS = [
    "systemd-sysv",
    "udev",
    "kmod",
    "dbus",
    "openssh-server",
    "python3",
    "python3-psutil",
    "irqbalance",
    "numactl",
    "procps",
    "sudo",
]
KERNEL_PACKAGES = [f"linux-image-cloud-{ARCHITECTURE}", f"linux-headers-cloud-{ARCHITECTURE}", "busybox-static"]
TRIPLET = f"{PLATFORMS.get(ARCHITECTURE)}-linux-gnu"
TOOLS = ["make", f"gcc-{TRIPLET.replace('_', '-')}" if FOREIGN else "gcc"]
"""What the driver is compiled with besides the kernel's own tools; removed afterwards."""


@dataclass(frozen=True)
class Kind:
    """A kind of image: the release of Debian, what it has in addition to :data:`PROGRAMS`, and the size of its file system."""

    suite: str
    programs: tuple[str, ...] = ()
    size: str = "2G"


ENGINES = ("docker.io", "docker-cli", "docker-compose", "containerd", "podman", "crun", "runc", "busybox-static")
ENGINES_V1 = ("docker.io", "apparmor", "containerd", "podman", "crun", "runc", "busybox-static")
SELINUX = ("selinux-policy-default", "policycoreutils")
KINDS = {
    "lab": Kind("bookworm"),
    "engines": Kind("trixie", ENGINES, "4G"),
    "engines-v1": Kind("bookworm", ENGINES_V1, "4G"),
    "selinux": Kind("bookworm", SELINUX),
    "measure": Kind("bookworm", ("rt-tests", "stress-ng")),
}
NAME = os.environ.get("LAB_IMAGE", "lab")
SUITES = ("bullseye", "bookworm", "trixie", "testing")
"""Debian 11 (kernel 5.10, systemd 247, no merged /usr), 12 (6.1, 252), 13 (6.12, 257) and the next one (7.2, 262)."""
WITH_SECURITY = ("bookworm", "trixie")
"""Those whose security suite is complete: what Debian 11 needs is in its last point release."""
SUITE = os.environ.get("LAB_SUITE") or KINDS[NAME].suite
KIND = dataclasses.replace(KINDS[NAME], suite=SUITE)
MACHINE_OF_ELF = {"amd64": 62, "arm64": 183}
APT_OPTIONS = ['--aptopt=Acquire::Check-Valid-Until "false"']
"""A mirror that is kept back has lists of the testing release that are out of date."""
LEFT_OUT = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"]
KEPT = 5
"""Images of a kind that stay in the cache, of 700 MB each."""
LINES = 20
"""Of the build's log, in the message when it fails."""

_MADE_OF = [ARCHITECTURE, repr(KIND), ansible.__version__, *PROGRAMS, *KERNEL_PACKAGES, *TOOLS, *LEFT_OUT]
_MADE_OF += [path.name + path.read_text() for path in [Path(__file__), *PYTHON, *sorted((HERE / "guest").iterdir())]]
FOLDER = cache.place(NAME, _MADE_OF)
DISK, KERNEL, INITRD, KEY, FIRMWARE, IDENTITY = (
    FOLDER / name for name in ("disk.raw", "vmlinuz", "initrd.img", "key", "firmware.fd", "identity")
)


def missing():
    """Return a sentence that says what this machine lacks for the lab, or '' when it lacks nothing."""
    if not QEMU:
        return f"LAB_ARCH is {ARCHITECTURE}; it must be amd64 or arm64."
    if SUITE not in SUITES:
        return f"LAB_SUITE is {SUITE}; it must be one of {', '.join(SUITES)}."
    programs = [QEMU, "qemu-img", "ssh", "ssh-keygen", "setpriv"]
    if not cache.is_made(FOLDER):
        programs += ["mmdebstrap", "mke2fs", "cpio", "gzip", "xz"]
        if os.geteuid() != 0:
            return "The lab's image is built by root only; run make lab as root once."
    lacking = [name for name in programs if not shutil.which(name, path=SEARCH_PATH)]
    return f"The lab needs {', '.join(lacking)}; tests/lab/setup installs the packages as root on Debian." if lacking else ""


def build():
    """Build the image unless it is there already."""
    cache.folder(NAME, _MADE_OF, _build_logged, KEPT)


def _build_logged(folder):
    log = folder / "build.log"
    with log.open("w") as output:
        try:
            _build(folder, output)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = "\n".join(log.read_text().splitlines()[-LINES:])
            raise RuntimeError(f"'{error.cmd[0]}' failed while the lab's image was built, see {log}:\n{last}")


def _build(folder, output):
    parts, root = folder / "parts", folder / "root"
    environment = {**os.environ, "PATH": SEARCH_PATH, "LAB_KEY": f"{KEY}.pub", "LAB_PARTS": str(parts), "LAB_INITRD": str(INITRD)}
    environment |= {"LAB_TRIPLET": TRIPLET, "LAB_ANSIBLE": str(Path(ansible.__file__).parent)}

    def run(*command):
        words = [str(word) for word in command]
        streams = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL}
        subprocess.run(words, env=environment, timeout=BUILD_SECONDS, check=True, **streams)

    def extract(target, suite, *packages):
        """Unpack packages of the guest's architecture, and all that they depend on."""
        includes = [f"--include={words}" for words in packages]
        options = ["--variant=extract", f"--architectures={ARCHITECTURE}", *_dpkg_options(), *APT_OPTIONS]
        run("mmdebstrap", *options, *includes, suite, target, *_mirrors(suite))

    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", KEY)
    extract(parts, KIND.suite, ",".join(KERNEL_PACKAGES), *(["?essential", ",".join(PROGRAMS)] if FOREIGN else []))
    (kernel,) = [*(parts / "boot").glob("vmlinuz-*"), *(parts / "usr/lib/modules").glob("*/vmlinuz")]
    shutil.copy(kernel, KERNEL)
    (kernel_tools,) = (parts / "usr/lib").glob("linux-kbuild-*")
    tools = [*TOOLS, kernel_tools.name]
    environment["LAB_TOOLS"] = " ".join(tools)
    run(
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join([*PROGRAMS, *KIND.programs, *tools])}",
        *_dpkg_options(),
        *APT_OPTIONS,
        f'--customize-hook="{HERE}/guest/customize" "$1"',
        KIND.suite,
        root,
        *_mirrors(KIND.suite),
    )
    if FOREIGN:
        _replace_programs(root, parts, run)
    shutil.rmtree(parts)
    if KIND.programs == SELINUX:  # labelled here, as it would boot twice otherwise
        (root / "etc/selinux/config").write_text("SELINUX=permissive\nSELINUXTYPE=default\n")
        label = "mount -t proc proc /proc && setfiles -F -e /proc /etc/selinux/default/contexts/files/file_contexts /"
        run("unshare", "--mount", "chroot", root, "sh", "-c", label)
    if ARCHITECTURE == "arm64":
        # The firmware of Debian 12 (edk2 2022.11) shows its flash as memory of no NUMA node, and the kernel then gives up on NUMA.
        firmware = folder / "firmware"
        extract(firmware, "trixie", "qemu-efi-aarch64")
        shutil.copy(firmware / "usr/share/qemu-efi-aarch64/QEMU_EFI.fd", FIRMWARE)
        shutil.rmtree(firmware)
    run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, DISK, KIND.size)
    shutil.rmtree(root)
    IDENTITY.write_text(uuid.uuid4().hex)


def _mirrors(suite):
    """The lines of apt for a suite: from the mirrors of Debian that this machine's apt knows, or none."""
    lines = []
    for label, name in [("Debian", suite), *([("Debian-Security", f"{suite}-security")] if suite in WITH_SECURITY else [])]:
        command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Label: {label}"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        lines += [f"deb {found[0]} {name} main"] if found else []
    return lines


def _dpkg_options():
    return ["--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT)]


def _replace_programs(root, parts, run):
    """Put the guest's programs and libraries where those of this machine are, and remove what is left of those."""
    for name in ("boot", "usr/src", "var/lib/dpkg"):
        shutil.rmtree(parts / name)
    archive = parts.with_suffix(".tar")
    run("tar", "--create", "--file", archive, "--directory", parts, ".")
    run("tar", "--extract", "--file", archive, "--directory", root, "--keep-directory-symlink", "--exclude=./etc")
    archive.unlink()
    (root / "etc/ld.so.cache").unlink()
    for folder, _folders, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            if path.is_file() and not path.is_symlink() and _machine(path) not in (None, MACHINE_OF_ELF[ARCHITECTURE]):
                path.unlink()


def _machine(path):
    """The machine that a program or library is for, by its number in ELF; ``None`` for all other files."""
    with path.open("rb") as file:
        start = file.read(20)
    return struct.unpack_from("<H", start, 18)[0] if start[:4] == b"\x7fELF" else None


if __name__ == "__main__":
    build()
    print(f"The lab's image is {DISK}.")

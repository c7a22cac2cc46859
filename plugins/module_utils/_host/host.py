# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way in which host code reaches files and commands: below one root, with a time limit, without a shell."""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import selectors
import signal
import stat
import subprocess
import time
from typing import IO, Iterable, Mapping, NamedTuple, Sequence, cast

from .._base.outside import shown


class Result(NamedTuple):
    """What a command did: its words, its exit status, and as text standard output followed by standard error, its ``errors``."""

    argv: tuple[str, ...]
    rc: int
    output: str
    errors: str = ""

    @property
    def answer(self) -> str:
        """Standard output alone: programs also warn where they succeed."""
        return self.output[: len(self.output) - len(self.errors)]


_SHORTEST_LOOK, _LONGEST_LOOK = 0.001, 0.05
_GRACE = 2
"""Seconds between two looks whether a command ended, and those that a killed one gets to end."""
_PIPE_SIZE = 1 << 20
_MOST_OUTPUT = 8 << 20
"""How many bytes a command may print: the answers that are read have some hundred KiB on the largest machines."""
ADMINISTRATORS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Searched after PATH, which su and some sshd leave without the folders of administrators' commands. systemd gives it to units."""
_CHUNK = 1 << 16
_MOST_BYTES = 16 << 20
"""How many bytes of a file are read. The largest ones, such as /proc/cpuinfo of 640 CPUs, have about 1 MiB."""
PATH_MAX = 4096
"""The kernel takes no longer path, and prints none in /proc: a file or an answer with one is damaged."""
_MOST_LINKS = 40
"""How many links the kernel follows on the way to one file."""
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a fifo"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)
GONE = {errno.ENOENT, errno.ESRCH}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
"""How the kernel says that a process or file has ended or gone, and that it may not be changed."""


class CommandError(Exception):
    """A command could not be started, did not end in time, or printed too much. Its text says which, how long, and what to do."""


def reason(error: Exception) -> str:
    """Return why a step failed: a sentence, or for what nobody expected the kind of the error, too."""
    return str(error) if isinstance(error, (CommandError, OSError, ValueError)) else "%s: %s" % (type(error).__name__, error)


class Unreadable(ValueError):
    """Something is in the place of a file that cannot be read. The text says which path, what is there, and what to do."""


class Forbidden(Unreadable):
    """This user may not read it, or may not know whether it is there."""


class Host:
    """The files and commands of a machine; ``timeout`` is in seconds per command.

    Its tree is the running one (root ``/``), a chroot, an image, a captured or a simulated tree. All paths are absolute paths of the
    machine. Below another root links are followed as they would be after a chroot: an absolute one begins at the root. Raises
    ``ValueError`` for a root that is not a directory, and for every path that leads out of it.
    """

    def __init__(self, root: str = "/", timeout: float = 30) -> None:
        if not posixpath.isabs(root) or not os.path.isdir(root):
            why = "is not a directory" if posixpath.isabs(root) else "is not absolute" if root else "is empty"
            text = "npu_affinity_root '%s' %s: name the directory of the machine's tree, or / for the running machine"
            raise ValueError(text % (root, why))
        self.root = "/" if os.path.samefile(root, "/") else os.path.abspath(root)
        self._folders = {"": self.root}
        self.timeout = timeout

    @property
    def live(self) -> bool:
        """Whether this is the running machine, so that kernel calls and systemd's bus concern it."""
        return self.root == "/"

    def path(self, path: str) -> str:
        """Return where a path of the machine lies, with no link on the way but perhaps the last name: to look at, make or replace it."""
        if self.live:
            return path
        if len(path) > PATH_MAX:
            return self.root + path
        folder, _slash, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self._without_links(path)
        return "%s/%s" % (self._folder(folder), name)

    def resolve(self, path: str) -> str:
        """Return where a path of the machine lies, with no link at all: to read what is there, or to write into it."""
        place = self.path(path)
        return self._without_links(path) if not self.live and os.path.islink(place) else place

    def _folder(self, folder: str) -> str:
        """Return :meth:`resolve` of a folder; those that are there are looked at once, from the outermost on."""
        new = []
        while folder not in self._folders:
            new.append(folder)
            folder = folder.rpartition("/")[0]
        place = self._folders[folder]
        for folder in reversed(new):
            name = folder.rpartition("/")[2]
            place = self._without_links(folder) if name in ("", ".", "..") else "%s/%s" % (place, name)
            try:
                mode = os.lstat(place).st_mode
            except OSError:
                continue
            if stat.S_ISLNK(mode):
                place = self._without_links(folder)
            self._folders[folder] = place
        return place

    def _without_links(self, path: str) -> str:
        """Return :meth:`resolve` of a path by looking at every name in it."""
        place, pending, links = "", path.split("/")[::-1], 0
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if not place:
                    text = "%s leads out of %s: correct the path, or the link on its way that has too many '..'"
                    raise ValueError(text % (path, self.root))
                place = place.rpartition("/")[0]
                continue
            try:
                target = os.readlink("%s%s/%s" % (self.root, place, name))
            except OSError:
                place += "/" + name
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.root + path)
            if target.startswith("/"):
                place = ""
            pending += target.split("/")[::-1]
        return self.root + place

    def read(self, path: str) -> str | None:
        """Return a file's text without trailing newlines and NUL bytes, or None when it is missing or unreadable."""
        try:
            return self.text(path)
        except Unreadable:
            return None

    def text(self, path: str) -> str | None:
        """Return the same as :meth:`read`, but None only where there is no file. Raises :class:`Unreadable` for what cannot be read."""
        content = self.content(path)
        return None if content is None else content.decode("utf-8", "replace").rstrip("\n\0")

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none. Raises :class:`Unreadable` for anything else, and for 16 MiB or more."""
        file = self.open(path)
        if file is None:
            return None
        with file:
            data = bytearray()
            try:
                for chunk in iter(lambda: file.read(_CHUNK), b""):
                    data += chunk
                    if len(data) >= _MOST_BYTES:
                        text = "%s has %d MiB or more, which no file of its kind has: remove or rename it"
                        raise Unreadable(text % (path, _MOST_BYTES >> 20))
            except OSError as error:
                if error.errno in GONE:
                    return None
                raise Unreadable("%s cannot be read (%s): remove or repair it" % (path, error.strerror))
        return bytes(data)

    def open(self, path: str) -> IO[bytes] | None:
        """Open a file to read its bytes, unbuffered; None if there is none. Raises :class:`Unreadable`, and never waits for a fifo."""
        try:
            place = self.resolve(path)
            _refuse_other_kinds(path, os.stat(place))
            file = open(place, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))  # noqa: SIM115 # the caller closes it
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            place = self.path(path)
            if os.path.islink(place):
                raise Unreadable("%s is a symbolic link to %s, which does not exist: remove the link" % (path, os.readlink(place)))
            return None
        except PermissionError as error:
            raise Forbidden("%s cannot be read (%s): run as root (become: true, or sudo)" % (path, error.strerror))
        except OSError as error:
            raise Unreadable("%s cannot be read (%s): remove or repair it" % (path, error.strerror))
        except UnicodeError:
            raise Unreadable("%s cannot be read in this locale: use one of UTF-8" % shown(path))
        try:
            _refuse_other_kinds(path, os.fstat(file.fileno()))
        except Unreadable:
            file.close()
            raise
        return file

    def read_number(self, path: str) -> int | None:
        text = self.read(path)
        try:
            return int(text, 0) if text else None
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        try:
            return os.path.lexists(self.path(path))
        except (OSError, UnicodeError):
            return False

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """Return the sorted names in a folder that match a shell pattern; none when the folder is missing."""
        try:
            return sorted(fnmatch.filter(os.listdir(self.resolve(folder)), pattern))
        except (OSError, UnicodeError):  # the latter for a name that the locale does not have
            return []

    def set_attribute(self, path: str, value: str) -> None:
        """Write to a sysfs or procfs attribute: in place, one write. Raises OSError as the kernel answers."""
        descriptor = os.open(self.resolve(path), os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
        try:
            os.write(descriptor, (value + "\n").encode())
        finally:
            os.close(descriptor)

    def find_program(self, name: str, folders: Iterable[str]) -> str | None:
        """Return the first executable of that name in the folders, then (on the running machine) on PATH; or None."""
        if self.live:
            folders = list(folders) + search_path().split(os.pathsep)
        return next((self.resolve(path) for path in (os.path.join(folder, name) for folder in folders) if self.is_program(path)), None)

    def is_program(self, path: str) -> bool:
        """Whether there is a file that can be executed."""
        try:
            place = self.resolve(path)
        except (OSError, ValueError):
            return False
        return os.path.isfile(place) and os.access(place, os.X_OK)

    def run(self, argv: Sequence[str], stdin: str = "", timeout: float | None = None) -> Result:
        """Run a command in the C locale and return its :class:`Result`; :class:`CommandError` when it can't be judged.

        ``stdin`` is a short answer to a prompt, ``timeout`` another limit than the host's. The command gets a session of its own, which is
        killed with it at the time limit, and when it printed more than 8 MiB. Children that keep its pipes are not waited for.
        """
        return _run(argv, stdin, timeout or self.timeout)


def search_path() -> str:
    return os.pathsep.join(filter(None, [os.environ.get("PATH"), ADMINISTRATORS_PATH]))


def _run(argv: Sequence[str], stdin: str, limit: float) -> Result:
    environment = dict(os.environ, PATH=search_path(), LC_ALL="C", LANG="C", LC_MESSAGES="C", LANGUAGE="C")
    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function # boot units run this, without an AnsibleModule
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise CommandError("'%s' could not be started: %s" % (" ".join(argv), error.strerror or error))
    pipes = cast("list[IO[bytes]]", [process.stdin, process.stdout, process.stderr])
    try:
        output = _answer(process, pipes, stdin.encode(), time.monotonic() + limit)
        if _is_too_long(output) or process.returncode is None:
            why = "printed more than %d MiB" % (_MOST_OUTPUT >> 20) if _is_too_long(output) else "did not answer within %s s" % limit
            raise CommandError("'%s' %s%s" % (" ".join(argv), why, _kill(process)))
    finally:
        for pipe in pipes:
            pipe.close()
    answer, errors = (text.decode("utf-8", "replace") for text in output)
    return Result(tuple(argv), process.returncode, answer + errors, errors)


def _refuse_other_kinds(path: str, status: os.stat_result) -> None:
    """Raise :class:`Unreadable` for what is not a file. systemd masks a unit by a link to the null device, which is an empty file."""
    kind = next((words for is_kind, words in _KINDS if is_kind(status.st_mode)), "")
    if kind and not (stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 3)):
        raise Unreadable("%s cannot be read (Is %s): remove or rename it, and run again" % (path, kind))


def _answer(process: subprocess.Popen[bytes], pipes: Sequence[IO[bytes]], answer: bytes, deadline: float) -> list[bytearray]:
    """Return what a process wrote to standard output and to standard error until it ended, printed too much, or did not in time."""
    for pipe in pipes:
        os.set_blocking(pipe.fileno(), False)
    prompt, *outputs = pipes
    written = {pipe: bytearray() for pipe in outputs}
    try:
        prompt.write(answer)
        prompt.close()
    except BrokenPipeError:
        pass
    pause = _SHORTEST_LOOK
    with selectors.DefaultSelector() as selector:
        for pipe in written:
            selector.register(pipe, selectors.EVENT_READ, pipe)
        while process.poll() is None and time.monotonic() < deadline and not _is_too_long(written.values()):
            pause = min(2 * pause, _LONGEST_LOOK)
            for key, _events in selector.select(pause):
                pause = _SHORTEST_LOOK
                if not _read_into(written, key.data):
                    selector.unregister(key.fileobj)
    for pipe in written:
        _read_into(written, pipe)
    return list(written.values())


def _is_too_long(output: Iterable[bytearray]) -> bool:
    return sum(map(len, output)) > _MOST_OUTPUT


def _read_into(written: Mapping[IO[bytes], bytearray], pipe: IO[bytes]) -> bool:
    """Take what a pipe holds at the moment, all of it in one read, and return whether more can come."""
    chunk = pipe.read(_PIPE_SIZE)
    if chunk:
        written[pipe].extend(chunk)
    return chunk != b""


def _kill(process: subprocess.Popen[bytes]) -> str:
    """Kill a process with its group, and return how that ended, as the end of a sentence. A process that waits in the kernel never ends."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_GRACE)
    except ProcessLookupError:
        pass
    except PermissionError:
        return ", and process %d of another user could not be killed" % process.pid
    except subprocess.TimeoutExpired:
        where = "process %d did not end when it was killed: it waits in the kernel, perhaps for a driver" % process.pid
        return ", and %s; it was left behind, see the kernel log" % where
    return " and was killed"

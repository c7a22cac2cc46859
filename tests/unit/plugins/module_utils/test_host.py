# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import concurrent.futures
import ctypes
import os
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host, Unreadable
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState, atomic_write, missing_folders, remove_empty


def test_every_path_lies_below_the_root(tmp_path):
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "online").write_bytes(b"0-3\n\0")
    host = Host(str(tmp_path))
    assert host.read("/sys/online") == "0-3"
    assert host.read("/etc/hostname") is None
    assert host.names("/sys", "on*") == ["online"]
    assert host.names("/nowhere") == []
    assert not host.live and Host().live


@pytest.fixture
def jail(tmp_path):
    """A root with the folders ``etc`` and ``outside``, and a link of every kind that may lead from one to the other."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "etc", root / "srv", outside):
        folder.mkdir(parents=True)
        (folder / "name").write_text(folder.name)
    return root, outside


@pytest.mark.parametrize("target", ["/srv", "../srv", "/other"])
def test_links_are_followed_inside_the_root(jail, target):
    root, outside = jail
    (root / "other").symlink_to("/srv")
    (root / "etc" / "link").symlink_to(target)
    (root / "etc" / "file").symlink_to(target + "/name")
    host = Host(str(root))
    assert (host.read("/etc/link/name"), host.read("/etc/file"), host.names("/etc/link")) == ("srv", "srv", ["name"])
    assert host.exists("/etc/link") and host.exists("/etc/link/name")
    host.set_attribute("/etc/file", "1")
    assert (root / "srv" / "name").read_text() == "1\n"


def test_an_absolute_link_to_what_is_only_outside_leads_nowhere(jail):
    root, outside = jail
    (root / "etc" / "link").symlink_to(outside)
    host = Host(str(root))
    assert (host.read("/etc/link/name"), host.names("/etc/link")) == (None, [])
    assert host.exists("/etc/link") and not host.exists("/etc/link/name")
    with pytest.raises(OSError):
        host.set_attribute("/etc/link/name", "1")
    assert (outside / "name").read_text() == "outside"


def test_files_are_written_inside_the_root(jail):
    root, outside = jail
    (root / "etc" / "systemd").symlink_to(outside)
    host = Host(str(root))
    atomic_write(host, "/etc/systemd/system/npu.slice", "[Slice]\n")
    assert (root / str(outside)[1:] / "system" / "npu.slice").read_text() == "[Slice]\n"
    assert FileState.of(host, "/etc/systemd/system/npu.slice").text == "[Slice]\n"
    assert os.listdir(str(outside)) == ["name"]


def test_folders_behind_a_link_to_nowhere_are_known_as_made(jail):
    root, _outside = jail
    (root / "etc" / "x.d").symlink_to("/srv/new/x.d")
    host = Host(str(root))
    made = missing_folders(host, ["/etc/x.d/50.conf"])
    atomic_write(host, "/etc/x.d/50.conf", "text")
    assert made == ["/srv/new", "/srv/new/x.d"] and (root / "srv/new/x.d/50.conf").exists()
    (root / "srv/new/x.d/50.conf").unlink()
    assert remove_empty(host, made) == made[::-1] and sorted(path.name for path in (root / "srv").iterdir()) == ["name"]


def test_a_path_can_be_as_deep_as_the_kernel_allows(tmp_path):
    host = Host(str(tmp_path))
    folder = "/a" * 1100
    subprocess.run(["mkdir", "-p", str(tmp_path) + folder], check=True)
    (tmp_path / folder[1:] / "name").write_text("deep")
    assert host.names(folder) == ["name"] and host.read(folder + "/name") == "deep" and Host(str(tmp_path)).exists(folder + "/name")
    subprocess.run(["rm", "-r", str(tmp_path / "a")], check=True)  # rmtree of Python 3.7, by which pytest removes it, recurses


LATIN = r"""
import sys
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import say
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
host = Host(sys.argv[1])
say("\u6607 %s %s %s" % (host.names("/\u6607"), host.exists("/\u6607/x"), host.read("/\u6607/x")))
"""


def test_names_that_a_latin_1_locale_lacks_end_no_run(tmp_path):
    environment = dict(os.environ, PYTHONIOENCODING="latin-1", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    ended = subprocess.run([sys.executable, "-c", LATIN, str(tmp_path)], env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"\\u6607 [] False None\n"), ended.stderr


def test_a_program_is_looked_for_inside_the_root(jail):
    root, outside = jail
    (outside / "npu-smi").touch(0o755)
    (root / "etc" / "npu-smi").symlink_to(outside / "npu-smi")
    (root / "bin").symlink_to(outside)
    host, tool = Host(str(root)), root / "srv" / "npu-smi"
    tool.touch(0o644)
    assert host.find_program("npu-smi", ["/etc", "/bin", "/srv"]) is None and host.find_program("sh", ["/usr/bin"]) is None
    tool.chmod(0o755)
    assert host.find_program("npu-smi", ["/etc", "/bin", "/srv"]) == str(tool) and Host().find_program("sh", []) is not None


ABOVE = [("/etc/link/name", "../../outside"), ("/etc/../../outside/name", None), ("/etc/link", "../../../x")]


@pytest.mark.parametrize("path, target", ABOVE)
def test_what_leads_above_the_root_is_refused(jail, path, target):
    root, _outside = jail
    if target:
        (root / "etc" / "link").symlink_to(target)
    for reach in (Host(str(root)).read, Host(str(root)).resolve):
        with pytest.raises(ValueError, match="leads out of %s" % root):
            reach(path)


def test_a_loop_of_links_is_nothing_to_read_and_nothing_to_write(jail):
    root, _outside = jail
    (root / "etc" / "a").symlink_to("/etc/b")
    (root / "etc" / "b").symlink_to("a")
    host = Host(str(root))
    assert host.read("/etc/a/name") is None and host.read("/etc/a") is None
    with pytest.raises(OSError):
        host.set_attribute("/etc/a", "1")
    with pytest.raises(OSError):
        atomic_write(host, "/etc/a/name", "text")


ROOTS = {
    "": "is empty",
    "host": "is not absolute",
    "./": "is not absolute",
    "/nowhere": "is not a directory",
    "/etc/passwd": "is not a directory",
}


@pytest.mark.parametrize("root", ROOTS)
def test_a_root_that_names_no_directory_is_refused(root):
    with pytest.raises(ValueError, match=ROOTS[root]):
        Host(root)


@pytest.mark.parametrize("root", ["//", "///", "/.", "/usr/..", "{link}", "/proc/self/root"])
def test_the_running_machine_is_recognised_by_another_path(tmp_path, root):
    (tmp_path / "link").symlink_to("/")
    assert Host(root.format(link=tmp_path / "link")).live


def test_an_attribute_is_written_in_place(tmp_path):
    attribute = tmp_path / "smp_affinity_list"
    attribute.write_text("0-191\n")
    inode = attribute.stat().st_ino
    Host(str(tmp_path)).set_attribute("/smp_affinity_list", "7")
    assert (attribute.read_text(), attribute.stat().st_ino) == ("7\n", inode)


@pytest.mark.parametrize("make", [lambda path: None, os.mkfifo], ids=["missing", "fifo"])
def test_an_attribute_that_is_no_file_is_not_made_or_awaited(tmp_path, make):
    make(tmp_path / "name")
    with pytest.raises(OSError):
        Host(str(tmp_path)).set_attribute("/name", "7")
    assert not (tmp_path / "name").is_file()


LONG = "import sys; sys.stdout.write('o' * 300000); sys.stderr.write('e' * 300000); sys.stdout.write('O')"
COMMANDS = {
    "speak C, and read what they are given": (
        "import os, sys; print(os.environ['LC_ALL'], sys.stdin.read()); print('bad', file=sys.stderr); sys.exit(3)",
        (3, "C Y\n\n", "bad\n"),
    ),
    "print much on both pipes": (LONG, (0, "o" * 300000 + "O", "e" * 300000)),
    "never read their input": ("print(1)", (0, "1\n", "")),
}


@pytest.mark.parametrize("program, expected", COMMANDS.values(), ids=COMMANDS)
def test_what_commands_say_on_both_pipes_comes_whole(program, expected):
    result = Host(timeout=20).run([sys.executable, "-c", program], stdin="Y\n")
    assert (result.rc, result.answer, result.errors) == expected
    assert result.output == result.answer + result.errors


@pytest.mark.parametrize("path", ["/nowhere", "", None])
def test_commands_of_administrators_are_found_without_path(monkeypatch, path):
    monkeypatch.setenv("PATH", path) if path is not None else monkeypatch.delenv("PATH")
    assert Host().run(["chroot", "--version"]).rc == 0
    assert Host().find_program("chroot", []) and not Host().find_program("no-such-command", [])


DETACHED = """
import subprocess, sys
code = "import time; time.sleep(%d)"
subprocess.Popen([sys.executable, "-c", code], start_new_session=%s)
%s
"""


@pytest.mark.parametrize("own_session", [False, True])
def test_a_good_answer_counts_although_a_daemon_keeps_the_pipes(own_session):
    start = time.monotonic()
    program = DETACHED % (40, own_session, "print('NPU ID : 0'); sys.stderr.write('a remark'); sys.exit(3)")
    result = Host(timeout=30).run([sys.executable, "-c", program])
    assert (result.rc, result.output) == (3, "NPU ID : 0\na remark")
    assert time.monotonic() - start < 20, "the leader ended at once"


HANGING = {
    "with its children": "import subprocess, sys; subprocess.call([sys.executable, '-c', 'import time; time.sleep(60)'])",
    "although a child left the session": DETACHED % (40, True, "import time; time.sleep(40)"),
}


@pytest.mark.parametrize("program", HANGING.values(), ids=HANGING)
def test_a_hanging_command_is_killed(program):
    start = time.monotonic()
    with pytest.raises(CommandError, match="did not answer within 1 s and was killed"):
        Host(timeout=1).run([sys.executable, "-c", program])
    assert time.monotonic() - start < 20


def test_an_unkillable_process_is_abandoned_with_a_message(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "killpg", lambda pid, _signal: killed.append(pid))
    start = time.monotonic()
    with pytest.raises(CommandError, match=r" within 1 s, and process \d+ did not end when it was killed: .* see the kernel log"):
        Host(timeout=1).run([sys.executable, "-c", "import time; time.sleep(60)"])
    assert time.monotonic() - start < 30
    (pid,) = killed
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def silent_files(tmp_path):
    """A mounted FUSE file system, and the file with its requests: who waits for one that was read and is not answered can't be killed."""
    kernel = ctypes.CDLL(None, use_errno=True)
    folder = str(tmp_path / "silent")
    os.mkdir(folder)
    try:
        requests = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip("/dev/fuse: %s" % error.strerror)
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0" % requests
    if kernel.mount(b"none", folder.encode(), b"fuse", 0, options.encode()) != 0:
        os.close(requests)
        pytest.skip("mount: %s" % os.strerror(ctypes.get_errno()))
    _length, _operation, unique = struct.unpack("=IIQ", os.read(requests, 1 << 18)[:16])
    answer = struct.pack("=IIII", 7, 12, 65536, 0).ljust(64, b"\0")  # FUSE_INIT of an old protocol, which every kernel speaks
    os.write(requests, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
    yield folder, requests
    os.close(requests)
    kernel.umount2(folder.encode(), 2)


def test_a_process_stuck_in_the_kernel_is_abandoned_in_time(silent_files):
    folder, requests = silent_files
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        start = time.monotonic()
        answer = pool.submit(Host(timeout=1).run, ["ls", folder + "/"])
        assert select.select([requests], [], [], 30)[0] and os.read(requests, 1 << 18), "and this is all that is done about it"
        with pytest.raises(CommandError, match="it waits in the kernel") as caught:
            answer.result()
        assert time.monotonic() - start < 30
    pid = int(re.search(r"process (\d+)", str(caught.value)).group(1))
    assert Host().read("/proc/%d/stat" % pid).rpartition(")")[2].split()[0] == "D"


WITHOUT_END = {
    "standard output": "import sys\nwhile True: sys.stdout.write('o' * 65536)",
    "standard error": "import sys\nwhile True: sys.stderr.write('e' * 65536)",
    "a few bytes at a time": "import os\nwhile True: os.write(1, b'y\\n' * 40)",
    "and ends": "import sys\nsys.stdout.write('o' * (9 << 20))",
    "by a child": "import subprocess\nsubprocess.call(['yes'])",
}
MEASURED = """
import resource, sys
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    Host(timeout=100).run([sys.executable, "-c", sys.argv[1]])
except CommandError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("program", WITHOUT_END.values(), ids=WITHOUT_END)
def test_a_command_that_prints_without_end_is_killed(program):
    start = time.monotonic()
    output = subprocess.run([sys.executable, "-c", MEASURED, program], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert "printed more than 8 MiB and was killed" in output
    assert int(output.split()[-1]) < 64 << 10, "KiB of memory"
    assert time.monotonic() - start < 60


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_device(path):
    if os.geteuid() != 0:
        pytest.skip("only root makes device nodes")
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 8))


NO_FILE = "/name cannot be read (Is a %s): remove or rename it, and run again"
KINDS = {
    "fifo": (os.mkfifo, NO_FILE % "fifo"),
    "directory": (os.mkdir, NO_FILE % "directory"),
    "socket": (make_socket, NO_FILE % "socket"),
    "device": (make_device, NO_FILE % "character device"),
    "dangling": (lambda path: path.symlink_to("nowhere"), "/name is a symbolic link to nowhere, which does not exist: remove the link"),
    "loop": (lambda path: path.symlink_to("name"), "/name cannot be read (Too many levels of symbolic links): remove or repair it"),
    "large": (
        lambda path: [path.touch(), os.truncate(path, 1 << 40)],
        "/name has 16 MiB or more, which no file of its kind has: remove or rename it",
    ),
}


@pytest.mark.parametrize("make, sentence", KINDS.values(), ids=KINDS)
def test_what_is_no_file_is_said_and_never_waited_for(tmp_path, make, sentence):
    make(tmp_path / "name")
    host = Host(str(tmp_path))
    assert host.read("/name") is None
    with pytest.raises(Unreadable) as caught:
        host.text("/name")
    assert str(caught.value) == sentence


def test_the_null_device_is_an_empty_file():
    assert Host().read("/dev/null") == ""


def test_a_missing_command_is_named():
    with pytest.raises(CommandError, match="'/nowhere/npu-smi info' could not be started: No such file or directory"):
        Host().run(["/nowhere/npu-smi", "info"])

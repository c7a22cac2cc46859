# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of our units are really started when they are installed, by the interpreter that the units name."""

import os
import sys

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._state import executables, previous
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host, Result
from ansible_collections.npu.affinity.plugins.module_utils._transaction import programs
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from tests.fakes.systemd import a_request, MARK, UNITS, ModelledSystemd, a_file

UNIT = UNITS + "/npu-affinity-irq.service"
TEXT = MARK + "[Service]\nExecStart=%s -m npu_affinity irq --plan /etc/npu-affinity/plan.json\n[Install]\nWantedBy=multi-user.target\n"


class Running(ModelledSystemd):
    """A running machine in a folder that starts programs for real."""

    def run(self, argv, stdin="", timeout=None):
        starts = argv[0] == "env" or argv[0].startswith(self.root)
        return Host().run(argv) if starts else ModelledSystemd.run(self, argv, stdin, timeout)

    def install(self, interpreter, text=None):
        """Put an interpreter into the folder: a link, or a text."""
        path = self.path(interpreter)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if text is None:
            os.symlink(sys.executable, path)
        else:
            self.put(interpreter, text)
            os.chmod(path, 0o755)


def bind(host, interpreter):
    return apply(host, a_request(files=[runtime.files_of(None)[0], a_file(UNIT, TEXT % interpreter)], enabled=["npu-affinity-irq.service"]))


def test_a_program_that_runs_is_no_matter(tmp_path):
    host = Running(str(tmp_path))
    host.install("/usr/bin/python3")
    report = bind(host, "/usr/bin/python3")
    assert (report.changed, report.untried, host.names(installed.CODE_FOLDER)) == (True, [], ["npu_affinity.zip"])


def test_a_missing_interpreter_is_refused_before_any_write(tmp_path):
    host = Running(str(tmp_path))
    sentence = "^npu-affinity-irq.service could not run: there is no program /usr/bin/python3.99; set npu_affinity_python"
    with pytest.raises(ValueError, match=sentence):
        bind(host, "/usr/bin/python3.99")
    assert not os.path.exists(host.path("/etc")) and not host.exists(previous.PATH)


RULES = "/etc/udev/rules.d/90-npu-affinity.rules"
RULE = MARK + 'ACTION=="bind", SUBSYSTEM=="pci", RUN+="%s --no-block start npu-affinity-irq@%%k.service"\n'
POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
FILES = [
    # path, text, the program that it needs, and how to get it
    (RULES, RULE % "/usr/bin/systemctl", "/usr/bin/systemctl", "install systemd"),
    (POLICY, "#!/bin/sh\n" + MARK, "/bin/sh", "install it"),
]


@pytest.mark.parametrize("path, text, program, advice", FILES)
def test_a_rule_or_script_without_its_program_is_refused_at_once(tmp_path, path, text, program, advice):
    host = Running(str(tmp_path))
    for check in (True, False):
        with pytest.raises(ValueError, match=f"^{os.path.basename(path)} could not run: there is no program {program}; {advice}"):
            apply(host, a_request(files=[a_file(path, text)]), check)
    assert not os.path.exists(host.path("/etc"))
    host.install(program)
    assert apply(host, a_request(files=[a_file(path, text)])).changed


def test_files_of_others_may_name_what_they_like(tmp_path):
    host = Running(str(tmp_path))
    assert apply(host, a_request(files=[a_file(UNITS + "/other.service", "[Service]\nExecStart=/opt/gone\n")])).changed


CANNOT = [("#!/bin/sh\necho no site-packages >&2; exit 3\n", "status 3: no site-packages"), ("#!/nowhere\n", "status 1")]


@pytest.mark.parametrize("text, word", CANNOT)
def test_an_interpreter_that_cannot_run_them_changes_nothing(tmp_path, text, word):
    host = Running(str(tmp_path))
    host.install("/usr/bin/python3", text)
    with pytest.raises(ValueError, match="npu-affinity-irq.service could not run: .*%s.*All files were restored" % word):
        bind(host, "/usr/bin/python3")
    assert not host.exists(UNIT) and not host.exists(installed.ARCHIVE) and not host.exists(UNITS + "/multi-user.target.wants")


IMAGES = [("", "is not installed on the host image"), ("python", "of the host image could not be tried out")]


@pytest.mark.parametrize("name, words", [*IMAGES, ("python3.6", "of the host image is Python 3.6"), ("python3.11", None)])
def test_in_another_tree_nothing_is_started_and_that_is_said(tmp_path, name, words):
    host = Host(str(tmp_path))
    if name:
        (tmp_path / "usr/bin").mkdir(parents=True)
        (tmp_path / "usr/bin" / name).touch(mode=0o755)
        (tmp_path / "usr/bin/python3").symlink_to(name)
    untried = bind(host, "/usr/bin/python3").untried
    unit = "npu-affinity-irq.service"
    assert untried == (["/usr/bin/python3 %s; %s needs Python 3.7 or newer" % (words, unit)] if words else [])
    assert bind(host, "/usr/bin/python3").untried == [], "said when something was written"


class Failed(Running):
    """A running machine whose units had failed when it booted. ``cured``: whether they run well now."""

    cured = True

    def run(self, argv, stdin="", timeout=None):
        if argv[:2] == ["systemctl", "show"] and "npu-affinity-*" in argv:
            blocks = ["Id=%s\nActiveState=%s\nResult=exit-code" % (unit, state) for unit, state in self.states.items()]
            return Result(argv, 0, "\n\n".join(blocks))
        if argv[:2] == ["systemctl", "start"] and not self.cured:
            return Result(argv, 1, "Job for %s failed." % argv[2])
        return Running.run(self, argv, stdin, timeout)

    states = {"npu-affinity-irq@0000:21:00.0.service": "failed", "npu-affinity-irq.timer": "active"}


@pytest.mark.parametrize("cured", [True, False])
def test_failed_units_run_again_and_are_named_if_they_fail_again(tmp_path, cured):
    host = Failed(str(tmp_path))
    host.cured = cured
    assert programs.failed(host) == {}, "none of our units is there"
    host.put(previous.PATH, "{}")
    assert programs.failed(host), "an interrupted unbind removed the unit's file"
    host.put(UNIT, TEXT % "/usr/bin/python3")
    (unit,) = programs.failed(host)
    assert unit == "npu-affinity-irq@0000:21:00.0.service"
    host.install("/usr/bin/python3")
    bound, undone = a_request(files=[a_file(UNIT, TEXT % "/usr/bin/python3")]), a_request(owned=[UNIT])
    for request, units in ((bound, [unit]), (undone, [])):
        looked = apply(host, request, check=True)
        runs = [text for text in looked.actions if text.startswith("run ")]
        assert (looked.failed_units, runs) == (units, [f"run {name} again, which had failed" for name in units])
    host.calls.clear()
    sentences = programs.run_again(host, [unit])
    assert host.calls == ([f"start {unit}"] if cured else [])
    assert sentences == ([] if cured else [f"{unit} failed again: 'journalctl -u {unit}' shows why; correct that and bind again"])


def test_a_running_machine_is_asked_for_its_programs(tmp_path, monkeypatch):
    host = Running(str(tmp_path))
    host.install("/bin/systemctl")
    monkeypatch.setenv("PATH", "/nowhere")
    assert executables.programs(host) == {"python3": sys.executable, "systemctl": "/bin/systemctl"}
    os.unlink(host.path("/bin/systemctl"))
    assert executables.programs(host) == {"python3": sys.executable, "systemctl": None}
    assert executables.programs(Host(str(tmp_path))) == {}, "an image can get them later"


TOO_OLD = "#!/bin/sh\nexit 1\n"
"""A Python older than 3.7, as hosts have whose modules run on another one, does not take the expression for its version as true."""
NEW_ENOUGH = '#!/bin/sh\nexec "%s" "$@"\n' % sys.executable
TAKEN = [(None, "/usr/bin/python3"), (NEW_ENOUGH, "/usr/bin/python3"), (TOO_OLD, sys.executable), ("#!/nowhere\n", sys.executable)]


@pytest.mark.parametrize("text, taken", TAKEN, ids=["itself", "another one", "too old", "broken"])
def test_units_get_the_modules_python_where_python3_is_too_old(tmp_path, text, taken):
    host = Running(str(tmp_path))
    host.install("/usr/bin/python3", text)
    assert executables.programs(host)["python3"] == taken

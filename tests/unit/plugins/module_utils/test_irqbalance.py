# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import types

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._state import writable
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.irqbalance import CONFINED_POLICY, DROP_IN, POLICY
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.irqbalance import freedom, irqbalance, until_first_pass

RHEL_UNIT = "[Service]\nEnvironmentFile=-/usr/lib/irqbalance/defaults.env\nEnvironmentFile=-/etc/sysconfig/irqbalance\n"
RHEL_UNIT += "ExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS\n"
DEBIAN_UNIT = "[Service]\nEnvironmentFile=-/etc/default/irqbalance\nExecStart=/usr/sbin/irqbalance $OPTIONS\n"
UNIT, CGROUP = "/usr/lib/systemd/system/irqbalance.service", "/system.slice/irqbalance.service"
RHEL = {
    UNIT: RHEL_UNIT,
    "/usr/lib/irqbalance/defaults.env": "IRQBALANCE_ARGS=--debug",
    "/etc/sysconfig/irqbalance": '#IRQBALANCE_ARGS=\nIRQBALANCE_ARGS="--banirq=5 --powerthresh=2"',
    "/sys/fs/cgroup" + CGROUP + "/cgroup.procs": "812",
}
DEBIAN = {
    "/lib/systemd/system/irqbalance.service": DEBIAN_UNIT,
    "/etc/default/irqbalance": "#OPTIONS=\nENABLED=1",
    "/sys/fs/cgroup/systemd" + CGROUP + "/cgroup.procs": "",
}
OWN_UNIT = {UNIT: RHEL_UNIT, UNIT.replace("/usr/lib", "/etc"): "[Service]\nExecStart=/usr/sbin/irqbalance", "/sys/fs/cgroup" + CGROUP: None}


def installed(active, key, arguments):
    return {"installed": True, "active": active, "argument_key": key, "arguments": arguments}


INSTALLED = {
    "not there": ({}, {**installed(False, None, ""), "installed": False}),
    "RHEL, running": (RHEL, installed(True, "IRQBALANCE_ARGS", "--banirq=5 --powerthresh=2")),
    "Debian, stopped on cgroup v1": (DEBIAN, installed(False, "OPTIONS", "")),
    "an administrator's own unit wins; a bare cgroup counts as running": (OWN_UNIT, installed(True, None, "")),
}


def test_a_masked_irqbalance_unit_is_read_behind_its_mask(tree):
    tree.write({"/lib/systemd/system/irqbalance.service": DEBIAN_UNIT, "/etc/systemd/system": None})
    os.symlink("/dev/null", tree.root + "/etc/systemd/system/irqbalance.service")
    assert irqbalance(tree.host)["argument_key"] == "OPTIONS"


MORE = "/etc/systemd/system/irqbalance.service.d/20-more.conf"
PLAIN = "[Service]\nExecStart=/usr/sbin/irqbalance --foreground $OPTIONS\n"
OWN_DROP_IN = {
    UNIT: PLAIN,
    "/etc/systemd/system/irqbalance.service.d/" + DROP_IN: "[Service]\nEnvironmentFile=/etc/npu-affinity/irqbalance.env\n",
    "/etc/npu-affinity/irqbalance.env": 'OPTIONS="--policyscript=%s"' % POLICY,
}


def given(*lines):
    return {UNIT: PLAIN + "\n".join(lines)}


def from_file(text):
    return {UNIT: PLAIN + "EnvironmentFile=/etc/o\n", "/etc/o": text}


CONTINUED = "[Service]\nExecStart=/usr/sbin/irqbalance \\\n# not me\n  $OPTIONS\nEnvironment=A=1 \\\n  OPTIONS=-f\n"
ARGUMENTS = {
    # story: files, arguments, policy script
    "from the unit itself": (given('Environment="OPTIONS=--banirq=5 --debug" OTHER=x'), "--banirq=5 --debug", ""),
    "the last assignment counts": (given("Environment=OPTIONS=-d", "Environment=OPTIONS=-f"), "-f", ""),
    "a file wins over the unit": ({**given("Environment=OPTIONS=-d", "EnvironmentFile=-/etc/o"), "/etc/o": "OPTIONS=-f"}, "-f", ""),
    "a file that is not there": (given("Environment=OPTIONS=-d", "EnvironmentFile=-/etc/o"), "-d", ""),
    "a drop-in": ({**given("Environment=OPTIONS=-d"), MORE: "[Service]\nEnvironment='OPTIONS=-t 5'\n"}, "-t 5", ""),
    "a drop-in that takes it away": ({**given("Environment=OPTIONS=-d"), MORE: "[Service]\nEnvironment=\n"}, "", ""),
    "a unit's line that goes on": ({UNIT: CONTINUED}, "-f", ""),
    "a file's value that goes on": (from_file('# OPTIONS=-d\nOPTIONS="--banirq=5 \\\n--banirq=6"\nX=y'), "--banirq=5 --banirq=6", ""),
    "single quotes and what stands next to them": (from_file("OPTIONS='--banirq=5 '--debug"), "--banirq=5 --debug", ""),
    "a quote inside quotes": (from_file('OPTIONS="--banmod=\\"a b\\" -f"'), "'--banmod=a b' -f", ""),
    "a policy script": (given('Environment="OPTIONS=-d --policyscript=/opt/p.sh -f"'), "-d -f", "/opt/p.sh"),
    "in two words": (given('Environment="OPTIONS=--policyscript /opt/p.sh"'), "", "/opt/p.sh"),
    "abbreviated": (given('Environment="OPTIONS=--policy=/opt/p.sh --powerthresh=2"'), "--powerthresh=2", "/opt/p.sh"),
    "in short": (given('Environment="OPTIONS=-l /opt/p.sh"'), "", "/opt/p.sh"),
    "in the command before the variable": ({UNIT: PLAIN.replace(" $", " -l /opt/p.sh $")}, "", "/opt/p.sh"),
    "our own drop-in is none of the administrator's": (OWN_DROP_IN, "", ""),
}
REFUSED = {
    "its unit takes no arguments from its environment": {UNIT: "[Service]\nExecStart=/usr/sbin/irqbalance\n"},
    "the arguments of its unit cannot be read (No closing quotation)": given("Environment=OPTIONS=--banmod='a"),
    "its unit takes ${OPTIONS}, with -f, as one argument": {UNIT: PLAIN.replace("$OPTIONS", "${OPTIONS}") + "Environment=OPTIONS=-f\n"},
    "its unit names a policy script of its own behind $OPTIONS": {UNIT: PLAIN.replace("$OPTIONS", "$OPTIONS -l /p")},
    "it takes its policies from the folder /etc/p.d already": {UNIT: PLAIN + "Environment=OPTIONS=-l/etc/p.d\n", "/etc/p.d": None},
}
GROUP = "/sys/fs/cgroup" + CGROUP + "/cgroup.procs"
ENFORCING = {UNIT: PLAIN, "/sys/fs/selinux/enforce": "1", GROUP: "9", "/proc/9/attr/current": "system_u:system_r:irqbalance_t:s0"}
BOOLEAN = "/sys/fs/selinux/booleans/irqbalance_run_unconfined"
PERMISSIVE, IN_ETC = (folder + "/selinux/%s/permissive_irqbalance_t/cil" for folder in ("/var/lib", "/etc"))
MLS = "SELINUX=enforcing\nSELINUXTYPE=default\n"
NO_SCRIPT = "lets irqbalance run no policy script ('semanage permissive -a irqbalance_t' exempts it)"
CONFINED = "SELinux is enforcing, and its policy on this host " + NO_SCRIPT
OFF = "SELinux is enforcing, and irqbalance_run_unconfined is off ('setsebool -P irqbalance_run_unconfined on' switches it on)"
SELINUX = {
    # story: files that differ from those of an older policy, place, refusal
    "no SELinux": ({"/sys/fs/selinux/enforce": ""}, POLICY, ""),
    "permissive": ({"/sys/fs/selinux/enforce": "0"}, POLICY, ""),
    "irqbalance is not confined": ({"/proc/9/attr/current": "system_u:system_r:unconfined_service_t:s0"}, POLICY, ""),
    "an older policy": ({}, POLICY, CONFINED),
    "a newer policy": ({BOOLEAN: "0 0"}, POLICY, OFF),
    "a newer policy, switched on": ({BOOLEAN: "1 1"}, CONFINED_POLICY, ""),
    "a permissive domain": ({PERMISSIVE % "targeted/active/modules/400": ""}, POLICY, ""),
    "a permissive domain of an image-based system": ({IN_ETC % "targeted/active/modules/400": ""}, POLICY, ""),
    "a permissive domain of another policy": ({PERMISSIVE % "mls/active/modules/400": "", "/etc/selinux/config": MLS}, POLICY, CONFINED),
    "a permissive domain, disabled": ({PERMISSIVE % "targeted/active/modules/disabled": ""}, POLICY, CONFINED),
    "irqbalance does not run yet": ({GROUP: "", "/proc/9/attr/current": ""}, POLICY, CONFINED),
}
ROWS = {
    **INSTALLED,
    **{story: (files, {"arguments": words, "policy": policy, "refusal": ""}) for story, (files, words, policy) in ARGUMENTS.items()},
    **{refusal: (files, {"refusal": refusal}) for refusal, files in REFUSED.items()},
    **{story: ({**ENFORCING, **files}, {"policy_place": place, "refusal": refusal}) for story, (files, place, refusal) in SELINUX.items()},
}


@pytest.mark.parametrize("files, expected", ROWS.values(), ids=ROWS)
def test_what_irqbalance_is_told_and_may_be_told(tree, files, expected):
    facts = irqbalance(tree.write(files))
    assert {name: facts[name] for name in expected} == expected


@pytest.mark.parametrize("installed, place, words", [(False, POLICY, "/usr/libexec: Read-only file system"), (True, CONFINED_POLICY, "")])
def test_no_policy_goes_where_nothing_can_be_written(tree, monkeypatch, installed, place, words):
    files = dict(ENFORCING, **{BOOLEAN: "1 1", "/usr/libexec/a": ""}, **({CONFINED_POLICY: ""} if installed else {}))
    monkeypatch.setattr(writable.os, "statvfs", lambda path: types.SimpleNamespace(f_flag=os.ST_RDONLY if "/usr/libexec" in path else 0))
    facts = irqbalance(tree.write(files))
    assert (facts["policy_place"], words in facts["refusal"], bool(facts["refusal"])) == (place, True, bool(words))


TICKS = os.sysconf("SC_CLK_TCK")
PASSES = [
    # arguments, seconds since it started, seconds until it has looked once
    (["--policyscript=" + POLICY], 3, 9),
    (["--policyscript=" + POLICY], 100, 0),
    (["-t", "60", "--policyscript=" + POLICY], 2, 60),
    (["--interval=4", "-l", CONFINED_POLICY], 2, 4),
    (["--policyscript=/opt/npu/irqbalance-policy"], 3, 9),
    (["--policyscript=/opt/others/irqbalance-policy"], 3, 0),
    ([], 1, 0),
]
ENVIRONMENT = "/etc/npu-affinity/irqbalance.env"
WRITTEN = 'OPTIONS="--debug --policyscript=/opt/npu/irqbalance-policy"'


@pytest.mark.parametrize("arguments, age, seconds", PASSES)
def test_the_first_pass_of_an_irqbalance_that_was_told(tree, arguments, age, seconds):
    files = {"/proc/uptime": "500.00 900.00", GROUP: "9", "/proc/9/cmdline": "\0".join(["/usr/sbin/irqbalance", *arguments, ""])}
    files[ENVIRONMENT] = WRITTEN if "/opt/npu" in "".join(arguments) else ""
    files["/proc/9/stat"] = "9 (irqbalance) S 1 9 9 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0" % ((500 - age) * TICKS)
    assert until_first_pass(tree.write(files)) == seconds


@pytest.mark.parametrize("place, why", [("/opt/npu/irqbalance-policy", ""), (POLICY, "it runs without a policy for the NPUs")])
def test_the_policy_script_is_where_the_last_bind_wrote_it(tree, place, why):
    files = {"/lib/systemd/system/irqbalance.service": DEBIAN_UNIT, GROUP: "9", ENVIRONMENT: WRITTEN, place: "0000:c1:00.0"}
    files.update({"/proc/9/cmdline": "irqbalance\0--policyscript=/opt/npu/irqbalance-policy\0"})
    assert freedom(tree.write(files))("0000:c1:00.0") == why

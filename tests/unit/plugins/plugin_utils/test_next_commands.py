# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command that a summary offers next: it repeats how this run was started."""

import os
import re
import shlex

import pytest
from ansible.cli.playbook import PlaybookCLI
from ansible.utils import context_objects

from ansible_collections.npu.affinity.plugins.plugin_utils._report import commands
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs

RUN = "ansible-playbook npu.affinity."
MADE = {"MAKELEVEL": "1"}


def started(line, environment=None):
    """How a run was started by a command line, as ansible-playbook parses it."""
    cli = PlaybookCLI(shlex.split(line))
    cli.init_parser()
    options = cli.post_process_args(cli.parser.parse_args(cli.args[1:]))
    return commands.started(context_objects.CLIArgs.from_options(options), environment or {})


SHORT = [
    # options of a run, the playbook and its options
    ("plan", "bind"),
    ("rollback --check -e npu_affinity_to=-1", "rollback -e npu_affinity_to=-1"),
    ("rollback -e npu_affinity_to=-1", "bind"),
    ("plan -e npu_affinity_plan_file=f -e npu_affinity_report=r", "bind"),
    ("plan --limit a2-01 -e npu_affinity_strategy=even_split", "bind --limit a2-01 -e npu_affinity_strategy=even_split"),
    ("bind -e @group.yml -e ansible_become_pass=s3cret -e token=s3cret", "verify -e @group.yml"),
    ("bind -e npu_affinity_adopt=now", "bind -e npu_affinity_adopt=now"),
    ("bind -e npu_affinity_adopt=now", "verify"),
    ("bind -e npu_affinity_adopt=always", "verify -e npu_affinity_adopt=always"),
    ("bind -e npu_affinity_replan=yes -e npu_affinity_housekeeping=2", "verify -e npu_affinity_housekeeping=2"),
    ("bind -e npu_affinity_kubelet_restart=yes -e npu_affinity_strategy=x", "unbind -e npu_affinity_kubelet_restart=yes"),
    ("bind -e npu_affinity_root=/r -e npu_affinity_mute=[]", "unbind -e npu_affinity_root=/r"),
    ("bind -e npu_affinity_fail_on=drift -e ansible_port=22", "rollback -e npu_affinity_fail_on=drift -e ansible_port=22"),
    ("bind -e npu_affinity_reason=x", "unbind"),
    ("bind -e npu_affinity_reason=x", "bind -e npu_affinity_reason=x"),
    ("plan -e npu_affinity_reason=x", "bind -e npu_affinity_reason=x"),
    ("""bind -e npu_affinity_health='["a","$b;c"]'""", """bind -e '{"npu_affinity_health": "[\\"a\\",\\"$b;c\\"]"}'"""),
]
PLAIN = "ansible-playbook "
LONG = [
    ("-i a -i b, npu.affinity.bind -l 'npu_a:!x' -b -K -u root", "-i a -i b, -u root -b -K npu.affinity.unbind --limit 'npu_a:!x'"),
    ("--vault-id prod@prompt -f 50 npu.affinity.bind", "--vault-id prod@prompt -f 50 npu.affinity.unbind"),
    (
        """npu.affinity.bind -e "npu_affinity_reason='a b' ansible_user=me" """,
        """npu.affinity.bind -e '{"npu_affinity_reason": "a b"}' -e ansible_user=me""",
    ),
    ("""npu.affinity.bind -e '{"npu_affinity_batches": [1, "5%"]}'""", """npu.affinity.bind -e '{"npu_affinity_batches": [1, "5%"]}'"""),
    ("site.yml -l x", "npu.affinity.bind --limit x"),
    (f"{specs.PLAYBOOKS}/plan.yml", f"{specs.PLAYBOOKS}/bind.yml"),
]
REPEATED = [*((RUN + line, RUN + found) for line, found in SHORT), *((PLAIN + line, PLAIN + found) for line, found in LONG)]


@pytest.mark.parametrize(("line", "found"), REPEATED)
def test_the_next_command_repeats_how_this_one_was_typed(line, found):
    playbook = re.search(r"(?:npu\.affinity\.|/)(bind|rollback|unbind|verify)\b", found)[1]
    assert started(line).line(playbook) == found


@pytest.mark.parametrize("value", ["a b", "it's", '"x"', "back\\slash", "$HOME", "a=b", "{{ x }}", "[1]", "ä", "x;y&z", "'a b'"])
def test_a_value_survives_being_repeated(value):
    """The command that is offered, run and asked again, says the same."""
    start = started(f"{RUN}plan")._replace(extra=(("npu_affinity_reason", value),))
    assert started(start.line("bind")).extra == start.extra


ARGS = "--limit a2-01 -e npu_affinity_strategy=even_split"


@pytest.mark.parametrize(
    ("args", "added", "environment", "playbook", "found"),
    [
        ("", "-e npu_affinity_plan_file=/b", {}, "bind", "make bind"),
        (ARGS, "-e npu_affinity_plan_file=/b", {}, "bind", f"make bind ARGS='{ARGS}'"),
        ("-l x", "", {"INVENTORY": "my hosts"}, "verify", "make verify INVENTORY='my hosts' ARGS='--limit x'"),
        ("--check", """-e '{"npu_affinity_to": "-1"}'""", {}, "rollback", "make rollback TO=-1"),
        ("-e npu_affinity_reason=x", "-e npu_affinity_reports=/r", {}, "bind", "make bind ARGS='-e npu_affinity_reason=x'"),
        ("-e npu_affinity_reports=mine", "", {}, "bind", "make bind ARGS='-e npu_affinity_reports=mine'"),
        ("-e npu_affinity_reason=$x", "", {}, "bind", """make bind ARGS='-e '"'"'npu_affinity_reason=$$x'"'"''"""),
    ],
)
def test_a_run_of_make_is_followed_by_one_of_make(args, added, environment, playbook, found):
    start = started(f"ansible-playbook -i {os.getcwd()}/f.yml {args} {added} playbooks/x.yml", {**MADE, "ARGS": args, **environment})
    assert start.line(playbook) == found


def test_a_steps_hosts_and_settings_override_those_of_the_run():
    start = started(f"{RUN}bind --limit npu_a -e npu_affinity_reviewed=old.json")
    assert start.line("rollback", limit="a1,a2", settings={"npu_affinity_to": "-1"}) == f"{RUN}rollback --limit a1,a2 -e npu_affinity_to=-1"
    again = start.line("bind", check=True, settings={"npu_affinity_reviewed": "new.json"})
    assert again == f"{RUN}bind --check --limit npu_a -e npu_affinity_reviewed=new.json"


def test_a_repeated_check_shows_the_differences_again():
    start = started(f"{RUN}bind --check --diff")
    assert start.line("bind", check=True) == "ansible-playbook npu.affinity.bind --check --diff"
    assert start.line("bind") == "ansible-playbook npu.affinity.bind"


def test_secrets_are_named_and_not_repeated():
    start = started(f"{RUN}bind -e 'token=s3cret ansible_password=s3cret'")
    assert start.withheld == ("ansible_password", "token")
    assert "s3cret" not in repr(start)

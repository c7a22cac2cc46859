# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in documents: targets, playbooks, options, plugins and variables that they name are there.

``tests/integration/test_examples.py`` runs those of playbooks.
"""

import itertools
import json
import re
import shlex

import pytest
import yaml
from ansible.cli.playbook import PlaybookCLI
from ansible.parsing.splitter import parse_kv

from ansible_collections.npu.affinity.plugins.module_utils._command.metrics import METRICS
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs
from tests import documents
from tests.unit.docs.test_documents import PAGES

REPOSITORY = documents.REPOSITORY
MAKEFILE = (REPOSITORY / "Makefile").read_text()
TARGETS = set(" ".join(re.findall(r"^([a-z][a-z -]*):", MAKEFILE, re.MULTILINE)).split())
MAKE_VARIABLES = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.MULTILINE))
SETTINGS = specs.by_name().keys() | specs.FACTS
OWN_PLAYBOOKS = {"site.yml"}
"""Playbooks of the reader's own."""
MISSPELLED = {"npu_affinity_houskeeping"}
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def commands(text):
    """The commands in a page's blocks and in its inline code, each as a list of words."""
    blocks = [found["text"].replace("\\\n", " ") for found in BLOCK.finditer(text) if found["language"] in ("", "bash", "sh", "console")]
    for line in itertools.chain(*(block.splitlines() for block in blocks), INLINE.findall(BLOCK.sub("", text))):
        for part in re.split(r" (?:&&|\||>) ", line.strip().removeprefix("$ ")):
            if re.match(r"(sudo )?([A-Z_]+=\S+ )*(make|ansible-playbook|ansible-doc|python -m tests)\b", part) and "…" not in part:
                words = shlex.split(part, comments=True)
                yield [word for word in words if word != "sudo"]


def check_playbook(arguments):
    cli = PlaybookCLI(["ansible-playbook", *arguments])
    cli.parser = None
    cli.init_parser()
    options = cli.parser.parse_args(arguments)
    for playbook in options.args:
        path = playbook if playbook.endswith(".yml") else f"playbooks/{playbook.removeprefix('npu.affinity.')}.yml"
        assert (REPOSITORY / path).is_file() or playbook in OWN_PLAYBOOKS, playbook
    for given in options.extra_vars:
        found = json.loads(given) if given.startswith("{") else parse_kv(given)
        assert "_raw_params" not in found, "Ansible cuts a value at a blank, unless it has quotes of its own"
        assert [name for name in found if name.startswith("npu_affinity_") and name not in SETTINGS] == []


def check_make(words):
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    assert variables.keys() <= MAKE_VARIABLES
    assert {word for word in words if "=" not in word and not word.startswith("-")} <= TARGETS
    if "INVENTORY" in variables and "ARGS" in variables:
        check_playbook([*shlex.split(variables["ARGS"]), "npu.affinity.bind"])


def check(words):
    while re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    program, arguments = words[0], words[1:]
    if program == "make":
        check_make(arguments)
    elif program == "ansible-playbook" and arguments:
        check_playbook(arguments)
    elif program == "ansible-doc" and arguments:
        kind, name = arguments[1:3]
        folder = {"role": "roles", "module": "plugins/modules", "filter": "plugins/filter", "lookup": "plugins/lookup"}[kind]
        assert list((REPOSITORY / folder).glob(name.removeprefix("npu.affinity.") + "*")), name
    elif program == "python":
        path = REPOSITORY / arguments[1].replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_and_variables_of_a_page_are_there(page):
    for words in commands(page.read_text()):
        try:
            check(words)
        except (AssertionError, SystemExit, KeyError) as error:
            pytest.fail(f"{shlex.join(words)}: {error}")
    named = set(re.findall(r"(?<![\w_])npu_affinity_\w*[a-z](?![\w(*<])", page.read_text()))
    assert named - SETTINGS - MISSPELLED - {metric.name for metric in METRICS} == set()


def test_values_in_samples_of_settings_are_taken():
    found = yaml.safe_load((REPOSITORY / "docs/examples/group_vars/npu_hosts.yml").read_text())
    assert found.keys() - SETTINGS == set()
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text()):
            if block["language"] == "yaml" and "npu_affinity_" in block["text"] and "{{" not in block["text"]:
                sample = yaml.safe_load(block["text"])
                found |= sample if isinstance(sample, dict) else {}
    options = specs.by_name()
    given = {name: value for name, value in found.items() if name in options}
    assert len(given) > 15
    for name, value in given.items():
        assert value in options[name].get("choices", [value]), name
        if keys := options[name].get("options"):
            assert all(element.keys() <= keys.keys() for element in (value if isinstance(value, list) else [value])), name


def test_the_index_has_every_page():
    index = (REPOSITORY / "docs/index.md").read_text()
    pages = [path.stem for path in REPOSITORY.glob("docs/*.md") if path.stem != "index"]
    assert [page for page in sorted(pages) if f"]({page}.md)" not in index or f"\n{page}\n" not in index] == []

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents show what the code has: variables of roles, plays that ansible-playbook reads, and a plan that it prints."""

import configparser
import os
import re
import typing

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.filter import plan
from ansible_collections.npu.affinity.plugins.module_utils._base import documents as types
from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES
from ansible_collections.npu.affinity.plugins.modules import binding_info, topology_facts
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import REFUSALS, REMARKS
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import FORMS
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs
from tests import documents


def test_what_the_code_makes_is_up_to_date():
    made = [(path, documents.with_part(path, part, text)) for path, part, text in documents.parts()]
    outdated = [path for path, text in made if (documents.REPOSITORY / path).read_text() != text]
    assert outdated == [], "python -m tests.documents --write"


def test_the_variables_to_start_with_have_their_defaults():
    found = specs.by_name()
    start = (documents.REPOSITORY / "docs/settings.md").read_text().partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", start, re.MULTILINE)
    assert len(rows) == 10 and [name for name, default in rows if yaml.safe_load(default) != found[name]["default"]] == []


def test_every_code_has_a_section_and_alerts_link_to_sections():
    text = (documents.REPOSITORY / "docs/troubleshooting.md").read_text()
    sections = dict(section.partition("\n")[::2] for section in re.split(r"^#+ ", text, flags=re.MULTILINE))
    assert sorted(heading for heading in sections if "NPU_" in heading) == sorted(CODES | REFUSALS.keys() | REMARKS.keys())
    assert [heading for heading, below in sections.items() if "NPU_" in heading and not re.search(r"\w.*[.:]$", below, re.MULTILINE)] == []
    rules = yaml.safe_load((documents.REPOSITORY / "docs/examples/monitoring/rules.yml").read_text())["groups"]
    alerts = [rule for group in rules for rule in group["rules"] if "alert" in rule]
    for rule in alerts:
        page, _hash, heading = rule["annotations"]["runbook_url"].partition("/docs/")[2].partition("#")
        code = rule["labels"].get("code")
        if "npu_affinity_drifted_objects" in rule["expr"]:
            assert (page, heading, code) == ("troubleshooting.md", "{{ $labels.code | toLower }}", None)
        elif rule["alert"] in ("NpuAffinityVerifyFails", "NpuAffinityMetricsStale"):
            assert (page, heading, code) == ("metrics.md", "rules-and-alerts", None)
        else:
            assert code in CODES and (page, heading) == ("troubleshooting.md", code.lower())


OWN = re.compile(r"\]\(https://(?:github[.]com/{0}/blob|raw[.]githubusercontent[.]com/{0})/main/".format("npu-affinity/npu[.]affinity"))
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:]*)#([^)]*)\)")
PATH = re.compile(r"`((?:changelogs|docs|extensions|module_utils|playbooks|plugin_utils|plugins|roles|tests)/[\w./-]+)`")
PAGES = [page for pattern in ("*.md", "docs/*.md", "roles/*/README.md") for page in sorted(documents.REPOSITORY.glob(pattern))]
TEST = re.compile(r"`(?:(?P<file>[\w/]*test_\w+\.py)(?:::(?P<of>test_\w+))?|(?P<alone>test_\w+))(?:\[[^]`]*\])?`")
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
TESTS = {path: set(DEFINED.findall(path.read_text())) for path in documents.REPOSITORY.glob("tests/**/test_*.py")}


def linked(page):
    """The text of a page, where full addresses of this repository's files are paths."""
    return OWN.sub("](" + os.path.relpath(documents.REPOSITORY, page.parent) + "/", page.read_text())


def missing_files(page):
    """What a page links to or names and is not there; paths of the two folders of code stand without ``plugins/``."""
    text = linked(page)
    folder = documents.REPOSITORY / "plugins"
    named = [folder / path if "_utils" in path.split("/")[0] else documents.REPOSITORY / path for path in PATH.findall(text)]
    return [str(path) for path in [*(page.parent / link for link in LINK.findall(text)), *named] if not path.exists()]


def unknown_tests(text):
    """The tests and files of tests that a text names and that are not there. A test without a file is in the file named before it."""
    above = ""
    for found in TEST.finditer(text):
        above, test = found["file"] or above, found["of"] or found["alone"]
        files = [path for path in TESTS if str(path).endswith(f"/{above}")]
        if not files or (test and not any(test in TESTS[path] for path in files)):
            yield found[0]


def anchors(page):
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing_sections(page):
    return [link for link in ANCHOR.findall(linked(page)) if link[1] not in anchors(page.parent / link[0] if link[0] else page)]


def long_cells(page):
    cells = [cell for row in re.findall(r"^\| (.*) \|$", page.read_text(), re.MULTILINE) for cell in row.split(" | ")]
    return [cell for cell in cells if len(cell.split()) > 20]


@pytest.mark.parametrize("faults", [missing_files, missing_sections, lambda page: list(unknown_tests(page.read_text())), long_cells])
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.REPOSITORY)))
def test_a_page_names_what_is_there_and_has_short_cells(page, faults):
    assert faults(page) == []


def test_misspelled_tests_of_a_page_are_found():
    text = "`test_bind.py` `test_bind[a3]` `test_irq.py::test_after_a_reboot` `test_bind` `test_undo.py::test_unbund` `test_gone.py`"
    assert list(unknown_tests(text)) == ["`test_bind`", "`test_undo.py::test_unbund`", "`test_gone.py`"]


@pytest.mark.parametrize("role", documents.ROLES)
def test_the_example_of_every_role_runs_it(role):
    """tests/integration/test_examples.py plays it."""
    (play,) = yaml.safe_load(re.search(r"^```yaml\n(.*?)^```", documents.readme(role), re.DOTALL | re.MULTILINE)[1])
    assert f"npu.affinity.{role}" in [*play.get("roles", ()), play.get("ansible.builtin.import_playbook")]


def test_the_table_of_launch_forms_has_each_of_them():
    text = (documents.REPOSITORY / "docs/workloads.md").read_text()
    rows = re.findall(r"^\| (\[?`.*?) \|", text.split("\n## Launch forms\n")[1].partition("\n## ")[0], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(FORMS)


def test_a_release_is_called_by_one_version_everywhere():
    galaxy = yaml.safe_load((documents.REPOSITORY / "galaxy.yml").read_text())
    for kind in ("execution", "decision"):
        environment = yaml.safe_load((documents.REPOSITORY / f"docs/examples/rollout/{kind}-environment.yml").read_text())
        (collection,) = environment["dependencies"]["galaxy"]["collections"]
        assert collection == {"name": "npu.affinity", "version": galaxy["version"]}
    assert galaxy["version"] == VERSION
    files = [
        path for folder in ("plugins", "roles") for path in (documents.REPOSITORY / folder).rglob("*") if path.suffix in (".py", ".yml")
    ]
    added = {version for path in files for version in re.findall(r"^ *version_added: (\S+)", path.read_text(), re.MULTILINE)}
    assert max(tuple(map(int, version.split("."))) for version in added) <= tuple(map(int, galaxy["version"].split(".")))
    assert "0" not in {version.split(".")[0] for version in added}, "1.0.0 is the first release"


def test_the_configuration_to_copy_prints_as_the_checkout_does():
    text = (documents.REPOSITORY / "docs/first-bind.md").read_text().partition("```ini\n")[2].partition("```")[0]
    (copied, checkout) = (configparser.ConfigParser(inline_comment_prefixes=(";",)) for _file in range(2))
    copied.read_string(text)
    checkout.read(documents.REPOSITORY / "ansible.cfg")
    of_output = {"callback_result_format", "display_ok_hosts", "display_skipped_hosts", "check_mode_markers", "interpreter_python"}
    chosen = {name: value for name, value in checkout["defaults"].items() if name in of_output or "callback" in name}
    assert chosen.pop("stdout_callback") == "ansible.builtin.default", "what ansible-core uses without a setting"
    assert chosen.keys() == of_output
    assert {name: copied["defaults"][name] for name in chosen} == chosen
    assert set(copied["defaults"]) == {*of_output, "forks", "inventory"} and copied["ssh_connection"]["pipelining"] == "true"


@pytest.mark.parametrize("role", ["plan", "slices", "threads"])
def test_roles_take_the_engines_of_the_register(role):
    text = (documents.REPOSITORY / f"roles/{role}/meta/argument_specs.yml").read_text()

    def engines(node):
        for key, value in node.items() if isinstance(node, dict) else ():
            yield from [value["choices"]] if key == "engine" and isinstance(value, dict) else engines(value)

    found = list(engines(yaml.safe_load(text)))
    assert found and all(choices == sorted(ENGINES) == list(ENGINES) for choices in found)


def differing(kind, documented, path):
    """Yield the keys that the type of a document and RETURN of a plugin do not both have."""
    hints = typing.get_type_hints(kind)
    yield from (f"{path}.{key}" for key in hints.keys() ^ documented.keys())
    for key in hints.keys() & documented.keys():
        within = [hints[key], *typing.get_args(hints[key])]
        for inner in filter(typing.is_typeddict, within if "contains" in documented[key] else ()):
            yield from differing(inner, documented[key]["contains"], f"{path}.{key}")


COMPARISON = yaml.safe_load(binding_info.RETURN)
RETURNED = [
    (types.Topology, yaml.safe_load(topology_facts.RETURN)["ansible_facts"]["contains"]["npu_affinity_topology"], set()),
    (types.Plan, yaml.safe_load(plan.RETURN)["_value"], {"Plan.refused", "Plan.npus.released", "Plan.npus.unlisted"}),
    (types.Drift, COMPARISON["drift"], set()),
    (types.OutsideUser, COMPARISON["outside"], set()),
]
"""The last ones of a plan are explained where they occur: with option ``fail``, and in ``lost``."""


@pytest.mark.parametrize("kind, returned, elsewhere", RETURNED, ids=[row[0].__name__ for row in RETURNED])
def test_documents_have_the_keys_of_their_types(kind, returned, elsewhere):
    assert set(differing(kind, returned["contains"], kind.__name__)) == elsewhere

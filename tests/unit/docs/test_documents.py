# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents show what the code has: variables of roles, plays that ansible-playbook reads, and a plan that it prints."""

from __future__ import annotations

import configparser
import os
import re
import subprocess

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import REFUSALS, REMARKS
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import FORMS
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs
from tests import documents


def test_what_the_code_makes_is_up_to_date():
    outdated = [
        path for path, part, text in documents.parts() if (documents.REPOSITORY / path).read_text() != documents.with_part(path, part, text)
    ]
    assert outdated == [], "python -m tests.documents --write"


def test_pages_without_a_place_are_named_and_others_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "README.md").write_text("# Title\n")
    (tmp_path / "page.md").write_text("## Part\nold\n")
    made = [("README.md", "^## Part.*", "## Part\nnew\n"), ("page.md", "^## Part.*", "## Part\nnew\n"), ("gone.md", "^#", "")]
    monkeypatch.setattr(documents, "REPOSITORY", tmp_path)
    monkeypatch.setattr(documents, "parts", lambda: iter(made))
    assert documents.main(["--write"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "README.md has no place for what the code makes: nothing in it matches ^## Part.*",
        "gone.md: No such file or directory",
    ]
    assert (tmp_path / "page.md").read_text() == "## Part\nnew\n"


@pytest.mark.parametrize("rest", ["", "\n| old |\n", "\n| old |\n\n## Disable the role\n"])
def test_a_readme_up_to_its_variables_gets_their_table(tmp_path, monkeypatch, rest):
    of_role = [part for part in documents.parts() if part[0] == "roles/tuning/README.md"]
    monkeypatch.setattr(documents, "REPOSITORY", tmp_path)
    monkeypatch.setattr(documents, "parts", lambda: iter(of_role))
    page = tmp_path / "roles/tuning/README.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"# Role\n\n## Variables\n{rest}")
    assert documents.main(["--write"]) == 0
    begun = page.read_text().partition("# Role\n\n## Variables\n\n| variable | default | what it does |\n")
    assert begun[1] and "| old |" not in begun[2] and ("## Disable" in begun[2]) is ("Disable" in rest)


def test_the_variables_to_start_with_have_their_defaults():
    found = {name: option for of_role in specs.settings().values() for name, option in of_role.items()}
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


OWN = re.compile(
    r"\]\(https://(?:github[.]com/npu-affinity/npu[.]affinity/blob|raw[.]githubusercontent[.]com/npu-affinity/npu[.]affinity)/main/"
)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:]*)#([^)]*)\)")
PATH = re.compile(r"`((?:changelogs|docs|extensions|module_utils|playbooks|plugin_utils|plugins|roles|tests)/[\w./-]+)`")
PAGES = [page for pattern in ("*.md", "docs/*.md", "roles/*/README.md") for page in sorted(documents.REPOSITORY.glob(pattern))]


def linked(page):
    """The text of a page, where full addresses of this repository's files are paths."""
    return OWN.sub("](" + os.path.relpath(documents.REPOSITORY, page.parent) + "/", page.read_text())


def whole(path):
    """The place of a path that a page names; those of the two folders of code stand without ``plugins/``."""
    return documents.REPOSITORY / ("plugins" if "_utils" in path.split("/")[0] else "") / path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.REPOSITORY)))
def test_what_a_page_links_to_or_names_is_there(page):
    text = linked(page)
    named = {page.parent / link for link in LINK.findall(text)} | {whole(path) for path in PATH.findall(text)}
    assert [str(path) for path in sorted(named) if not path.exists()] == []


TEST = re.compile(r"`(?:(?P<file>[\w/]*test_\w+\.py)(?:::(?P<of>test_\w+))?|(?P<alone>test_\w+))(?:\[[^]`]*\])?`")
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
TESTS = {path: set(DEFINED.findall(path.read_text())) for path in documents.REPOSITORY.glob("tests/**/test_*.py")}


def unknown_tests(text):
    """The tests and files of tests that a text names and that are not there. A test without a file is in the file named before it."""
    above = ""
    for found in TEST.finditer(text):
        above, test = found["file"] or above, found["of"] or found["alone"]
        files = [path for path in TESTS if str(path).endswith(f"/{above}")]
        if not files or (test and not any(test in TESTS[path] for path in files)):
            yield found[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.REPOSITORY)))
def test_tests_that_a_page_names_are_there(page):
    assert list(unknown_tests(page.read_text())) == []


def test_misspelled_tests_of_a_page_are_found():
    text = "`test_bind.py` `test_bind[a3]` `test_irq.py::test_after_a_reboot` `test_bind` `test_undo.py::test_unbund` `test_gone.py`"
    assert list(unknown_tests(text)) == ["`test_bind`", "`test_undo.py::test_unbund`", "`test_gone.py`"]


def anchors(page):
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.REPOSITORY)))
def test_links_to_sections_land_on_headings(page):
    found = ANCHOR.findall(linked(page))
    assert [link for link in found if link[1] not in anchors(page.parent / link[0] if link[0] else page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.REPOSITORY)))
def test_cells_of_tables_have_at_most_twenty_words(page):
    cells = [cell for row in re.findall(r"^\| (.*) \|$", page.read_text(), re.MULTILINE) for cell in row.split(" | ")]
    assert [cell for cell in cells if len(cell.split()) > 20] == []


def examples():
    """The first play of each role's README, by role."""
    return {role: re.search(r"^```yaml\n(.*?)^```", documents.readme(role), re.DOTALL | re.MULTILINE)[1] for role in documents.ROLES}


def test_the_example_of_every_role_is_a_play_that_runs_it(tmp_path):
    paths = []
    for role, text in examples().items():
        (play,) = yaml.safe_load(text)
        assert f"npu.affinity.{role}" in [*play.get("roles", ()), play.get("ansible.builtin.import_playbook")]
        known = {name for named in (role, "plan") for name in documents.options(named)}
        assert play.get("vars", {}).keys() <= known, role
        paths.append(tmp_path / f"{role}.yml")
        paths[-1].write_text(text)
    command = ["ansible-playbook", "-i", "npu_hosts,", "--syntax-check", *map(str, paths)]
    done = subprocess.run(command, cwd=documents.REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


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
    added = {
        version
        for folder in ("plugins", "roles")
        for path in (documents.REPOSITORY / folder).rglob("*")
        if path.suffix in (".py", ".yml")
        for version in re.findall(r"^ *version_added: (\S+)", path.read_text(), re.MULTILINE)
    }
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
    found = []

    def look(node):
        for key, value in node.items() if isinstance(node, dict) else ():
            found.extend([value["choices"]] if key == "engine" and isinstance(value, dict) else [])
            look(value)

    look(yaml.safe_load(text))
    assert found and all(choices == sorted(ENGINES) == list(ENGINES) for choices in found)

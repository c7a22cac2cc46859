# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection requirements of the Ansible community package, and those of certification, point by point.

Sources: https://docs.ansible.com/projects/ansible/latest/community/collection_contributors/collection_requirements.html and
https://docs.ansible.com/projects/partner-certification-requirements/; of patterns,
https://github.com/ansible/pattern-service/tree/main/specifications. Each function or row has what does not meet a point.

Other points are tested by ``make sanity`` (plugins without entries to ignore), ``make docs`` (documentation that refers to what exists),
``make style`` (changelog of fragments), ``make ansible-lint``, ``make licence``, ``make package`` (build and installation), ``make
importer`` (Galaxy's importer, definitions of environments) and ``make matrix`` (each ansible-core). Not to be tested here: that the
repository and its issues are public, that releases are tagged (the workflow runs for tags alone), and that maintainers answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features, specs
from tests.documents import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
MODULES = sorted(REPOSITORY.glob("plugins/modules/*.py"))
PLUGINS = [path for kind in ("modules", "filter", "lookup") for path in sorted(REPOSITORY.glob(f"plugins/{kind}/*.py"))]
PATTERNS = {path.parents[1]: json.loads(path.read_text()) for path in sorted(REPOSITORY.glob("extensions/patterns/*/meta/pattern.json"))}
WORKFLOWS = sorted(REPOSITORY.glob(".github/workflows/*.yml"))
HEADINGS = [
    *("Description", "Requirements", "Installation", "Use Cases", "Testing", "Contributing", "Communication", "Support"),
    *("Release Notes and Roadmap", "Related Information", "License Information"),
]


def document(path: Path, name: str) -> str:
    """Return the text of DOCUMENTATION, EXAMPLES or RETURN of a plugin, '' if it has none."""
    found = re.search(rf'^{name} = r?"""(.*?)"""', path.read_text(), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def modules(*endings: str) -> list[Path]:
    return [path for path in MODULES if path.stem.endswith(endings)]


def examples_use_full_names() -> Iterator[str]:
    for path in PLUGINS:
        for name in re.findall(r"^\s*- (?:name: .*\n\s+)?([a-z]\w+):\s*$", document(path, "EXAMPLES"), re.MULTILINE):
            if name in {module.stem for module in MODULES}:
                yield f"{path.name}: {name}"


def galaxy_says_what_it_must() -> Iterator[str]:
    about = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text())
    wanted = ("repository", "documentation", "homepage", "issues", "authors", "description", "license", "tags")
    yield from (key for key in wanted if not about.get(key))
    if about["version"].startswith("0."):
        yield "version"


def supported_cores_are_tested() -> Iterator[str]:
    """The oldest ansible-core that ``requires_ansible`` takes is the oldest of the matrix."""
    (oldest,) = re.findall(r">=(\d+[.]\d+)", (REPOSITORY / "meta/runtime.yml").read_text())
    if f"core-oldest) on_core {oldest}." not in (REPOSITORY / "tests/run-matrix").read_text():
        yield oldest


def checkouts_keep_no_credentials() -> Iterator[str]:
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            if "permissions" not in job:
                yield f"{path.name}: {name} has no permissions of its own"
            for step in job["steps"]:
                if "checkout@" in step.get("uses", "") and step.get("with", {}).get("persist-credentials") is not False:
                    yield f"{path.name}: {name}"


def patterns_describe_themselves() -> Iterator[str]:
    if PATTERNS.keys() != set(REPOSITORY.glob("extensions/patterns/*")) or not PATTERNS:
        yield "extensions/patterns: a folder without meta/pattern.json, or none at all"
    for folder, pattern in PATTERNS.items():
        wanted = ("schema_version", "title", "description", "short_description", "aap_resources")
        yield from (f"{folder.name}: {key}" for key in wanted if not pattern.get(key))
        if not re.fullmatch(r"[a-z0-9_]{1,64}", folder.name) or pattern["name"] != folder.name or len(pattern["title"]) > 64:
            yield f"{folder.name}: name or title"
        if not (folder / "README.md").exists():
            yield f"{folder.name}: README.md"


def patterns_define_what_their_job_templates_name() -> Iterator[str]:
    for pattern in PATTERNS.values():
        resources = pattern["aap_resources"]
        jobs = resources["controller_job_templates"]
        if [job.get("primary", False) for job in jobs].count(True) != 1 or not resources["controller_project"]["description"]:
            yield "the primary job template, or the project"
        for job in jobs:
            if job["execution_environment"] != resources["controller_execution_environment"]["name"]:
                yield f"{job['name']}: execution environment"
            yield from (f"{job['name']}: label {label}" for label in job["labels"] if label not in resources["controller_labels"])


def surveys_of_patterns_ask_for_settings() -> Iterator[str]:
    """Playbooks take what the survey asks for; the argument spec next to them has it as the collection has; each default is accepted."""
    for folder, pattern in PATTERNS.items():
        for job in pattern["aap_resources"]["controller_job_templates"]:
            playbook = folder / "playbooks" / job["playbook"]
            (play,) = yaml.safe_load(playbook.read_text())
            imported = play["ansible.builtin.import_playbook"]
            options = yaml.safe_load(playbook.with_suffix(".meta.yml").read_text())["argument_specs"][playbook.stem]["options"]
            if imported != f"npu.affinity.{playbook.stem}" or options.keys() - specs.by_playbook()[playbook.stem].keys():
                yield f"{playbook.name}: {imported} or its variables"
            questions = {question["variable"]: question for question in job["survey"]["spec"]}
            if questions.keys() != options.keys():
                yield f"{playbook.name}: {questions.keys() ^ options.keys()}"
            for name, question in questions.items():
                if options[name] != specs.of_playbooks()[name]:
                    yield f"{playbook.name}: {name}"
                for answer in (question.get("default", ""), *question.get("choices", [])):
                    features.converted(name, options[name], answer)


ANNOUNCED = ("semantic versioning", "deprecated", "forum.ansible.com/tag/npu-affinity", "code_of_conduct")
UTILITIES = [path for folder in ("module_utils", "plugin_utils") for path in REPOSITORY.glob(f"plugins/{folder}/*")]
USES = [line for path in WORKFLOWS for line in re.findall(r"uses: (.*)", path.read_text())]
SHORT = {
    "headings of the README": [heading for heading in HEADINGS if f"\n## {heading}\n" not in README],
    "links of the README work elsewhere": re.findall(r"\]\((?!https://|#)([^)]*)\)", README),
    "the README announces versions, deprecation and a forum tag": [words for words in ANNOUNCED if words not in README],
    "the README installs no core with pip": re.findall(r"^.*pip install.*ansible.*$", README, re.MULTILINE),
    "modules that only look support check mode": [
        path.name for path in modules("_info", "_facts") if "supports_check_mode=True" not in path.read_text()
    ],
    "facts modules return facts alone": [
        key for path in modules("_facts") for key in yaml.safe_load(document(path, "RETURN")) if key != "ansible_facts"
    ],
    "utilities are private": [path.name for path in UTILITIES if not path.name.startswith("_")],
    "actions are pinned": [line for line in USES if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d.*", line)],
}
POINTS = [value for name, value in list(globals().items()) if getattr(value, "__annotations__", {}).get("return") == "Iterator[str]"]


@pytest.mark.parametrize("name", SHORT)
def test_short_requirement(name):
    assert SHORT[name] == []


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_requirement(point):
    assert list(point()) == []

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection requirements of the Ansible community package, and those of certification, point by point.

Sources: https://docs.ansible.com/projects/ansible/latest/community/collection_contributors/collection_requirements.html and
https://docs.ansible.com/projects/partner-certification-requirements/. Each function returns what does not meet a point.

Other points are tested by ``make sanity`` (plugins without entries to ignore), ``make docs`` (documentation that refers to what exists),
``make style`` (ansible-lint, changelog of fragments), ``make licence``, ``make package`` (build and installation) and ``make matrix`` (each
ansible-core). Not to be tested here: that the repository and its issues are public, that releases are tagged (the workflow runs for tags
alone), and that maintainers answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.documents import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
MODULES = sorted(REPOSITORY.glob("plugins/modules/*.py"))
PLUGINS = [path for kind in ("modules", "filter", "lookup") for path in sorted(REPOSITORY.glob(f"plugins/{kind}/*.py"))]
WORKFLOWS = sorted(REPOSITORY.glob(".github/workflows/*.yml"))
HEADINGS = [
    *("Description", "Requirements", "Installation", "Use Cases", "Testing", "Contributing", "Communication", "Support"),
    *("Release Notes and Roadmap", "Related Information", "License Information"),
]


def document(path: Path, name: str) -> str:
    """Return the text of DOCUMENTATION, EXAMPLES or RETURN of a plugin, '' if it has none."""
    found = re.search(rf'^{name} = r?"""(.*?)"""', path.read_text(), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def headings_of_the_readme() -> Iterator[str]:
    found = re.findall(r"^## (.*)$", README, re.MULTILINE)
    yield from (heading for heading in HEADINGS if heading not in found)


def links_of_the_readme_work_elsewhere() -> Iterator[str]:
    yield from re.findall(r"\]\((?!https://|#)([^)]*)\)", README)


def the_readme_announces_versions_deprecation_and_a_forum_tag() -> Iterator[str]:
    wanted = ("semantic versioning", "deprecated", "forum.ansible.com/tag/npu-affinity", "code_of_conduct")
    yield from (words for words in wanted if words not in README)


def the_readme_installs_no_core_with_pip() -> Iterator[str]:
    yield from re.findall(r"^.*pip install.*ansible.*$", README, re.MULTILINE)


def modules_that_only_look_support_check_mode() -> Iterator[str]:
    for path in MODULES:
        if path.stem.endswith(("_info", "_facts")) and "supports_check_mode=True" not in path.read_text():
            yield path.name


def facts_modules_return_facts_alone() -> Iterator[str]:
    for path in MODULES:
        if path.stem.endswith("_facts"):
            yield from (key for key in yaml.safe_load(document(path, "RETURN")) if key != "ansible_facts")


def examples_use_full_names() -> Iterator[str]:
    for path in PLUGINS:
        for name in re.findall(r"^\s*- (?:name: .*\n\s+)?([a-z]\w+):\s*$", document(path, "EXAMPLES"), re.MULTILINE):
            if name in {module.stem for module in MODULES}:
                yield f"{path.name}: {name}"


def utilities_are_private() -> Iterator[str]:
    for folder in ("module_utils", "plugin_utils"):
        yield from (path.name for path in REPOSITORY.glob(f"plugins/{folder}/*") if not path.name.startswith("_"))


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


def actions_are_pinned() -> Iterator[str]:
    for path in WORKFLOWS:
        yield from (line for line in re.findall(r"uses: (.*)", path.read_text()) if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d.*", line))


def checkouts_keep_no_credentials() -> Iterator[str]:
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            if "permissions" not in job:
                yield f"{path.name}: {name} has no permissions of its own"
            for step in job["steps"]:
                if "checkout@" in step.get("uses", "") and step.get("with", {}).get("persist-credentials") is not False:
                    yield f"{path.name}: {name}"


POINTS = [value for name, value in list(globals().items()) if getattr(value, "__annotations__", {}).get("return") == "Iterator[str]"]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_requirement(point):
    assert list(point()) == []

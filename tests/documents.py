# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of documents that the code makes: ``python -m tests.documents --write`` brings them up to date."""

from __future__ import annotations

import functools
import json
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from ansible_collections.npu.affinity.plugins.filter import plan
from ansible_collections.npu.affinity.plugins.module_utils._base.binders import BINDERS, ENGINES
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._command.metrics import METRICS
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs import Diff
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import UNIT_FOLDER
from ansible_collections.npu.affinity.plugins.module_utils._base.table import plan_table
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import REFUSALS, REMARKS
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import FIRST_LINE
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.slices import slice_text
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._report import summary_text
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import profile, specs
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features
from tests.simulator.generate import generate

REPOSITORY = pathlib.Path(__file__).parents[1]
ROLES = sorted(path.name for path in REPOSITORY.glob("roles/*"))
AS_BOUND = ("plan", "slices", "irq", "adopt", "threads", "tuning", "hugepages", "nic", "metrics", "device_share")
AS_BOUND += ("vnpu", "kubelet", "verify", "report")
IN_ORDER = sorted(ROLES, key=lambda role: AS_BOUND.index(role) if role in AS_BOUND else len(AS_BOUND))
BASIC = {
    f"npu_affinity_{name}"
    for name in (
        *("services", "workloads", "vnpus", "bound_by", "strategy", "cpus", "housekeeping", "npus", "repair", "replan", "move_memory"),
        *("slices_enabled", "irq_enabled", "irqbalance", "threads_enabled", "metrics_enabled", "metrics_textfile", "reports", "report"),
        *("profile", "tuning", "hugepages", "nic"),
        *("device_share_enabled", "device_share_npus", "vnpu_enabled", "vnpu_files"),
        *("kubelet_enabled", "kubelet_options", "kubelet_topology_policy", "kubelet_reserved", "kubelet_restart"),
    )
}
README_OF = "https://github.com/npu-affinity/npu.affinity/blob/main/roles/%s/README.md#variables"
HEAD = "| variable | default | what it does |\n|---|---|---|\n"
MARKUP = re.compile(r"\b[A-Z]\(([^()]*)\)")


def readme(role: str) -> str:
    return (REPOSITORY / f"roles/{role}/README.md").read_text()


@functools.cache
def options(role: str) -> Mapping[str, Any]:
    """Return the variables of a role, as its argument specs have them."""
    specs = yaml.safe_load((REPOSITORY / f"roles/{role}/meta/argument_specs.yml").read_text())["argument_specs"]
    return specs["main"]["options"]


def homes() -> dict[str, str]:
    """Return the role that describes each variable: the first one, in the order of a bind, that reads it."""
    return {name: role for role in reversed(IN_ORDER) for name in options(role)}


def variables(role: str) -> str:
    """Return the table of a role's variables, and the names of those that other roles describe."""
    home, found = homes(), options(role)
    text = _table({name: option for name, option in found.items() if home[name] == role})
    others = {other: ", ".join(f"`{name}`" for name in found if home[name] == other) for other in IN_ORDER if other != role}
    elsewhere = [f"{names} of role [{other}](../{other}/README.md#variables)" for other, names in others.items() if names]
    return text + (f"\nAlso read: {'; '.join(elsewhere)}.\n" if elsewhere else "")


def settings() -> str:
    """Return the table of the variables of playbooks, and the names of those of each role: basic ones first, each name once."""
    of_playbooks = specs.of_playbooks()
    readers = {name: specs.readers(name) or ["all"] for name in of_playbooks}
    home = homes()
    if unknown := BASIC - home.keys():
        raise ValueError(f"no role has {', '.join(sorted(unknown))}")
    parts = [f"## Playbooks\n\n{_table(of_playbooks, readers)}"]
    for title, kept in (("Basic variables of roles", home.keys() & BASIC), ("Expert variables of roles", home.keys() - BASIC)):
        lines = [_names(role, [name for name in options(role) if name in kept and home[name] == role]) for role in IN_ORDER]
        parts.append(f"## {title}\n\n{''.join(lines)}")
    return "\n".join(parts)


def _names(role: str, names: Sequence[str]) -> str:
    return f"* [{role}]({README_OF % role}): {', '.join(f'`{name}`' for name in names)}\n" if names else ""


def _table(found: Mapping[str, Any], readers: Mapping[str, Sequence[str]] | None = None) -> str:
    head = HEAD if readers is None else "| variable | default | read by | what it does |\n|---|---|---|---|\n"
    rows = []
    for name, option in found.items():
        middle = "" if readers is None else f" {', '.join(readers[name])} |"
        rows.append(f"| `{name}` | {_default(option)} |{middle} {_meaning(option)} |\n")
    return head + "".join(rows)


def _default(option: Mapping[str, Any]) -> str:
    if "default" not in option:
        return "none"
    text = yaml.safe_dump(option["default"], default_flow_style=True, width=1000)
    return f"`{text.splitlines()[0]}`"


def _meaning(option: Mapping[str, Any]) -> str:
    """Return the first sentence of a description, then what is allowed."""
    described = option["description"]
    sentence = re.split(r"(?<=\.)\s", described if isinstance(described, str) else described[0])[0]
    choices = [f"`{choice}`" for choice in option.get("choices", ()) if choice]
    allowed = f" One of {', '.join(choices)}." if choices else ""
    return (MARKUP.sub(_code, sentence) + allowed).replace("|", "\\|")


def _code(markup: re.Match[str]) -> str:
    """Return what stands in semantic markup; a reference is such as ``npu.affinity.plan#filter:strategy``."""
    name, _mark, kind = markup[1].partition("#")
    _kind, _colon, option = kind.partition(":")
    return f"`{option}` of `{name}`" if option else f"`{name}`"


@functools.cache
def _topology(machine: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        generate(machine, folder)
        return gather(Host(folder))


def plan_lines() -> list[str]:
    """Return what playbook plan prints of an Atlas 800 A2."""
    topology = _topology("a2_8x24")
    state = desired_state(topology, of_features({}))
    return plan_table(state["plan"], topology, state["summary"])


def plan_tables_lines() -> list[str]:
    """Return what playbook plan prints of three such hosts, one of which is bound already."""
    topology = _topology("a2_8x24")
    bound = {**topology, "applied": plan.plan(topology)}
    hosts = {
        name: {"npu_affinity_topology": host, "npu_affinity_state": desired_state(host, of_features({}))}
        for name, host in {"node01": topology, "node02": topology, "node03": bound}.items()
    }
    state = hosts["node03"]["npu_affinity_state"]
    in_force = {"digest": state["digest"], "state": applied(state), "differs": []}
    hosts["node03"]["npu_affinity_state"] = desired_state(bound, of_features({}), shown=True, in_force=in_force)
    return summary_text.plans(hosts, hosts)


def diff_lines() -> list[str]:
    """Return the beginning of what a first bind with ``--diff`` shows of an Atlas 800 A2: its first NPUs and slices."""
    made = plan.plan(_topology("a2_8x24"))
    slices = binding(_topology("a2_8x24"), made, Work())["slices"][:2]
    texts = {PATH: json.dumps({**made, "npus": made["npus"][:2]})}
    texts |= {f"{UNIT_FOLDER}/{entry['name']}": FIRST_LINE + slice_text(entry) for entry in slices}
    nothing = FileState(None, None)
    (shown,) = Diff().add_files({path: (nothing, FileState(text, 0o644)) for path, text in texts.items()}).document()
    *npus, title, first, second = shown["prepared"].splitlines()
    return ["```diff", *npus, "  …", title, first, second, "  …", "```"]


def profiles_table() -> str:
    """Return the rows of all profiles: what each is for, and which variables it sets."""
    rows = []
    for name, path in profile.bundled().items():
        content = specs.read(path)
        base = [f"what `{content['include']}` sets"] if "include" in content else []
        rows.append(
            f"| `{name}` | {content['description']} | {', '.join([*base, *(f'`{setting}`' for setting in content['settings'])])} |\n"
        )
    return "".join(rows)


def metrics_table() -> str:
    """Return the rows of all metrics."""
    rows = [(metric.name, ", ".join(f"`{label}`" for label in metric.labels), metric.help) for metric in METRICS]
    return "".join(f"| `{name}` | {labels} | {meaning} |\n" for name, labels, meaning in rows)


def engines_table() -> str:
    """Return the rows of all engines that a user can name."""
    rows = [(name, engine.environment, engine.arguments.partition(": ")[2].rstrip(".")) for name, engine in ENGINES.items()]
    return "".join(f"| `{name}` | {_assignments(environment)} | {_in_code(advice)} |\n" for name, environment, advice in rows)


def binders_table() -> str:
    """Return the rows of all programs that bind themselves."""
    rows = []
    for one in BINDERS:
        off = "; ".join(filter(None, [_assignments(one.off), _in_code(one.advice)]))
        source = _in_code(one.source)
        rows.append(f"| {' | '.join([_in_code(one.title), one.versions, one.effect, one.memory, off, _in_code(one.signs), source])} |\n")
    return "".join(rows)


def _in_code(text: str) -> str:
    """Return a text with its options, variables and files as code."""
    return re.sub(r"(?<![\w/])(-{1,2}[a-z][\w-]+(?:=\w+)?(?: '\{[^']*\}')?|\+\S+|\w*[A-Z]+_[A-Z_]+|\S+\.(?:py|cpp|md|sh)\b)", r"`\1`", text)


def _assignments(variables: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in variables.items())


def parts() -> Iterator[tuple[str, str, str]]:
    """Yield each part that the code makes, as ``(path, pattern of the part, text that it should have)``."""
    for role in ROLES:
        yield f"roles/{role}/README.md", r"(?<=^## Variables\n).*?(?=^##|\Z)", f"\n{variables(role)}"
    lines = [f"{line}\n" for line in plan_lines()]
    yield "README.md", r"(?<=^```\n)NPU .*?(?=^…\n)", "".join(lines[:3])
    yield "docs/settings.md", r"^## .*\Z", settings()
    part = r"(?<=^\| profile \| for \| sets \|\n\|---\|---\|---\|\n).*?(?=^\n)"
    yield "docs/whole-machine.md", part, profiles_table()
    tables = "".join(f"{line}\n" for line in plan_tables_lines())
    part = r"(?<=^\| metric \| labels \| meaning \|\n\|---\|---\|---\|\n).*?(?=^\n)"
    yield "docs/metrics.md", part, metrics_table()
    part = r"(?<=^\| `engine` \| variables in the drop-in \| arguments to change yourself \|\n\|---\|---\|---\|\n).*?(?=^\n)"
    yield "docs/workloads.md", part, engines_table()
    yield "docs/binders.md", r"(?<=^\|---\|---\|---\|---\|---\|---\|---\|\n).*?(?=^\n)", binders_table()
    for code, meaning in ({name: code.meaning for name, code in CODES.items()} | REFUSALS | REMARKS).items():
        yield "docs/troubleshooting.md", rf"(?<=^### {code}\n\n)(?:\*[^\n]*\*\n\n)?", f"*{meaning}*\n\n"
    yield "docs/first-bind.md", r"(?<=^```\n)node\[01:03\]:.*?(?=^```)", tables
    yield "docs/first-bind.md", r"^```diff\n.*?^```\n", "".join(f"{line}\n" for line in diff_lines())


def with_part(path: str, part: str, text: str) -> str:
    """Return a document with one part of it replaced."""
    try:
        before = (REPOSITORY / path).read_text()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    made, times = re.subn(part, lambda _match: text, before, count=1, flags=re.DOTALL | re.MULTILINE)
    if not times:
        raise ValueError(f"{path} has no place for what the code makes: nothing in it matches {part}")
    return made


def main(arguments: Sequence[str]) -> int:
    wrong = []
    for path, part, text in parts():
        try:
            made = with_part(path, part, text)
        except ValueError as error:
            wrong.append(str(error))
            continue
        if "--write" in arguments:
            (REPOSITORY / path).write_text(made)
        elif (REPOSITORY / path).read_text() != made:
            wrong.append(f"{path} is not what the code makes; python -m tests.documents --write")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles: bundles of settings for one purpose. A new file in the folder is a new profile, and users have files of their own."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs, values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import GATHERING, converted
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.specs import PREFIX

SETTING = f"{PREFIX}profile"
FOLDER = Path(__file__).with_name("profiles")
SHAPE = {"description": {"type": "str"}, "include": {"type": "str"}, "settings": {"type": "dict", "required": True}}


class Profile(NamedTuple):
    """The names of a profile and of those that it includes, and what they set together."""

    names: list[str]
    settings: dict[str, Any]


NONE = Profile([], {})


@functools.cache
def bundled() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.yml"))}


def settable() -> specs.Options:
    """Return the options of roles that a profile can set: all but those that describe one host."""
    return {name: option for name, option in specs.flat(specs.options()).items() if name not in GATHERING | {SETTING}}


def chosen(variables: specs.Values) -> Profile:
    """Return the profile that the variables of a host name, as :func:`read` does."""
    return read(str(variables.get(SETTING) or ""))


def read(name: str) -> Profile:
    """Return a profile by its name or by the path of its file, with what it includes.

    Raises ``ValueError`` with a sentence for what is not a profile, and for settings that no role takes.
    """
    names: list[str] = []
    files: list[Path] = []
    settings: dict[str, Any] = {}
    folder = Path(values.absolute(""))
    while name:
        file = _file(name, folder)
        names.append(name)
        if file in files:
            raise ValueError(f"{SETTING}: a profile includes itself ({' -> '.join(names)}). Remove the last include.")
        files.append(file)
        content = _content(name, file)
        settings = {**content["settings"], **settings}
        name, folder = str(content.get("include") or ""), file.parent
    return Profile(names, settings)


def _file(name: str, folder: Path) -> Path:
    if name.endswith((".yml", ".yaml")):
        return (folder / name).resolve()
    if name not in bundled():
        near = difflib.get_close_matches(name, bundled(), n=1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(bundled())}, and files of your own, which end in .yml."
        raise ValueError(f"{SETTING}: there is no profile {name!r}; {advice}")
    return bundled()[name]


@functools.cache
def _content(name: str, file: Path) -> dict[str, Any]:
    try:
        content, repeated = specs.read(file), list(_repeated(file))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{SETTING}: {file} cannot be read as YAML: {' '.join(str(error).split())}") from error
    title = f"profile {name}"
    refusals = [f"{title} has the key {key} more than once, of which only the last counts; keep one." for key in repeated]
    if refusals := refusals or list(_refusals(title, content)):
        raise ValueError(" ".join(refusals))
    return content


def _repeated(file: Path) -> Iterator[str]:
    """Yield the keys that a file, or its settings, have more than once, because YAML drops all but the last."""
    content = yaml.compose(file.read_text(encoding="utf-8"), Loader=specs.LOADER)
    parts = [content, *(value for _key, value in content.value)] if isinstance(content, yaml.MappingNode) else []
    for part in parts:
        keys = [str(key.value) for key, _value in part.value] if isinstance(part, yaml.MappingNode) else []
        yield from sorted(key for key in set(keys) if keys.count(key) > 1)


def _refusals(title: str, content: Any) -> Iterator[str]:
    """Yield a sentence for each key and setting of a file that nothing reads, and for each value that no role takes."""
    wrong = values.refusals({title: content}, {title: {"type": "dict", "options": SHAPE}})
    if wrong or not isinstance(content, Mapping):
        yield from wrong or [f"{title} is empty; write settings and their values."]
        return
    options = settable()
    for name in sorted(map(str, content["settings"].keys() - options)):
        near = difflib.get_close_matches(name, options, n=1)
        advice = f"did you mean {near[0]}?" if near else "leave it out."
        if name in specs.by_name():
            advice = "write include in its place." if name == SETTING else "set it in the inventory, or with -e."
        yield f"{title} sets {name}, which no profile can set; {advice}"
    yield from (f"{title}: {refusal}" for refusal in values.refusals(content["settings"], options))


def sentence(profile: Profile, overriding: specs.Values) -> str:
    """Return which profile a host has, and which of its settings are ``overriding`` with other values; '' without a profile."""
    if not profile.names:
        return ""
    name, *included = profile.names
    text = f"{name}, which includes {' and '.join(included)}" if included else name
    options = settable()
    others = []
    for setting, given in overriding.items():
        value, meant = (converted(setting, options[setting], of) for of in (given, profile.settings[setting]))
        if value != meant:
            others.append(f"{setting} ({json.dumps(value)} instead of {json.dumps(meant)})")
    return f"{text}. The inventory overrides {', '.join(others)}." if others else f"{text}."

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kind of values that a feature sets: where they are, how they are read and written, and what lines call them."""

from __future__ import annotations

import argparse
import fnmatch
import os
import posixpath
import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping, NamedTuple, Sequence

from .._base.outside import json_of, require_shape
from .._host.host import Host
from . import sections

if TYPE_CHECKING:
    from .._base.documents import AppliedState
    from .sections import ValueRecord

_CHOSEN = re.compile(r"\[(\S+)\]")


class Setting(NamedTuple):
    """Files of the kernel with the same setting: a shell pattern of their paths. ``noun`` and ``members``: what each is for, such as CPU,
    and the file next to it that lists these; ``offered``: the file next to it with the values that it takes."""

    path: str
    noun: str = ""
    members: str = ""
    offered: str = ""


class Change(NamedTuple):
    """A value of a host: what it is, what is wanted, and what it becomes, which can be less."""

    key: str
    before: str
    wanted: str
    after: str


class Values:
    """The values of the feature ``name``, whose ``settings`` lie in files: the key of each is its path.

    A feature with others overrides what differs. Its boot unit sets what ``file`` has; ``title`` is their plural in a sentence, ``part``
    that of a diff, and ``key`` the name of what modules return. ``late`` ones exist while their driver is loaded: they are set when
    all else has succeeded, as far as the kernel lets them, and units try again. ``forwards``: they are taken back in the order in which
    they were changed. ``undoing``: whether that is done at the moment.
    """

    key = "settings"
    part = "host settings"
    late = False
    forwards = undoing = False

    def __init__(self, name: str, settings: Mapping[str, Setting], title: str = "settings") -> None:
        self.name = name
        self.settings = settings
        self.title = title
        self.file = "/etc/npu-affinity/%s.json" % name

    def of_state(self, state: AppliedState) -> Any:
        """Return what a desired state wants of the feature, or None."""
        return state["live"].get(self.name)

    def applied(self, host: Host) -> dict[str, Any] | None:
        """Return what the last bind wanted, or None. Raises ``ValueError`` for a file that the role does not write."""
        text = host.text(self.file)
        if text is None:
            return None
        try:
            live = {key: value for key, value in json_of(text).items() if key != "about"}
            self.require_live(host, live)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError("%s is not what role %s writes (%s); remove it and bind the host again" % (self.file, self.name, error))
        return live

    def require_live(self, host: Host, live: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` for what the feature cannot want."""
        self.wanted(host, live)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add those of the program that units run."""

    def begin(self, host: Host, options: argparse.Namespace) -> None:
        """Prepare a run of that program. The host is not locked yet."""
        self.retry(boot=True)

    def wanted(self, host: Host, live: Mapping[str, Any]) -> dict[str, str]:
        """Return ``{key: value}`` of what the feature wants. Raises ``ValueError`` for what is not a setting."""
        values = {}
        for name, value in sorted(live.items()):
            if name not in self.settings or not isinstance(value, (str, int)):
                raise ValueError("'%s' is not a setting" % name)
            values.update(dict.fromkeys(self.paths(host, name), str(value)))
        return values

    def paths(self, host: Host, name: str) -> list[str]:
        """Return the files with a setting; none where the host does not have it."""
        folder, star, rest = self.settings[name].path.partition("*")
        if not star:
            return [folder] if host.exists(folder) else []
        above, _slash, prefix = folder.rpartition("/")
        paths = ["%s/%s%s" % (above, entry, rest) for entry in host.names(above, prefix + "*")]
        return [path for path in paths if host.exists(path)]

    def read(self, host: Host, key: str) -> str | None:
        """Return a value, None where it is gone: the word in brackets where the kernel lists what it could be."""
        if not host.exists(key):
            return None
        text = host.read(key)
        if text is None:
            raise ValueError("%s cannot be read; run as root (become: true)" % key)
        chosen = _CHOSEN.search(text)
        return chosen.group(1) if chosen else text.strip()

    def original(self, host: Host, key: str, value: str) -> str:
        """Return what to record of a value that was read, in order to restore it."""
        return value

    def about(self, host: Host, key: str) -> dict[str, Any]:
        """Return what the record has of a value that is changed, besides its original and what was given."""
        return {}

    def heirs(self, host: Host, originals: Mapping[str, str]) -> dict[str, str]:
        """Return ``{key: value}`` of what has come by what was given to these, such as the children of a process, without a record."""
        return {}

    def aside(self, host: Host) -> Mapping[str, str]:
        """Return ``{key: value}`` of what changes by itself when values are written: its originals are recorded, too."""
        return {}

    def is_over(self, key: str) -> bool:
        """Whether a value that is not wanted any more gets its original back."""
        return True

    def keeps(self, host: Host, key: str, original: str) -> bool:
        """Whether the record of a value that is not wanted is still needed."""
        return self.read(host, key) != original

    def write(self, host: Host, key: str, value: str) -> str:
        """Write a value and return the one that the host then has. Raises ``ValueError`` for one that is refused."""
        try:
            host.set_attribute(key, value)
        except OSError as error:
            raise ValueError("%s does not take '%s': %s" % (key, value, error.strerror or error))
        result = self.read(host, key)
        if result != value:
            raise ValueError("%s was set to '%s' and holds '%s'" % (key, value, result))
        return value

    def writable(self, host: Host, key: str) -> bool:
        return not key.startswith("/") or os.access(host.path(key), os.W_OK)

    def check(self, recorded: Mapping[str, ValueRecord]) -> None:
        """Raise ``ValueError`` where a section of previous.json could not be restored."""
        require_shape(recorded, {str: {"original": str, "given": [str]}}, "it")
        for key, entry in recorded.items():
            self.check_value(key, [entry["original"], *entry["given"]])

    def check_value(self, key: str, values: Sequence[str]) -> None:
        """Raise ``ValueError`` for a key that is none, and for values that it cannot have: its original, and what was given."""
        sections.check_path(key)
        if not self._setting_of(key):
            raise ValueError("'%s' is not a setting" % key)

    def _setting_of(self, key: str) -> str | None:
        return next((name for name, setting in self.settings.items() if fnmatch.fnmatchcase(key, setting.path)), None)

    def require(self, host: Host, wanted: Mapping[str, str]) -> None:
        """Raise ``ValueError`` for a value that the host does not offer."""
        for key, value in wanted.items():
            name = self._setting_of(key)
            offered = self.settings[name].offered if name else ""
            accepted = (host.read(posixpath.join(posixpath.dirname(key), offered)) or value).split() if offered else [value]
            if value not in accepted:
                raise ValueError("%s: there is no %s %s; this host has %s" % (key, name, value, ", ".join(accepted)))

    def possible(self, host: Host, key: str, before: str, wanted: str) -> str:
        """Return what a value can become now."""
        return wanted

    def planned(self, host: Host, changes: list[Change], check: bool) -> list[Change]:
        """Return changes in the order in which they are made, with ``check`` as far as they would succeed."""
        return changes

    def done(self, host: Host, changes: Sequence[Change], undone: bool = False) -> None:
        """Note what later runs have to know."""

    def unreached(self, key: str, original: str, value: str, since: str) -> list[str]:
        """Return a sentence where a value does not become what it was before ``since``."""
        return []

    def failures(self) -> list[str]:
        """Return a sentence for everything that the last run could not set although it did not end with an error."""
        return []

    def lost(self, host: Host) -> list[str]:
        """Return sentences on recorded values that are not there any more."""
        return []

    def unsettled(self) -> list[str]:
        """Return what the host itself completes later."""
        return []

    def result(self, changes: Sequence[Change]) -> Any:
        """Return what modules return of changes, as plain data."""
        return [{"path": change.key, "before": change.before, "after": change.after} for change in changes]

    def warnings(self, host: Host, live: Mapping[str, Any]) -> list[str]:
        """Return a sentence for each setting that has no effect."""
        return ["this host has no %s to set" % name for name in sorted(live) if name in self.settings and not self.paths(host, name)]

    def remarks(self, host: Host, live: Mapping[str, Any], changes: Sequence[Change], ahead: bool = False) -> list[str]:
        """Return the sentences at the end of a bind, each with its code. ``ahead``: whether ``changes`` are yet to be made."""
        return []

    def retry(self, boot: bool = False) -> None:
        """Try again what an earlier run could not do: this one restores, or runs at boot."""

    def again(self) -> bool:
        """Whether what failed at boot is tried once more, after a pause."""
        return False

    def label(self, host: Host, key: str) -> tuple[str, str, int]:
        """Return what a value is called, and for how many of what it is: ``("governor", "CPU", 4)``."""
        name = self._setting_of(key)
        if name is None:
            return key, "", 1
        setting = self.settings[name]
        listed = (host.read(posixpath.join(posixpath.dirname(key), setting.members)) or "").split() if setting.members else []
        return name, setting.noun, len(listed) or 1

    def shown(self, key: str, value: str) -> str:
        """Return a value as lines have it."""
        return value

    def lines(self, host: Host, changes: Iterable[Change]) -> list[str]:
        """Return a line for everything that changes alike: ``~ governor: schedutil -> performance on 192 CPUs``."""
        groups: dict[tuple[str, str, str, str], int] = {}
        for change in changes:
            name, noun, number = self.label(host, change.key)
            group = (name, noun, change.before, self.shown(change.key, change.after))
            groups[group] = groups.get(group, 0) + number
        from .._base.table import count

        return [
            "~ %s: %s -> %s%s" % (name, before, after, " on " + count(number, noun) if noun else "")
            for (name, noun, before, after), number in groups.items()
        ]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the kubelet's CPU settings by a managed drop-in, in the only order that works: stop, change, remove the state, start.

A kubelet whose CPU manager policy or reservation differs from its state file refuses to start (kubernetes issues 84333 and 79823). So a
drop-in is never left lying next to a running kubelet that does not know it: either the whole order is gone through, or nothing is written
and what is pending is reported. A run that is killed on the way leaves a note that the kubelet is stopped, and files with which it starts:
the state goes before the drop-in changes. Draining the node before, and uncordoning it afterwards, is done where kubectl is.
"""

from __future__ import annotations

import contextlib
import posixpath
import time
from typing import Any, Mapping, NamedTuple, NoReturn

from ..._host.host import CommandError, Host
from ..._state import journal, previous
from ..._state.files import FileState, is_managed, missing_folders, remove_empty, restore_labels
from ..._state.systemd import Systemd
from .feature import SECTION
from . import settings, state_file

STATES = (state_file.FILE, "memory_manager_state")
_RENEWING = {"cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs"}
"""Settings with which an old state does not go together."""
PAUSE = 1
"""Seconds between two looks at a kubelet that starts."""


class Change(NamedTuple):
    """What would be changed, with ``differences`` as sentences, the state files to be ``removed``, and the CPU manager's ``policy`` then.

    ``files`` is ``{path: (before, after)}`` of all drop-ins that change: this one, and managed ones under earlier names, which are removed.
    """

    path: str
    files: dict[str, tuple[FileState, FileState]]
    differences: list[str]
    removed: list[str]
    policy: str

    @property
    def needed(self) -> bool:
        return any(before != after for before, after in self.files.values()) or bool(self.differences)

    @property
    def installs(self) -> bool:
        return self.files[self.path][1].text is not None


def installed(host: Host) -> list[str]:
    """Return the paths of our drop-ins: those of previous.json (several after a run that was killed while it renamed one), and those that
    the kubelet reads, because the record can be lost."""
    section = previous.recorded(host).get(SECTION, {})
    recorded = [section["path"], *section.get("renamed", [])] if section else []
    return list(dict.fromkeys([*recorded, *settings.settings(host)[1].ours]))


def look(host: Host, path: str, content: str | None) -> Change:
    """Return the :class:`Change` to a drop-in with that content, None for none.

    Raises ``ValueError`` where the kubelet would not heed the drop-in, or where the file is not ours.
    """
    before = FileState.of(host, path)
    if before.text is not None and not is_managed(before.text):
        raise ValueError("%s exists and is not managed by npu.affinity; remove or rename it" % path)
    files = {path: (before, FileState(None, None) if content is None else FileState(content, 0o644))}
    differences = []
    for earlier in installed(host):
        current = FileState.of(host, earlier)
        if earlier != path and current.text is not None and is_managed(current.text):
            files[earlier] = (current, FileState(None, None))
            differences.append("drop-in: %s -> %s" % (earlier, path if content is not None else "none"))
    now, places = settings.settings(host)
    then, policy, last_policy = _then(host, files)
    if content is not None:
        _refuse_unheeded(path, places, settings.read(content), then)
    changed = [key for key in sorted({*now, *then}) if now.get(key) != then.get(key)]
    differences += ["%s: %s -> %s" % (key, _shown(now.get(key)), _shown(then.get(key))) for key in changed]
    if last_policy != policy and not differences:
        differences.append("cpuManagerPolicy: kubelet last ran with %s -> %s" % (last_policy, policy))
    if settings.UNIT in journal.stopped(host):
        differences.append("kubelet.service: stopped by a run that ended too early -> started")
    change = Change(path, files, differences, [], policy)
    renews = change.needed and (last_policy != policy or not _RENEWING.isdisjoint(changed))
    return change._replace(removed=_states(host, places.root)) if renews else change


def inverse(host: Host, change: Change) -> Change:
    """Return the :class:`Change` that takes back one which was made."""
    files = {path: (after, before) for path, (before, after) in change.files.items()}
    _settings, policy, last_policy = _then(host, files)
    renews = change.removed or last_policy != policy
    return Change(change.path, files, [], _states(host, settings.settings(host)[1].root) if renews else [], policy)


def _then(host: Host, files: Mapping[str, tuple[FileState, FileState]]) -> tuple[settings.Settings, str, str]:
    """Return the settings with drop-ins as they are to be, the CPU manager's policy by them, and the one that it has a state of, if any."""
    then, places = settings.settings(host, {path: after.text for path, (_before, after) in files.items()})
    policy, state = then.get("cpuManagerPolicy") or "none", _state(host, places.root)
    return then, policy, state.policy if state else policy


def _states(host: Host, root: str) -> list[str]:
    return [path for path in ("%s/%s" % (root, name) for name in STATES) if host.exists(path)]


def _refuse_unheeded(path: str, places: settings.Places, wanted: settings.Settings, then: settings.Settings) -> None:
    folder = posixpath.dirname(path)
    if places.config_dir != folder or not path.endswith(".conf"):
        raise ValueError(
            "the kubelet does not read %s: its folder of drop-ins is %s. Start it with --config-dir=%s (Kubernetes 1.28 or newer), or put "
            "the settings into %s by hand" % (path, places.config_dir or "not set", folder, places.config)
        )
    for key, value in wanted.items():
        missed = {name: part for name, part in value.items() if then.get(key, {}).get(name) != part} if isinstance(value, dict) else None
        if missed or missed is None and then.get(key) != value:
            raise ValueError(
                "%s of %s would not count: a flag of the kubelet or a later drop-in says %s. Remove that setting there; the sources are %s"
                % (key, path, _shown(then.get(key)), ", ".join(places.sources))
            )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join("%s=%s" % pair for pair in sorted(value.items())) or "none"
    return str(value) if value else "not set"


def _state(host: Host, root: str) -> state_file.State | None:
    """Return the state that the kubelet wrote, or None if there is none or it cannot be read."""
    try:
        return state_file.parse(host.read("%s/%s" % (root, state_file.FILE)) or "")
    except ValueError:
        return None


def apply(host: Host, change: Change, wait: float = 120) -> None:
    """Go through the order: stop kubelet where it runs, write or remove the drop-in, remove the state, start, and see it run.

    ``wait`` are the seconds that it may take to start. Raises ``ValueError`` where it does not; the drop-in is then as it was before.
    """
    systemd = Systemd(host)
    unit = settings.UNIT
    running = host.live and (unit in journal.stopped(host) or bool(systemd.active([unit])))
    recorded = previous.recorded(host).get(SECTION)
    if change.installs:
        name = {"path": change.path} if recorded is None or recorded["path"] == change.path else {"renamed": [change.path]}
        previous.record(host, SECTION, dict(name, folders=missing_folders(host, [change.path])))
    try:
        if running:
            journal.stop(host, systemd, unit)
            if systemd.active([unit]):
                raise ValueError("%s is still active after it was stopped" % unit)
        _put(host, change, 1)
        _label(host, change)
        if running:
            _start(host, systemd, change, wait)
    except (OSError, ValueError, CommandError) as error:
        _restore(host, systemd, change, running, recorded, error)
    section = previous.recorded(host).get(SECTION, {"folders": []})
    _settle_record(host, {"path": change.path, "folders": section["folders"]} if change.installs else None)


def _put(host: Host, change: Change, which: int) -> None:
    """Bring the drop-ins to their states before (``which`` 0) or after (1)."""
    for file in change.removed:
        FileState(None, None).write(host, file)
    for path, states in change.files.items():
        states[which].write(host, path)


def _label(host: Host, change: Change) -> None:
    """Label the drop-ins, and the folders that were made for them, before the kubelet reads them."""
    restore_labels(host, [*previous.recorded(host).get(SECTION, {}).get("folders", []), *change.files])


def _start(host: Host, systemd: Systemd, change: Change, wait: float) -> None:
    journal.start(host, systemd, settings.UNIT)
    root = settings.settings(host)[1].root
    until = time.monotonic() + wait
    while time.monotonic() < until:
        state = _state(host, root)
        if state is not None and state.policy == change.policy and systemd.active([settings.UNIT]):
            return
        time.sleep(PAUSE)
    text = "kubelet does not run with CPU manager policy %s after %d s; see journalctl -u %s"
    raise ValueError(text % (change.policy, wait, settings.UNIT))


def _restore(host: Host, systemd: Systemd, change: Change, running: bool, recorded: Mapping[str, Any] | None, error: Exception) -> NoReturn:
    """Put the drop-in back, start the kubelet as it was, and raise what went wrong."""
    try:
        if running:
            journal.stop(host, systemd, settings.UNIT)
        _put(host, change, 0)
        with contextlib.suppress(ValueError, CommandError):  # the change has failed already
            _label(host, change)
        _settle_record(host, recorded)
        if running:
            journal.start(host, systemd, settings.UNIT)
    except (OSError, ValueError, CommandError) as second:
        text = "%s; restoring the state before failed as well: %s. Look at %s and at kubelet by hand"
        raise ValueError(text % (error, second, change.path))
    raise ValueError("%s. The drop-in is as it was before, and kubelet was started with that" % error)


def _settle_record(host: Host, section: Mapping[str, Any] | None) -> None:
    """Record what there is now, None for no drop-in, and remove the folders that were made for one and are empty."""
    made = previous.recorded(host).get(SECTION, {}).get("folders", [])
    previous.replace(host, SECTION, section)
    remove_empty(host, made + [posixpath.dirname(previous.PATH)])

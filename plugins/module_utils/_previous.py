# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``/etc/npu-affinity/previous.json``: what a host was like before the first bind, so that undo is real.

Every section is recorded once, before the first change of its kind, and never overwritten; only undo removes the file.

This module is private to the collection.
"""

from __future__ import annotations

import json

from ._files import MARKER, atomic_write

PATH = "/etc/npu-affinity/previous.json"
_ABOUT = MARKER + ": the state before the first bind, which undo restores."


def recorded(host):
    """Return the recorded sections by name; none when the host was never bound. A broken file raises ``ValueError``."""
    text = host.read(PATH)
    if text is None:
        return {}
    try:
        sections = json.loads(text)
    except ValueError as error:
        raise ValueError("%s is not valid JSON (%s): undo could not restore this host; mend or remove it by hand first" % (PATH, error))
    sections.pop("about", None)
    return sections


def record(host, section, data):
    """Store the data of a section unless it is there already; return whether it was stored."""
    sections = recorded(host)
    if section in sections:
        return False
    sections[section] = data
    atomic_write(host, PATH, dump(_ABOUT, sections), 0o600)
    return True


def dump(about, data):
    """Return JSON text whose first line says whose file it is."""
    body = json.dumps(data, indent=1, sort_keys=True)
    return '{"about": %s,%s\n' % (json.dumps(about), body[1:] if data else "}")

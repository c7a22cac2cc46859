# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside the collection: escaped before it is shown, and JSON that is read without surprises.

Anybody who may start a process or edit a file on a host chooses such text. Terminals, journals and pages obey control characters, and
bidirectional overrides (Unicode TR 36) show a text in another order than it has.
"""

from __future__ import annotations

import json
import re
import sys

TYPE_CHECKING = False  # typing itself takes longer to import than npu-affinity exec has time for
if TYPE_CHECKING:
    from typing import Any, Callable

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def shown(text: object) -> str:
    """Return a text as one line to show: control characters, line breaks and invisible characters are escaped, as in ``\\x1b[2J``."""
    return _UNSAFE.sub(_escaped, str(text))


def say(sentence: object) -> None:
    """Print a sentence as one line, for a terminal or the journal: all programs on a host do it here.

    Characters that the locale does not have are escaped.
    """
    coding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("%s\n" % shown(sentence).encode(coding, "backslashreplace").decode(coding))


def shown_lines(text: str) -> str:
    """Return a text of several lines to show: the same, but with its line breaks and tabs."""
    return _UNSAFE.sub(lambda match: match.group() if match.group() in "\n\t" else _escaped(match), text)


def shown_data(value: Any, show: Callable[[str], str] = shown) -> Any:
    """Return plain data with every text in it as it is shown, names of members included."""
    if isinstance(value, str):
        return show(value)
    if isinstance(value, dict):
        return {shown_data(key, show): shown_data(member, show) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown_data(member, show) for member in value]
    return value


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")


def json_of(text: str) -> Any:
    """Return what a JSON text says. Raises ``ValueError`` for what is not JSON (RFC 8259), and for JSON nested too deeply."""
    try:
        return json.loads(text, parse_constant=_refused)
    except RecursionError:
        raise ValueError("it is nested too deeply")


def _refused(name: str) -> Any:
    raise ValueError("%s is not a number" % name)


def require_shape(value: Any, shape: Any, title: str) -> None:
    """Raise ``ValueError`` with what is wrong where plain data has another shape.

    A shape is a type or several, ``[shape]`` for a list, ``{key: shape}`` for a mapping that has these keys, ``"key?"`` for one that may be
    missing or null, and ``{str: shape}`` for a mapping of any names.
    """
    if isinstance(shape, list):
        _require_type(value, list, title)
        for number, member in enumerate(value):
            require_shape(member, shape[0], "entry %d of %s" % (number, title))
    elif isinstance(shape, dict):
        _require_type(value, dict, title)
        for key, inner in shape.items():
            optional = key is not str and key.endswith("?")
            for name in list(value) if key is str else [key.rstrip("?")]:
                if name not in value and not optional:
                    raise ValueError("%s lacks '%s'" % (title, name))
                if value.get(name) is not None or not optional:
                    require_shape(value[name], inner, "%s of %s" % (name, title))
    else:
        _require_type(value, shape, title)


def _require_type(value: Any, types: Any, title: str) -> None:
    types = types if isinstance(types, tuple) else (types,)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError("%s is %.60r" % (title, value))

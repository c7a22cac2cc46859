# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts from templates, filled with the facts that they name, as a shell, systemd or a reader of YAML takes them.

A template is a word of a command, or a line of a file. It is written once for each value of the facts in it, ``--device={nodes}`` for each
node. Where a fact has no value, it is left out. ``{slice:?}`` and ``{slice:!}`` write nothing: the template is there only with, or only
without, a value. Other words behind the colon name one of :data:`ESCAPES`; ``{words:line}`` is all of them in one command of a unit file,
``{cpus:none}`` is "(none)" without a value.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import string
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

_IN_UNITS = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_NO_TEXT = re.compile(
    r"|~|null|yes|no|true|false|on|off|=|<<|[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*)(e[-+]\d+)?|[-+]?\.inf|\.nan|[-+]?0b[01_]+|[-+]?0x[\da-f_]+"
    r"|[-+]?[\d_]+|[-+]?\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?|\d{4}-\d\d?-\d\d?([t\s].*)?",
    re.IGNORECASE,
)
"""What YAML 1.1 does not take for text, unless it is quoted."""
_NOT_PLAIN = re.compile(r"[-?:](\s|\Z)|[\s,\[\]{}#&*!|>'\"%@`]|---|\.\.\.|.*(:(\s|\Z)|\s#|\s\Z)")


def in_yaml(text: str) -> str:
    if not re.match(r"[ -~]*\Z", text):
        return json.dumps(text)
    return "'%s'" % text.replace("'", "''") if _NO_TEXT.fullmatch(text) or _NOT_PLAIN.match(text) else text


def _in_unit(word: str) -> str:
    """Return a word of a command line of a unit file (systemd.syntax(7), systemd.service(5))."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if plain.isprintable() and plain and not re.search(r"""[\s"'\\;#]""", plain):
        return plain
    as_bytes = {one: "".join("\\x%02x" % byte for byte in one.encode()) for one in plain if not one.isprintable()}
    return '"%s"' % "".join({**as_bytes, **_IN_UNITS}.get(one, one) for one in plain)


ESCAPES: Mapping[str, Callable[[Any], str]] = {
    "": str,
    "?": lambda fact: "",
    "!": lambda fact: "",
    "none": lambda text: str(text) or "(none)",
    "line": lambda words: " ".join(map(_in_unit, words)),
    "unit": lambda text: str(text).replace("%", "%%"),
    "yaml": lambda text: in_yaml(str(text)),
    "compose": lambda text: in_yaml(str(text).replace("$", "$$")),
    "pod": lambda text: in_yaml(str(text).replace("$(", "$$(")),
}


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return ESCAPES[format_spec](value)


class Block(str):
    """Lines of a file that are one template."""


def values(fact: Any) -> Sequence[Any]:
    """Return the values of a fact: of a mapping ``key=value``, of a list its members, else the fact, unless it is empty."""
    if isinstance(fact, Mapping):
        return ["%s=%s" % pair for pair in fact.items()]
    return fact if isinstance(fact, (list, tuple)) else [] if fact is None or fact is False or fact == "" else [fact]


def texts(templates: Iterable[str], facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield templates, each as often as the module says."""
    formatter = _Formatter()
    for template in templates:
        fields = [(re.split(r"[.\[]", field)[0], mark) for _text, field, mark, _conversion in formatter.parse(template) if field]
        conditions = {name: mark == "?" for name, mark in fields if mark in ("?", "!")}
        if any(bool(values(facts[name])) is not wanted for name, wanted in conditions.items()):
            continue
        given: dict[str, Sequence[Any]] = {name: [""] for name in conditions}
        for name, mark in fields:
            if mark not in ("?", "!"):
                given[name] = [facts[name]] if mark == "line" and facts[name] else values(facts[name]) or [""] * (mark == "none")
        for chosen in itertools.product(*given.values()):
            yield formatter.vformat(template, (), dict(zip(given, chosen)))


def command(words: str, facts: Mapping[str, Any]) -> str:
    """Return a command for a shell, without a newline, so that pasting it does not run it."""
    return " ".join(map(shlex.quote, texts(words.split(), facts)))


def file(parts: Sequence[str], facts: Mapping[str, Any]) -> str:
    templates = [line for part in parts for line in ([part] if isinstance(part, Block) else part.splitlines())]
    return "".join(line + "\n" for line in texts(templates, facts))

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of a run, and that of the next one: the same hosts, inventory, connection and, as far as it reads them, settings."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml
from ansible import constants
from ansible.parsing.splitter import parse_kv

from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.specs import PREFIX

TO = PREFIX + "to"
REASON = PREFIX + "reason"
ADOPT_NOW = (PREFIX + "adopt", "now")
_OF_DRAIN = frozenset(f"{PREFIX}kubelet_{name}" for name in ("restart", "drain", "uncordon", "wait"))
_RESTORING = frozenset(PREFIX + name for name in ("root", "npu_smi", "timeout", "move_memory", "device_share_ignore_busy")) | _OF_DRAIN
"""What rollback and unbind read of the options of roles: the state that they restore has the others."""
_BINDING = ("plan", "bind")
CONNECTION = frozenset(
    f"ansible_{name}"
    for name in ("become", "become_method", "become_user", "connection", "host", "port", "python_interpreter", "remote_user", "user")
)
"""Variables that say how hosts are reached and that hold no secret."""
OPTIONS = (
    ("connection", "-c", "DEFAULT_TRANSPORT"),
    ("remote_user", "-u", "DEFAULT_REMOTE_USER"),
    ("private_key_file", "--private-key", "DEFAULT_PRIVATE_KEY_FILE"),
    ("become", "-b", "DEFAULT_BECOME"),
    ("become_method", "--become-method", "DEFAULT_BECOME_METHOD"),
    ("become_user", "--become-user", "DEFAULT_BECOME_USER"),
    ("ask_pass", "-k", "DEFAULT_ASK_PASS"),
    ("become_ask_pass", "-K", "DEFAULT_BECOME_ASK_PASS"),
    ("ask_vault_pass", "-J", "DEFAULT_ASK_VAULT_PASS"),
    ("vault_ids", "--vault-id", ""),
    ("vault_password_files", "--vault-password-file", ""),
    ("forks", "-f", "DEFAULT_FORKS"),
)
"""Options that the next command repeats: the name in ``context.CLIARGS``, the option, and the constant with its default."""
_PLAIN = re.compile(r"[^\s'\"\\{}\[\]=]*")

Extra = tuple[str, Any]
"""The name and the value of a variable; the name is empty for the ``@file`` of an option ``-e``."""


class Start(NamedTuple):
    """How a run was started.

    ``playbook`` is how a playbook is named, with ``{}`` for its name; ``options`` are words; ``limit`` is the pattern of ``--limit``;
    ``withheld`` are variables of ``-e`` whose values are not repeated, because they can be secrets; ``made``: whether it was ``make``;
    ``diff``: whether a check showed differences; ``ran`` is its playbook.
    """

    playbook: str = "npu.affinity.{}"
    options: tuple[str, ...] = ()
    limit: str = ""
    extra: tuple[Extra, ...] = ()
    withheld: tuple[str, ...] = ()
    made: bool = False
    inventory: str = ""
    diff: bool = False
    ran: str = ""

    def line(self, playbook: str, limit: str = "", check: bool = False, settings: Mapping[str, Any] | None = None) -> str:
        """Return the command that runs a playbook in the same way, with ``settings`` in addition, quoted for a shell."""
        given = [*(pair for pair in self.extra if pair[0] not in (settings or {})), *(settings or {}).items()]
        extra = [pair for pair in given if self._belongs(pair, playbook)]
        words = ["--check", *(["--diff"] if self.diff else [])] if check else []
        words += ["--limit", limit or self.limit] if limit or self.limit else []
        words += [word for name, value in extra if not (self.made and name == TO) for word in ("-e", _extra(name, value))]
        if not self.made:
            return shlex.join(["ansible-playbook", *self.options, self.playbook.format(playbook), *words])
        to = [str(value) for name, value in extra if name == TO]
        arguments = {"INVENTORY": self.inventory, "TO": to[-1] if to else "", "ARGS": shlex.join([*self.options, *words])}
        return shlex.join(["make", playbook]) + "".join(
            f" {name}={shlex.quote(value.replace('$', '$$'))}" for name, value in arguments.items() if value
        )

    def _belongs(self, pair: Extra, playbook: str) -> bool:
        """Whether a run of a playbook after this one is to have a variable: it reads it, and the variable is not about this run alone."""
        name = pair[0]
        if readers := specs.readers(name):
            return playbook in readers and (name != REASON or self.ran == playbook or self.ran not in readers)
        if playbook in ("rollback", "unbind"):
            compared = playbook == "rollback" and name in specs.options()["verify"]
            return compared or name in _RESTORING or not any(name in options for options in specs.options().values())
        return playbook in _BINDING or not (name in _OF_DRAIN or name == f"{PREFIX}replan" or pair == ADOPT_NOW)


def started(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Start:
    """Return how a run was started, from ``context.CLIARGS`` and the variables of its environment."""
    made = bool(environment.get("MAKELEVEL"))
    try:
        words = "\n".join(shlex.split(environment.get("ARGS", "")))  # the option can be part of the word, as in -ex=1
    except ValueError:
        words = ""
    texts = [f"@{relative(text[1:])}" if text.startswith("@") else text for text in map(str, arguments.get("extra_vars") or ())]
    given = [pair for text in texts for pair in _given(text, not made or text in words)]
    kept = [(name, value) for name, value in given if not name or name.startswith(PREFIX) or name in CONNECTION]
    sources = list(arguments.get("inventory") or ())
    inventory = [] if made or sources == list(constants.config.get_config_value("DEFAULT_HOST_LIST")) else sources
    path = pathlib.Path(next(iter(arguments.get("args") or ()), ""))
    is_file = path.suffix in (".yml", ".yaml")
    of_collection = is_file and path.resolve().parent == specs.PLAYBOOKS
    return Start(
        playbook=str(path.with_name("{}.yml")) if of_collection else "npu.affinity.{}",
        options=(*(word for source in inventory for word in ("-i", relative(source))), *_options(arguments)),
        limit=str(arguments.get("subset") or ""),
        extra=tuple(kept),
        withheld=tuple(sorted({pair[0] for pair in given if pair not in kept})),
        made=made,
        inventory=environment.get("INVENTORY", "") if made else "",
        diff=bool(arguments.get("diff")),
        ran=path.stem if is_file else path.name.rpartition(".")[2],
    )


def _given(text: str, by_user: bool) -> Iterator[Extra]:
    """Yield the variables of one option ``-e``; of what the Makefile adds itself only the state to go back to."""
    if text.startswith("@"):
        yield from [("", text)] if by_user else []
        return
    variables = yaml.load(text, Loader=specs.LOADER) if text[:1] in ("{", "[") else parse_kv(text)
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        if (by_user or name == TO) and name != "_raw_params":
            yield str(name), value


def _options(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, option, default in OPTIONS:
        value = arguments.get(name)
        if not value or value == getattr(constants, default, None):
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            yield from [option] if one is True else [option, str(one)]


def relative(source: str) -> str:
    """Return the path of an inventory from the folder of this run, if it is below that."""
    return source.removeprefix(f"{os.getcwd()}{os.sep}")


def _extra(name: str, value: Any) -> str:
    """Return what follows ``-e``: ``name=value`` where that is the same text again, else JSON."""
    if not name:
        return str(value)
    return f"{name}={value}" if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps({name: value}, ensure_ascii=False)

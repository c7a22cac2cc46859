# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions that run a module on a host with the settings of this host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused

NOT_GATHERED: dict[str, Any] = {"npus": [], "problems": ["not gathered"]}
JSON_CALLBACKS = {"json", "jsonl"}
_LISTS = ("actions", "files", "removed")
"""What was done until a module failed, hundreds of lines that callbacks would print with the sentence; -vv shows them."""
_OF_SSH = "Shared connection to "
"""What ssh itself writes last, on a terminal."""
IN_PART = "The host may be changed in part. Run again when it answers, which completes the change"


def lost(error: AnsibleConnectionFailure, known: str) -> dict[str, Any]:
    """Fail a task whose host no longer answers, with what the summary needs to know of the host."""
    sentence = " ".join(str(error).split()).rstrip(".")
    return refused({"msg": f"{sentence}. {known}".rstrip(), "lost": True})


def told(result: dict[str, Any], verbosity: int) -> dict[str, Any]:
    """Return what a module returned; if it failed with a sentence, fail the task with that alone.

    What else a host wrote, such as a traceback, is left to ansible-core. Its message gets the last line of that, which says why.
    """
    if not result.get("failed") or "msg" not in result:
        return result
    if "module_stderr" not in result:
        hidden = _LISTS if verbosity < 2 else ()
        return refused({key: value for key, value in result.items() if key not in hidden})
    wrote = f"{result.get('module_stdout', '')}\n{result['module_stderr']}".splitlines()
    lines = [line.strip() for line in wrote if line.strip() and not line.startswith(_OF_SSH)]
    return result | {"msg": ": ".join([result["msg"], *lines[-1:]])}


def shown(display: Any, msg: str | list[str]) -> None:
    """Print lines, unless the callback prints JSON and has them in the result of the task."""
    configured: Any = constants  # has its attributes at run time
    if configured.DEFAULT_STDOUT_CALLBACK.rpartition(".")[2] not in JSON_CALLBACKS:
        display.display(shown_lines(msg if isinstance(msg, str) else "\n".join(map(str, msg))))


def kubelet_wait(settings: Mapping[str, Any], drained: bool) -> int | None:
    """Return the option of modules that decide about the kubelet; ``drained``: whether the node is drained, so it may restart."""
    if drained:
        return max(1, 2 * int(settings["kubelet"]["wait"]))
    return 0 if settings["kubelet"]["restart"] else None


def comparison_options(own: Mapping[str, Any], timeout: int, topology: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of a comparison that depend on what was gathered. ``own``: the settings of role verify, ``timeout``: that of
    gathering."""
    known = topology or NOT_GATHERED
    return {
        "topology": {"npus": known["npus"], "silent": known.get("silent") or {}},
        "must_be_bound": "unbound" in own["fail_on"] and bool(known["npus"] or known["problems"]),
        "timeout": 2 * timeout,
    }


class HostAction(ActionBase):
    """An action that runs modules of the collection by itself, with options that it takes from the settings."""

    def settings(self, variables: dict[str, Any], **kind: bool | str) -> dict[str, Any]:
        """Return what lookup ``settings`` returns for the host with these variables."""
        templar = self._templar.copy_with_new_env(available_variables=variables)
        lookup = lookup_loader.get("npu.affinity.settings", loader=self._loader, templar=templar)
        found: dict[str, Any] = lookup.run([], variables=variables, **kind)[0]
        return found

    def known(self, name: str, variables: dict[str, Any]) -> Any:
        """Return a variable of the host as Ansible reads it, which a play may have set by a template; None where it has none."""
        value = variables.get(name)
        return value if value is None else self._templar.copy_with_new_env(available_variables=variables).template(value)

    def say(self, lines: list[str]) -> None:
        if lines:
            shown(self._display, lines)

    def action(self, name: str, options: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run another action with these options, and fail with its sentence where it fails."""
        task = self._task.copy()
        task.args = dict(options)
        found = self._shared_loader_obj.action_loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        return told(found.run(task_vars=variables), self._display.verbosity)

    def on_host(self, module: str, options: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run a module on the host, and fail with its sentence where it fails. Options of None are left to its defaults."""
        given = {name: value for name, value in options.items() if value is not None}
        name = module if "." in module else f"npu.affinity.{module}"
        try:
            result: dict[str, Any] = self._execute_module(module_name=name, module_args=given, task_vars=variables, wrap_async=False)
        except OSError as error:
            why = error.strerror or error
            raise AnsibleActionFail(f"The controller cannot build the module: {why}. Check its disk, local_tmp in ansible.cfg") from None
        return told(result, self._display.verbosity)

    def change(
        self, module: str, options: Mapping[str, Any], variables: dict[str, Any], files: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Run a module that changes the host. A host that is lost meanwhile fails the task, because a rescue sees failures only.

        ``files``: paths on the controller of what is copied to the temporary folder of the module, by their names there.
        """
        try:
            if files:
                self._place(files)
            return self.on_host(module, options, variables)
        except AnsibleConnectionFailure as error:
            return lost(error, "" if self._task.check_mode else IN_PART)

    def _place(self, files: Mapping[str, str]) -> None:
        shell: Any = self._connection._shell
        if shell.tmpdir is None:
            self._make_tmp_path()
        places = {path: shell.join_path(shell.tmpdir, name) for name, path in files.items()}
        for path, place in places.items():
            self._transfer_file(os.path.expanduser(path), place)
        self._fixup_perms2([shell.tmpdir, *places.values()], execute=False)  # type: ignore[no-untyped-call]

    def attempt(self, module: str, options: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run a module on the host; where it fails, return its message as that of a failed result."""
        try:
            return self.on_host(module, options, variables)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            return {"failed": True, "msg": str(error.message)}

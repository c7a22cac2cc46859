# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a step of a playbook knows and can do: the settings and variables of its host, modules on the host, lines on the terminal."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Run
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.module_utils._state.history import new_run
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import reading
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import relative
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.of_host import HostSettings

Result = dict[str, Any]
"""What a step or a module returns."""
Options = Mapping[str, Any]
RUN = new_run()
"""This call of ansible-playbook. The process that starts the workers imports this file, so all tasks of all hosts have the same."""
DIFFERENCES, DRIFT = "differences", "found"
"""What a host says that is printed once for all hosts that say the same: the lines of its diff, and what a comparison found."""
NOT_GATHERED: dict[str, Any] = {"npus": [], "problems": ["not gathered"]}
JSON_CALLBACKS = {"json", "jsonl"}
_LISTS = ("actions", "files", "removed")
"""What was done until a module failed, hundreds of lines that callbacks would print with the sentence; -vv shows them."""
_OF_SSH = "Shared connection to "
"""What ssh itself writes last, on a terminal."""
_BY_SSH = re.compile(r"^(Data could not be sent to remote host .*? over ssh|Failed to connect to the host via ssh): (?=.)")
"""What ansible-core puts before the message of ssh."""
_UNSENT = re.compile(
    r"^Data could not be sent to remote host (['\"])(.*?)\1\. Make sure this host can be reached over ssh(?=$|\.|: \[Errno )", re.IGNORECASE
)
"""What it says where ssh ended before it took the module: no other part of it has the address."""
IN_PART = "The host may be changed in part. Run again when it answers, which completes the change"


def unreachable(error: AnsibleConnectionFailure) -> Result:
    """Return the result of a task whose host does not answer, which the summary says once for all such hosts."""
    sentence = " ".join(str(error).split())
    return {"msg": _BY_SSH.sub("", _UNSENT.sub(r"\2 cannot be reached over SSH", sentence)), "lost": True}


def require_success(result: Result, verbosity: int) -> Result:
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


def comparison_options(settings: Mapping[str, Any], timeout: int, topology: Mapping[str, Any] | None) -> Result:
    """Return the options of a comparison that depend on what was gathered, by the settings of role verify."""
    gathered = topology or NOT_GATHERED
    return {
        "topology": {"npus": gathered["npus"], "silent": gathered.get("silent") or {}},
        "must_be_bound": "unbound" in settings["fail_on"] and bool(gathered["npus"] or gathered["problems"]),
        "timeout": 2 * timeout,
    }


class StepTask(ActionBase):
    """The task that runs a step, with the variables of its host."""

    variables: dict[str, Any]

    @property
    def host(self) -> str:
        return str(self.variables["inventory_hostname"])

    @property
    def check_mode(self) -> bool:
        return bool(self._task.check_mode)

    @property
    def shows_diff(self) -> bool:
        return bool(self._task.diff)

    @property
    def settings(self) -> HostSettings:
        return HostSettings(self.variables, self._templar.copy_with_new_env(available_variables=self.variables))

    @property
    def run_of_playbook(self) -> Run:
        return {**RUN, "inventory": ", ".join(relative(str(source)) for source in context.CLIARGS.get("inventory") or ())}

    @property
    def verbose(self) -> bool:
        return bool(self._display.verbosity)

    def variable(self, name: str) -> Any:
        """Return a variable of the host as Ansible reads it, which a play may have set by a template; None where it has none."""
        value = self.variables.get(name)
        return value if value is None else self._templar.copy_with_new_env(available_variables=self.variables).template(value)

    def registered(self, result: str, names: Iterable[str]) -> dict[str, Result]:
        """Return what a task registered on hosts, nothing in it for those on which it did not run."""
        variables = self.variables["hostvars"]
        return {name: variables[name].get(f"__npu_affinity_{result}") or {} for name in names}

    def before_batch(self) -> Mapping[str, Any]:
        """Return what was found after the batch before that of the host, nothing in the first: :func:`_report.progress.after_batch`."""
        names = self.variables["ansible_play_hosts_all"]
        first = min(map(names.index, self.variables["ansible_play_batch"]))
        return next(iter(self.registered("progress", names[:first][-1:]).values()), {}).get("at") or {}

    def warn(self, sentence: str) -> None:
        self._display.warning(sentence)

    def say(self, lines: str | list[str]) -> None:
        """Print lines, which few callbacks show of an unchanged task, unless the callback prints results as JSON."""
        configured: Any = constants  # has its attributes at run time
        if lines and configured.DEFAULT_STDOUT_CALLBACK.rpartition(".")[2] not in JSON_CALLBACKS:
            self._display.display(shown_lines(lines if isinstance(lines, str) else "\n".join(map(str, lines))))

    def action(self, name: str, options: Options) -> Result:
        """Run another action with these options, and fail with its sentence where it fails."""
        task = self._task.copy()
        task.args = dict(options)
        action = self._shared_loader_obj.action_loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        return require_success(action.run(task_vars=self.variables), self._display.verbosity)

    def on_host(self, module: str, options: Options) -> Result:
        """Run a module on the host, or take its answer from an archive, and fail with its sentence where it fails. None is its default."""
        if archive := self.variables.get(reading.VARIABLE):
            try:
                answer = reading.answer(archive["path"], module, options)
            except ValueError as error:
                answer = {"failed": True, "msg": str(error)}
            return require_success(answer, self._display.verbosity)
        given = {name: value for name, value in options.items() if value is not None}
        name = module if "." in module else f"npu.affinity.{module}"
        try:
            result: Result = self.execute(name, given)
        except OSError as error:
            why = error.strerror or error
            raise AnsibleActionFail(f"The controller cannot build the module: {why}. Check its disk, local_tmp in ansible.cfg") from None
        return require_success(result, self._display.verbosity)

    def execute(self, module: str, options: Options) -> Result:
        result: Result = self._execute_module(module_name=module, module_args=dict(options), task_vars=self.variables, wrap_async=False)
        return result

    def change(self, module: str, options: Options, files: Mapping[str, str] = MappingProxyType({})) -> Result:
        """Run a module that changes the host. A host that is lost meanwhile fails the task, because a rescue sees failures only.

        ``files``: paths on the controller of what is copied to the temporary folder of the module, by their names there.
        """
        try:
            if files:
                self._place(files)
            return self.on_host(module, options)
        except AnsibleConnectionFailure as error:
            result = unreachable(error)
            advice = "" if self.check_mode else IN_PART
            return refused(result | {"msg": f"{result['msg'].rstrip('.')}. {advice}".rstrip()})

    def _place(self, files: Mapping[str, str]) -> None:
        shell: Any = self._connection._shell
        if shell.tmpdir is None:
            self._make_tmp_path()
        places = {path: shell.join_path(shell.tmpdir, name) for name, path in files.items()}
        for path, place in places.items():
            self._transfer_file(os.path.expanduser(path), place)
        self._fixup_perms2([shell.tmpdir, *places.values()], execute=False)  # type: ignore[no-untyped-call]

    def attempt(self, module: str, options: Options) -> Result:
        """Run a module on the host; where it fails, return its message as that of a failed result."""
        try:
            return self.on_host(module, options)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            return {"failed": True, "msg": str(error.message)}


def write(texts: Mapping[str, str]) -> list[str]:
    """Write files by their paths, and return the paths of those that were new or had another text."""
    written = []
    for path, text in texts.items():
        try:
            if _written(Path(path), text.encode()):
                written.append(path)
        except OSError as error:
            raise AnsibleActionFail(f"{path} cannot be written on the controller: {error.strerror or error}") from None
    return written


def _written(path: Path, text: bytes) -> bool:
    """Whether the file had another text. It is written next to its place first, so no reader sees a part of it."""
    if path.exists() and not path.is_file():
        raise AnsibleActionFail(f"{path} cannot be written on the controller: it is not a file; name another one")
    if path.exists() and path.read_bytes() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".npu-affinity-", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(text)
            file.close()
            temporary.chmod(0o644)
            temporary.replace(path)
        except OSError:
            temporary.unlink()
            raise
    return True


def records(folders: Iterable[str]) -> dict[str, Any]:
    documents = {}
    for path in [path for folder in folders for path in sorted(Path(folder).glob("*.json"))]:
        try:
            documents[str(path)] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, RecursionError, ValueError) as error:
            raise AnsibleActionFail(f"{path} cannot be read as JSON: {error}") from error
    return documents

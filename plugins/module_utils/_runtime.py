# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host code that boot units and the command run, as texts to be installed: one truth for the modules and for the time without Ansible.

Installed as package ``npu_affinity`` it needs nothing but Python: ``_irq``, ``_device_share``, ``_processes``, ``_tuning``, ``_metrics``
and ``_command`` are its programs.

This module is private to the collection.
"""

from __future__ import annotations

import pkgutil
from typing import Any, Mapping

from ._installed import COMMAND, COMPLETION, FOLDER, LIBRARY
from ._state.files import MARKER
from ._version import VERSION

FILES = (
    "__init__.py",
    "_cpulist.py",
    "_engines.py",
    "_host.py",
    "_installed.py",
    "_npu_smi.py",
    "_nvidia_smi.py",
    "_plan_file.py",
    "_table.py",
    "_textfile.py",
    "_tuning.py",
    "_version.py",
    "_vnpu_layout.py",
    "_command/__init__.py",
    "_command/checking.py",
    "_command/explaining.py",
    "_command/known.py",
    "_command/program.py",
    "_command/running.py",
    "_device_share/__init__.py",
    "_device_share/calls.py",
    "_device_share/program.py",
    "_device_share/recovery.py",
    "_device_share/switching.py",
    "_device_share/tool.py",
    "_drift/__init__.py",
    "_drift/binders.py",
    "_drift/causes.py",
    "_drift/driver.py",
    "_drift/files.py",
    "_drift/findings.py",
    "_drift/plan.py",
    "_drift/sentences.py",
    "_drift/soft_split.py",
    "_drift/threads.py",
    "_drift/tuning.py",
    "_drift/units.py",
    "_drift/verify.py",
    "_drift/wanted.py",
    "_history/__init__.py",
    "_history/difference.py",
    "_history/entries.py",
    "_history/in_force.py",
    "_irq/__init__.py",
    "_irq/affinity.py",
    "_irq/binding.py",
    "_irq/counters.py",
    "_irq/irqbalance.py",
    "_irq/movers.py",
    "_irq/program.py",
    "_irq/rebinds.py",
    "_kernel/__init__.py",
    "_kernel/cpus.py",
    "_kernel/holders.py",
    "_kernel/interrupts.py",
    "_kernel/machine.py",
    "_kernel/pci.py",
    "_kubelet/__init__.py",
    "_kubelet/facts.py",
    "_kubelet/settings.py",
    "_kubelet/state_file.py",
    "_kubelet/version.py",
    "_metrics/__init__.py",
    "_metrics/exposition.py",
    "_metrics/program.py",
    "_metrics/samples.py",
    "_metrics/writing.py",
    "_processes/__init__.py",
    "_processes/placing.py",
    "_processes/program.py",
    "_processes/tasks.py",
    "_processes/torch_npu.py",
    "_smi/__init__.py",
    "_smi/driver.py",
    "_smi/errors.py",
    "_smi/tables.py",
    "_smi/text.py",
    "_smi/tool.py",
    "_state/__init__.py",
    "_state/files.py",
    "_state/journal.py",
    "_state/lock.py",
    "_state/log.py",
    "_state/previous.py",
    "_state/release.py",
    "_state/sections.py",
    "_state/systemd.py",
    "_state/unit_environment.py",
    "_state/unit_files.py",
    "_topology/__init__.py",
    "_topology/gather.py",
    "_topology/gpus.py",
    "_topology/npus.py",
    "_transaction/__init__.py",
    "_transaction/host_files.py",
    "_transaction/programs.py",
)
"""The programs and everything that they import, transitively."""
INSTALLED = tuple(name.replace("/program.py", "/__main__.py") for name in FILES)
"""Under which names they are installed. Galaxy takes no collection that has a ``__main__.py`` here."""
FIRST_LINE = "# %s: changes are overwritten.\n" % MARKER


PYTHON = "/usr/bin/python3"
"""The interpreter of the command where no setting names one."""
_LAUNCHER = """#!%%s -I
%s\"\"\"The command of npu.affinity on its host: npu-affinity --help.\"\"\"

import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "%s")

from npu_affinity._command.__main__ import main

raise SystemExit(main())
""" % (FIRST_LINE, LIBRARY)
_COMPLETION = (
    FIRST_LINE
    + r"""# shellcheck shell=bash
_npu_affinity() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} names=() slice
    if ((COMP_CWORD == 1)); then
        names=(status verify plan explain run history --help --version)
    else
        case ${COMP_WORDS[1]}:$before in
            verify:* | plan:* | history:*) names=(--json --help) ;;
            explain:explain) names=(pid npu gpu cpu --help) ;;
            explain:pid) mapfile -t names < <(compgen -G "/proc/[0-9]*") && names=("${names[@]#/proc/}") ;;
            explain:cpu) mapfile -t names < <(compgen -G "/sys/devices/system/cpu/cpu[0-9]*") && names=("${names[@]##*/cpu}") ;;
            explain:npu | explain:gpu | run:run)
                for slice in /etc/systemd/system/{npu,gpu}-*.slice; do
                    slice=${slice##*/} slice=${slice%.slice}
                    [[ $before == run ]] && names+=("$slice")
                    [[ $slice == "$before"-* ]] && names+=("${slice#*-}")
                done
                [[ $before == run ]] && names+=(--user --help)
                ;;
            run:--user) mapfile -t COMPREPLY < <(compgen -u -- "$word") && return ;;
            run:*) mapfile -t COMPREPLY < <(compgen -c -- "$word") && return ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "${names[*]}" -- "$word")
}
complete -F _npu_affinity npu-affinity
"""
)


def command(python: str) -> list[dict[str, str]]:
    """Return the files of the command that a person calls, which the interpreter ``python`` of the host runs."""
    return [{"path": COMMAND, "content": _LAUNCHER % python, "mode": "0755"}, {"path": COMPLETION, "content": _COMPLETION, "mode": "0644"}]


def command_of(state: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return :func:`command` with the interpreter that a desired state names."""
    return command((state or {}).get("python") or PYTHON)


def files() -> list[dict[str, str]]:
    """Return :data:`FILES` as entries ``{path, content}`` for :class:`_transaction.host_files.Request`."""
    return [{"path": "%s/%s" % (FOLDER, name), "content": text} for name, text in sources().items()]


def sources() -> dict[str, str]:
    """Return ``{installed name: text}`` of :data:`FILES`, each with a first line that says whose file it is.

    They are read from where this module came from, be that a folder or the archive that Ansible sends to a host.
    """
    texts = {}
    for name, installed in zip(FILES, INSTALLED):
        data = pkgutil.get_data(__package__, name)
        if data is None:
            raise FileNotFoundError("%s of the collection cannot be read" % name)
        text = data.decode("utf-8")
        texts[installed] = text if text.startswith(FIRST_LINE) else FIRST_LINE + text
    texts["__init__.py"] = FIRST_LINE + 'VERSION = "%s"\n' % VERSION
    return texts


def _bundle_imports() -> object:
    """Is never called: Ansible sends with a module what its import statements name, and what that imports; this loads none of it."""
    from . import _tuning
    from ._command import program as command
    from ._device_share import program as device_share
    from ._irq import program as irq
    from ._metrics import program as metrics
    from ._processes import program as processes

    return (command, device_share, irq, metrics, processes, _tuning)

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host code that boot units and the command run, as files to be installed.

One archive holds package ``npu_affinity``, which needs nothing but Python: :mod:`_main` and all that it imports. It is made of the
sources that Ansible sends with a module.
"""

from __future__ import annotations

import io
import pkgutil
import re
import zipfile
from typing import Any, Iterator, Mapping

from . import _main
from ._installed import ARCHIVE, COMMAND, COMPLETION
from ._state.files import MARKER
from ._version import VERSION

FIRST_LINE = "# %s: changes are overwritten.\n" % MARKER
_ROOT = _main.__name__.rpartition(".")[2] + ".py"
_IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_INIT = '''VERSION = "%s"

import sys
import zipimport


class _Importer(zipimport.zipimporter):
    """Compiles each source once; zipimport does so a second time, only to return its file name."""

    def get_filename(self, fullname):
        end = "/__init__.py" if self.is_package(fullname) else ".py"
        return "/".join([self.archive, *fullname.split(".")]) + end


sys.path_hooks.insert(0, _Importer)
'''
PYTHON = "/usr/bin/python3"
"""The interpreter of the command where no setting names one."""
_LAUNCHER = """#!%%s -I
%s\"\"\"The command of npu.affinity on its host: npu-affinity --help.\"\"\"

import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "%s")

from npu_affinity._command.program import main

raise SystemExit(main())
""" % (FIRST_LINE, ARCHIVE)
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


def files(python: str = PYTHON) -> list[dict[str, str]]:
    """Return the archive and the files of the command, which the interpreter ``python`` of the host runs, as entries ``{path, content,
    mode}`` for :class:`_transaction.host_files.Request`."""
    return [
        archive_file(),
        {"path": COMMAND, "content": _LAUNCHER % python, "mode": "0755"},
        {"path": COMPLETION, "content": _COMPLETION, "mode": "0644"},
    ]


def files_of(state: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return :func:`files` with the interpreter that a desired state names."""
    return files((state or {}).get("python") or PYTHON)


def archive_file() -> dict[str, str]:
    return {"path": ARCHIVE, "content": archive().decode("utf-8", "surrogateescape")}


def archive() -> bytes:
    """Return the archive, which begins with a line that says whose file it is. The same sources always give the same bytes."""
    content = io.BytesIO()
    content.write((FIRST_LINE + 'VERSION = "%s"\n' % VERSION).encode())
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as members:
        for name, source in sorted(sources().items()):
            members.writestr(zipfile.ZipInfo("npu_affinity/" + name, _FIXED_TIME), source)
    return content.getvalue()


def sources() -> dict[str, bytes]:
    """Return ``{name in the package: source}`` of the programs and all that they import, also inside functions.

    :mod:`_main` becomes ``__main__.py``, a name that Galaxy does not take. The sources are read from where this module came from, be
    that a folder or the archive that Ansible sends to a host.
    """
    found: dict[str, bytes] = {}
    waiting, asked = [_ROOT], {_ROOT}
    while waiting:
        name = waiting.pop()
        source = _source(name)
        if source is not None:
            found[name] = source
            new = set(_imported(name, source.decode())) - asked
            asked |= new
            waiting += new
    found["__main__.py"] = found.pop(_ROOT)
    found["__init__.py"] = (_INIT % VERSION).encode()
    return found


def _source(name: str) -> bytes | None:
    try:
        return pkgutil.get_data(__package__, name)
    except OSError:
        return None


def _imported(name: str, source: str) -> Iterator[str]:
    """Yield the names of files that the import statements of a source can mean, whether there is such a file or not."""
    for dots, module, words in _IMPORT.findall(source):
        folder = name.split("/")[: -len(dots)] + [part for part in module.split(".") if part]
        for target in [""] + [word.split()[0] for word in words.strip("()").split(",") if word.strip()]:
            yield "/".join(folder + [target]).rstrip("/") + ".py"
        for depth in range(1, len(folder) + 1):
            yield "/".join(folder[:depth]) + "/__init__.py"

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host code that boot units and the command run, as files to be installed.

One archive holds package ``npu_affinity``, which needs nothing but Python: :mod:`_command.main` and all that it imports. It is made of the
sources that Ansible sends with a module.
"""

from __future__ import annotations

import io
import pkgutil
import posixpath
import re
import zipfile
from typing import TYPE_CHECKING, Iterator

from .._base import zipped
from .._base.version import VERSION
from .._command import main
from .._host.installed import ARCHIVE, COMMAND, COMPLETION, LIBRARY, placed
from .._features.parts import library_of
from .._state.files import MARKER

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry

FIRST_LINE = "# %s: changes are overwritten.\n" % MARKER
_PACKAGE = __name__.rsplit(".", 2)[0]
_ROOTS = [module.__name__[len(_PACKAGE) + 1 :].replace(".", "/") + ".py" for module in (main, zipped)]
_IMPORT = re.compile(r"from (\.+)([\w.]*) import (\([^)]*\)|.*)")
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_INIT = 'VERSION = "%s"\n\nfrom ._base import zipped\n\nzipped.compile_once()\n'
_MAIN = b'from ._command.main import main\n\nif __name__ == "__main__":\n    raise SystemExit(main())\n'
PYTHON = "/usr/bin/python3"
"""The interpreter of the command where no setting names one."""
_LAUNCHER = (
    """#!%%s -I
%s\"\"\"The command of npu.affinity on its host: npu-affinity --help.\"\"\"

import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "%%s")

from npu_affinity._command.program import main

raise SystemExit(main())
"""
    % FIRST_LINE
)
_COMPLETION = (
    FIRST_LINE
    + r"""# shellcheck shell=bash
_npu_affinity() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} names=() slice
    if ((COMP_CWORD == 1)); then
        names=(status verify plan explain run history --help --version)
    else
        case ${COMP_WORDS[1]}:$before in
            status:* | verify:* | plan:* | history:*) names=(--json --help) ;;
            explain:explain) names=(pid npu gpu cpu --json --help) ;;
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


def files(python: str = PYTHON, library: str = LIBRARY) -> list[FileEntry]:
    """Return the archive and the files of the command, which the interpreter ``python`` of the host runs, as entries ``{path, content,
    mode}`` for :class:`_transaction.request.Request`; ``library``: the folder of the host code."""
    code = archive_file(library)
    return [
        code,
        {"path": placed(COMMAND, library), "content": _LAUNCHER % (python, code["path"]), "mode": "0755"},
        {"path": placed(COMPLETION, library), "content": _COMPLETION, "mode": "0644"},
    ]


def files_of(state: AppliedState | None) -> list[FileEntry]:
    """Return :func:`files` with the interpreter and the folder that a desired state names."""
    return files((state and state.get("python")) or PYTHON, library_of(state))


def archive_file(library: str = LIBRARY) -> FileEntry:
    return {"path": placed(ARCHIVE, library), "content": archive().decode("utf-8", "surrogateescape")}


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

    The sources are read from where this module came from, be that a folder or the archive that Ansible sends to a host.
    """
    found: dict[str, bytes | None] = {}

    def take(name: str) -> bool:
        """Take a file with all that it imports, and return whether there is such a file."""
        if name not in found:
            found[name] = source = _source(name)
            for folder, words in _imports(name, source.decode()) if source else ():
                for depth in range(1, len(folder) + 1):
                    take("/".join(folder[:depth]) + "/__init__.py")
                if not (folder and take("/".join(folder) + ".py")):
                    for word in words:
                        take("/".join([*folder, word]) + ".py")
        return found[name] is not None

    for name in _ROOTS:
        take(posixpath.dirname(name) + "/__init__.py")
        take(name)
    sources = {name: source for name, source in found.items() if source is not None}
    return {**sources, "__init__.py": (_INIT % VERSION).encode(), "__main__.py": _MAIN}


def _source(name: str) -> bytes | None:
    try:
        return pkgutil.get_data(_PACKAGE, name)
    except OSError:
        return None


def _imports(name: str, source: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the package or module that each import statement of a source names, as names of folders, and what it imports of it."""
    for dots, module, words in _IMPORT.findall(source):
        folder = name.split("/")[: -len(dots)] + [part for part in module.split(".") if part]
        yield folder, [word.split()[0] for word in words.strip("()").split(",") if word.strip()]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host code that boot units and the command run, as files to be installed.

One archive holds package ``npu_affinity``, which needs nothing but Python: :mod:`_command.main`, :mod:`_apply.apply`, and all that they
import. It is made of the sources that Ansible sends with a module.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pkgutil
import posixpath
import re
import zipfile
from typing import TYPE_CHECKING, Iterator

from .._base.version import VERSION
from .._state import host_code

if TYPE_CHECKING:  # Ansible sends what is named here with a module, too, and importing it costs the controller more than the rest
    from . import apply  # noqa: F401
    from .._base import zipped  # noqa: F401
    from .._command import main  # noqa: F401
    from .._base.documents import AppliedState, FileEntry

_PACKAGE = __name__.rsplit(".", 2)[0]
_ROOTS = ("_command/main.py", "_apply/apply.py", "_base/zipped.py")
_IMPORT = re.compile(r"from (\.+)([\w.]*) import (\([^)]*\)|.*)")
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_INIT = 'VERSION = "%s"\n\nfrom ._base import zipped\n\nzipped.compile_once()\n'
_MAIN = b'from ._command.main import main\n\nif __name__ == "__main__":\n    raise SystemExit(main())\n'
_NO_SOURCES = (
    "The host code cannot be installed, because its source {0} is not readable where this module runs. Mitogen sends modules without their "
    "sources: use a strategy of ansible-core, such as linear."
)


def files_of(state: AppliedState | None) -> list[FileEntry]:
    """Return the files of the host code for a desired state."""
    return host_code.files_of(state, archive().decode("utf-8", "surrogateescape"))


def digest() -> str:
    """Return the SHA-256 of the archive."""
    return hashlib.sha256(archive()).hexdigest()


@functools.lru_cache(maxsize=None)
def archive() -> bytes:
    """Return the archive, which begins with a line that says whose file it is. The same sources always give the same bytes."""
    content = io.BytesIO()
    content.write(host_code.HEAD.encode())
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as members:
        for name, source in sorted(sources().items()):
            members.writestr(zipfile.ZipInfo("npu_affinity/" + name, _FIXED_TIME), source)
    return content.getvalue()


def sources() -> dict[str, bytes]:
    """Return ``{name in the package: source}`` of the programs and all that they import, also inside functions.

    The sources are read from where this module came from, be that a folder or the archive that Ansible sends to a host.
    """
    files: dict[str, bytes | None] = {}

    def take(name: str) -> bool:
        """Take a file with all that it imports, and return whether there is such a file."""
        if name not in files:
            files[name] = source = _source(name)
            for folder, words in _imports(name, source.decode()) if source else ():
                for depth in range(1, len(folder) + 1):
                    take("/".join(folder[:depth]) + "/__init__.py")
                if not (folder and take("/".join(folder) + ".py")):
                    for word in words:
                        take("/".join([*folder, word]) + ".py")
        return files[name] is not None

    for name in _ROOTS:
        take(posixpath.dirname(name) + "/__init__.py")
        if not take(name):
            raise ValueError(_NO_SOURCES.format(name))
    sources = {name: source for name, source in files.items() if source is not None}
    return {**sources, "__init__.py": (_INIT % VERSION).encode(), "__main__.py": _MAIN}


def _source(name: str) -> bytes | None:
    try:
        return pkgutil.get_data(_PACKAGE, name)
    except OSError:
        return None


def _imports(name: str, source: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the package or module that each import statement of a source names, as names of folders, and what it imports of it."""
    for dots, module, words in _IMPORT.findall(source):
        folder = name.split("/")[: -len(dots)] + list(filter(None, module.split(".")))
        yield folder, [word.split()[0] for word in words.strip("()").split(",") if word.strip()]

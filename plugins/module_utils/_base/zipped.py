# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports from archives. Without :func:`compile_once`, Python compiles each source a second time, only to get its file name.

Both the archive that Ansible sends and the installed one call it first.
"""

from __future__ import annotations

import importlib
import sys
import types
import zipimport


class Importer(zipimport.zipimporter):
    def get_filename(self, fullname: str) -> str:
        end = "/__init__.py" if self.is_package(fullname) else ".py"
        return "%s/%s%s%s" % (self.archive, self.prefix, fullname.rpartition(".")[2], end)


def compile_once() -> None:
    """Let later imports from the archive that this file was imported from, if any, compile each source once."""
    loader = globals().get("__loader__")
    if not isinstance(loader, zipimport.zipimporter):
        return
    sys.path_hooks.insert(0, Importer)
    for path in list(sys.path_importer_cache):
        if (path + "/").startswith(loader.archive + "/"):
            del sys.path_importer_cache[path]


def imported(name: str, archive: str) -> types.ModuleType:
    """Import a module of this package, with all that is not imported yet, from an installed archive of the same sources."""
    package = __name__.rsplit(".", 2)[0]
    for package_name, room in list(sys.modules.items()):
        if hasattr(room, "__path__") and (package_name + ".").startswith(package + "."):
            room.__path__.insert(0, "%s/npu_affinity%s" % (archive, package_name[len(package) :].replace(".", "/")))
    return importlib.import_module("%s.%s" % (package, name))

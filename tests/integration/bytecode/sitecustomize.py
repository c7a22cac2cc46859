# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python imports this at its start when its folder is on the path. What it imports from archives is compiled once for all processes.

A module arrives on a host as an archive of sources, a hundred of them, and compiling those costs more than running the module. The folder
``BYTECODE_CACHE`` keeps the results, by the sources' digests.
"""

import os
import zipimport

CACHE = os.environ["BYTECODE_CACHE"]
compile_source = zipimport._compile_source
found = {}


def compile_once(path, source):
    """Compile a source of which zipimport wants the code twice: for the name of its file, and to run it."""
    if path not in found:
        found[path] = cached(path, source)
        return found[path]
    return found.pop(path)


def cached(path, source):
    import hashlib  # most programs import nothing from archives, and start without these
    import marshal

    file = os.path.join(CACHE, hashlib.sha256(source).hexdigest())
    try:
        with open(file, "rb") as kept:
            return marshal.load(kept)
    except FileNotFoundError:
        pass
    code = compile_source(path, source)
    temporary = "%s.%d" % (file, os.getpid())
    with open(temporary, "wb") as kept:
        marshal.dump(code, kept)
    os.rename(temporary, file)
    return code


zipimport._compile_source = compile_once

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's command-line tool whose failures become sentences instead of exceptions.

This module is private to the collection.
"""

from __future__ import annotations

import shlex
import shutil

from ._host import CommandError

HUNG = "hung"


class Tool:
    """npu-smi or nvidia-smi of one host.

    ``problems`` collects sentences. ``failure`` is what was wrong with the last answer: None, :data:`HUNG` when there was none in
    time, the ``kind`` of the tool's own error, or ``unreadable``.
    """

    def __init__(self, host, argv, problems):
        self.host = host
        self.argv = argv
        self.problems = problems
        self.failure = None

    def ask(self, parse, *words, **options):
        """Return what ``parse`` makes of the answer to ``words``, or None and a sentence when there is no usable answer.

        ``quiet`` names kinds of errors that need no sentence because they say something about the product, not about its state.
        """
        command = self.argv + list(words)
        self.failure = None
        try:
            result = self.host.run(command)
        except CommandError as error:
            self.failure = HUNG
            self.problems.append("%s." % error)
            return None
        try:
            answer = parse(result.output)
        except ValueError as error:
            self.failure = getattr(error, "kind", "unreadable")
            if self.failure not in options.get("quiet", ()):
                self.problems.append("'%s' ended with status %d: %s." % (" ".join(command), result.rc, error))
            return None
        if result.rc != 0:
            self.problems.append("'%s' printed data, but ended with status %d." % (" ".join(command), result.rc))
        return answer


def find(host, named, name, folders, problems, evidence):
    """Return the :class:`Tool`, or None: the named command, else the program found in the folders or on PATH.

    That there is none is a problem when the user named a command or there is ``evidence`` (names of devices) that it is needed.
    """
    if not named:
        program = host.find_program(name, folders)
        if program:
            return Tool(host, [program], problems)
        if evidence:
            places = ", ".join(folders) + (" and on PATH" if host.live else " below %s" % host.root)
            problems.append("%s was not found in %s, but the host has %s." % (name, places, ", ".join(sorted(evidence))))
        return None
    try:
        argv = shlex.split(named)
    except ValueError as error:
        problems.append("The command '%s', named for %s, cannot be split into words: %s." % (named, name, error))
        return None
    if not argv or shutil.which(argv[0]) is None:
        problems.append("The command '%s', named for %s, does not exist or is not executable." % (named, name))
        return None
    return Tool(host, argv, problems)

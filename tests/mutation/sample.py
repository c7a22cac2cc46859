# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the mutants of a checkout: ``sample.py CHECKOUT`` prints a JSON list of ``{file, source, diff, lines}``.

``lines`` are those of the statement that is changed, None for one that an import executes, so that every test depends on it.
Runs in the environment of mutmut, whose operators it uses. The same seed draws the same mutants of the same files.
"""

from __future__ import annotations

import ast
import difflib
import json
import pathlib
import random
import sys

import libcst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode
from targets import SEED, SIZE, TARGETS


def is_sentence(node):
    """Return whether a node is a text for people, of three words or more: its wording is none of the tests' business."""
    return isinstance(node, libcst.SimpleString) and len(node.value.split()) > 2


class File:
    """A file of the checkout, and the mutations that it could have; those that only change a sentence are counted, and left out."""

    def __init__(self, path, text):
        visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
        self.path = path
        self.text = text
        self.module = MetadataWrapper(libcst.parse_module(text)).visit(visitor)
        self.mutations = [mutation for mutation in visitor.mutations if not is_sentence(mutation.original_node)]
        self.sentences = len(visitor.mutations) - len(self.mutations)

    def draw(self, count):
        """Yield so many mutants that differ and are Python."""
        drawn = {self.text}
        for mutation in random.Random(f"{SEED} {self.path}").sample(self.mutations, len(self.mutations)):
            if len(drawn) > count:
                return
            source = self.module.deep_replace(mutation.original_node, mutation.mutated_node).code
            if source not in drawn and is_python(source):
                drawn.add(source)
                diff = difflib.unified_diff(self.text.splitlines(), source.splitlines(), self.path, self.path, n=2, lineterm="")
                yield {"file": self.path, "source": source, "diff": "\n".join(diff) + "\n", "lines": self.lines(source)}

    def lines(self, source):
        """Return the lines of the innermost statement of a function that holds what a mutant changes, or None."""
        before, after = self.text.splitlines(), source.splitlines()
        changed = [first for kind, first, *_rest in difflib.SequenceMatcher(None, before, after, False).get_opcodes() if kind != "equal"]
        found = None
        for function in ast.walk(ast.parse(self.text)):
            if isinstance(function, ast.FunctionDef):
                for statement in (inner for part in function.body for inner in ast.walk(part) if isinstance(inner, ast.stmt)):
                    if statement.lineno <= changed[0] + 1 <= statement.end_lineno and (not found or statement.lineno >= found.lineno):
                        found = statement
        if found is None:
            return None
        body = getattr(found, "body", None)
        return list(range(found.lineno, (body[0].lineno if body else found.end_lineno + 1)))


def is_python(source):
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def shares(counts):
    """Return how many mutants of each file are drawn: in proportion to its own, the remainders to the largest fractions."""
    size = min(SIZE, sum(counts.values()))
    exact = {path: size * count / sum(counts.values()) for path, count in counts.items()}
    drawn = {path: int(value) for path, value in exact.items()}
    for path in sorted(exact, key=lambda path: drawn[path] - exact[path])[: size - sum(drawn.values())]:
        drawn[path] += 1
    return drawn


def main(checkout):
    folder = pathlib.Path(checkout)
    paths = [path for pattern, _tests in TARGETS for path in sorted(folder.glob(pattern))]
    files = [File(str(path.relative_to(folder)), path.read_text()) for path in paths]
    counts = shares({file.path: len(file.mutations) for file in files})
    every, sentences = (sum(numbers) for numbers in zip(*((len(file.mutations), file.sentences) for file in files), strict=True))
    print(f"{SIZE} of {every} mutants; {sentences} more would only change a sentence.", file=sys.stderr)
    json.dump([mutant for file in files for mutant in file.draw(counts[file.path])], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw mutants of all Python below plugins: ``sample.py CHECKOUT SEED SIZE`` prints a JSON list of ``{file, before, source, diff, lines}``.

``before`` is the SHA-256 of the file as it is. ``lines`` are those of the statement that is changed, None for one that an import executes.
Runs in the environment of mutmut, whose operators it uses. The same seed draws the same mutants of the same plugins.
"""

import ast
import difflib
import hashlib
import json
import pathlib
import random
import sys

import libcst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode


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
        self.drawn = {text}

    def mutant(self, number):
        """Return a mutant, or None if it is no Python or was drawn before."""
        mutation = self.mutations[number]
        source = self.module.deep_replace(mutation.original_node, mutation.mutated_node).code
        if source in self.drawn or not is_python(source):
            return None
        self.drawn.add(source)
        diff = difflib.unified_diff(self.text.splitlines(), source.splitlines(), self.path, self.path, n=2, lineterm="")
        before = hashlib.sha256(self.text.encode()).hexdigest()
        return {"file": self.path, "before": before, "source": source, "diff": "\n".join(diff) + "\n", "lines": self.lines(source)}

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


def draw(files, seed, size):
    """Return so many mutants, each mutation of a file being as likely as any other."""
    every = [(file, number) for file in files for number in range(len(file.mutations))]
    random.Random(seed).shuffle(every)
    mutants = []
    for file, number in every:
        mutant = len(mutants) < size and file.mutant(number)
        if mutant:
            mutants.append(mutant)
    return sorted(mutants, key=lambda mutant: mutant["file"])


def main(checkout, seed, size):
    folder = pathlib.Path(checkout)
    files = [File(str(path.relative_to(folder)), path.read_text()) for path in sorted(folder.glob("plugins/**/*.py"))]
    mutants = draw(files, seed, int(size))
    sentences = sum(file.sentences for file in files)
    every = sum(len(file.mutations) for file in files)
    print(f"{len(mutants)} of {every} mutants, seed {seed}; {sentences} more would only change a sentence.", file=sys.stderr)
    json.dump(mutants, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])

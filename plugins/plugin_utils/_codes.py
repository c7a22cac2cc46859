# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stable names for why a host is not bound, next to those of findings in :mod:`_drift.codes`.

Sentences that ask for the same next step have the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

REFUSALS = {
    "NPU_CLAIMED_TWICE": "Two workloads, services or vNPUs have one NPU.",
    "NPU_DEVICE_SHARE_OFF": "vNPUs need device share, which is off and stays off.",
    "NPU_DRIVER_TOO_OLD": "The Ascend driver is too old for device share.",
    "NPU_HOUSEKEEPING_CONFINES": "Work that uses NPUs would be confined to the CPUs of the system.",
    "NPU_KUBELET_CONFLICT": "The kubelet cannot be configured for the plan.",
    "NPU_MEMORY_SHORT": "A memory node has no room for the huge pages.",
    "NPU_NOT_GATHERED": "The host could not be queried.",
    "NPU_NOT_REVIEWED": "The reviewed file does not have what a bind would do.",
    "NPU_NO_ENTRY": "The history has no such entry.",
    "NPU_OTHER_HARDWARE": "The entry of the history is for other hardware.",
    "NPU_PODS_IN_POOL": "The kubelet gave CPUs of the plan to containers.",
    "NPU_PROGRAM_MISSING": "The host lacks a program that a bind needs.",
    "NPU_RULE_FAILS": "A published rule fails on the host, and was not repaired.",
    "NPU_SETTING_INVALID": "A setting is unknown, or its value cannot be used.",
    "NPU_SMI_UNAVAILABLE": "The host does not list its NPUs.",
    "NPU_TOO_FEW_CPUS": "Too few CPUs may be divided.",
    "NPU_UNKNOWN_NPU": "A setting names an NPU that the host does not have.",
    "NPU_UNKNOWN_UNIT": "A setting names a service that is not installed.",
    "NPU_VNPU_TOO_LARGE": "vNPUs do not fit on their NPU.",
    "NPU_VNPU_UNSUPPORTED": "The host or the chip cannot have vNPUs.",
    "NPU_WORKERS_CONFLICT": "Another setting excludes workers that bind themselves.",
}
"""Every code of a refusal, in alphabetical order."""


class Sentence(str):
    """A sentence with its code. Documents have it as plain text, and :func:`by_code` keeps the code there."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, text: str) -> Sentence:
        made = super().__new__(cls, text)
        made.code = code
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """What leaves the process is plain text: Ansible cannot read other types that a worker returns."""
        return str, (str(self),)


def of_error(error: ValueError, code: str) -> Sentence:
    """Return the sentence of an error, with this code unless it has one."""
    said = error.args[0] if error.args else ""
    return said if isinstance(said, Sentence) else Sentence(code, str(error))


def by_code(sentences: Iterable[Sentence]) -> dict[str, list[str]]:
    """Return the sentences as plain text by their codes, for a document."""
    found: dict[str, list[str]] = {}
    for sentence in sentences:
        found.setdefault(sentence.code, []).append(str(sentence))
    return dict(sorted(found.items()))


def shown(sentences: Iterable[str], codes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return sentences with their code at the end, as verify shows its findings; ``codes`` as :func:`by_code` returns them."""
    code_of = {sentence: code for code, said in codes.items() for sentence in said}
    return [f"{sentence} [{code_of[sentence]}]" if sentence in code_of else sentence for sentence in sentences]

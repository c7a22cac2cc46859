# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stable names for why a host is not bound and for what is worth a look, next to those of findings in :mod:`_drift.codes`.

Sentences that ask for the same next step have the same code.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ParamSpec

from ansible_collections.npu.affinity.plugins.module_utils._base import findings
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.module_utils._smi.errors import UNSUPPORTED

_BOTH = {
    "NPU_DRIVER_TOO_OLD": "The Ascend driver is too old for what the settings want.",
    "NPU_PODS_IN_POOL": "The kubelet gave CPUs of the plan to containers.",
    "NPU_PROGRAM_MISSING": "The host lacks a program that a bind needs, or it does not run.",
    "NPU_RULE_FAILS": "A published rule fails on the host, and was not repaired.",
    "NPU_SETTING_INVALID": "A setting is unknown, or its value cannot be used.",
    "NPU_SMI_UNAVAILABLE": "The host does not list its NPUs.",
    "NPU_UNKNOWN_NPU": "A setting names an NPU that the host does not have.",
    "NPU_UNKNOWN_UNIT": "A setting names a service that is not installed.",
}
"""What refuses a host by some settings, and is a remark by others."""
_REFUSALS = {
    "NPU_CANNOT_FOLLOW": "Housekeeping cannot follow the workloads of the host.",
    "NPU_CLAIMED_TWICE": "Two workloads, services or vNPUs have one NPU.",
    "NPU_DEVICE_SHARE_OFF": "vNPUs need device share, which is off and stays off.",
    "NPU_DEVICE_UNKNOWN": "The device file of an NPU is not known.",
    "NPU_GPU_MEMORY_OUTSIDE": "A slice would leave out the memory of its GPU.",
    "NPU_HOUSEKEEPING_CONFINES": "Work that uses NPUs would be confined to the CPUs of the system.",
    "NPU_IN_CONTAINER": "The host is a container or a chroot.",
    "NPU_KUBELET_CONFLICT": "The kubelet cannot be configured for the plan.",
    "NPU_MEMORY_SHORT": "A memory node has no room for the huge pages.",
    "NPU_NOT_GATHERED": "The host could not be queried.",
    "NPU_NOT_REVIEWED": "The reviewed file does not have what a bind would do.",
    "NPU_NO_ENTRY": "The history has no such state.",
    "NPU_OTHER_HARDWARE": "The entry of the history was made for other hardware.",
    "NPU_TOO_FEW_CPUS": "Too few CPUs may be divided.",
    "NPU_VNPU_TOO_LARGE": "vNPUs do not fit on their NPU.",
    "NPU_VNPU_UNSUPPORTED": "The host or the chip cannot have vNPUs.",
    "NPU_WORKERS_CONFLICT": "Another setting excludes workers that bind themselves.",
}
_TO_DO = {
    "NPU_ALLOCATOR_MISSING": "The host has no allocator to preload.",
    "NPU_CARD_UNLISTED": "An NPU of the PCI bus is not listed by npu-smi.",
    "NPU_CPUS_ISOLATED": "CPUs are isolated from the scheduler.",
    "NPU_CPUS_LEFT_OUT": "CPUs that a setting names are offline or do not exist.",
    "NPU_CPUSET_PARTITION": "A cpuset partition has CPUs of the plan.",
    "NPU_FACTS_INCOMPLETE": "Something of the host could not be read, or contradicts itself.",
    "NPU_HISTORY_INCOMPLETE": "The history of the host is missing, or cannot be read.",
    "NPU_IRQ_FAILED": "An interrupt could not be bound, which the settings tolerate.",
    "NPU_KERNEL_CONTRADICTS": "The kernel command line contradicts the plan.",
    "NPU_KUBELET_BLOCKED": "The kubelet does not start with its files or cgroups.",
    "NPU_KUBELET_PENDING": "The kubelet is to be changed by a later bind.",
    "NPU_MEMORY_ELSEWHERE": "Running work has memory on nodes that it would lose.",
    "NPU_METRICS_UNREAD": "Nothing reads the metrics where they are written.",
    "NPU_MUTE_EXPIRED": "A mute has expired.",
    "NPU_NO_EFFECT": "A setting has no effect on the host.",
    "NPU_NUMA_UNKNOWN": "The NUMA node of an NPU is not known.",
    "NPU_ONE_MACHINE": "Several names of the inventory are one machine.",
    "NPU_REPORT_MISSING": "The report of a host could not be written.",
    "NPU_UNBIND_LEFT": "What an unbind leaves.",
    "NPU_VARIABLE_KEPT": "Another file of a service sets a variable, which stays.",
    "NPU_VNPU_UNSURE": "Something may keep vNPUs from working.",
    "NPU_WORKERS_OVERLAP": "Workers that bind themselves may take CPUs of others.",
}
"""Remarks that ask for a decision or an action, as those of :data:`_BOTH` and of findings do."""
_NOTES = {
    "NPU_CARD_IN_GUEST": "An accelerator belongs to a guest.",
    "NPU_CORES_SPLIT": "A pool has only some threads of a core.",
    "NPU_CPUS_IDLE": "A rule leaves CPUs near a card idle.",
    "NPU_CPUS_REMOTE": "A pool has CPUs of other NUMA nodes.",
    "NPU_CPUS_SHARED": "Several services use one NPU and its CPUs.",
    "NPU_HOUSEKEEPING_FOLLOWS": "Which CPUs the system has while housekeeping follows the workloads.",
    "NPU_INTERRUPTS_IN_POOL": "Interrupts of other devices may run on pools.",
    "NPU_IRQ_UNPLACED": "An interrupt, workqueue or thread of the driver stays where it is.",
    "NPU_KUBELET_FORECAST": "Which CPUs the kubelet will give to pods.",
    "NPU_MEASURE_INCOMPLETE": "A measurement lacks something.",
    "NPU_NIC_PLACED": "Where network interrupts go.",
    "NPU_NIC_UNPLACED": "Network interrupts stay where they are.",
    "NPU_POLL_SHARED": "The kernel's poll threads may run on pools.",
    "NPU_QUERY_UNSUPPORTED": "npu-smi has no answer on this product or driver version.",
    "NPU_RANKS_PLACED": "Where the ranks of a service run.",
    "NPU_ROLES_SHARED": "A pool is too small for its roles.",
    "NPU_THREAD_UNPLACED": "A thread or process stays where it is.",
    "NPU_WORKLOADS_BOUND": "How workloads are bound.",
}
"""Remarks that ask for nothing. A summary counts them."""
_ANSWERS = {
    "NPU_KERNEL_ADVICE": "What the kernel command line should have.",
    "NPU_NIC_ADVICE": "Where network interrupts would go.",
}
"""Notes that a setting asks for, such as ``npu_affinity_isolation: explain``."""
BIND_EFFECT = "NPU_BIND_EFFECT"
_EFFECTS = {BIND_EFFECT: "What a bind moves or takes."}
REFUSALS, REMARKS = (dict(sorted({**codes, **_BOTH}.items())) for codes in (_REFUSALS, {**_TO_DO, **_NOTES, **_ANSWERS, **_EFFECTS}))
"""Codes of refusals, and codes of remarks; a remark can also have the code of a finding with the same next step."""
EFFECT, ERROR, TO_DO, NOTE = "effect", "error", "to do", "note"
RANKS = (ERROR, TO_DO, EFFECT, NOTE)
"""The ranks of sentences in the order in which they are shown: what fails a host, what to act on, what a bind changes, and the rest."""
_CODE = re.compile(r" \[(NPU_[A-Z_]+)\]\Z")
_P = ParamSpec("_P")


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


def coded_error(code: str, text: str) -> ValueError:
    return ValueError(Sentence(code, text))


def of_error(error: ValueError, code: str) -> Sentence:
    """Return the sentence of an error, with this code unless it has one."""
    sentence = error.args[0] if error.args else ""
    return sentence if isinstance(sentence, Sentence) else Sentence(code, str(error))


def remark(code: str) -> Callable[[Callable[_P, Iterable[str]]], Callable[_P, list[Sentence]]]:
    """Give all that a function says this code."""

    def decorate(function: Callable[_P, Iterable[str]]) -> Callable[_P, list[Sentence]]:
        @functools.wraps(function)
        def sentences(*args: _P.args, **options: _P.kwargs) -> list[Sentence]:
            return [Sentence(code, text) for text in function(*args, **options)]

        return sentences

    return decorate


def coded(sentence: str) -> str:
    """Return a sentence as plain text with its code at the end, as documents have remarks."""
    return findings.coded(sentence.code, [sentence])[0] if isinstance(sentence, Sentence) else sentence


def code_of(text: str) -> str:
    """Return the code at the end of a text, '' where it has none."""
    match = _CODE.search(text)
    return match[1] if match else ""


def rank(remark: str) -> str:
    """Return which of :data:`RANKS` a remark has. Only sentences on what is muted have no code."""
    code = code_of(remark)
    return EFFECT if code in _EFFECTS else NOTE if code in _NOTES or code in _ANSWERS or not code else TO_DO


def is_counted(remark: str) -> bool:
    """Return whether a summary only counts a remark, unless it is verbose: a note that no setting asks for."""
    return rank(remark) == NOTE and code_of(remark) not in _ANSWERS


def without(remarks: Iterable[str], codes: Collection[str]) -> list[str]:
    return [text for text in remarks if code_of(text) not in codes]


def with_mutes(remarks: Collection[str], muted: Mapping[str, str], counts: Mapping[str, int] | None = None) -> list[str]:
    """Return the remarks that are not muted, and a sentence on each code that is; ``counts`` is how often others occur, by code."""
    times = Counter(map(code_of, remarks)) | Counter(counts)
    return [*without(remarks, muted), *(f"{code} ({times[code]}) is {why}" for code, why in muted.items() if times[code])]


def problems(topology: Topology | None) -> list[str]:
    """Return the remarks on what could not be read of a host, or contradicts itself."""
    texts: Iterable[str] = topology.get("problems") or () if topology else ()
    return [coded(Sentence("NPU_QUERY_UNSUPPORTED", one) if UNSUPPORTED in one else Sentence("NPU_FACTS_INCOMPLETE", one)) for one in texts]


def by_code(sentences: Iterable[Sentence]) -> dict[str, list[str]]:
    """Return the sentences as plain text by their codes, for a document."""
    codes: dict[str, list[str]] = {}
    for sentence in sentences:
        codes.setdefault(sentence.code, []).append(str(sentence))
    return dict(sorted(codes.items()))


def shown(sentences: Iterable[str], codes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return sentences with their code at the end, as verify shows its findings; ``codes`` as :func:`by_code` returns them."""
    by_text = {text: code for code, texts in codes.items() for text in texts}
    return [f"{sentence} [{by_text[sentence]}]" if sentence in by_text else sentence for sentence in sentences]

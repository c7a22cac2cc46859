# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the accelerators that a process sees is its own, by what launchers give a rank when they start it.

Sources: PyTorch ``local_elastic_agent.py``; Open MPI 5.0 and MPICH manuals; srun(1); DeepSpeed ``launch.py``; MindIE-LLM
``executor.cpp``; xLLM ``spawn_worker_server_process.cpp``. PMI_RANK and RANK count over all hosts, and say nothing here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

RANKS = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""The inner launcher first: srun gives 0 to a torchrun that it starts."""
_OPTIONS = ("--npu_device_id", "--devices", "--local_rank", "--local-rank")
_PLACES = {"spawn_worker": 5, "mindieservice_backend_connector": 3}
"""Programs with the index of the device in this place of their arguments."""


def index_of(environment: Mapping[str, str], command: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of a process's device among those that it sees, and its source; None without one."""
    for name in RANKS:
        value = environment.get(name, "")
        if value not in ("", "-1"):
            return _number(value, "%s=%s" % (name, value))
    place = _PLACES.get(posixpath.basename(command[0])) if command else None
    if place is not None and len(command) > place:
        return _number(command[place], "argument %d of %s" % (place, command[0]))
    for option in _OPTIONS:
        value = _argument(command, option)
        if value and "," not in value:
            return _number(value.rpartition(":")[2], "%s %s" % (option, value))
    return None


def _number(text: str, source: str) -> tuple[int, str]:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("%s is not the number of a rank or device" % source)
    return int(text), source


def _argument(command: Sequence[str], option: str) -> str:
    for place, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else "".join(command[place + 1 : place + 2])
    return ""

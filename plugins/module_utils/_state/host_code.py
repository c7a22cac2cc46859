# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the host code on a host. What only compares a host knows the archive by its digest, and does not carry its sources."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .._base.version import VERSION
from .._host.installed import ARCHIVE, COMMAND, COMPLETION, code_folder, relocated
from .files import MARKER

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry
    from .._host.host import Host
    from .._host.installed import HostCode

FIRST_LINE = "# %s: changes are overwritten.\n" % MARKER
HEAD = FIRST_LINE + 'VERSION = "%s"\n' % VERSION
"""How the archive begins: with whose file it is."""
PYTHON = "/usr/bin/python3"
"""The interpreter of the command where no setting names one."""
_LAUNCHER = (
    """#!%%s -IS
%s\"\"\"The command of npu.affinity on its host: npu-affinity --help.\"\"\"

import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "%%s")

if sys.argv[1:2] == ["exec"]:
    from npu_affinity._command.exec import main

    raise SystemExit(main(sys.argv[2:]))

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
        names=(status verify plan explain run launch exec history --help --version)
    else
        case ${COMP_WORDS[1]}:$before in
            status:* | verify:* | plan:* | history:*) names=(--json --help) ;;
            explain:explain) names=(pid container npu gpu cpu --json --help) ;;
            explain:pid) mapfile -t names < <(compgen -G "/proc/[0-9]*") && names=("${names[@]#/proc/}") ;;
            explain:cpu) mapfile -t names < <(compgen -G "/sys/devices/system/cpu/cpu[0-9]*") && names=("${names[@]##*/cpu}") ;;
            launch:launch) names=(compose ctr docker nerdctl numactl podman quadlet slurm systemd systemd_run taskset torch_npu --help) ;;
            launch:--engine) names=(dynamo mindie mindspore nemo_rl sglang tensorrt_llm verl vllm vllm_ascend) ;;
            launch:--environment) names=(openmp task_queue allocator) ;;
            explain:npu | explain:gpu | run:run | exec:--device | launch:*)
                for slice in /etc/systemd/system/{npu,gpu}-*.slice; do
                    slice=${slice##*/} slice=${slice%.slice}
                    [[ $before == run || $before == --device || ${COMP_WORDS[1]} == launch ]] && names+=("$slice")
                    [[ $slice == "$before"-* ]] && names+=("${slice#*-}")
                done
                [[ $before == run ]] && names+=(--user --help)
                [[ ${COMP_WORDS[1]} == launch ]] && names+=(
                    --help --binding --name --no-notes --image --command --arguments --no-devices --ascend-runtime --vnpu --npu-smi
                    --library --no-visible-devices --containerd-version --slurm-version --slurm-sockets --torch-npu-version --engine
                    --environment
                )
                ;;
            exec:exec) names=(--device --role --print --or-run --help) ;;
            exec:--role) names=(main pool irq kv acl release) ;;
            run:--user) mapfile -t COMPREPLY < <(compgen -u -- "$word") && return ;;
            run:* | exec:--) mapfile -t COMPREPLY < <(compgen -c -- "$word") && return ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "${names[*]}" -- "$word")
}
complete -F _npu_affinity npu-affinity
"""
)


def files_of(state: AppliedState | None, archive: str) -> list[FileEntry]:
    """Return the archive, which has the text ``archive``, and the files of the command, as entries ``{path, content, mode}`` for
    :class:`_transaction.request.Request`, in the folder and for the interpreter that a desired state names."""
    folder, python = code_folder(state), (state and state.get("python")) or PYTHON
    path = relocated(ARCHIVE, folder)
    return [
        {"path": path, "content": archive},
        {"path": relocated(COMMAND, folder), "content": _LAUNCHER % (python, path), "mode": "0755"},
        {"path": relocated(COMPLETION, folder), "content": _COMPLETION, "mode": "0644"},
    ]


def compared_with(host: Host, digest: str | None) -> HostCode:
    """Return a function that returns :func:`files_of` of a desired state for a comparison with a host.

    An archive on the host whose SHA-256 is ``digest``, or any if that is None, is as it should be. Of another one only the head is known.
    """

    def files(state: AppliedState) -> list[FileEntry]:
        content = host.content(relocated(ARCHIVE, code_folder(state)))
        if content is None or digest not in (None, hashlib.sha256(content).hexdigest()):
            return files_of(state, HEAD)
        return files_of(state, content.decode("utf-8", "surrogateescape"))

    return files

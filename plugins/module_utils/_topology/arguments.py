# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be asked when a host is gathered, as the options of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from .._host.host import Host
from .gather import gather

if TYPE_CHECKING:
    from .._base.documents import Topology

ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "default": "/"},
    "device_share": {"type": "bool", "default": False},
    "vnpus": {"type": "bool", "default": False},
    "npu_smi": {"type": "str"},
    "nvidia_smi": {"type": "str"},
    "units": {"type": "list", "elements": "str", "default": []},
    "others": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 30},
}


def gathered(params: Mapping[str, Any]) -> tuple[Host, Topology]:
    """Return the host of these options and its topology. Raises ``ValueError`` for a time limit in which no command can answer."""
    if params["timeout"] < 1:
        raise ValueError("npu_affinity_timeout is %d s; a command needs at least 1 s to answer" % params["timeout"])
    host = Host(params["root"], params["timeout"])
    topology = gather(host, **{name: params[name] for name in ARGUMENTS if name not in ("root", "timeout")})
    return host, topology

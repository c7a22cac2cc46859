# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature slices: slices, drop-ins of services and of housekeeping, environment files and limiters of vNPUs."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import FileEntry, Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.feature import FEATURE, HOUSEKEEPING
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import LISTS
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, assignments, managed, unit, watched
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work, with_kubelet
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.vnpu import region
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import Entry
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import is_hard, mounts

NOTES_IN_SUMMARY = True
_ABOUT = f"{MARKER}: changes are overwritten. CPUs that the system always has, and what it has besides while no workload runs."


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    """``kubelet_becomes`` of the settings: the policy of the kubelet's CPU manager that the same bind sets, or ''."""
    topology = with_kubelet(topology, settings["kubelet_becomes"])
    limiter, folder = settings["vnpu_limiter"], settings["vnpu_folder"]
    work = Work.of(settings)
    bound = binding(topology, plan, work)
    files = [unit(entry["name"], slice_text(entry)) for entry in (*bound["parents"], *bound["slices"])]
    files += [unit(f"{entry['name']}.d/50-npu-affinity.conf", drop_in_text(entry)) for entry in bound["services"]]
    for vnpu in bound["vnpus"]:
        about = f"# The part of {vnpu['of']} that vNPU {vnpu['name']} gets, as its container sees it: docker run --env-file.\n"
        files.append(managed(vnpu["file"], about + assignments(vnpu["environment"])))
        if vnpu["limiter"]:
            files.append(unit(vnpu["limiter"], _limiter(vnpu, limiter, region(folder))))
    files += [unit(f"{entry['name']}.d/50-npu-affinity.conf", _housekeeping(entry)) for entry in bound["housekeeping"]]
    made = Feature(
        files=tuple(files),
        enabled=tuple(bound["enabled"]),
        started=tuple(bound["started"]),
        expected=tuple(bound["expected"]),
        programs=(limiter,) if any(vnpu["limiter"] for vnpu in bound["vnpus"]) else (),
        notes=(bound["summary"],),
        soft_split=folder if any(not is_hard(vnpu) for vnpu in bound["vnpus"]) else "",
        python=settings["python"],
        needs_plan=True,
        live={
            **{name: bound[name] for name in ("method", "services", "workloads", "bound_by")},
            "vnpus": [{**vnpu, "volumes": mounts(vnpu, folder, region(folder))} for vnpu in bound["vnpus"]],
        },
    )
    more = {entry["more"] for entry in bound["expected"] if entry.get("more")}
    if not more:
        return made
    content = previous.dump(_ABOUT, {"floor": plan["housekeeping"], "most": more.pop()})
    follows: FileEntry = {"path": HOUSEKEEPING, "content": content, "mode": "0644"}
    return made.with_those_of(watched(follows, settings["python"], owned=FEATURE.owned))


def slice_text(entry: Entry) -> str:
    """Return the unit file of a slice, without its first line. The slice of a whole kind, which ``wants`` others, starts at boot."""
    wants = f"Wants={' '.join(entry['wants'])}\n" if entry.get("wants") else ""
    install = "\n[Install]\nWantedBy=multi-user.target\n" if "wants" in entry else ""
    sets = assignments({"AllowedCPUs": entry["cpus"], "AllowedMemoryNodes": entry["mems"]})
    return f"[Unit]\nDescription={entry['description']}\n{wants}\n[Slice]\n{sets}{install}"


def drop_in_text(entry: Entry) -> str:
    """Return the drop-in of a service, without the line that says whose it is."""
    needs = f"[Unit]\nWants={entry['needs']}\nAfter={entry['needs']}\n\n" if entry["needs"] else ""
    return f"# {entry['description']}\n{needs}{service_text(entry['settings'], entry['environment'], entry.get('comments'))}"


def service_text(settings: Mapping[str, str], variables: Mapping[str, str], comments: Mapping[str, str] | None = None) -> str:
    """Return the section of a drop-in that places a service. Lists are emptied first: systemd merges them with those of the unit."""
    resets = assignments((key, "") for key in settings if key in LISTS)
    above = {name: f"# {comment}\n" for name, comment in (comments or {}).items()}
    lines = [above.get(key, "") + assignments({"Environment": f"{key}={value}"}) for key, value in variables.items()]
    return f"[Service]\n{resets}{assignments(settings)}{''.join(lines)}"


def _housekeeping(entry: Entry) -> str:
    section = "Scope" if entry["name"].endswith(".scope") else "Slice"
    about = "# Housekeeping: the system's own work stays off the CPUs of the NPUs.\n"
    return f"{about}[{section}]\nAllowedCPUs=\nAllowedCPUs={entry['cpus']}\n"


def _limiter(vnpu: Entry, program: str, shared_region: str) -> str:
    """Return the unit of a vNPU's limiter. Its container has the vNPU's directory as /hami-vnpu-shmem."""
    local = f"npu-affinity/vnpu/{vnpu['name']}"
    folders = {"NPU_GLOBAL_SHM_PATH": shared_region, "NPU_LOCAL_SHM_PATH": f"/run/{local}"}
    environment = {
        key: f"{folders[key]}/{posixpath.basename(value)}" if key in folders else value for key, value in vnpu["environment"].items()
    }
    lines = [
        "[Unit]",
        f"Description=Limiter of vNPU {vnpu['name']}, {vnpu['memory_mib']} MiB and {vnpu['core']} percent of {vnpu['of']}",
        "After=npu-affinity-device-share.service",
        *([f"Before={vnpu['unit']}", "StopWhenUnneeded=yes"] if vnpu["unit"] else []),
        "",
        "[Service]",
        "Type=exec",
        *(f"{key}={value}" for key, value in vnpu["settings"].items()),
        "Environment=RUST_LOG=info",
        *(f"Environment={key}={value}" for key, value in environment.items()),
        f"RuntimeDirectory={local}",
        "RuntimeDirectoryMode=1777",
        "RuntimeDirectoryPreserve=restart",
        "# The container has this directory as /hami-vnpu-shmem and as /dev/shm, where older limiters and libraries meet.",
        f"BindPaths=/run/{local}:/dev/shm",
        f"ExecStart={program}",
        "Restart=on-failure",
        *([] if vnpu["unit"] else ["", "[Install]", "WantedBy=multi-user.target"]),
    ]
    return "\n".join(lines) + "\n"

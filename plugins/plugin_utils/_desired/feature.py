# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one feature adds to the desired state of a host, and how the text of its files begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import FileEntry, FilesAndUnits, Restarted, UnitSets
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.feature import SETTINGS as OF_ADOPT
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Feature as HostFeature
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.feature import HOUSEKEEPING
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.feature import SETTINGS as OF_THREADS
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import service
from ansible_collections.npu.affinity.plugins.module_utils._features.watching import WATCH_SERVICE
from ansible_collections.npu.affinity.plugins.module_utils._host.installed import ARCHIVE
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import UNIT_FOLDER

FIRST_LINE = f"# {MARKER}: changes are overwritten.\n"
ENVIRONMENT = f"Environment=PYTHONPATH={ARCHIVE} PYTHONDONTWRITEBYTECODE=1\n"
"""The environment in which units find the host code."""
BOOT_ORDER = (
    "After=systemd-modules-load.service systemd-udev-settle.service systemd-sysctl.service systemd-tmpfiles-setup.service\n"
    "After=tuned.service cpupower.service cpufrequtils.service\n"
)
"""After what else sets values of the kernel."""
BEFORE_ENGINES = "Before=containerd.service crio.service docker.service isulad.service kubelet.service podman.service\n"


@dataclasses.dataclass(frozen=True)
class Feature:
    """What module host_files takes of the same names, and besides what the feature wants of the running host (``live``), whether it needs
    the plan on the host, with which the host gets its command, and sentences for the user (``notes``)."""

    files: tuple[FileEntry, ...] = ()
    owned: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    restarted: tuple[Restarted, ...] = ()
    expected: tuple[UnitSets, ...] = ()
    programs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    soft_split: str = ""
    python: str = ""
    runtime: bool = False
    needs_plan: bool = False
    live: Any = None

    def with_those_of(self, other: Feature) -> Feature:
        """Return what both want together, ``live`` excepted. Both may want the watcher."""
        both: dict[str, Any] = {}
        for field in dataclasses.fields(Feature):
            value, more = getattr(self, field.name), getattr(other, field.name)
            if field.default == ():
                both[field.name] = value + tuple(member for member in more if member not in value)
            elif field.name != "live":
                both[field.name] = value or more
        return Feature(**both)

    def document(self) -> FilesAndUnits:
        """Return the options of module host_files as plain data."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        for name in ("notes", "needs_plan", "live"):
            del plain[name]
        return cast("FilesAndUnits", {**plain, "runtime": self.runtime or self.needs_plan})


def no_effect(setting: str, where: str = "") -> str:
    """Return how a sentence on a variable begins that changes nothing there."""
    return f"{setting} has no effect on {where}"


def managed(path: str, text: str) -> FileEntry:
    """Return a file of the collection whose first line says whose it is."""
    return {"path": path, "content": FIRST_LINE + text, "mode": "0644"}


def unit(name: str, text: str) -> FileEntry:
    """Return a unit file or a drop-in (``x.service.d/50-npu-affinity.conf``)."""
    return managed(f"{UNIT_FOLDER}/{name}", text)


def oneshot(does: str, condition: str, command: str, limit: object, order: str = "", target: str = "") -> str:
    """Return the text of a service that runs a command if the file ``condition`` is there; ``target``: the one that starts it at boot."""
    return (
        f"[Unit]\nDescription={does}\n{order}ConditionPathExists={condition}\n\n"
        f"[Service]\nType=oneshot\n{ENVIRONMENT}ExecStart={command}\nTimeoutStartSec={limit}\n"
        + (f"\n[Install]\nWantedBy={target}\n" if target else "")
    )


def timer(does: str, first: str, interval: str, accuracy: str) -> str:
    return (
        f"[Unit]\nDescription={does}\n\n[Timer]\nOnActiveSec={first}\nOnUnitActiveSec={interval}\nAccuracySec={accuracy}\n\n"
        "[Install]\nWantedBy=timers.target\n"
    )


def of_values(
    feature: HostFeature,
    live: Any,
    python: str,
    does: str,
    order: str = BOOT_ORDER,
    target: str = "multi-user.target",
    limit: str = "10min",
    **more: Any,
) -> Feature:
    """Return what a feature of values adds: what it sets (``live``), its file, and the unit that sets it at boot.

    ``does``, ``order``, ``target`` and ``limit`` of time: what the unit says of itself.
    """
    file, name = feature.owned[0], service(feature.name)
    text = oneshot(does, file, f"{python} -m npu_affinity {feature.name}", limit, order, target)
    content = previous.dump(f"{MARKER}: {feature.name} is set at boot. Changes are overwritten.", live)
    return Feature(
        files=({"path": file, "content": content, "mode": "0644"}, unit(name, text)),
        enabled=(name,),
        python=python,
        runtime=True,
        live=live,
        **more,
    )


def watched(settings: FileEntry, python: str, **more: Any) -> Feature:
    """Return what a feature adds whose work is placed when it starts: its settings, and the watcher, which features share."""
    text = (
        "[Unit]\nDescription=Place what uses NPUs when it starts\n"
        f"ConditionPathExists={PLAN}\n\n"
        "# It reads the events of the initial namespaces: no PrivateNetwork=, PrivateUsers= or PrivatePIDs=\n"
        f"[Service]\nType=exec\n{ENVIRONMENT}Environment=PYTHONUNBUFFERED=1\n"
        f"ExecStart={python} -m npu_affinity watch\nExecStopPost={python} -m npu_affinity watch --end\n"
        "Restart=on-failure\nRestartSec=30\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    return Feature(
        files=(unit(WATCH_SERVICE, text), settings),
        enabled=(WATCH_SERVICE,),
        started=(WATCH_SERVICE,),
        restarted=({"unit": WATCH_SERVICE, "files": [ARCHIVE, f"{UNIT_FOLDER}/{WATCH_SERVICE}", OF_ADOPT, OF_THREADS, HOUSEKEEPING]},),
        python=python,
        needs_plan=True,
        **more,
    )


def assignments(settings: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    pairs = settings.items() if isinstance(settings, Mapping) else settings
    return "".join(f"{key}={value}\n" for key, value in pairs)

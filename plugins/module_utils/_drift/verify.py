# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as drift: :func:`verify` has every comparison of a host with its plan and with what a bind writes, in order.

How each is done is in the file of its subject next to this one, the likely causes are in ``causes``, the words in ``sentences``. Nothing is
written, and systemd is never asked to reload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from .._host.host import Host
from .._state.plan_file import with_lost
from .._state.systemd import Systemd
from .._kernel.machine import slice_path
from .._features.kubelet.pending import pending
from .._features.vnpu.layout import Layout, complete
from .driver import check_device_share, check_interrupts
from .files import check_executables, check_files, check_layout, check_programs
from .._base.device import Device
from .findings import Findings
from .hugepages import check_hugepages
from .nic import check_nics
from .plan import check_new_npus, check_npus, check_plan
from .soft_split import check_soft_split
from .threads import check_threads
from .._users.finding import users
from .tuning import check_tuning
from .units import available, check_cpusets, check_failures, check_services, check_units
from .users import check_users

if TYPE_CHECKING:
    from .._base.documents import FileEntry, Plan


class Wanted(NamedTuple):
    """What a host is compared with."""

    files: Sequence[FileEntry] = ()
    """These and ``owned``: as :class:`_transaction.request.Request` has them."""
    owned: Sequence[str] = ()
    binding: Mapping[str, Any] = {}
    """What feature slices wants, with the sets that the kernel must grant (``expected``)."""
    enabled: Sequence[str] = ()
    """Further units that start at boot, ``started`` that run, ``stopped`` that do neither."""
    started: Sequence[str] = ()
    stopped: Sequence[str] = ()
    interrupts: bool = True
    """Whether to look at them."""
    device_share: Mapping[str, Any] | None = None
    """With ``topology`` and ``npu_smi`` as :func:`_drift.driver.check_device_share` has them, where it is looked at."""
    topology: Mapping[str, Any] | None = None
    npu_smi: str | None = None
    must_be_bound: bool = False
    """Whether a host without a plan is drift."""
    threads: Mapping[str, Any] | None = None
    """``{processes, patterns}`` of :func:`threads.placing.place`, where the threads of processes are looked at."""
    layout: Layout | None = None
    """The directories and files for soft split that the host should have."""
    tuning: Mapping[str, str | int] | None = None
    """``{setting: value}`` as :func:`tuning.host_settings.settle` has them."""
    hugepages: Mapping[str, Any] | None = None
    """``{size, nodes}`` as :func:`_drift.hugepages.check_hugepages` has them."""
    nic: Mapping[str, Any] | None = None
    """``{mode, functions}`` as :func:`_drift.nic.check_nics` has them."""
    irq_failure: str = "fail"
    """``warn`` where interrupts that cannot be bound are not drift."""
    programs: Sequence[str] = ()
    """Paths of what units start."""
    soft_split: str | None = None
    """The directory of hami-vnpu-core, where containers share NPUs."""
    pending: Mapping[str, Any] = {}
    """What features want that waits for the controller."""


def verify(host: Host, wanted: Wanted, given: Plan | None = None) -> tuple[bool, Findings]:
    """Return ``(whether the host was ever bound, Findings)``. ``given`` is a plan to compare with instead of the one in force.

    Raises ``OSError``, ``ValueError`` or ``CommandError`` for what could not be compared, such as a file that may not be read.
    """
    findings = Findings()
    plan, bound = check_plan(findings, host, given, wanted.owned, wanted.must_be_bound)
    if plan is None:
        return bound, findings
    binding = wanted.binding
    findings.devices = _devices_of_units(plan, binding)
    online = available(host)["cpus"]
    present = (wanted.topology or {}).get("npus") or []
    there = check_npus(findings, host, plan, online, present)
    check_new_npus(findings, plan, present)
    edited = check_files(findings, host, wanted.files, wanted.owned)
    check_programs(findings, host, wanted.programs)
    check_executables(findings, host, wanted.files)
    systemd = Systemd(host)
    texts = {entry["path"]: entry["content"] for entry in wanted.files}
    enabled, started = [*binding.get("enabled", ()), *wanted.enabled], [*binding.get("started", ()), *wanted.started]
    idle = set(check_units(findings, host, systemd, texts, enabled, started, wanted.stopped))
    check_failures(findings, host)
    expected, services = binding.get("expected", ()), binding.get("services", ())
    others = [entry["unit"] for entry in expected if entry["unit"] not in started]
    idle.update(unit for unit in others if host.answers and systemd.cgroup(unit) is None)  # gets its sets when it starts
    host_binds = binding.get("bound_by", "host") == "host"
    with_sets = check_services(findings, host, systemd, services, edited, expected, bool(plan.get("lost")), host_binds)
    running = [entry for entry in expected if entry["unit"] not in idle]
    check_cpusets(findings, host, systemd, running + with_sets, edited, host_binds)
    check_tuning(findings, host, wanted.tuning or {})
    if wanted.hugepages:
        check_hugepages(findings, host, wanted.hugepages)
    if wanted.interrupts:
        check_interrupts(findings, host, plan, online, there, wanted.irq_failure == "warn")
    if wanted.nic:
        check_nics(findings, host, wanted.nic, online, wanted.irq_failure == "warn")
    if wanted.device_share and any(Device.of(npu).kind == "npu" for npu in plan["npus"]):
        check_device_share(findings, host, wanted.device_share, wanted.topology, wanted.npu_smi)
    if wanted.threads:
        check_threads(findings, host, plan, wanted.threads["processes"], wanted.threads["patterns"])
    if wanted.layout:
        check_layout(findings, host, wanted.layout)
    if wanted.soft_split:
        ours = ["%s/%s" % (wanted.layout.folder, name) for name in complete(wanted.layout).files] if wanted.layout else []
        check_soft_split(findings, host, wanted.soft_split, binding.get("vnpus") or (), idle, ours)
    if "kubelet" in wanted.pending:
        findings.pending = pending(host, wanted.pending["kubelet"])
        findings.remarks += findings.pending
    found = wanted.topology["users"] if wanted.topology and "users" in wanted.topology else users(host, with_lost(plan))
    check_users(findings, host, plan, found, host_binds, [*(entry["unit"] for entry in expected), *(entry["name"] for entry in services)])
    return bound, findings


def _devices_of_units(plan: Plan, binding: Mapping[str, Any]) -> dict[str, Device]:
    """Return whose each slice of the plan is, and each service, slice and limiter in one of these."""
    slices = {npu["slice"]: Device.of(npu) for npu in plan["npus"] if npu.get("slice")}
    homes = {service["name"]: service["settings"].get("Slice") for service in binding.get("services") or ()}
    homes.update((unit, vnpu["slice"]) for vnpu in binding.get("vnpus") or () for unit in (vnpu["slice"], vnpu.get("limiter")) if unit)
    above = {unit: [name for name in slice_path(home).split("/") if name in slices] for unit, home in homes.items() if home}
    return {**slices, **{unit: slices[names[0]] for unit, names in above.items() if names}}

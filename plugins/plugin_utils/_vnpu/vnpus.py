# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vNPUs without Kubernetes: containers of one host that share NPUs, each with its part of the memory, of the compute and of the CPUs.

One with a ``template`` is a hard vNPU, a fixed part of an NPU that its driver makes and limits; what it needs is what npu-smi says of the
host's templates. The others share an NPU in soft split.

What is enforced in soft split, and by whom: memory and compute by hami-vnpu-core's library in the container and its limiter
(Project-HAMi/hami-vnpu-core@f795831b), which read them from variables; CPUs by a slice inside that of the NPU. Nobody but this code adds
the parts up: HAMi's rules do it (:mod:`_vnpu.fit`).

CPUs: the cores of the NPU's pool outside its IRQ CPUs are laid in a row, and each vNPU gets the next ones in proportion to its compute. A
vNPU that is added at the end of the list moves nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ARM
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.device_files import parts
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import device_number, unknown_device
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import OLDEST_DRIVER, is_older
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.layout import IN_CONTAINER
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import NAME, Entry, find, is_lost, kind_and_number, members
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import shown, slices_of, title, unknown_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import fit
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import BY_NAME, Request

Vnpu = Entry
_MOST = {"310p": 8}
"""Parts of an NPU by its family, where that is not all for which there are ids."""
_NEVER = {"310": "a 310", "a5": "a 950"}
Refusal = tuple[str, str]
"""Its code, and a sentence without the variable."""
VARIABLE = "npu_affinity_vnpus"
ENVIRONMENT_FOLDER = "/etc/npu-affinity/vnpu"
RUNTIME_FOLDER = "/run/npu-affinity/vnpu"
SHARED_REGION, LOCAL_REGION, LIBRARY = "/hami-shared-region", "/hami-vnpu-shmem", IN_CONTAINER
"""Where a container has what the library and the limiter use, as HAMi's device plugin mounts it."""
_FIELDS = ("name", "npu", "memory_mib", "core", "unit", "template")


def is_hard(vnpu: Vnpu) -> bool:
    return bool(vnpu.get("template"))


def _templates_of(topology: Topology, npu: Vnpu) -> tuple[dict[str, Vnpu], int]:
    """Return the templates of an NPU by name, and its AI cores, 0 where npu-smi does not tell them."""
    splits, name = topology.get("vnpus") or {}, str(npu.get("name"))
    return {template["name"]: template for template in splits.get("templates", {}).get(name) or ()}, splits.get("ai_cores", {}).get(name, 0)


def with_names(wanted: Sequence[Vnpu]) -> list[Vnpu]:
    """Return vNPUs, each with a name: a hard one need not have any, and is then called by its place in the list."""
    return [vnpu if vnpu.get("name") or not is_hard(vnpu) else {**vnpu, "name": f"vnpu-{place}"} for place, vnpu in enumerate(wanted)]


def refusals(
    topology: Topology,
    plan: Plan,
    wanted: Sequence[Vnpu],
    bound_by: str = "host",
    whole: Mapping[str, Iterable[Any]] | None = None,
    device_share: bool | None = None,
) -> list[Sentence]:
    """Return one sentence for everything that keeps these vNPUs from being set up.

    ``whole`` maps services and workloads to the NPUs that they use as a whole. ``device_share``: whether the same bind switches it on;
    None where that is not known.
    """
    coded: list[Refusal] = [("NPU_SETTING_INVALID", sentence) for vnpu in wanted for sentence in _shape(vnpu)]
    if wanted and not coded:
        coded = [*_of_names(plan, wanted), *_of_host(topology, bound_by, [vnpu for vnpu in wanted if not is_hard(vnpu)])]
    coded = coded or _of_npus(topology, plan, wanted, whole or {}, device_share)
    return [Sentence(code, f"{VARIABLE}: {text}") for code, text in coded]


def _of_names(plan: Plan, wanted: Sequence[Vnpu]) -> Iterator[Refusal]:
    names = [_plain(vnpu) for vnpu in wanted]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield "NPU_SETTING_INVALID", f"{name} is named more than once; file names contain it, and '-' and '_' count as the same."
    for vnpu in wanted:
        if unknown := unknown_npus(VARIABLE, vnpu["name"], [vnpu["npu"]], plan):
            yield unknown.code, unknown.removeprefix(f"{VARIABLE}: ")
        elif len(find(plan, vnpu["npu"])) > 1:
            yield "NPU_SETTING_INVALID", f"{vnpu['name']} names the NPUs of a whole card ({shown(vnpu['npu'])}); add the chip."


def _of_npus(
    topology: Topology, plan: Plan, wanted: Sequence[Vnpu], whole: Mapping[str, Iterable[Any]], device_share: bool | None
) -> list[Refusal]:
    groups = _by_npu(plan, wanted)
    coded: list[Refusal] = []
    for user, npus in whole.items():
        used = slices_of(plan, npus)
        if shared := [title(entry) for entry, _members in groups if entry["slice"] in used]:
            coded.append(("NPU_CLAIMED_TWICE", f"{' and '.join(shared)} is shared, and {user} uses all of it; move one of them."))
    for entry, sharing in groups:
        if _number(topology, plan, entry) is None:
            coded.append(("NPU_DEVICE_UNKNOWN", f"{unknown_device(kind_and_number(entry['slice'])[1], entry)}."))
        if is_lost(plan, entry):
            continue
        npu, hard = _npu_of(topology, entry), [vnpu for vnpu in sharing if is_hard(vnpu)]
        if not hard:
            coded += [*_cannot_be_shared(npu, title(entry), device_share), *_overcommitted(topology, entry, sharing)]
        elif len(hard) < len(sharing):
            coded.append(("NPU_CLAIMED_TWICE", f"{title(entry)} has hard vNPUs and soft ones; use one of the two on an NPU."))
        else:
            coded += _cannot_be_split(topology, npu, title(entry), hard)
        if hard and not coded:
            coded += _without_cores(topology, entry, sharing)
    return coded


def _cannot_be_split(topology: Topology, npu: Vnpu, name: str, wanted: Sequence[Vnpu]) -> Iterator[Refusal]:
    """Yield ``(code, sentence)`` for what keeps an NPU from being split so."""
    templates, cores = _templates_of(topology, npu)
    if not templates or not cores:
        what = f"is {_NEVER[npu['family']]}, which has none" if npu.get("family") in _NEVER else "lists no templates by npu-smi"
        look = f"see npu-smi info -t template-info -i {npu.get('card')} -c {npu.get('chip')}"
        yield "NPU_VNPU_UNSUPPORTED", f"{wanted[0]['name']} is to be a hard vNPU of {name}, which {what}; {look}."
        return
    if unknown := sorted({vnpu["template"] for vnpu in wanted} - templates.keys()):
        yield "NPU_SETTING_INVALID", f"{name} has no template {' and '.join(unknown)}; it has {', '.join(sorted(templates))}."
        return
    sizes = [templates[vnpu["template"]] for vnpu in wanted]
    asked, memory = sum(size["aicore"] for size in sizes), 1024 * sum(size["memory_gib"] or 0 for size in sizes)
    most = _MOST.get(str(npu.get("family")), len(parts(0)))
    if asked > cores or len(wanted) > most or (npu.get("memory_mib") and memory > npu["memory_mib"]):
        yield (
            "NPU_VNPU_TOO_LARGE",
            f"{' and '.join(vnpu['name'] for vnpu in wanted)} want {asked} AI cores and {memory} MiB of {name}, which has {cores} and "
            f"{npu.get('memory_mib')} MiB for up to {most} hard vNPUs; use smaller templates, or another NPU.",
        )


def _hard_parts(topology: Topology, npu: Vnpu, device: int, wanted: Sequence[Vnpu]) -> list[dict[str, Any]]:
    """Return what each hard vNPU of an NPU is and what its container gets, in the order in which they are named.

    A vNPU of that template that is there already is taken, the lowest id first; a new one has the lowest id that is free.
    """
    templates, cores = _templates_of(topology, npu)
    existing = {part["id"]: part["template"] for part in npu.get("parts") or ()}
    free = [number for number in parts(device) if number not in existing]
    made = []
    for vnpu in wanted:
        alike = [number for number, template in sorted(existing.items()) if template == vnpu["template"]]
        number = (alike or free).pop(0)
        existing.pop(number, None)
        size = templates[vnpu["template"]]
        made.append(
            {
                "vnpu_id": number,
                "template": vnpu["template"],
                "memory_mib": 1024 * (size["memory_gib"] or 0),
                "core": 100 * size["aicore"] // cores,
                "environment": {"ASCEND_VISIBLE_DEVICES": str(number), "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"},
                "devices": [f"/dev/vdavinci{number}:/dev/davinci{number}"],
            }
        )
    return made


def _number(topology: Topology, plan: Plan, entry: Entry) -> int | None:
    """Return the number of an NPU's device file, of a lost one as the plan remembers it."""
    return device_number(entry if is_lost(plan, entry) else {**entry, **_npu_of(topology, entry)})


def _of_host(topology: Topology, bound_by: str, soft: Sequence[Vnpu]) -> Iterator[Refusal]:
    """Yield why a host cannot have any vNPU, or none in soft split."""
    if bound_by != "host":
        yield "NPU_WORKERS_CONFLICT", "vNPUs have slices inside those of their NPUs; set npu_affinity_bound_by to host."
    if not soft:
        return
    version = (topology.get("driver") or {}).get("version")
    if version and is_older(version, OLDEST_DRIVER):
        yield "NPU_DRIVER_TOO_OLD", f"the Ascend driver is {version}, and {OLDEST_DRIVER} or newer is required; update the driver first."
    if obstacle := unsupported(topology):
        yield "NPU_VNPU_UNSUPPORTED", f"{obstacle}."


def _by_npu(plan: Plan, wanted: Sequence[Vnpu]) -> list[tuple[Entry, list[Vnpu]]]:
    """Return the entries of the plan that vNPUs are parts of, each with its vNPUs in the order in which they are named."""
    entries, _unknown = members(plan, [vnpu["npu"] for vnpu in wanted])
    return [(entry, [vnpu for vnpu in wanted if find(plan, vnpu["npu"])[0]["slice"] == entry["slice"]]) for entry in entries]


def unsupported(topology: Topology) -> str:
    """Return why soft split cannot run on a host at all, or ''."""
    architecture = (topology.get("machine") or {}).get("architecture")
    if architecture and architecture not in ARM:
        return f"soft split needs hami-vnpu-core, which there is for Arm only, and this host is {architecture}"
    return ""


def _cannot_be_shared(npu: Entry, name: str, device_share: bool | None) -> Iterator[Refusal]:
    if without_share(npu):
        yield (
            "NPU_VNPU_UNSUPPORTED",
            f"{name} is a {npu.get('name') or 'chip of the family 910'}, whose driver has no device share, so that containers cannot "
            "share it; give it to one service as a whole.",
        )
    elif npu.get("device_share") is False and device_share is False:
        yield (
            "NPU_DEVICE_SHARE_OFF",
            f"device share of {name} is off and stays off, and a second container cannot open it; set npu_affinity_device_share_enabled "
            "to true.",
        )


def without_share(npu: Entry) -> bool:
    """Whether the chip is one of the family before A2 (910A, 910 Pro), which does not know device share."""
    return npu.get("family") == "910" or str(npu.get("name")) == "910A"


@remark("NPU_VNPU_UNSURE")
def inconsistencies(topology: Topology, plan: Plan, wanted: Sequence[Vnpu], device_share: bool | None = None) -> list[str]:
    """Return one sentence for everything that may keep these vNPUs from working. They must not be :func:`refusals`."""
    sentences = []
    if any(_npu_of(topology, find(plan, vnpu["npu"])[0]).get("family") == "a3" for vnpu in wanted if is_hard(vnpu)):
        sentences.append(
            f"{VARIABLE}: whether npu-smi can split an A3 is not confirmed: the published driver refuses it. A bind tries, and fails if "
            "info-vnpu then lists no such vNPU."
        )
    wanted = [vnpu for vnpu in wanted if not is_hard(vnpu)]
    if not wanted:
        return sentences
    if not (topology.get("driver") or {}).get("version"):
        sentences.append(
            f"{VARIABLE}: the version of the Ascend driver is not known, and soft split needs {OLDEST_DRIVER} or newer; run npu-smi info."
        )
    entries = [entry for entry, _members in _by_npu(plan, wanted) if not is_lost(plan, entry)]
    for state, words in ((False, "is off"), (None, "is not known")):
        npus = [title(entry) for entry in entries if _npu_of(topology, entry).get("device_share") is state]
        if npus and device_share is not True:
            sentences.append(
                f"{VARIABLE}: device share of {' and '.join(npus)} {words}; while it is off, a second container cannot open the NPU. "
                "npu_affinity_device_share_enabled: true switches it on for the cards in npu_affinity_device_share_npus."
            )
    return sentences


def _shape(vnpu: Vnpu) -> Iterable[str]:
    name = str(vnpu.get("name", ""))
    if not NAME.fullmatch(name):
        yield f"'{name}' is not a name; use letters, digits, '_', '.' and '-'."
    if unknown := sorted(set(vnpu) - set(_FIELDS)):
        yield f"{name} has unknown settings {', '.join(unknown)}; there are {', '.join(_FIELDS)}."
    if vnpu.get("npu") is None:
        yield f"{name} names no NPU."
    if is_hard(vnpu):
        if set(vnpu) & {"memory_mib", "core"}:
            yield f"{name} has a template, which sets memory and compute; leave memory_mib and core out."
        return
    for key, least, most in (("memory_mib", 1, None), ("core", 1, 100)):
        value = vnpu.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
            yield f"{key} of {name} must be a whole number {f'from {least} to {most}' if most else f'from {least} on'}; it is {value!r}."


def _overcommitted(topology: Topology, entry: Entry, wanted: Sequence[Vnpu]) -> Iterator[Refusal]:
    """Yield why the vNPUs of one NPU do not fit with those named before them."""
    in_topology, npu = _npu_of(topology, entry), title(entry)
    memory, chip = in_topology.get("memory_mib") or 0, BY_NAME.get(str(in_topology.get("name")))
    memory = min(chip.allocatable, memory) if chip else memory  # what HAMi knows of the chip, and never more than npu-smi tells
    if npu.startswith("GPU") or not memory:
        reason = "and only NPUs can be shared" if npu.startswith("GPU") else "whose memory npu-smi does not report"
        yield "NPU_VNPU_UNSUPPORTED", f"{wanted[0]['name']} wants a part of {npu}, {reason}."
        return
    requests = [Request(memory_mb=vnpu["memory_mib"], core=vnpu["core"]) for vnpu in wanted]
    results = fit.fit_all([{"id": npu, "total_memory_mb": memory, "slots": len(wanted)}], requests, fit.Rules(soft=True, node_soft=True))
    for vnpu, result in zip(wanted, results, strict=True):
        if result.reason:
            before = [other for other, fitted in zip(wanted, results, strict=True) if fitted.devices and other is not vnpu]
            used = ", ".join(f"{other['name']} {other['memory_mib']} MiB and {other['core']} %" for other in before) or "nobody"
            word = next(iter(result.reasons.values()))
            yield (
                "NPU_VNPU_TOO_LARGE",
                f"{vnpu['name']} wants {vnpu['memory_mib']} MiB and {vnpu['core']} % of {npu}, which has {memory} MiB and 100 % and serves "
                f"{used} ({word}); give less, or another NPU.",
            )
            return
    yield from _without_cores(topology, entry, wanted)


def _without_cores(topology: Topology, entry: Entry, wanted: Sequence[Vnpu]) -> Iterator[Refusal]:
    """Yield why the first vNPU of an NPU would get no core of its pool."""
    cores = _cores(topology, entry)
    shares = _shares(cores, *_weights(topology, entry, wanted))
    vnpu = next((vnpu for vnpu, share in zip(wanted, shares, strict=True) if not share), None)
    if vnpu and is_hard(vnpu):
        yield (
            "NPU_VNPU_TOO_LARGE",
            f"the share of {vnpu['template']} for {vnpu['name']} is not a whole core of the pool of {title(entry)}, which has {len(cores)} "
            "outside interrupts; give the NPU more CPUs.",
        )
    elif vnpu:
        least = -(-100 // len(cores)) if cores else 100
        yield (
            "NPU_VNPU_TOO_LARGE",
            f"{vnpu['core']} % of {title(entry)} for {vnpu['name']} is not a whole core of its pool, which has {len(cores)} outside "
            f"interrupts; ask for {least} or more, or for fewer vNPUs.",
        )


def _weights(topology: Topology, entry: Entry, wanted: Sequence[Vnpu]) -> tuple[list[int], int]:
    """Return how much of an NPU's compute each vNPU gets, and how much there is: AI cores of hard ones, else percent."""
    if not is_hard(wanted[0]):
        return [vnpu["core"] for vnpu in wanted], 100
    templates, cores = _templates_of(topology, _npu_of(topology, entry))
    return [templates[vnpu["template"]]["aicore"] for vnpu in wanted], cores


def _npu_of(topology: Topology, entry: Entry) -> Entry:
    """Return what the topology says of an NPU of the plan, by its present logic id; nothing where it says nothing."""
    kind, _number = kind_and_number(entry["slice"])
    return next((npu for npu in topology["npus"] if npu["id"] == entry["id"] and npu.get("kind", "npu") == kind), {})


def _cores(topology: Topology, entry: Entry) -> list[list[int]]:
    """Return the cores of an NPU's pool, as lists of CPUs in the order of the pool, without those that take its interrupts."""
    siblings = {cpu: core for text in (topology.get("cpus") or {}).get("siblings") or () for core in [expand(text)] for cpu in core}
    pool, irq = expand(entry["pool"]), set(expand(entry.get("irq") or ""))
    cores: dict[int, list[int]] = {}
    for cpu in pool:
        cores.setdefault(min(siblings.get(cpu, [cpu])), []).append(cpu)
    return [core for core in cores.values() if not irq & set(core)]


def _shares(cores: Sequence[Sequence[int]], weights: Sequence[int], whole: int) -> list[list[int]]:
    """Return the CPUs of every vNPU: the cores from where the one before ended, each end being that part of all, rounded down."""
    ends = [len(cores) * sum(weights[: count + 1]) // whole for count in range(len(weights))]
    return [[cpu for core in cores[start:end] for cpu in core] for start, end in zip([0, *ends], ends, strict=False)]


def _plain(vnpu: Vnpu) -> str:
    """Return the name as the part of a slice's name, where '-' stands between a slice and the one around it."""
    return str(vnpu["name"]).replace("-", "_")


def vnpus(topology: Topology, plan: Plan, wanted: Sequence[Vnpu], limiter: bool = True) -> list[dict[str, Any]]:
    """Return the vNPUs with what they get, in the order in which they are named, as RETURN of filter vnpus describes them.

    They must not be :func:`refusals`, and have no ``volumes`` yet (:func:`mounts`). Without ``limiter`` none has one.
    """
    result = []
    for entry, sharing in _by_npu(plan, wanted):
        node = _number(topology, plan, entry)
        shares = _shares(_cores(topology, entry), *_weights(topology, entry, sharing))
        hard = _hard_parts(topology, _npu_of(topology, entry), int(node or 0), sharing) if is_hard(sharing[0]) else [{}] * len(sharing)
        for vnpu, share, part in zip(sharing, shares, hard, strict=True):
            quota = part or {"memory_mib": vnpu["memory_mib"], "core": vnpu["core"], "environment": _environment(vnpu, node, limiter)}
            result.append(
                {
                    "name": vnpu["name"],
                    "npus": [entry["id"]],
                    "of": title(entry),
                    "unit": vnpu.get("unit") or None,
                    "slice": f"{entry['slice'].removesuffix('.slice')}-{_plain(vnpu)}.slice",
                    "pool": compress(share),
                    "mems": entry["mems"],
                    "memory_nodes": memory_nodes(entry),
                    "file": f"{ENVIRONMENT_FOLDER}/{vnpu['name']}.env",
                    "limiter": f"npu-affinity-limiter-{vnpu['name']}.service" if limiter and not part else None,
                    **quota,
                }
            )
    order = {vnpu["name"]: place for place, vnpu in enumerate(wanted)}
    return sorted(result, key=lambda vnpu: order[vnpu["name"]])


def _environment(vnpu: Vnpu, node: int | None, limiter: bool) -> dict[str, str]:
    local = {"NPU_LOCAL_SHM_PATH": f"{LOCAL_REGION}/vnpu_local_shmem"} if limiter else {}
    return {
        "ASCEND_VISIBLE_DEVICES": str(node),
        "NPU_GLOBAL_SHM_PATH": f"{SHARED_REGION}/{node}_global_registry",
        "NPU_MEM_QUOTA": str(vnpu["memory_mib"]),
        "NPU_PRIORITY": str(vnpu["core"]),
        **local,
    }


def mounts(vnpu: Vnpu, folder: str, shared_region: str) -> list[str]:
    """Return the volumes ``host:container[:ro]`` of a vNPU's container, as HAMi's device plugin has them.

    The preload file is mounted in the container's ``/etc``, not in that of the host, where it would be loaded into every program. With a
    limiter on the host, the directory that it shares with the container is also the container's ``/dev/shm``, where older libraries look.
    """
    if is_hard(vnpu):
        return []
    volumes = [f"{folder}:{LIBRARY}:ro", f"{folder}/ld.so.preload:/etc/ld.so.preload:ro", f"{shared_region}:{SHARED_REGION}"]
    local = f"{RUNTIME_FOLDER}/{vnpu['name']}"
    return volumes + ([f"{local}:{LOCAL_REGION}", f"{local}:/dev/shm"] if vnpu["limiter"] else [])

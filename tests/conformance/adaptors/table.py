# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every family of cases and the check that gives them to the collection."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator

import pytest
from adaptors import placement, plans, recipes, recorded, texts, unit_cases, vnpus
from adaptors.checks import compares, contains, require_known, returns, skipped

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import state_file
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import superpods, trees
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import fit

Cases = Iterator[tuple[str, Callable[[], None]]]


def exactly(expected: dict, message: str) -> bool:
    return message == expected.get("error")


HOST_PLANS = "pools_by_npu errors_by_npu overlapping_cpus unused_cpus overlap"
FAMILIES = {
    "ascend_affinity_cases": {
        "pick": returns(placement.pick, contains, "chips"),
        "node_scores": returns(placement.score, field="score"),
        "soft_share": returns(placement.soft_share, lambda expected, message: expected["chip"] is None and "no fit" in message),
        "superpod": returns(
            placement.superpod, lambda expected, message: bool(expected["error_prefix"]) and message.startswith(expected["error_prefix"])
        ),
        "job_sizes": returns(placement.job_size, field="ok"),
        "switch_pass_fail": skipped("the case does not hold the map of switches; tests/unit has maps of its own for these numbers"),
    },
    "container_recipes": {
        **{form: recipes.check_of(form) for form in recipes.FORMS},
        "checks": compares(
            recipes.statement,
            "cgroup_parent driver container_cpus slice_cpus host_cpus cgroup kubelet binding total_npus",
            "ok message effective",
        ),
        "cce_cpu_reservation": skipped("the collection reads what a node's kubelet reserves and does not compute what CCE would reserve"),
    },
    "cpu_manager_state_cases": {
        "published": compares(placement.state, "format file text", "checksum_follows_rule valid"),
        "broken": compares(placement.state, "format file text", "valid"),
        "checksums": returns(placement.checksums),
        "data_checksums": returns(lambda data: state_file.fnv1a("(string)" + data), field="dataChecksum"),
    },
    "device_share_cases": {
        "query": compares(vnpus.query, "args rc stdout", "kind cards enabled"),
        "set": compares(vnpus.set_command, "args stdin rc stdout", "ok why"),
        "persistence_file": skipped("the boot unit sets device share again; the collection does not read the driver's own recovery"),
        "plan": returns(vnpus.changes, field="commands"),
    },
    "even_split_cases": {
        "cases": compares(
            plans.even_split,
            "machine method devices_per_node reserved allowed task_devices",
            "shares cpus mems cpus_per_node error",
            lambda expected, message: "error" in expected,
        ),
    },
    "hami_chips": {
        "chips": vnpus.chip,
        "mindcluster_template_names": skipped("the names come from the driver: npu-smi info -t template-info"),
    },
    "hami_fit_cases": {
        "rounding": returns(vnpus.rounding, exactly),
        "admission": returns(
            lambda chip, count, memory_mb=None, core=None, mode=fit.HARD: fit.admit(fit.chip_of(chip), count, memory_mb, core, mode),
            exactly,
        ),
        "request_parsing": returns(
            lambda count, memory=None, core=None, memory_factor=1: fit.parse(count, memory, core, memory_factor) | {"rejected": False},
            lambda expected, message: expected.get("rejected", False),
        ),
        "fit": returns(vnpus.fit),
        "slots_per_card": returns(
            lambda memory_allocatable_mb, template_memory_mb, vDeviceCount=0: fit.slots(
                memory_allocatable_mb, tuple(template_memory_mb), vDeviceCount
            ),
            field="slots",
        ),
        "usage_sum": returns(lambda used, add: fit.charged(used, add["core"], add["memory_mb"])),
        "device_share_calls": returns(vnpus.share_calls),
    },
    "k8s_cpu_cases": {
        **dict.fromkeys(
            ("allocation", "reserved_and_checks"),
            returns(placement.allocation, lambda expected, message: (message, None) == (expected["error"], expected["cpus"]), field="cpus"),
        ),
        "free_units": compares(placement.free_units, "function topology available", "units order_matters"),
        "resize": skipped("the collection does not resize containers: the cases are those of a branch of the kubelet, of no release"),
    },
    "service_placement_cases": {
        "service_superpod": returns(placement.service_superpod, contains),
        "service_rack": compares(
            placement.service_rack, "free_nodes service_on nodes_per_block blocks_wanted", "racks superpods error all_in_one_rack", contains
        ),
        "rack_order": returns(lambda left, right: superpods.order(**left) < superpods.order(**right), field="left_first"),
        "service_label": returns(superpods.service_of, field="service"),
        "service_on": returns(lambda service, job, jobs: superpods.running(service, job, jobs, "superpods"), field="service_on"),
        "job_sizes_950": returns(
            placement.job_size_950, lambda expected, message: not expected["ok"] and expected["message"] in message, field="ok"
        ),
        "rack_job": compares(
            placement.rack_job,
            "free_nodes replicas nodes_per_block nodes_per_ra_block super_pod_size ub_memory strategy",
            "nodes_per_rack_by_superpod error",
            contains,
        ),
        "tree_config": returns(placement.tree_config, contains),
        "task_levels": returns(
            lambda affinity_config, replicas: list(map(list, trees.levels_of(affinity_config, replicas))), contains, "levels"
        ),
        "tree_place": returns(placement.tree_place, contains, "nodes_per_level1"),
    },
    "topology_manager_cases": {
        "cases": compares(placement.merge, "numa_nodes policies prefer_closest_numa distances providers", "nodes preferred admit"),
    },
    "vllm_ascend_host_plans": {
        "hosts": compares(plans.published_host, plans.HOST, HOST_PLANS),
        "hosts repaired": compares(plans.repaired_host, plans.HOST, HOST_PLANS),
    },
    "vllm_ascend_plans": {"cases": compares(plans.published, plans.INPUT, plans.EXPECTED, plans.refused)},
    "vllm_ascend_samples": {"samples": texts.sample},
    "vllm_ascend_unit_cases": {
        "pools": compares(
            unit_cases.pools,
            "step device_type allowed_cpus running total_npus all_logic_npus npu_affinity numa_map replaced_by_the_test cluster_size pools",
            "pools roles error skipped",
            contains,
        ),
        "parsers": compares(
            unit_cases.parser,
            "fn text value npu_map visible numa allowed",
            "value error",
            lambda expected, message: "error" in expected,
        ),
        "side_effects": unit_cases.side_effect,
    },
    "volcano_numa_cases": {
        "hints": skipped("the collection does not list all hints for CPUs: it merges those that decide"),
        "allocation": returns(placement.near_nodes, lambda expected, message: expected["cpus"] == "", field="cpus"),
        "placement": compares(placement.placement, "nodes request policy weight", "node fitting scores"),
        "scores": returns(placement.numa_scores, field="scores"),
    },
}
"""``{file: {section: check}}``. The second word of a section tells checks of the same cases apart."""
PROSE = {
    "ascend_affinity_cases": "free_means tables",
    "container_recipes": "plan compose_note cce_cpu_reservation_rule",
    "cpu_manager_state_cases": "checksum_rule collection_rule known_upstream_bug newest_branch validity_rules validity_messages",
    "device_share_cases": "facts busy exit_status",
    "even_split_cases": "rules machines options_for_the_8_card_machine why_kubelet_cannot",
    "hami_chips": "notes",
    "hami_fit_cases": "reason_format fit_order",
    "k8s_cpu_cases": "fields topologies",
    "service_placement_cases": "free_means fields ties tables",
    "topology_manager_cases": "fields",
    "vllm_ascend_host_plans": "listing",
    "vllm_ascend_plans": "encoding",
    "volcano_numa_cases": "score_rule document_oddity node_filter machines numatopology_crd exporter_reads",
}
"""What a file says besides its cases."""
FOLDERS = {
    "expected": texts.captures,
    "index": texts.answers,
    "npu_smi_runs": recorded.runs,
    "sysfs": recorded.trees,
    "vllm_ascend_command_texts": texts.command_texts,
}
"""Files that name other files of their folder."""


def cases(name: str, document: dict, folder: pathlib.Path) -> Cases:
    """Return ``(id, callable)`` for every case of a file; one that the table does not know is a skip."""
    if name in FOLDERS:
        return FOLDERS[name](document, folder)
    if name not in FAMILIES:
        return iter([("", functools.partial(pytest.skip, f"the table of families does not cover {name} yet"))])
    return _cases(name, document)


def _cases(name: str, document: dict) -> Cases:
    sections = {key.split()[0] for key in FAMILIES[name]}
    known = sections | set(f"about sources origin {PROSE.get(name, '')}".split())
    yield "fields", lambda: require_known(document, known, "the file")
    for key, check in FAMILIES[name].items():
        section = document.get(key.split()[0], [])
        entries = section if isinstance(section, list) and not isinstance(next(iter(section), {}), str) else [section]
        for entry in entries:
            yield f"{key} {_label(entry)}".strip(), functools.partial(check, entry, document)


def _label(entry: object) -> str:
    words = (entry.get(key, "") for key in ("chip_name", "id", "note")) if isinstance(entry, dict) else ()
    return " ".join(filter(None, words))

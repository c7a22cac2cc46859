# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is mutated, and the unit tests that concern it, those first that find most."""

from __future__ import annotations

SIZE = 200
"""So many mutants are drawn, spread over the files by how many each could have."""
SEED = 20261122
LEAST = 85
"""The percentage of mutants that the tests must find."""

HOST = "tests/unit/plugins/module_utils/"
MODULES = "tests/unit/plugins/modules/"
PLANNER = "tests/unit/plugins/plugin_utils/"

TARGETS = [
    *(
        (
            f"plugins/module_utils/_transaction/{name}.py",
            [
                HOST + "test_host_files.py",
                HOST + "test_programs.py",
                HOST + "test_unbind.py",
                HOST + "test_host_files_properties.py",
                HOST + "test_kubelet_config.py",
                MODULES + "test_host_files_module.py",
            ],
        )
        for name in ("host_files", "live_units", "moving_memory", "record", "request", "stopped_units")
    ),
    (
        "plugins/module_utils/_features/irq/binding.py",
        [HOST + "test_irq.py", HOST + "test_irq_properties.py", MODULES + "test_irq_affinity.py"],
    ),
    (
        "plugins/module_utils/_transaction/unbind.py",
        [
            HOST + "test_unbind.py",
            HOST + "test_placed_threads.py",
            HOST + "test_kubelet_config.py",
            MODULES + "test_unbind_module.py",
        ],
    ),
    (
        "plugins/module_utils/_state/journal.py",
        [HOST + "test_kubelet_config.py", HOST + "test_unbind.py", MODULES + "test_host_files_module.py"],
    ),
    (
        "plugins/plugin_utils/_plan/repair.py",
        [PLANNER + "test_plan.py", PLANNER + "test_plan_quality.py", PLANNER + "test_plan_applied.py", PLANNER + "test_plan_properties.py"],
    ),
    (
        "plugins/plugin_utils/_plan/strategies/*.py",
        [PLANNER + "test_plan.py", PLANNER + "test_kubelet_cpus.py", PLANNER + "test_plan_properties.py"],
    ),
]
"""(shell pattern of files, test files). Files that a checkout does not have are left out."""

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host code of a simulated host in a folder of the settings: bound, moved, compared, partly undone, and unbound."""

from __future__ import annotations

import pytest

pytest.importorskip("tests.simulator.generate")

from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._host import installed  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.library import with_library  # noqa: E402
from tests.unit.plugins.modules.test_desired_state import files_of, made, state_of  # noqa: E402

USUAL, OTHER, THIRD = installed.LIBRARY, "/var/lib/npu-affinity", "/opt/npu/code"
RECORD = "/etc/npu-affinity/previous.json"


@pytest.fixture
def root(tmp_path):
    return made(tmp_path)


@pytest.fixture
def bind(run_module, root):
    topology = gather(Host(str(root)))

    def run(library, *off, only=(), **options):
        state = with_library(state_of(topology, *off), library)
        return run_module("host_files", root=str(root), state=applied(state, only), **options)

    return run


def naming(root, library):
    """The files that lie in a folder of the host code, or name it."""
    texts = {path: text for path, text in files_of(root).items() if text and path != RECORD and not path.endswith(".zip")}
    return {path for path, text in texts.items() if path.startswith(library + "/") or library.encode() in text}


def test_all_files_name_the_folder_of_the_settings(bind, root, run_module):
    before = files_of(root)
    assert bind(OTHER)["changed"]
    found = files_of(root)
    assert naming(root, USUAL) == set() and not (root / "usr/local/bin/npu-affinity").exists()
    assert {f"{OTHER}/{name}" for name in ("npu_affinity.zip", "irqbalance-policy", "npu-affinity", "npu-affinity.bash")} <= found.keys()
    assert f'sys.path.insert(0, "{OTHER}/npu_affinity.zip")'.encode() in found[f"{OTHER}/npu-affinity"]
    assert f"--policyscript={OTHER}/irqbalance-policy".encode() in found["/etc/npu-affinity/irqbalance.env"]
    units = {path: text for path, text in found.items() if path.startswith("/etc/systemd/system/npu-affinity") and b"PYTHONPATH" in text}
    assert units and all(f"PYTHONPATH={OTHER}/npu_affinity.zip ".encode() in text for text in units.values())
    assert not bind(OTHER)["changed"]
    assert run_module("binding_info", root=str(root))["drift"] == []
    assert run_module("unbind", root=str(root))["changed"]
    assert files_of(root) == before and not (root / OTHER[1:]).exists()


@pytest.mark.parametrize(("first", "second"), [(USUAL, OTHER), (OTHER, USUAL), (OTHER, THIRD)])
def test_a_changed_setting_moves_the_code(bind, root, run_module, first, second):
    before = files_of(root)
    bind(first)
    predicted = bind(second, _ansible_check_mode=True)
    done = bind(second)
    assert (done["files"], done["removed"]) == (predicted["files"], predicted["removed"])
    assert f"{first}/npu_affinity.zip" in done["removed"] and f"{second}/npu_affinity.zip" in done["files"]
    assert naming(root, first) == set() and not (root / first[1:]).exists()
    assert not bind(second)["changed"]
    assert run_module("binding_info", root=str(root))["drift"] == []
    run_module("unbind", root=str(root))
    assert files_of(root) == before


def test_an_undone_feature_leaves_nothing_in_the_folder(bind, root, run_module):
    bind(OTHER, "nic")
    assert run_module("unbind", root=str(root), features=["irq"])["changed"]
    assert not (root / OTHER[1:] / "irqbalance-policy").exists() and (root / OTHER[1:] / "npu_affinity.zip").exists()
    assert bind(OTHER, "nic")["changed"]
    assert bind(OTHER, "nic", "irq")["changed"]
    assert not (root / OTHER[1:] / "irqbalance-policy").exists()


def test_one_feature_does_not_take_the_code_from_others(bind, root):
    bind(USUAL)
    before = files_of(root)
    result = bind(OTHER, only=["tuning"])
    assert result["failed"] and f"npu_affinity_library is {OTHER}, and the host code is in {USUAL}, where feature " in result["msg"]
    assert files_of(root) == before


def test_a_folder_that_every_user_can_write_is_refused(bind, root):
    (root / OTHER[1:]).mkdir(parents=True)
    (root / OTHER[1:]).chmod(0o1777)
    result = bind(OTHER)
    assert result["failed"] and f"every user can write to {OTHER}, and root runs the host code" in result["msg"]
    assert list((root / OTHER[1:]).iterdir()) == []

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it: what it says, in check mode too."""

from __future__ import annotations

FOLDER = "/usr/local/hami-vnpu-core"
FILES = [{"name": "libvnpu.so", "sha256": "0" * 64}, {"name": "limiter", "sha256": "1" * 64}]


def test_a_check_predicts_all_files_and_leaves_nothing_to_copy(run_module, tmp_path):
    arguments = {"root": str(tmp_path), "files": FILES}
    predicted = run_module("vnpu_layout", **arguments, _ansible_check_mode=True)
    assert list(tmp_path.iterdir()) == []
    assert (predicted["changed"], predicted["missing"]) == (True, [])
    assert predicted["files"] == [f"{FOLDER}/{name}" for name in ("libvnpu.so", "limiter", "ld.so.preload")]
    done = run_module("vnpu_layout", **arguments)
    assert (done["missing"], done["files"]) == (["libvnpu.so", "limiter"], [FOLDER + "/ld.so.preload"])
    assert predicted["diff"] == done["diff"]
    text = f"other files:\n  + {FOLDER}/  mode 0775\n  + /usr/local/hami-shared-region/  mode 1777\n"
    assert done["diff"] == [{"prepared": text}]


def test_what_cannot_be_is_a_sentence(run_module, tmp_path):
    result = run_module("vnpu_layout", root=str(tmp_path), folder="/etc/hami")
    assert result["msg"] == "the directory of hami-vnpu-core cannot be '/etc/hami': /etc is the host's own"
    assert "value of shared_mode must be one of: 1777, 0777" in run_module("vnpu_layout", root=str(tmp_path), shared_mode="0755")["msg"]

# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._nvidia_smi import parse_nvidia_csv, parse_nvidia_topo

LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
TOPOLOGIES = [
    pytest.param(
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV4\tSYS\t0-11,24-35\t0\t\tN/A\nGPU1\tNV4\t X \tPHB\t12-23,36-47\t1\t\tN/A\nNIC0\tSYS\tPHB\t X \n" + LEGEND,
        [("GPU0", "0-11,24-35", "0", {"GPU0": "X", "GPU1": "NV4"}), ("GPU1", "12-23,36-47", "1", {"GPU0": "NV4", "GPU1": "X"})],
        id="tabs, an underlined header, a network card",
    ),
    pytest.param(
        "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NODE    0,2,4,6         0-1             N/A\nGPU1    NODE     X      1,3             N/A             N/A\n",
        [("GPU0", "0,2,4,6", "0-1", {"GPU0": "X", "GPU1": "NODE"}), ("GPU1", "1,3", None, {"GPU0": "NODE", "GPU1": "X"})],
        id="tabs turned into blanks, the tool's own short list",
    ),
    pytest.param(
        "\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nmlx5_0\tPIX\t X \t\n",
        [("GPU0", "0-7", None, {"GPU0": "X"})],
        id="an older driver: no NUMA columns, network cards by name",
    ),
    pytest.param(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t\t1\nGPU1\tSYS\n",
        [("GPU0", None, "1", {"GPU0": "X", "GPU1": "SYS"}), ("GPU1", None, None, {"GPU0": "SYS"})],
        id="empty affinity, a row that ends early",
    ),
    pytest.param(
        "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS 1\nGPU1 SYS X 0-3\n",
        [("GPU0", None, None, {"GPU0": "X", "GPU1": "SYS"}), ("GPU1", "0-3", None, {"GPU0": "SYS", "GPU1": "X"})],
        id="a lone number without tabs: CPU or node, nobody knows",
    ),
    pytest.param("\tGPU0\r\nGPU0\t X \r\n", [("GPU0", None, None, {"GPU0": "X"})], id="nothing but links"),
]


@pytest.mark.parametrize("text, rows", TOPOLOGIES)
def test_topo(text, rows):
    assert parse_nvidia_topo(text) == [dict(zip(("label", "affinity", "numa", "links"), row)) for row in rows]


TABLES = [
    pytest.param(
        "index, uuid, pci.bus_id, name, memory.total [MiB], utilization.gpu [%]\n"
        "0, GPU-11aa, 00000000:0A:00.0, NVIDIA L40S, 46068 MiB, 3 %\n"
        "3, GPU-22bb, 00010000:C1:00.0, NVIDIA L40S, [N/A], [Not Supported]\n",
        [(0, "GPU-11aa", "0000:0a:00.0", "NVIDIA L40S", 46068), (3, "GPU-22bb", "10000:c1:00.0", "NVIDIA L40S", None)],
        id="units, other columns, values that are not known, a domain beyond four digits",
    ),
    pytest.param(
        "a warning first\nname, memory.total [MiB], index\r\nTesla T4, 15360, 1\r\n\r\n",
        [(1, None, None, "Tesla T4", 15360)],
        id="any order, no units, a line before the header",
    ),
    pytest.param(
        "gpu_name, gpu_uuid, gpu_bus_id\nA10, GPU-3, 00000000:3B:00.0\n", [(None, "GPU-3", "0000:3b:00.0", "A10", None)], id="aliases"
    ),
    pytest.param(
        "index, name\n0, A10\n1\nUnable to determine the device handle for GPU1, lost\n",
        [(0, None, None, "A10", None), (1, None, None, None, None)],
        id="short rows and messages between rows",
    ),
    pytest.param("index, name\n", [], id="no GPU"),
    pytest.param(
        "index, mig.mode.current\n0, Enabled\n1, [N/A]\n", [(0,) + (None,) * 4, (1,) + (None,) * 4], id="a column that is not kept"
    ),
]


@pytest.mark.parametrize("text, rows", TABLES)
def test_csv(text, rows):
    assert parse_nvidia_csv(text) == [dict(zip(("index", "uuid", "pci", "name", "memory_mib"), row)) for row in rows]


@pytest.mark.parametrize("parse", [parse_nvidia_topo, parse_nvidia_csv])
@pytest.mark.parametrize("text", ["No devices were found\n", "NVIDIA-SMI has failed: no NVIDIA driver.\n"])
def test_an_error_is_refused_by_its_first_line(parse, text):
    with pytest.raises(ValueError, match="^nvidia-smi .* begins with '%s'$" % text.strip()):
        parse(text)


@pytest.mark.parametrize("parse", [parse_nvidia_topo, parse_nvidia_csv])
def test_a_text_cut_anywhere_is_read_or_refused(parse):
    for case in TOPOLOGIES + TABLES:
        text = case.values[0]
        for end in range(len(text)):
            try:
                parse(text[:end])
                parse(text[end:])
            except ValueError as error:
                assert "begins with" in str(error)

"""Topologies that cannot be read, and what is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.errors import nearest
from tests.commands import Cli
from tests.parsim.cli.imports.imported import H100, SAMPLES

TABLE = (
    "     GPU0 GPU1 NIC0 CPU Affinity\n"
    "GPU0 X    NV12 PXB  0-63\n"
    "GPU1 NV12 X    SYS  64-127\n"
    "NIC0 PXB  SYS  X\n"
)

XML = (SAMPLES / "h100-topology.xml").read_text()
LSTOPO = (SAMPLES / "lstopo.xml").read_text()
RINGS = (SAMPLES / "h100-rings.xml").read_text()
ASTRA = (SAMPLES / "astra.yml").read_text()
BOMB = '<?xml version="1.0"?>\n<!DOCTYPE system [\n<!ENTITY a SYSTEM "file:///etc/passwd">]>\n'

ACCEPTED = {
    "table with a row behind the last": TABLE + "GPU0 X NV12 PXB\n",
    "lstopo of an unknown device that is said": LSTOPO.replace("NVIDIA H100 80GB HBM3", "Radeon"),
}
"""Odd files that say enough."""

BAD = {
    "table with a missing column": (
        TABLE.replace("GPU1 NV12 X    SYS  64-127", "GPU1 NV12 X    64-127"),
        ":3:16 GPU1 has '64-127' under NIC0; allowed: X, NV#, PIX, PXB, PHB, NODE, SYS, SOC; "
        "a column may be missing",
    ),
    "table with an empty cell": (
        TABLE.replace("NIC0 PXB  SYS  X", "NIC0 PXB  SYS"),
        ":4:14 NIC0 has nothing under NIC0; allowed: X, NV#, PIX, PXB, PHB, NODE, SYS, SOC; "
        "a column may be missing",
    ),
    "table with a missing row": (
        TABLE.replace("NIC0 PXB  SYS  X\n", ""),
        ":1:1 NIC0 is a column without a row",
    ),
    "table with a device twice": (
        TABLE.replace("GPU0 GPU1", "GPU0 GPU0"),
        ":1:11 GPU0 is a column twice",
    ),
    "table with a row for another": (
        TABLE.replace("GPU1 NV12 X    SYS  64-127", "GPU0 X    NV12 PXB  64-127"),
        ":3:1 GPU0 has a second row; first on line 2",
    ),
    "table of devices with another memory": (
        "GPU 0: NVIDIA A100-PCIE-40GB (UUID: x)\n" + TABLE,
        ": device 'NVIDIA A100-PCIE-40GB' is not in the catalog; nearest: a100-sxm-80gb, "
        "a100-sxm-40gb, a100-pcie-80gb; say which it is, e.g. --device h100-sxm-80gb",
    ),
    "lstopo of another form": (
        LSTOPO.replace("NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"),
        ": device 'NVIDIA H100 NVL' is not in the catalog; nearest: h100-sxm-80gb, "
        "h100-sxm-96gb-500w, h100-pcie-80gb; say which it is, e.g. --device h100-sxm-80gb",
    ),
    "table that disagrees": (
        TABLE.replace("NIC0 PXB ", "NIC0 PIX "),
        ":4:1 NIC0 has PIX under GPU0, but GPU0 has PXB under NIC0; both are one way",
    ),
    "table with a name of thousands of letters": (
        TABLE.replace("NIC0 PXB ", "NIC0 PIX ").replace("NIC0", "N" * 5000),
        f":4:1 {'N' * 77}... has PIX under GPU0, but GPU0 has PXB under {'N' * 77}...; "
        "both are one way",
    ),
    "table without a header": (
        "GPU0 X NV12\nGPU1 NV12 X\n",
        ":1:1 lacks the header GPU0 GPU1 ...",
    ),
    "table without a device's name": (
        TABLE,
        ": no device is named; say which it is, e.g. --device h100-sxm-80gb",
    ),
    "table of unknown devices": (
        "GPU 0: Radeon (UUID: x)\n" + TABLE,
        f": device 'Radeon' is not in the catalog; nearest: "
        f"{', '.join(nearest('radeon', load_catalog().devices))}; say which it is, e.g. --device "
        f"h100-sxm-80gb",
    ),
    "truncated XML": (
        "".join(XML.splitlines(keepends=True)[:5]),
        ":6:1 is not XML: it ends within <pci><gpu>, so it is cut off",
    ),
    "XML cut off within a long name": (
        f"<system><{'q' * 200}>",
        f":1:211 is not XML: it ends within <system><{'q' * 77}...>, so it is cut off",
    ),
    "external entity": (
        BOMB + "<system>&a;</system>",
        ":2:18 a document type (<!DOCTYPE) is refused, with all entities in it; remove it",
    ),
    "unknown entity": (
        "<system>&a;</system>",
        ":1:9 is not XML: undefined entity",
    ),
    "device twice in XML": (
        XML.replace('<gpu dev="1"', '<gpu dev="0"'),
        ':20:9 <gpu dev="0"> is there twice; first on line 5',
    ),
    "interface twice in XML": (
        XML.replace('name="mlx5_1" dev="1"', 'name="mlx5_1" dev="0"'),
        ':29:11 <net dev="0"> is there twice; first on line 14',
    ),
    "no class": (
        XML.replace('class="0x060400" ', "", 1),
        ":3:5 <pci> lacks the attribute class",
    ),
    "no speed of an interface": (
        XML.replace('speed="400000"', 'speed="fast"', 1),
        ":14:11 <net> speed='fast' must be a number of at least 1",
    ),
    "negative width": (
        XML.replace('link_width="16"', 'link_width="-16"', 1),
        ":3:5 <pci> link_width='-16' must be a number of at least 1",
    ),
    "link to nowhere": (
        XML.replace(
            'target="0000:05:00.0" count="5" tclass="0x068000"',
            'target="0000:99:00.0" count="5" tclass="0x030200"',
            1,
        ),
        ":6:11 <nvlink target='0000:99:00.0'> is the busid of no <gpu> in the file",
    ),
    "no cpu": ("<system version='1'/>", ":1:1 <system> has no <cpu>"),
    "no gpu": (
        "<system version='1'><cpu numaid='0'/></system>",
        ":1:1 <system> has no <gpu> and no <pci> of class 0x0302; a dump of a running job has them",
    ),
    "another XML": (
        "<html/>",
        ":1:1 <html> is no known topology; allowed: system and graphs of NCCL, topology of hwloc",
    ),
    "lstopo without PCI": (
        '<topology version="2.0"><object type="Machine"/></topology>',
        ":1:1 has no PCIDev of class 0302; run lstopo with I/O: lstopo --whole-io --of xml",
    ),
    "lstopo that names no device": (
        LSTOPO.replace("GPUModel", "GPUName"),
        ": names no device; say which it is, e.g. --device h100-sxm-80gb",
    ),
    "lstopo with a card twice": (
        LSTOPO.replace("0000:83:00.0", "0000:03:00.0"),
        ':43:13 <pci busid="0000:03:00.0"> is there twice; first on line 16',
    ),
    "lstopo without bus ids": (
        LSTOPO.replace('pci_busid="0000:03:00.0" ', ""),
        ":16:15 <object> lacks the attribute pci_busid",
    ),
    "lstopo without a type": (
        LSTOPO.replace('<object type="NUMANode" ', "<object "),
        ":9:7 <object> lacks the attribute type",
    ),
    "hwloc bridge with two names for its type": (
        LSTOPO.replace(
            '<object type="Bridge" gp_index="12"', '<object typ="Bridge" gp_index="12"', 1
        ),
        ":13:9 <object> lacks the attribute type",
    ),
    "lstopo with a speed in words": (
        LSTOPO.replace('pci_link_speed="63.015385"', 'pci_link_speed="fast"', 1),
        ":13:9 <object> pci_link_speed='fast' must be a number of at least 0",
    ),
    "lstopo cut off": (
        "".join(LSTOPO.splitlines(keepends=True)[:20]),
        ":21:1 is not XML: it ends within <object><object>, so it is cut off",
    ),
    "lstopo with entities": (
        LSTOPO.replace('"hwloc2.dtd">', '"hwloc2.dtd" [<!ENTITY a "b">]>'),
        ":2:40 a document type (<!DOCTYPE) is refused, with all entities in it; remove it",
    ),
    "lstopo of another document type": (
        LSTOPO.replace("hwloc2.dtd", "http://example.org/x.dtd"),
        ":2:53 a document type (<!DOCTYPE) is refused, with all entities in it; remove it",
    ),
    "lstopo that uses an entity": (
        LSTOPO.replace('<info name="Backend" value="Linux"/>', "&a;"),
        ":5:5 an entity (<!ENTITY) is refused; remove it",
    ),
    "nested too deep": (
        "<system>" + "<pci>" * 80,
        ":1:324 <pci> stands within 64 others, which no topology needs",
    ),
    "graph without a device": (
        RINGS,
        ": names no device; say which it is, e.g. --device h100-sxm-80gb",
    ),
    "lists of other lengths": (
        ASTRA.replace("[ 4, 2 ]", "[ 4 ]"),
        ":2:13 npus_count has 1 values, topology has 2; write one per dimension",
    ),
    "unknown shape": (
        ASTRA.replace("Ring", "Rang"),
        ":1:13 topology 'Rang' is unknown (did you mean 'Ring'?); "
        "allowed: Ring, FullyConnected, Switch",
    ),
    "no bandwidth": (
        ASTRA.replace("200.0", "0"),
        ":3:14 bandwidth '0' must be a number of at most 1e+09, above 0 for a bandwidth",
    ),
    "a list is missing": (
        ASTRA.partition("latency")[0],
        ":1:1 lacks latency",
    ),
    "something else": (
        "hello\n",
        ":1:1 is no known topology; allowed: text of `nvidia-smi topo -m`, XML of "
        "NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE, XML of hwloc (lstopo --of xml), "
        "or a network yml of ASTRA-sim",
    ),
}

UNNAMED = (
    "table without a device's name",
    "table of unknown devices",
    "table of devices with another memory",
    "lstopo of another form",
    "lstopo that names no device",
    "graph without a device",
)
"""Inputs of BAD that are bad only where no --device is said."""

BAD_WORDS = {
    "no id": (
        ("--as", "My Node", *H100),
        "--as 'My Node' is no id; allowed: small letters and digits, joined by - or ., "
        "e.g. my-node",
    ),
    "no such device": (
        ("--as", "x", "--device", "h100"),
        "unknown device 'h100'; nearest of ",
    ),
    "device whose links are not known": (
        ("--as", "x", "--device", "t4"),
        "the NVLinks of device t4 are not known; known: v100, ",
    ),
    "no name": (
        (),
        "Missing option '--as'.",
    ),
    "name of a shipped system": (
        ("--as", "dgx-a100", *H100),
        "--as dgx-a100 is a system of parsim's catalog, whose place this one would take in every "
        "scenario that names the file; use another name, e.g. --as my-dgx-a100, or say --replace\n",
    ),
}


def test_an_empty_device_is_none(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(TABLE)
    done = cli("catalog", "import", path, "--as", "x", "--device", "")
    assert (done.code, done.out) == (2, "")
    assert "no device is named" in done.err


@pytest.mark.parametrize("case", BAD)
def test_bad_files(cli: Cli, tmp_path: Path, case: str) -> None:
    text, message = BAD[case]
    path = tmp_path / "t"
    path.write_text(text)
    words = () if case in UNNAMED else H100
    done = cli("catalog", "import", path, "--as", "my-node", *words)
    assert done == (2, "", f"error: {path}{message}\n")


@pytest.mark.parametrize("case", UNNAMED)
def test_files_that_name_no_device_are_read_where_it_is_said(
    cli: Cli, tmp_path: Path, case: str
) -> None:
    (tmp_path / "t").write_text(BAD[case][0])
    assert cli("catalog", "import", tmp_path / "t", "--as", "my-node", *H100).code == 0


@pytest.mark.parametrize("case", ACCEPTED)
def test_odd_files_are_read(cli: Cli, tmp_path: Path, case: str) -> None:
    (tmp_path / "t").write_text(ACCEPTED[case])
    assert cli("catalog", "import", tmp_path / "t", "--as", "my-node", *H100).code == 0


@pytest.mark.parametrize("case", BAD_WORDS)
def test_bad_words(cli: Cli, case: str) -> None:
    words, message = BAD_WORDS[case]
    done = cli("catalog", "import", SAMPLES / "dgx-a100.txt", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_a_shipped_systems_name_is_taken_only_where_that_is_said(cli: Cli, tmp_path: Path) -> None:
    words = ("catalog", "import", SAMPLES / "dgx-a100.txt", "--as", "dgx-a100", *H100)
    assert cli(*words).code == 2
    out = tmp_path / "my.yaml"
    assert cli(*words, "--replace", "--out", out).code == 0
    assert load_catalog([out]).system("dgx-a100").device.id == "h100-sxm-80gb"


def test_the_file_itself_is_not_overwritten(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(TABLE)
    done = cli("catalog", "import", path, "--as", "x", "--out", path, *H100)
    assert done == (2, "", f"error: {path}: would overwrite the input; give another file\n")
    assert cli("catalog", "import", tmp_path / "no.txt", "--as", "x").err == (
        f"error: {tmp_path / 'no.txt'}: no such file\n"
    )

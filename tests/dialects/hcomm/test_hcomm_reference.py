"""The reference page and the type stubs, which are made of HCOMM's table of calls."""

from __future__ import annotations

import copy
import ctypes
import enum
import pickle
import re
from dataclasses import fields
from pathlib import Path

import pytest

from helpers.type_checker import checked, write_stubs
from peerlane.dialects import hcomm
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects.hcomm import _header, _probes
from peerlane.dialects.hcomm._state import hcomm as convention
from reference_pages import hcomm as pages
from reference_pages import tables
from type_stubs.hcomm import stubs

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "hcomm.md").read_text()
PROGRAM = """
import hcomm
from hcomm import COMM_ENGINE_CPU_TS, HcclChannelDesc

info, ret = hcomm.HcclGetRootInfo()
comm, ret = hcomm.HcclCommInitRootInfo(2, info, 0)
{line}
"""


def test_hcomm_reference_page_equals_call_table() -> None:
    assert pages.refused(tables.page(PAGE, convention)) == PAGE, "run `make reference`"


def test_hcomm_reference_page_lists_each_name_once() -> None:
    works = re.findall(r"^\| `hcomm\.(\w+)\(", PAGE, re.MULTILINE)
    refuses = re.findall(r"`(Hc\w+)`", tables.part_of(PAGE, "refused"))
    assert sorted(works) == sorted(name.partition(".")[2] for name in convention.table)
    assert sorted(refuses) == list(_probes.refused())
    assert not set(works) & set(refuses)
    calls = {
        name
        for name in vars(hcomm)
        if name.startswith(("Hccl", "Hcomm", "Comm", "Endpoint"))
        and callable(getattr(hcomm, name))
        and not isinstance(getattr(hcomm, name), type)
        and not name.startswith("HcommIsSupport")
    }
    assert calls == {*works, *refuses}


def test_hcomm_call_table_every_call_states_its_basis() -> None:
    for name, call in convention.table.items():
        assert call.facts.get("Basis", "")[:1] in tuple("SDC"), name


def test_hcomm_module_holds_every_enumeration_member() -> None:
    for kind in [
        each for each in vars(hcomm).values() if isinstance(each, type) and issubclass(each, enum.IntEnum)
    ]:
        for name, member in kind.__members__.items():
            assert getattr(hcomm, name) is member
    assert hcomm.COMM_PROTOCOL_UBC_CTP is hcomm.COMM_PROTOCOL_UB_CTP
    assert hcomm.HCOMM_REDUCE_MAX == hcomm.HCCL_REDUCE_MAX == 2
    assert hcomm.HCOMM_DATA_TYPE_BFP16 == hcomm.HcclDataType.HCCL_DATA_TYPE_BFP16 == 11


def test_hcomm_desc_init_calls_fill_structs_as_vendor_does() -> None:
    desc = hcomm.HcclChannelDesc()
    assert (desc.header.magicWord, desc.remoteRank) == (0, 0)
    assert hcomm.HcclChannelDescInit([desc], 1) == 0
    header = desc.header
    assert (header.version, header.magicWord, header.size, header.reserved) == (1, 0x0F0F0F0F, 496, 0)
    assert (desc.remoteRank, desc.channelProtocol, desc.notifyNum) == (0xFFFFFFFF, -1, 0)
    assert (desc.memHandles, desc.memHandleNum) == (None, 0)
    assert desc.raws == b"\xff" * 128 and desc.roceAttr.queueNum == 0xFFFFFFFF and desc.roceAttr.tc == 0xFF
    assert desc.localEndpoint.protocol == desc.remoteEndpoint.loc.locType == -1
    assert desc.localEndpoint.commAddr.raws == b"\xff" * 36
    link = hcomm.CommLink()
    assert hcomm.CommLinkInit([link], 1) == 0
    assert (link.header.magicWord, link.linkAttr.linkProtocol, link.linkAttr.hop) == (0x0F0E0F0F, -1, 1)
    assert (hcomm.CommMem().type, hcomm.HcommBatchTransferDesc().transferInfo.write.len) == (0, 0)


def test_hcomm_structs_are_those_of_the_header() -> None:
    declared = declarations_of("hcomm")
    for name, kind in _header.CLASSES.items():
        assert getattr(hcomm, name) is kind and copy.deepcopy(kind()) == pickle.loads(pickle.dumps(kind()))
    assert hcomm.HcclCommConfig().size == ctypes.sizeof(Layout(declared).struct("HcclCommConfig")) == 2248
    assert [each.name for each in fields(hcomm.EndpointLoc)] == ["locType", "device", "host"]


def test_hcomm_stub_type_checker_refuses_wrong_calls_only(tmp_path: Path) -> None:
    write_stubs(stubs(), tmp_path)
    cases = {
        "descs = [HcclChannelDesc()]; hcomm.HcclChannelDescInit(descs, 1)": "",
        "channels, ret = hcomm.HcclChannelAcquire(comm, COMM_ENGINE_CPU_TS, [HcclChannelDesc()], 1)": "",
        "address, size, ret = hcomm.HcclGetHcclBuffer(comm)": "",
        "number: str = hcomm.HcclGetRankId(comm)": "assignment",
        'hcomm.HcommWriteOnThread(1, 2, "x", 4, 5)': "arg-type",
        "hcomm.HcommWriteOnThread(1, 2, 3, 4)": "call-arg",
        "HcclChannelDesc().notifyNumber = 3": "attr-defined",
        "engine: hcomm.CommEngine = hcomm.COMM_ENGINE_CPU": "",
        "hcomm.HcommIsSupportHcclThreadAcquire()": "",
    }
    for number, line in enumerate(cases):
        (tmp_path / f"program{number}.py").write_text(PROGRAM.format(line=line))
    output = checked(sorted(tmp_path.glob("program*.py")), tmp_path / "cache")
    assert "pyi:" not in output, output
    for number, (line, wanted) in enumerate(cases.items()):
        about = [each for each in output.splitlines() if f"program{number}.py" in each]
        assert (wanted in "".join(about)) if wanted else not about, (line, output)

"""Expressions on hip-python's classes, evaluated the same way on a public wheel and on the dialect.

Usage: ``WHEEL_PYTHON tests/helpers/hip_expressions.py > tests/dialects/hip_measured.json`` with hip-python 10.0.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

EXPRESSIONS = r"""
hip.hipUUID_t().bytes
hip.char1().x
hip.char1(x=3).x
hip.hipExtent(1,2,3)
hip.hipExtent(1,2,3).width
hip.hipExtent(widht=1)
hip.hipExtent(1,2,3,4)
hip.hipExtent(1,width=2)
hip.hipExtent(1,width=2).width
hip.hipExtent.PROPERTIES()
hip.hipExtent().PROPERTIES()
hip.hipExtent.allocate(3)
hip.hipExtent.allocate(3)[1]
hip.hipExtent.allocate(3)[3]
hip.hipExtent()[1]
hip.hipExtent()["width"]
"width" in hip.hipExtent()
1 in hip.hipExtent()
hip.hipExtent(0)
hip.hipExtent(None)
hip.hipExtent.c_sizeof()
hip.hipExtent().c_sizeof()
hip.hipExtent().width
hip.ihipStream_t()
hip.ihipStream_t(5)
hip.ihipStream_t.fromObj(5)
int(hip.ihipStream_t.fromObj(5))
hip.ihipStream_t.fromObj(None)
hip.ihipStream_t.fromObj(ctypes.c_void_p(7))
hip.ihipStream_t.fromObj(hip.ihipEvent_t.fromObj(3))
hip.ihipStream_t.fromObj("a")
hip.ihipStream_t.fromObj(b"abc")
repr(hip.hipError_t.hipSuccess)
hip.hipMemAllocationProp().location
hip.hipMemAllocationProp().location is hip.hipMemAllocationProp().location
hip.hipMemAllocationProp().win32HandleMetaData
hip.hipMemAllocationProp().type
hip.hipMemAllocationProp(type=1)
hip.hipMemAllocationProp(type=hip.hipMemAllocationType.hipMemAllocationTypePinned).type
hip.hipMemAllocationProp(location=hip.hipMemLocation(id=3))
hip.hipDeviceProp_t().name
hip.hipDeviceProp_t(name="x")
hip.hipDeviceProp_t().hdpMemFlushCntl
hip.hipDeviceProp_t().uuid
hip.hipDeviceProp_t().maxGridSize
hip.hipIpcMemHandle_st().reserved
hip.hipIpcMemHandle_st.fromObj(b"a"*64)
hip.hipIpcMemHandle_st.fromObj(b"a"*63)
hip.hipIpcMemHandle_st.fromObj(b"a"*65)
hip.hipIpcMemHandle_st.fromObj(b"a"*64).reserved
hip.hipIpcMemHandle_st.fromObj(bytearray(b"a"*65))
hip.hipIpcMemHandle_st.fromObj(ctypes.create_string_buffer(64))
hip.hipIpcMemHandle_st.fromObj(None)
hip.hipIpcMemHandle_st.fromObj(0)
hip.hipIpcMemHandle_st.fromObj("x")
hip.hipIpcMemHandle_st.fromObj(1.5)
hip.hipIpcMemHandle_st.fromObj(hip.hipExtent())
hip.hipIpcMemHandle_st(reserved=b"a"*64)
hip.hipIpcMemHandle_st(b"a"*64)
T.Pointer()
T.Pointer(None).is_ptr_null
bool(T.Pointer(5))
int(T.Pointer(5))
T.Pointer(-1)
int(T.Pointer(-1))
T.Pointer(2**64-1)
T.Pointer(2**64)
T.Pointer(True)
T.Pointer("a")
T.Pointer(1.5)
T.Pointer([1])
T.Pointer((1,))
T.Pointer({})
T.Pointer(object())
T.Pointer(ctypes.c_void_p())
T.Pointer(ctypes.c_void_p(9))
T.Pointer(ctypes.c_int(9)).is_ptr_null
T.Pointer(VP())
T.Pointer(CAI(data=(5,False)))
T.Pointer(CAI())
T.Pointer(memoryview(b)[::2])
T.Pointer(T.Pointer(7))
T.Pointer.fromObj(T.Pointer(7))
T.Pointer(5)[3]
T.Pointer(5)[-1]
T.Pointer(5)["a"]
T.Pointer(5)[1:2]
T.Pointer(5).createRef()
T.Pointer(5).as_c_void_p()
T.Pointer(5)==T.Pointer(5)
T.Pointer(5)+1
len(T.Pointer(5))
T.Pointer(1,2)
T.Pointer(pyobj=3)
da
d.__cuda_array_interface__
da.__cuda_array_interface__
da.shape, da.size, da.itemsize, da.typestr, da.rank, da.is_read_only
da.strides
da.strides_as_tuple
d.shape, d.size, d.itemsize, d.typestr, d.rank, d.is_read_only
nd.shape, nd.size, nd.itemsize, nd.typestr, nd.rank
nd
T.NDBuffer(5)
T.NDBuffer(5).shape
T.NDBuffer(5).size
T.NDBuffer(5).__cuda_array_interface__
T.NDBuffer(None)
T.NDBuffer(None).shape
T.DeviceArray()
T.DeviceArray(5)
T.DeviceArray(5).shape
T.DeviceArray(None)
T.DeviceArray("a")
T.DeviceArray(b"abcd").__cuda_array_interface__
T.DeviceArray(b"abcd").is_read_only
T.DeviceArray(array.array("i",[1,2,3])).__cuda_array_interface__
T.DeviceArray(array.array("d",[1,2,3])).shape
da[0]
da[1]
da[-1]
da[16]
da[2:5]
da[2:5].__cuda_array_interface__
da[2:5].is_read_only
da[0:17]
da[-3:]
da[5:2]
da[::2]
da[::1].shape
da[2:2]
da[...]
da[1,2]
da["a"]
da[:]
len(da)
da+4
da==da
da.configure()
da.configure(typestr="f8")
da.configure(typestr="<f8",shape=(8,)).__cuda_array_interface__
da.configure(typestr="float64")
da.configure(shape=(2,4)).__cuda_array_interface__
da[1].__cuda_array_interface__
da[1,1:3].__cuda_array_interface__
da[0,0:4].__cuda_array_interface__
da[0:1,:].__cuda_array_interface__
da[:,1].__cuda_array_interface__
da[0:2,1:2].__cuda_array_interface__
da[:,:,:]
da.configure(shape=(3,))
da.configure(shape=(3,),_force=True).shape
da.configure(shape=[8]).shape
da.configure(shape=8)
da.configure(shape=(-1,))
da.configure(stream=3).__cuda_array_interface__
da.configure(stream=None).__cuda_array_interface__
da.configure(stream="a")
da.configure(strides=(8,))
da.configure(itemsize=3)
da.configure(bogus=3)
da.configure(typestr=3)
da.configure(typestr="|u1",shape=(64,)).__cuda_array_interface__
da.configure(read_only=True)
bytes(d)[:4]
bytes(d[1:2])
memoryview(T.NDBuffer(5))
d.shape.__class__
T.CStr()
repr(c)
str(c)
bytes(c)
len(c)
c[0]
c[1]
c[-1]
c[0:2]
c[1:9]
c[9]
c["a"]
c[::2]
c.decode()
c.decode("ascii")
c.encode()
c.encode("utf-16")
c==b"abc"
c=="abc"
"a" in c
list(c)
bool(c)
int(c) != 0
c.is_ptr_null
T.CStr("abé"), len(T.CStr("abé")), bytes(T.CStr("abé"))
T.CStr(None)
repr(T.CStr(None))
str(T.CStr(None))
len(T.CStr(None))
bytes(T.CStr(None))
T.CStr(None).decode()
T.CStr(None)[0]
T.CStr(bytearray(b"ab\0c")), len(T.CStr(bytearray(b"ab\0c"))), bytes(T.CStr(bytearray(b"ab\0c")))
T.CStr(b"ab\0c"), len(T.CStr(b"ab\0c")), bytes(T.CStr(b"ab\0c"))
T.CStr(5).is_ptr_null
T.CStr(1.5)
T.CStr([1])
T.CStr(array.array("i",[65,66]))
c.as_c_void_p().__class__
c.createRef().__class__.__name__
T.CStr.fromObj(c) is c
T.CStr.fromObj("x")
T.ListOfInt([1,2,3])
list(T.ListOfInt([1,2,3]))
len(T.ListOfInt([1,2,3]))
T.ListOfInt([1,2,3])[0]
T.ListOfInt([1,2,3])[-1]
T.ListOfInt([1,2,3])[3]
T.ListOfInt([1,2,3])[0:2]
T.ListOfInt([1,2,3]).to_list()
T.ListOfInt([1,2,3]).to_tuple()
T.ListOfInt((1,2,3)).to_tuple()
T.ListOfInt([])
len(T.ListOfInt([]))
T.ListOfInt(["a"])
T.ListOfInt([1.5])
T.ListOfInt([2**31])
T.ListOfInt([-1]).to_list()
T.ListOfUnsigned([-1])
T.ListOfUnsigned([2**32])
T.ListOfUnsigned([ctypes.c_uint(3)]).to_list()
T.ListOfInt([ctypes.c_int(3)]).to_list()
T.ListOfInt([ctypes.c_long(3)])
T.ListOfInt(range(3))
T.ListOfInt(None)
T.ListOfInt(5)
T.ListOfInt(None).to_list()
len(T.ListOfInt(5))
T.ListOfInt(5).to_list()
T.ListOfInt(None)[0]
T.ListOfInt(1.5)
T.ListOfInt("abc")
T.ListOfInt(b"abcd").to_list()
T.ListOfInt(array.array("i",[7,8])).to_list()
len(T.ListOfInt(array.array("i",[7,8])))
T.ListOfInt(array.array("i",[7,8]))[1]
T.ListOfInt()
T.ListOfInt.allocate(3).to_list()
T.ListOfInt.allocate(3)
T.ListOfInt.allocate(0)
T.ListOfInt.allocate(-1)
T.ListOfInt.allocate()
T.ListOfInt.allocate(2)[5]
T.ListOfInt.allocate(2)["a"]
bool(T.ListOfInt.allocate(2))
T.ListOfInt.fromObj([1]).to_list()
T.ListOfInt.fromObj(T.ListOfUnsigned([1]))
len(T.ListOfInt.fromObj(T.ListOfUnsigned([1])))
memoryview(T.ListOfInt([1,2]))
T.ListOfBytes([b"ab",b"c"])
T.ListOfBytes([b"ab",b"c"]).to_list()
T.ListOfBytes([b"ab",b"c"])[1]
T.ListOfBytes(["ab"])
T.ListOfBytes(["ab"]).to_list()
T.ListOfBytes([1])
T.ListOfBytes([None])
T.ListOfBytes.allocate(2).to_list()
T.ListOfBytes([bytearray(b"x")])
T.ListOfPointer([1,None,b"abc"])
T.ListOfPointer([1,None,2]).to_list()
T.ListOfPointer([1,None,2])[0]
T.ListOfPointer(["a"])
T.ListOfPointer([1.5])
T.ListOfPointer([c])
T.ListOfPointer([ctypes.c_void_p(5), T.Pointer(6), da, hip.ihipStream_t(8)]).to_list()
T.ListOfPointer.allocate(2).to_list()
T.ListOfInt64([2**63])
T.ListOfInt64([-2**63]).to_list()
T.ListOfUInt64([2**64-1]).to_list()
T.ListOfLong([1,-1]).to_list()
T.ListOfUnsignedLong([1,2]).to_list()
T.ListOfUnsignedLong([-2])
T.PointerToInt(3)
T.PointerToInt([3]).to_list()
T.PointerToInt([3,4])
T.PointerToInt([])
T.PointerToInt.allocate()
T.PointerToInt.allocate().to_list()
T.PointerToInt.allocate(2)
T.PointerToInt.allocate(2).to_list()
T.PointerToInt.allocate(1)[0]
T.PointerToInt(5)
T.PointerToInt(None)
T.PointerToInt("a")
T.PointerToInt(ctypes.c_int(5))
T.PointerToInt(ctypes.c_int(5)).to_list()
len(T.PointerToInt(ctypes.c_int(5)))
len(T.PointerToInt([5]))
len(T.PointerToInt(5))
T.PointerToInt([5]).value
T.PointerToInt.fromObj(array.array("i",[3])).to_list()
T.PointerToInt.fromObj(array.array("i",[3,4])).to_list()
pickle.dumps(T.ListOfInt([1]))
T.ListOfInt([True]).to_list()
T.ListOfPointer([True]).to_list()
list(T.ListOfPointer([1]))
T.ListOfPointer(array.array("Q",[3,4])).to_list()
T.ListOfPointer(b"12345678123").to_list()
T.ListOfInt(b"12345").to_list()
type(T.ListOfPointer([1,2])[1]).__name__
T.ListOfPointer([1,2])[1:]
hip.hipExtent(1,2,3).get_width(0)
hip.hipExtent(1,2,3).get_width("a")
hip.hipExtent.allocate(3).get_width(2)
hip.hipExtent.allocate(3).set_width(2, 5)
hip.hipExtent.allocate(0)
hip.hipExtent.allocate(-1)
hip.hipExtent.allocate()
hip.hipExtent.allocate("a")
hip.hipExtent.allocate(count=2)
hip.hipExtent(width=-1)
hip.hipExtent(width=2**64)
hip.hipExtent(width="a")
hip.hipExtent(width=1.5)
hip.hipExtent(width=True).width
hip.hipMemLocation(id=2**31)
hip.hipMemLocation(id=1.7)
hip.hipMemLocation(id=None)
hip.hipMemLocation(type=None)
hip.hipMemLocation(type=hip.hipMemoryType.hipMemoryTypeHost)
hip.char1(x=200)
hip.char1(x=-5).x
hip.char1(x=b"a")
hip.char1(x="a")
hip.uchar1(x=256)
hip.uchar1(x=255).x
hip.float1(x=1).x
hip.float1(x="a")
hip.float1(x=1.1).x
hip.double1(x=1.1).x
hip.short1(x=70000)
hip.hipDeviceArch_t(hasDoubles=1).hasDoubles
hip.hipDeviceArch_t(hasDoubles=2).hasDoubles
hip.hipDeviceArch_t(hasDoubles=-1)
hip.hipMemAllocationProp_union_0(requestedHandleType=hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor).requestedHandleType
hip.hipMemAllocationProp_union_0(1)
hip.hipMemAllocationProp_union_0(a=1,b=2)
hip.hipMemAllocationProp_union_0(a=1)
hip.hipStreamBatchMemOpParams_union().operation
hip.hipStreamBatchMemOpParams_union(operation=hip.hipStreamBatchMemOpType.hipStreamMemOpWaitValue32).operation
hip.hipStreamBatchMemOpParams_union().pad
hip.hipStreamBatchMemOpParams_union().waitValue
hip.hipPointerAttribute_t(devicePointer=5).devicePointer
hip.hipPointerAttribute_t(devicePointer=None).devicePointer
hip.hipPointerAttribute_t(devicePointer="a")
hip.hipPointerAttribute_t(devicePointer=bytearray(4)).devicePointer
hip.hipPointerAttribute_t(devicePointer=T.Pointer(6)).devicePointer
hip.hipPointerAttribute_t(devicePointer=T.DeviceArray(6)).devicePointer
hip.hipPointerAttribute_t().devicePointer.is_ptr_null
hip.hipDeviceProp_t(hdpMemFlushCntl=[1,2])
hip.hipDeviceProp_t(hdpMemFlushCntl=5).hdpMemFlushCntl
hip.hipDeviceProp_t()[0]
hip.hipDeviceProp_t().get_maxGridSize(0)
hip.hipDeviceProp_t().set_maxGridSize(0,[1,2,3])
hip.hipMemAllocationProp().get_location(0)
hip.hipMemAllocationProp().set_location(0,1)
hip.hipMemAllocationProp(foo=1)
hip.hipMemAllocationProp(hip.hipMemAllocationType.hipMemAllocationTypePinned).type
hip.hipMemAllocationProp.fromObj(None).type
hip.hipMemAllocationProp.fromObj(None).location
hip.hipMemAllocationProp.fromObj(0).c_sizeof()
bool(hip.hipMemAllocationProp.fromObj(0)), hip.hipMemAllocationProp.fromObj(0).is_ptr_null
hip.hipMemAllocationProp() == hip.hipMemAllocationProp()
hip.hipMemAllocationProp().createRef()
hip.hipMemAllocationProp().as_c_void_p().__class__
hip.hipMemAllocationProp().nonsense
setattr(hip.hipMemAllocationProp(), "nonsense", 1)
memoryview(hip.hipExtent())
len(hip.hipExtent())
list(hip.hipExtent(1,2,3))
hip.hipExtent()[-1]
hip.hipExtent()[True]
hip.ihipStream_t(5)[0]
hip.ihipStream_t(None)
hip.ihipStream_t("a")
hip.ihipStream_t(pyobj=5)
hip.ihipStream_t(1,2)
"x" in hip.ihipStream_t()
hip.ihipStream_t.PROPERTIES()
hip.ihipStream_t.fromObj(hip.ihipStream_t(5))
hip.ihipStream_t(5).createRef()
int(hip.ihipStream_t(-1))
bool(hip.ihipStream_t())
hip.hipGraphNode.PROPERTIES()
hip.hipMipmappedArray().data
hip.hipResourceDesc_union_0().array
hip.hipKernelNodeParams().gridDim.x
hip.hipKernelNodeParams(gridDim=hip.dim3(1,2,3))
hip.dim3(1,2,3).x
hip.dim3(1,2)[2]
hip.hipMemcpy3DParms().srcArray
hip.hipMemcpy3DPeerParms().srcPtr.ptr
hip.hipPitchedPtr(ptr=5).ptr
hip.hipMemcpy3DBatchOp().flags
hip.hipLaunchAttributeValue().pad
hip.hipDeviceProp_t().luid
hip.hipExternalSemaphoreHandleDesc_st().type
hip.hipStreamBatchMemOpParams_union_hipStreamMemOpWaitValueParams_t().stream
hip.hipStreamBatchMemOpParams_union_hipStreamMemOpWaitValueParams_t().address
hip.hipIpcMemHandle_st(5)
setattr(hip.hipIpcMemHandle_st(),"reserved",b"a")
T.Pointer(5).x
setattr(T.Pointer(5),"x",1)
hip.hipExtent(width=array.array("i",[1]))
T.CStr("abc").fromObj(b"x")
T.CStr("ä").decode("latin1")
T.CStr("ä")[0]
T.CStr("ä").decode("ascii")
T.CStr("ä").decode("ascii","ignore")
c.encode("ascii")
hip.dim3().x, hip.dim3(1).y, hip.dim3.allocate(2).get_x(1)
T.DeviceArray.fromObj(5)
T.DeviceArray.fromObj(T.NDBuffer(5))
T.NDBuffer.fromObj(T.DeviceArray(5))
T.NDBuffer(T.DeviceArray(b"abcd")).shape
T.DeviceArray(T.DeviceArray(b"abcd")[1:3]).__cuda_array_interface__
T.Pointer(T.DeviceArray(b"abcd")).is_ptr_null
T.NDBuffer(bytearray(8)).configure(read_only=True).is_read_only
T.NDBuffer(bytearray(8)).configure(read_only=1).is_read_only
T.NDBuffer(bytearray(8)).configure(itemsize=8).shape
T.NDBuffer(bytearray(8)).configure(itemsize=8,typestr="f8").shape
T.NDBuffer(bytearray(8)).configure(itemsize=4,shape=(2,)).__cuda_array_interface__
T.NDBuffer(bytearray(8)).configure(typestr="f8").shape
T.NDBuffer(bytearray(8)).configure(typestr="<f8").shape
T.NDBuffer(bytearray(8)).configure(typestr=">f8").shape
T.NDBuffer(bytearray(8)).configure(typestr="=f8").shape
T.NDBuffer(bytearray(8)).configure(typestr="|f8").shape
T.NDBuffer(bytearray(8)).configure(typestr="d").shape
T.NDBuffer(bytearray(8)).configure(typestr="i3")
T.NDBuffer(bytearray(8)).configure(typestr="u1")
T.NDBuffer(bytearray(8)).configure(typestr="int32").shape
T.NDBuffer(bytearray(8)).configure(typestr="c8").shape
T.NDBuffer(bytearray(8)).configure(typestr="zz")
T.NDBuffer(bytearray(8)).configure(shape=(4,2))[1]
T.NDBuffer(bytearray(8)).configure(shape=(4,2),typestr="B")[1].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[1].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[1,0:1].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[1,0:2].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[0:1,0:1,0:1].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[0,0,0].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[1,1,1].__cuda_array_interface__
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[0:2].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[0:2,0:1]
T.NDBuffer(bytearray(8)).configure(shape=(2,2,2))[0:1].shape
T.NDBuffer(bytearray(8)).configure(shape=())
T.NDBuffer(bytearray(8)).configure(shape=(0,),_force=True).size
T.NDBuffer(bytearray(8)).configure(shape=(4,),_force=True).size
T.NDBuffer(bytearray(8)).configure(stream=hip.ihipStream_t(5)).__cuda_array_interface__
T.NDBuffer(bytearray(8)).configure(stream=0).__cuda_array_interface__["stream"]
T.NDBuffer(bytearray(8)).configure(stream=T.Pointer(9)).__cuda_array_interface__["stream"]
T.NDBuffer(bytearray(8)).configure(shape=("a",))
T.NDBuffer(bytearray(8)).configure(shape=None)
T.NDBuffer(bytearray(8)).configure(typestr=None)
T.NDBuffer(CAI(data=(5,False),shape=(3,),typestr="f4"))
T.NDBuffer(CAI(data=(5,True),shape=(3,),typestr="f4"))
T.NDBuffer(CAI(data=(5,True),shape=(3,),typestr="f4",strides=(8,)))
T.NDBuffer(CAI(data=(5,True),shape=(3,),typestr="f4",strides=(4,)))
T.NDBuffer(CAI(data=(5,True),shape=(3,)))
T.NDBuffer(CAI(data=(5,True),typestr="f4"))
T.NDBuffer(CAI(shape=(3,),typestr="f4"))
T.NDBuffer(CAI(data=(5,True),shape=(2,3),typestr="<c16",version=3,stream=7))
T.NDBuffer(CAI(data=(5,True),shape=(2,3),typestr="|u1",version=3,mask=1))
T.NDBuffer(CAI(data=(5,True),shape=[2,3],typestr="B"))
T.NDBuffer(memoryview(bytearray(16)).cast("i")).__cuda_array_interface__
T.NDBuffer(memoryview(bytearray(16)).cast("i")).size
T.NDBuffer(memoryview(bytearray(16)).cast("i")).itemsize
T.NDBuffer(memoryview(bytearray(16)).cast("B",(4,4))).shape
T.NDBuffer(ctypes.c_void_p(7)).shape
T.NDBuffer(VP()).shape
d[0:5,]
d[5,]
d[0]
d[True].shape
d[1][0]
d["x"]
d[0:5][0:5].shape
d[0:5][0:6]
int(d[3:5])-int(d)
d.shape.__len__()
T.NDBuffer(b"abc").is_read_only
memoryview(T.NDBuffer(b"abc")).readonly
memoryview(T.NDBuffer(bytearray(8)).configure(typestr="<f8")).format
memoryview(T.NDBuffer(bytearray(8)).configure(typestr="float64")).format
memoryview(T.NDBuffer(bytearray(8)).configure(typestr="float64")).itemsize
memoryview(T.NDBuffer(None))
memoryview(T.NDBuffer(bytearray(8)).configure(shape=(2,4)))[1,2]
d.createRef()
d.as_c_void_p()==0
d.fromObj(d) is d
hip.hipExtent.fromObj(hip.dim3())
repr(hip.dim3())[:13]
T.Pointer(5).createRef()[0]
T.ListOfInt([1,2]).value
T.PointerToInt(None).value
T.PointerToInt(ctypes.c_int(7)).value
setattr(T.PointerToInt([1]),"value",4)
T.PointerToInt.allocate(0)
T.PointerToUInt64([2**64-1]).value
T.ListOfBytes(b"ab")
T.ListOfBytes("ab")
T.ListOfBytes([T.CStr("xyz")]).to_list()
T.ListOfPointer(5)
repr(T.ListOfInt64([1]))[:20]
repr(T.ListOfLong([1]))[:20], repr(T.ListOfUnsignedLong([1]))[:25], repr(T.ListOfUInt64([1]))[:20]
d.stream_as_int
d.configure(stream=5).stream_as_int
T.NDBuffer(5).configure(shape=(True,))
hip.ihipStream_t(5).configure
T.NDBuffer(memoryview(bytearray(16)).cast("i"))[1:3]
memoryview(T.NDBuffer(memoryview(bytearray(16)).cast("i"))).nbytes
memoryview(T.NDBuffer(memoryview(bytearray(16)).cast("i"))).itemsize
memoryview(T.NDBuffer(memoryview(bytearray(16)).cast("i"))).format
T.NDBuffer(ctypes.c_int(5)).shape
T.NDBuffer(ctypes.create_string_buffer(5)).shape
hip.hipIpcMemHandle_st.fromObj(hip.hipIpcMemHandle_st())
hip.hipExtent.fromObj(T.Pointer(0))
T.CStr(memoryview(b"abc")[::2])
T.CStr.fromObj(None).is_ptr_null
T.CStr(T.CStr("abc"))
T.CStr(T.Pointer(5)).is_ptr_null
T.CStr(VP()).is_ptr_null
T.CStr(CAI(data=(5,False))).is_ptr_null
T.CStr(True).is_ptr_null
T.CStr("a")["a"]
T.NDBuffer(bytearray(8)).configure(stream=0).rank
T.NDBuffer(bytearray(8)).configure(shape=(4,1,2))[0:2].shape
T.NDBuffer(bytearray(4)).configure(shape=(1,4))[0:1].shape
T.NDBuffer(bytearray(8)).configure(shape=(4,1,2))[0].shape
T.NDBuffer(bytearray(8)).configure(shape=(1,4,2))[0,1:3].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,1,4))[1,0,1:2].shape
T.NDBuffer(bytearray(8)).configure(shape=(2,4))[0:1,1:2]
T.NDBuffer(bytearray(8)).configure(shape=(2,4))[1,1:3][0]
T.ListOfInt([2**63])
T.ListOfInt([-2**63]).to_list()
T.ListOfUnsigned([2**64])
T.ListOfUnsigned([2**63]).to_list()
T.ListOfLong([2**63])
T.NDBuffer(bytearray(8)).configure(typestr="?",shape=(2,)).itemsize
T.NDBuffer(bytearray(8)).configure(typestr="S",itemsize=4,shape=(2,)).itemsize
T.NDBuffer(bytearray(8)).configure(itemsize=2,_force=True).itemsize
hip.hipDeviceProp_t().gcnArchName
hip.hipMemAllocationProp().allocFlags
hip.hipMemAccessDesc().flags
hip.hipMemPoolProps().handleTypes
hip.hipMemcpy3DPeerParms().extent.width
hip.hipExtent(1,2,3).set_depth(0,9)
hip.hipMemLocation(id=-1).id
hip.hipExtent(1,2,3)[2]
hip.hipPointerAttribute_t(isManaged=1).isManaged
hip.hipPointerAttribute_t().hostPointer
hip.hipUUID_t.fromObj(bytes(range(16))).bytes
hip.hipIpcMemHandle_st.fromObj(bytes(range(64))).reserved
hip.hipIpcEventHandle_st.fromObj(bytes(64)).reserved
hip.hipDeviceProp_t.fromObj(b"gfx\0"+bytes(1468)).name
len(hip.hipDeviceProp_t.PROPERTIES())
c.free()
T.CStr(b"x").malloc(4)
""".strip().split("\n")

CRASH = "crash"


class CAI:
    """An object with the CUDA array interface that it is told."""

    def __init__(self, **interface: object) -> None:
        self.__cuda_array_interface__ = interface


class VP:
    """An object that gives itself as a C pointer."""

    def as_c_void_p(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(77)


def namespace(hip: Any, types: Any) -> dict[str, Any]:
    """Return what the expressions use."""
    interface = CAI(data=(4096, False), shape=(16,), typestr="<i4", version=3, strides=None)
    b = bytearray(range(64))
    return {
        "hip": hip,
        "T": types,
        "ctypes": ctypes,
        "array": array,
        "CAI": CAI,
        "VP": VP,
        "b": b,
        "c": types.CStr(b"abc"),
        "nd": types.NDBuffer(b),
        "d": types.DeviceArray.fromObj(b),
        "da": types.DeviceArray.fromObj(interface),
    }


def outcome(expression: str, make: Callable[[], dict[str, Any]]) -> str:
    """Return the repr of the value, addresses as #, or the exception's class."""
    try:
        text = repr(eval(expression, make()))
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is asked
        return f"raises {type(error).__name__}"
    return re.sub(r"\d{9,}", "#", text)


def in_a_child(expression: str, make: Callable[[], dict[str, Any]]) -> str:
    """Return the outcome, or CRASH when the interpreter ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.write(writer, outcome(expression, make).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text or CRASH


def main() -> None:
    from hip import _util, hip  # type: ignore[import-not-found]

    found = {each: in_a_child(each, lambda: namespace(hip, _util.types)) for each in EXPRESSIONS}
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()

"""``acl.media``: memory for images and video, which is device memory."""

from __future__ import annotations

from peerlane.dialects._shared.call import Address, Dict, Int32, Word
from peerlane.dialects.acl._checks import null
from peerlane.dialects.acl._memory import allocate, allocate_configured, free_device
from peerlane.dialects.acl._state import acl


@acl.call("acl.media.dvpp_malloc", out=1)
def dvpp_malloc(size: Word) -> int:
    """Allocate memory of this thread's device, as ``acl.rt.malloc`` with policy 0.

    Gives: pointer
    Refuses: as `malloc`
    Basis: D; C for the codes
    """
    return allocate(size, policy=0)


@acl.call("acl.media.dvpp_malloc_with_cfg", out=1)
def dvpp_malloc_with_cfg(size: Word, policy: Int32, cfg: Dict) -> int:
    """Allocate as ``acl.rt.malloc_with_cfg``.

    Gives: pointer
    Refuses: as `malloc_with_cfg`
    Basis: S; C for the codes
    """
    return allocate_configured(size, policy, cfg, "acl.media.dvpp_malloc_with_cfg")


@acl.call("acl.media.dvpp_free", checks=[null("dev_ptr", remedy="pass only what dvpp_malloc gave")])
def dvpp_free(dev_ptr: Address) -> None:
    """Free what ``dvpp_malloc`` returned.

    Refuses: as `free`; 107000 also freed memory
    Basis: D; C for the codes
    """
    free_device(dev_ptr, "acl.media.dvpp_free")

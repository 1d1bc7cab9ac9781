"""What the rest of peerlane knows of HCOMM and HCCL; ``dialects/_shared/manifests.py`` explains the names."""

MODULES = {"hcomm": "peerlane.dialects.hcomm"}
PACKAGES = {"hccl": "", "hcomm": ""}
ANEW = "peerlane.dialects.hcomm._system:begin_anew"
EXPLAIN = "peerlane.dialects.hcomm:explain"
REMEDY = (
    "Communicators end with HcclCommDestroy, and so does all that was acquired of them. Objects that acl\n"
    "made end with acl's calls."
)
ORDERS = {
    "wait": "HcommChannelNotifyWaitOnThread",
    "record": "HcommChannelNotifyRecordOnThread",
    "fence": "HcommChannelFenceOnThread",
    "sync": "acl.rt.synchronize_stream",
    "event": "HcommThreadNotifyWaitOnThread",
    "barrier": "HcclBarrier",
    "own_record": "HcommThreadNotifyRecordOnThread",
    "own_wait": "HcommThreadNotifyWaitOnThread",
    "fifo": "PEERLANE_HCOMM_NOTIFIES=fifo",
}
LIBRARIES = {"hcomm": "hcomm", "hccl": "hcomm"}  # programs link either, or both
SUPPORTS = "HcommIsSupport"
PREFIX = "hcomm."

"""What the rest of peerlane knows of Mooncake; ``dialects/_shared/manifests.py`` explains the names."""

MODULES = {"mooncake": "peerlane.dialects.mooncake", "mooncake.engine": "peerlane.dialects.mooncake.engine"}
ENTRY = "mooncake.engine"
# The engine works without any card, so it cannot tell: the files of cards of NVIDIA, AMD, Ascend and RDMA do.
PROBE = """
import glob, os, mooncake.engine
cards = ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "infiniband/uverbs*")
os._exit(0 if any(glob.glob("/dev/" + each) for each in cards) else 1)
"""
PACKAGES = {"mooncake": "mooncake-transfer-engine"}
VARIABLES = ("MC_TRANSFER_TIMEOUT", "MC_TCP_BIND_ADDRESS", "MC_FORCE_TCP")
ANEW = "peerlane.dialects.mooncake._engines:begin_anew"
EXPLAIN = "peerlane.dialects.mooncake:explain"
REMEDY = (
    "Registered memory ends with unregister_memory, a managed buffer with free_managed_buffer, a transfer with the\n"
    "status that says it is over, and all of an engine when the last reference to it goes."
)
ORDERS = {
    "wait": "TransferEngine.get_notifies",
    "record": "TransferEngine.transfer_sync",
    "message": "TransferEngine.transfer_sync",
    "token": "TransferNotify",
    "fifo": "",
    "sync": "TransferEngine.get_batch_transfer_status",
    "event": "TransferEngine.get_batch_transfer_status",
    "done": "0",
}

"""What peerlane knows of Toy, a vendor of the tests; ``dialects/_shared/manifests.py`` explains the names."""

MODULES = {"toy": "peerlane.dialects.toy"}
ANEW = "peerlane.dialects.toy:begin_anew"
EXPLAIN = "peerlane.dialects.toy:explain"
REMEDY = "Memory of toyMalloc ends with toyFree, streams with toyStreamDestroy."
ORDERS = {"sync": "toyStreamSynchronize", "event": "toyStreamWaitEvent", "record": "toyEventRecord"}
LIBRARIES = {"toy": "toy"}

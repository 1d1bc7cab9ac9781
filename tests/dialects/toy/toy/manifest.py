"""What peerlane knows of Toy, a vendor of the tests; ``dialects/_shared/manifests.py`` explains the names."""

MODULES = {"toy": "peerlane.dialects.toy"}
ANEW = "peerlane.dialects.toy:begin_anew"
REMEDY = "Memory of toyMalloc ends with toyFree."
ORDERS = {"sync": "toyStreamSynchronize", "event": "toyStreamWaitEvent"}
LIBRARIES = ("toy",)
FAILED = 9
CODES = ("toyError",)

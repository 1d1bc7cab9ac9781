from . import hip as hip, hiprtc as hiprtc

VERSION: str
__version__: str
HIP_VERSION: int
ROCM_VERSION: int
HIP_VERSION_NAME: str
ROCM_VERSION_NAME: str

def explain() -> str: ...

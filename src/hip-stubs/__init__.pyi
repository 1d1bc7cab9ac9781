from rocm.version import *

from . import _util as _util, hip as hip, hiprtc as hiprtc, hiprtc_pyext as hiprtc_pyext

VERSION: str
__version__: str

def explain() -> str: ...

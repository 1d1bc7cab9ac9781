from . import hip as hip, hiprtc as hiprtc, hiprtc_pyext as hiprtc_pyext, util as util

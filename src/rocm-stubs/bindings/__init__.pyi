from . import hip as hip, hiprtc as hiprtc, util as util

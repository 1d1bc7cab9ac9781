from peerlane.dialects.hip.hiprtc_pyext import *

from hip.hiprtc import *

from peerlane.dialects.hip.rocm.version import *

from peerlane.dialects.hip._types import *

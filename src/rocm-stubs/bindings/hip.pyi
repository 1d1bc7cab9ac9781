from hip.hip import *

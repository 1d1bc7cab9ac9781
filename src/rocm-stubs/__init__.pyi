from . import bindings as bindings, version as version

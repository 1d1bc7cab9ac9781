"""The order of what is done when the process forks."""

from peerlane import _core

#: Lets all native code see forks from now on, and not from its first use on.  Who registers for forks after this call
#: finds, in a child, native code that has made itself the child's.
see_forks = _core.see_forks

// Nothing but a name: libamdhip64.so.6 and .7 need libamdhip64.so, and the loader finds its symbols there.

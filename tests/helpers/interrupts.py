"""The two ways in which Ctrl-C meets a wait, as the statements of a program that sends it to itself from a thread."""

from __future__ import annotations

WHILE = "os.kill(os.getpid(), signal.SIGINT)"
# Noted as by a signal that comes between the last look of the interpreter and the system call: it wakes nothing.
JUST_BEFORE = "__import__('_thread').interrupt_main()"

INTERRUPTS = {"while it sleeps": WHILE, "just before it sleeps": JUST_BEFORE}

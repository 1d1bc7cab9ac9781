"""Two ways for a program's thread to send Ctrl-C to the program's wait, as statements."""

from __future__ import annotations

WHILE = "os.kill(os.getpid(), signal.SIGINT)"
# Stands for a signal between the interpreter's last check and the system call, which does not wake the wait.
JUST_BEFORE = "__import__('_thread').interrupt_main()"

INTERRUPTS = {"while it sleeps": WHILE, "just before it sleeps": JUST_BEFORE}

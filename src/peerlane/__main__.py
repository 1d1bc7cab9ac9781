"""``python -m peerlane`` is the command line."""

import gc
import sys


def main() -> int:
    """Run the command line; exit with 130 even if Ctrl-C comes during its import."""
    of_a_program = sys.argv[1:2] == ["run"]
    try:
        from .cli import main as run_command

        code = run_command()
        if not of_a_program:
            gc.freeze()  # the end of the interpreter would look at every object, which takes it up to 50 ms
        return code
    except KeyboardInterrupt:
        print("peerlane: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

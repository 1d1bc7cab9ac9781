"""``python -m peerlane`` is the command line."""

import sys


def main() -> int:
    """Run the command line; exit with 130 even if Ctrl-C comes during its import."""
    try:
        from .cli import main as run_command

        return run_command()
    except KeyboardInterrupt:
        print("peerlane: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

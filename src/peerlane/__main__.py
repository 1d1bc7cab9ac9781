"""``python -m peerlane`` is the command line."""

import sys


def main() -> int:
    """Run the command line, and end with 130 also when Ctrl-C comes while it is being imported."""
    try:
        from .cli import main as run_command

        return run_command()
    except KeyboardInterrupt:
        print("peerlane: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""The part of ``peerlane launch --hosts`` on another machine; the launcher runs it."""

import sys

from peerlane.cli.launch.part import serve_standard_streams

if __name__ == "__main__":
    sys.exit(serve_standard_streams())

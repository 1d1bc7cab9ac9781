"""Another machine for ``peerlane launch --hosts`` without another machine: a command like ssh that stays here."""

from __future__ import annotations

from pathlib import Path

_SSH = """\
#!/bin/sh
# As ssh does: a shell there reads the words behind the host's name, in an environment of its own.
host=$1
shift
{before}
exec env -i PATH="$PATH" HOME="$HOME" {mark}="${mark}" PEERLANE_RUNTIME_DIR="{runtime}" \\
    SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" sh -c "exec $*"
"""


def like_ssh(folder: Path, mark: str, runtime: str, before: str = "") -> str:
    """Make the command, and return its path.

    Parameters
    ----------
    folder : Path
        Where it is to lie.
    mark : str
        The variable by which a test finds its processes.
    runtime : str
        The runtime directory there.
    before : str
        What the shell does first; ``$host`` is the host's name.
    """
    path = folder / "like-ssh"
    path.write_text(_SSH.format(mark=mark, runtime=runtime, before=before))
    path.chmod(0o755)
    return str(path)

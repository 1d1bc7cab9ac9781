"""What a text that people paste in public must not have: the user's name, the home folder, the host's name."""

from __future__ import annotations

import dataclasses
import os
import pwd
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from peerlane.cli.doctor.finding import Finding


class Redaction:
    """Replaces the home folder by ``~``, and the names of user and host by ``<user>`` and ``<host>``."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        homes = {environ.get("HOME", "")}
        names = {environ.get(each, "") for each in ("USER", "LOGNAME", "SUDO_USER")}  # under sudo: the person
        try:
            account = pwd.getpwuid(os.geteuid())
        except KeyError:  # a container may run as a user without an account
            pass
        else:
            homes.add(account.pw_dir)
            names.add(account.pw_name)
        homes |= {f"/home/{name}" for name in names if name}
        # A link, as on systems where /home/... leads elsewhere, hides behind its target.
        homes |= {str(Path(home).resolve()) for home in homes if home}
        self._replaced = [
            (re.compile(rf"{re.escape(home)}(?=/|\s|[,;:)'\"]|$)"), "~")
            for home in sorted(homes - {"", "/"}, key=len, reverse=True)
        ]
        for each, sign in ((names, "<user>"), ({socket.gethostname()}, "<host>")):
            self._replaced += [
                (re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), sign)
                for name in each - {"", "root", "localhost", "peerlane"}
            ]

    def of(self, finding: Finding) -> Finding:
        """Return the finding without these names."""
        return dataclasses.replace(
            finding, **{name: self._without(getattr(finding, name)) for name in ("found", "lost", "remedy")}
        )

    def _without(self, text: str) -> str:
        for pattern, sign in self._replaced:
            text = pattern.sub(sign, text)
        return text

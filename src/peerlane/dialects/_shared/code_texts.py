"""The texts that functions of C return for a code.

``code_texts.py`` of a dialect has ``texts_of``, which returns them by function.  The build makes tables of them,
which answer when Python has ended.  So these modules import nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class CodeTexts:
    """The texts of a function."""

    def __init__(self, known: Mapping[int, str], other: str) -> None:
        #: ``known``: by code.
        #: ``other``: of any other number.
        self.known, self.other = known, other

    def __call__(self, code: int) -> str:
        """Return the text of a code."""
        return self.known.get(code, self.other)


def names_of(members: Mapping[str, int]) -> dict[int, str]:
    """Return the first name of each number of an enumeration."""
    return {number: name for name, number in reversed(list(members.items()))}


def texts(members: Mapping[str, int], other: str, words: Callable[[str], str]) -> CodeTexts:
    """Return what ``words`` makes of the names of an enumeration."""
    return CodeTexts({number: words(name) for number, name in names_of(members).items()}, other)


def lower_case_words(name: str) -> str:
    """Return a name like ``InvalidValue`` in small letters."""
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name).strip()

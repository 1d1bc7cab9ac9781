"""The version comes from git's tags, and a build without them does not fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[2]
#: What a build reads before it compiles anything.
READ = ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", ".git_archival.txt", ".gitattributes")
DEVELOPMENT = r"0\.1\.dev\d+\+g[0-9a-f]+"

_METADATA = """
import pathlib, sys
from scikit_build_core.build import prepare_metadata_for_build_wheel
name = prepare_metadata_for_build_wheel(sys.argv[1])
print((pathlib.Path(sys.argv[1]) / name / "METADATA").read_text())
"""
_SDIST = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"


def run(words: list[str], folder: Path, **variables: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, **variables}
    for name in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{name}_NAME": "a", f"GIT_{name}_EMAIL": "a@example.org"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def git(folder: Path, *words: str) -> str:
    return run(["git", *words], folder)


def version(folder: Path, **variables: str) -> str:
    """Return the version that a build in a folder gives the package."""
    metadata = folder.parent / "metadata"
    shutil.rmtree(metadata, ignore_errors=True)
    metadata.mkdir()
    text = run([sys.executable, "-c", _METADATA, str(metadata)], folder, **variables)
    (matched,) = re.findall(r"^Version: (.+)$", text, re.MULTILINE)
    return str(matched)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a git repository of two commits, without tags."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for name in READ:
        shutil.copy(ROOT / name, folder)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=one")
    git(folder, "commit", "--quiet", "--message=two", "--allow-empty")
    return folder


def test_version_of_clone_without_tags_is_a_development_version(clone: Path) -> None:
    assert re.fullmatch(DEVELOPMENT, version(clone))


def test_version_of_tagged_commit_is_the_tag(clone: Path) -> None:
    git(clone, "tag", "v0.2.0")
    assert version(clone) == "0.2.0"


def test_version_behind_a_tag_is_that_of_the_next_release_with_the_commit(clone: Path) -> None:
    git(clone, "tag", "v0.2.0", "HEAD~1")
    assert re.fullmatch(r"0\.2\.1\.dev1\+g[0-9a-f]+", version(clone))


def test_version_takes_no_tag_that_is_not_a_version(clone: Path) -> None:
    git(clone, "tag", "campaign-7")
    assert re.fullmatch(DEVELOPMENT, version(clone))


def test_version_of_shallow_clone_is_a_development_version(clone: Path) -> None:
    git(clone, "tag", "v0.2.0", "HEAD~1")
    git(clone.parent, "clone", "--quiet", "--depth=1", f"file://{clone}", "shallow")
    assert re.fullmatch(DEVELOPMENT, version(clone.parent / "shallow"))


@pytest.mark.parametrize(
    ("tagged", "expected"),
    [("HEAD", r"0\.2\.0"), ("HEAD~1", r"0\.2\.1\.dev1\+g[0-9a-f]+"), (None, r"0\.1\.dev0")],
)
def test_version_of_archive_is_that_of_the_clone_if_there_is_a_tag(
    clone: Path, tagged: str | None, expected: str
) -> None:
    if tagged is not None:
        git(clone, "tag", "v0.2.0", tagged)
    git(clone, "archive", "--output=../archive.tar", "--prefix=archive/", "HEAD")
    with tarfile.open(clone.parent / "archive.tar") as archive:
        archive.extractall(clone.parent)
    assert re.fullmatch(expected, version(clone.parent / "archive"))


def test_version_without_git_is_the_fallback(clone: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("cmake", "ninja"):
        matched = shutil.which(name)
        assert matched is not None, f"the dependency group `build` brings {name}"
        (programs / name).symlink_to(matched)
    assert version(clone, PATH=str(programs)) == "0.1.dev0"
    shutil.rmtree(clone / ".git")
    assert version(clone) == "0.1.dev0"


def test_version_of_sdist_is_that_of_its_commit(clone: Path) -> None:
    git(clone, "tag", "v0.2.0")
    run([sys.executable, "-c", _SDIST, str(clone.parent)], clone)
    with tarfile.open(clone.parent / "peerlane-0.2.0.tar.gz") as sdist:
        sdist.extractall(clone.parent)
    assert version(clone.parent / "peerlane-0.2.0") == "0.2.0"


def test_build_group_has_what_a_build_requires() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (required,) = re.findall(r"^requires = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    (group,) = re.findall(r"^build = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    needs = set(re.findall(r'"(.+?)"', required))
    assert needs and needs <= set(re.findall(r'"(.+?)"', group))

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arl_tangram.errors import SandboxPathError
from arl_tangram.managers.host.trees import remove_tree
from arl_tangram.managers.local.files import Folders

NOBODY = 65534


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(str(tmp_path / "box"))
    made.create()
    return made


@contextmanager
def owned_by_nobody() -> Iterator[Path]:
    """Give a folder, and act as its owner, for whom permissions count, if we are root."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.chown(folder, NOBODY, -1)
        os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


def test_absolute_paths_inside_are_fine(folders: Folders) -> None:
    for inside in (folders.work, folders.home, folders.tmp, folders.spill):
        assert folders.resolve(f"{inside}/x") == f"{inside}/x"


@pytest.mark.parametrize("path", ["/", "/etc/passwd", "..", "../..", "../workshop/x"])
def test_other_paths_are_refused(folders: Folders, path: str) -> None:
    with pytest.raises(SandboxPathError, match="leaves the sandbox"):
        folders.resolve(path)


def test_a_link_in_place_of_the_working_folder_is_refused(folders: Folders, tmp_path: Path) -> None:
    os.rmdir(folders.work)
    os.symlink(tmp_path, folders.work)
    with pytest.raises(SandboxPathError):
        folders.resolve("x")


def test_a_folder_without_write_permission_is_removed() -> None:
    with owned_by_nobody() as folder:
        tree = folder / "tree"
        (tree / "a" / "b").mkdir(parents=True)
        (tree / "a" / "b" / "file").write_text("")
        (folder / "kept").mkdir(mode=0o500)
        (tree / "link").symlink_to(folder / "kept")
        for path in (tree / "a" / "b", tree / "a", tree):
            path.chmod(0)
        remove_tree(str(tree))
        assert [path.name for path in folder.iterdir()] == ["kept"]
        assert (folder / "kept").stat().st_mode & 0o777 == 0o500


def test_folders_deeper_than_stack_and_paths_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    deepen = "import os\nfor _ in range(1500): os.mkdir('d' * 10); open('file', 'w').close(); os.chdir('d' * 10)"
    subprocess.run([sys.executable, "-c", deepen], cwd=top, check=True)
    remove_tree(str(top))
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_a_tree_is_removed_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (tmp_path / "tree").symlink_to(victim)
    remove_tree(str(tmp_path / "tree"))
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert victim.stat().st_mode & 0o777 == 0o755


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "gone"))

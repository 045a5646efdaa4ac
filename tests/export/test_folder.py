"""Version folders appear whole or not at all."""

import concurrent.futures
import errno
import os
import time

import pytest

from keras_attention.export import folder


def numbers(base):
    return sorted(entry.name for entry in base.iterdir())


def test_versions_are_the_numeric_folders(tmp_path):
    for name in ("10", "2", ".incomplete-x", "old", "-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "7").write_text("a file, no version")
    assert folder.versions(tmp_path) == [2, 10]
    assert folder.versions(tmp_path / "missing") == []
    assert folder.check_version(tmp_path, None) == 11


@pytest.mark.parametrize("version", [0, -3, 2**63])
def test_numbers_that_no_server_takes_are_refused(tmp_path, version):
    with pytest.raises(ValueError, match=f"Received: version={version}"):
        folder.check_version(tmp_path, version)


@pytest.mark.parametrize("version", [True, 1.0, "2", "1/2", b"1"])
def test_versions_that_are_no_integers_are_refused(tmp_path, version):
    with pytest.raises(TypeError, match="Received: version="):
        folder.check_version(tmp_path, version)


def test_a_taken_version_needs_overwrite(tmp_path):
    (tmp_path / "3").mkdir()
    with pytest.raises(ValueError, match="overwrite=True"):
        folder.check_version(tmp_path, 3)
    assert folder.check_version(tmp_path, 3, overwrite=True) == 3


def test_the_folder_is_hidden_until_it_is_whole(tmp_path):
    base = tmp_path / "deep" / "model"
    with folder.staged(base, 4) as stage:
        (stage / "part").write_text("x")
        assert folder.versions(base) == []
        assert stage.name.startswith(".")
    assert numbers(base) == ["4"]
    assert (base / "4" / "part").read_text() == "x"


def test_files_can_be_read_by_another_user(tmp_path):
    umask = os.umask(0o022)
    try:
        with folder.staged(tmp_path, 1) as stage:
            (stage / "part").write_text("x")
    finally:
        os.umask(umask)
    assert (tmp_path / "1").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "1" / "part").stat().st_mode & 0o777 == 0o644


def test_a_failure_leaves_nothing_behind(tmp_path):
    base = tmp_path / "deep" / "model"
    with pytest.raises(RuntimeError, match="half way"):
        with folder.staged(base, 1) as stage:
            (stage / "part").write_text("x")
            raise RuntimeError("half way")
    assert numbers(tmp_path) == []


@pytest.mark.parametrize("exchange", [True, False])
def test_replacing_keeps_the_old_version_until_the_end(
    tmp_path, monkeypatch, exchange
):
    if not exchange:
        monkeypatch.setattr(folder, "_exchange", lambda *_: False)
    for text in ("old", "new"):
        with folder.staged(tmp_path, 1, overwrite=True) as stage:
            (stage / "part").write_text(text)
            if text == "new":
                assert (tmp_path / "1" / "part").read_text() == "old"
    assert (tmp_path / "1" / "part").read_text() == "new"
    assert numbers(tmp_path) == ["1"]


def test_two_exports_of_one_number_do_not_mix(tmp_path):
    with pytest.raises(ValueError, match="another process"):
        with folder.staged(tmp_path, 1) as slow:
            (slow / "part").write_text("slow")
            with folder.staged(tmp_path, 1) as fast:
                (fast / "part").write_text("fast")
    assert (tmp_path / "1" / "part").read_text() == "fast"
    assert numbers(tmp_path) == ["1"]


def test_a_full_disk_is_told_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="bytes and .* are free"):
        with folder.staged(tmp_path / "m", 1, space=2**62):
            pytest.fail("the body must not run")
    assert numbers(tmp_path) == []


def test_a_base_path_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        folder.check_base_path(tmp_path / "file" / "model")
    with pytest.raises(TypeError, match="Received: base_path=3"):
        folder.check_base_path(3)
    with pytest.raises(ValueError, match="cannot be written"):
        with folder.staged(folder.check_base_path("/proc/model"), 1):
            pytest.fail("the body must not run")


def test_old_leftovers_are_removed_and_fresh_ones_kept(tmp_path):
    old, fresh = tmp_path / ".incomplete-old", tmp_path / ".incomplete-new"
    old.mkdir()
    fresh.mkdir()
    os.utime(old, (time.time() - 1e6,) * 2)
    with folder.staged(tmp_path, 1):
        pass
    assert numbers(tmp_path) == [".incomplete-new", "1"]


def test_leftovers_that_are_files_or_links_are_removed_too(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / ".incomplete-file").write_text("half")
    (tmp_path / ".incomplete-link").symlink_to(kept)
    for name in (".incomplete-file", ".incomplete-link"):
        path, then = tmp_path / name, time.time() - 1e6
        os.utime(path, (then, then), follow_symlinks=False)
    with folder.staged(tmp_path, 1):
        pass
    assert numbers(tmp_path) == ["1", "kept"]


def test_files_appear_together_at_the_end(tmp_path):
    one, two = tmp_path / "models.config", tmp_path / "README.txt"
    two.write_text("old")
    with folder.files_beside(tmp_path) as write:
        write(one, "one")
        write(two, None)
        assert not one.exists() and two.read_text() == "old"
    assert one.read_text() == "one" and numbers(tmp_path) == ["models.config"]


@pytest.mark.parametrize("place", ["models.config", "README.txt"])
def test_a_full_disk_leaves_all_as_it_was(tmp_path, monkeypatch, place):
    """The version is not seen before the files beside it can be."""
    (tmp_path / "models.config").write_text("old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ValueError, match="cannot be written.*No space"):
        with folder.files_beside(tmp_path) as write:
            with folder.staged(tmp_path, 2) as path:
                (path / "saved_model.pb").write_text("graph")
                write(tmp_path / "models.config", "new")
                if place == "README.txt":
                    monkeypatch.setattr(folder.os, "fsync", full)
                write(tmp_path / "README.txt", "new")
                monkeypatch.setattr(folder.os, "fsync", full)
    assert numbers(tmp_path) == ["models.config"]
    assert (tmp_path / "models.config").read_text() == "old"


def test_digits_of_other_scripts_are_no_versions(tmp_path):
    for name in ("3", "٤", "５", "²", "-6", "1.5"):
        (tmp_path / name).mkdir()
    assert folder.versions(tmp_path) == [3]
    assert folder.check_version(tmp_path, None) == 4


def test_there_is_no_version_after_the_last(tmp_path):
    (tmp_path / str(2**63 - 1)).mkdir()
    with pytest.raises(ValueError, match="no number after.*64 bits"):
        folder.check_version(tmp_path, None)


def test_a_folder_that_cannot_be_searched_is_named(tmp_path, monkeypatch):
    def closed(self):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "iterdir", closed)
    with pytest.raises(ValueError, match="cannot be searched.*denied"):
        folder.versions(tmp_path)


def test_a_version_is_no_base_folder(tmp_path):
    version = tmp_path / "classifier" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_text("graph")
    with pytest.raises(ValueError, match="version itself.*classifier'"):
        folder.check_base_path(version)


def test_a_file_with_the_next_number_is_stepped_over(tmp_path):
    (tmp_path / "1").write_text("a file, no version")
    assert folder.check_version(tmp_path, None) == 2


def test_exports_to_one_folder_wait_for_each_other(tmp_path):
    numbers_taken = []

    def export(_):
        with folder.locked(tmp_path / "m"):
            number = folder.check_version(tmp_path / "m", None)
            with folder.staged(tmp_path / "m", number):
                numbers_taken.append(number)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(export, range(8)))
    assert numbers_taken == [1, 2, 3, 4, 5, 6, 7, 8]
    assert folder.versions(tmp_path / "m") == numbers_taken


def test_a_folder_made_for_nothing_is_removed(tmp_path):
    with pytest.raises(KeyError):
        with folder.locked(tmp_path / "a" / "b"):
            raise KeyError
    assert numbers(tmp_path) == []

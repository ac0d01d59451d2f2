"""Compiled programs are kept between runs, and damage among them heals."""

import os
import warnings
from pathlib import Path

import jax
import pytest
from processes import assert_one_line, finished, without_devices
from processes import process as started_process

import jaxota as jo
from jaxota._core import cache
from jaxota.cli import process
from jaxota.errors import InputError

SMALL = ("run", "fig1", "--trials", "4", "--rounds", "3")


@pytest.fixture
def run(tmp_path):
    """Runs the command with a cache in `run.cache`; gives what it says on stderr."""

    def run(cache):
        environment = os.environ | {"JAXOTA_CACHE": str(cache), "HOME": str(tmp_path)}
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        words = "-m", "jaxota", *SMALL, "--out", tmp_path / "out"
        with started_process(*words, env=environment, cwd=tmp_path) as started:
            code, _, errors = finished(started)
        assert code == 0
        return without_devices(errors)

    return run


@pytest.mark.slow
def test_compiled_programs_are_kept_where_asked_and_damaged_ones_are_replaced(run, tmp_path):
    """Nobody hears of it: neither of the second run, nor of a third that finds all cut short."""

    def sizes():
        return {path: path.stat().st_size for path in (tmp_path / "cache").rglob("*-cache")}

    assert run("~/cache") == ""
    kept = sizes()
    assert kept
    assert run("~/cache") == "" and sizes() == kept
    for path, size in kept.items():
        path.write_bytes(path.read_bytes()[: size // 2])
    assert run("~/cache") == ""
    assert sizes().keys() == kept.keys()
    assert all(size > kept[path] * 0.9 for path, size in sizes().items())
    assert not (tmp_path / "~").exists()


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_one_line(run, tmp_path):
    (tmp_path / "file").touch()
    assert_one_line(run("file"), "not kept", "file", "Not a directory", "JAXOTA_CACHE")


def test_the_users_own_cache_of_jax_stands(monkeypatch, tmp_path):
    """Unless JAXOTA_CACHE names another."""
    changed = {}
    monkeypatch.setattr(jax.config, "update", changed.__setitem__)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "theirs"))
    monkeypatch.delenv("JAXOTA_CACHE", raising=False)
    cache.keep_programs()
    assert set(changed) == {"jax_logging_level"}
    monkeypatch.setenv("JAXOTA_CACHE", str(tmp_path / "ours"))
    cache.keep_programs()
    assert Path(changed["jax_compilation_cache_dir"]).parent == tmp_path / "ours"


@pytest.mark.slow
def test_programs_of_another_version_are_left_alone(run, tmp_path, monkeypatch):
    """They have names of their own: each version compiles, keeps and finds its programs."""
    cache, patch = tmp_path / "cache", tmp_path / "sitecustomize.py"

    def programs():
        return {path.name for path in cache.rglob("*-cache")}

    assert run(cache) == ""
    ours = programs()
    patch.write_text(
        "from jax._src import lib, cache_key\ncache_key.jaxlib_version_str = '0.0.1'\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert run(cache) == ""
    assert ours < programs()
    theirs = programs() - ours
    assert {name.rsplit("-", 2)[0] for name in theirs} == {name.rsplit("-", 2)[0] for name in ours}


@pytest.mark.parametrize("place", ["off", "here", "~/there", None])
def test_the_cache_is_per_user_unless_moved_or_off(place, monkeypatch, tmp_path):
    changed = {}
    monkeypatch.setattr(jax.config, "update", changed.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    if place is None:
        monkeypatch.delenv("JAXOTA_CACHE", raising=False)
    else:
        monkeypatch.setenv("JAXOTA_CACHE", place)
    cache.keep_programs()
    folder = Path(changed.get("jax_compilation_cache_dir", ""))
    there = {"here": Path("here"), "~/there": tmp_path / "there", None: tmp_path / "jaxota"}
    assert folder.parent == there.get(place, Path())
    assert cache.cache_folder() == there.get(place, tmp_path / "jaxota")


def test_nobodys_home_is_no_folder(monkeypatch):
    monkeypatch.setenv("JAXOTA_CACHE", "~nobody-of-this-name/x")
    with pytest.raises(InputError, match="JAXOTA_CACHE must be a folder, or off, got ~nobody"):
        cache.cache_folder()


def test_other_warnings_are_still_shown(monkeypatch, tmp_path):
    """Of damaged programs, all of that name are removed; other warnings pass."""
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    before = warnings.showwarning
    names = "jit_run-01-cache", "jit_run-02-cache", "jit_other-01-cache"
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(type(jax.config), "values", {"jax_compilation_cache_dir": str(tmp_path)})
    with process.replacing_damaged_programs():
        warnings.simplefilter("always")
        warnings.warn(
            "Error writing persistent compilation cache entry for 'jit_other': x", stacklevel=1
        )
        warnings.warn(
            "Error reading persistent compilation cache entry for 'jit_run': x", stacklevel=1
        )
        warnings.warn("the sky falls", stacklevel=1)
    assert shown == ["the sky falls"] and warnings.showwarning is before
    assert [path.name for path in tmp_path.iterdir()] == ["jit_other-01-cache"]


PROGRAM = """
import jax, jax.numpy as jnp, jaxota as jo, logging
print(jo.enable_cache("cache"))
print(jax.jit(lambda x: jnp.sin(x @ x).sum())(jnp.ones((8, 8))))
logging.getLogger("jax").warning("of jax")
"""


def test_a_script_keeps_its_programs_and_reads_them_without_a_word_of_xla(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    kept = []
    for _ in range(2):
        with started_process("-c", PROGRAM, env=environment, cwd=tmp_path) as started:
            code, printed, errors = finished(started)
        place, value = printed.splitlines()
        assert code == 0 and float(value) == pytest.approx(64 * 0.98935825, rel=1e-5)
        assert errors.count("\n") == 1 and "of jax" in errors
        kept.append({path.name for path in (tmp_path / place).glob("*-cache")})
    assert kept[0] == kept[1] and len(kept[0]) >= 1


def test_a_cache_in_a_place_that_cannot_be_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be written .*name another folder with folder$"):
        jo.enable_cache(tmp_path / "file")
    with pytest.raises(InputError, match="folder must be a path, got 3"):
        jo.enable_cache(3)
    monkeypatch.setenv("JAXOTA_CACHE", "off")
    assert jo.enable_cache() is None

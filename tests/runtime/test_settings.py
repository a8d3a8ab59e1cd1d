"""The table of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from torus import settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in settings.SETTINGS:
        for variable in row.variables:
            monkeypatch.delenv(variable, raising=False)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    values = {row.name: row.get() for row in settings.SETTINGS}
    assert values == {
        "platform": None,
        "device_count": 1,
        "simulate": None,
        "hbm_limit": None,
        "cpu_fallback": "warn",
        "defer_and_fuse": False,
        "fusing": "background",
        "compile_fallback": True,
        "compile_dump": None,
        "launch_blocking": False,
        "debug_checks": False,
        "program_cache": "default",
        "prefetch": True,
        "cache_dir": Path("/somewhere/torus"),
        "cache_size": 4 * 2**30,
        "shared_cache": None,
        "shared_cache_writes": True,
        "cache_only": False,
        "dump_misses": None,
        "cache_report": None,
        "warm_topology": None,
    }


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("TORUS_PLATFORM", "CPU", "platform", "cpu"),
        ("TORUS_DEVICE_COUNT", "4", "device_count", 4),
        ("TORUS_CPU_FALLBACK", "error", "cpu_fallback", "error"),
        ("TORCH_TPU_DEFER_AND_FUSE", "1", "defer_and_fuse", True),
        ("TORCH_TPU_LAUNCH_BLOCKING", "on", "launch_blocking", True),
        ("TPU_LAUNCH_BLOCKING", "true", "launch_blocking", True),
        ("TORCH_TPU_ENABLE_DEBUG_CHECKS", "0", "debug_checks", False),
        ("TORUS_CACHE_SIZE", "1.5GiB", "cache_size", 3 * 2**29),
        ("TORUS_HBM_LIMIT", "32GiB", "hbm_limit", 2**35),
        ("TORUS_CACHE_SIZE", "500 MB", "cache_size", 500_000_000),
        ("TORUS_CACHE_SIZE", "1073741824", "cache_size", 2**30),
        ("TORUS_CACHE_DIR", "/x/y", "cache_dir", Path("/x/y")),
        ("TORUS_PLATFORM", "  ", "platform", None),
        ("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", "gs://bucket/folder", "shared_cache", "gs://bucket/folder"),
        ("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", "/x/y", "shared_cache", "/x/y"),
        ("TORUS_DUMP_MISSES", "/x/y", "dump_misses", Path("/x/y")),
    ],
)
def test_read_from_the_environment_each_time(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    assert settings.get(name) == value
    assert getattr(settings, name) == value


def test_the_first_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_TPU_LAUNCH_BLOCKING", "0")
    monkeypatch.setenv("TPU_LAUNCH_BLOCKING", "1")
    assert settings.launch_blocking is False


@pytest.mark.parametrize(
    ("variable", "text", "name", "accepts"),
    [
        ("TORUS_PLATFORM", "gpu", "platform", "cpu, cuda or tpu"),
        ("TORUS_DEVICE_COUNT", "0", "device_count", "a whole number from 1 on"),
        ("TORUS_CPU_FALLBACK", "maybe", "cpu_fallback", "warn, silent or error"),
        ("TPU_LAUNCH_BLOCKING", "2", "launch_blocking", "1, 0, true, false"),
        ("TORUS_CACHE_SIZE", "lots", "cache_size", "4GiB"),
        ("TORUS_HBM_LIMIT", "lots", "hbm_limit", "4GiB"),
        ("TORUS_HBM_LIMIT", "0", "hbm_limit", "from 1 on"),
        ("TORUS_SIMULATE", "v6e-256", "simulate", "at most 127 devices"),
    ],
)
def test_a_bad_value_names_the_variable_and_what_is_accepted(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, accepts: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=f"{variable}='{text}' .*{accepts}"):
        settings.get(name)


def test_an_unknown_name() -> None:
    with pytest.raises(KeyError, match="no setting 'nonsense'"):
        settings.get("nonsense")
    with pytest.raises(AttributeError, match="nonsense"):
        settings.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", Path("/c/default")),
        ("mine", Path("/c/mine")),
        ("/a/b", Path("/a/b")),
        ("disabled", None),
    ],
)
def test_where_programs_are_cached(monkeypatch: pytest.MonkeyPatch, text: str, path: Path | None) -> None:
    monkeypatch.setenv("TORUS_CACHE_DIR", "/c")
    monkeypatch.setenv("TORCH_TPU_TIER2_COMPILATION_CACHE", text)
    assert settings.program_cache_path() == path


def test_the_table_has_every_variable() -> None:
    text = settings.table()
    for row in settings.SETTINGS:
        assert all(f"`{variable}`" in text for variable in row.variables)
    assert len(text.splitlines()) == len(settings.SETTINGS) + 2

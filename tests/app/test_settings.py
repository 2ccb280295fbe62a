from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidewheel import ConfigurationError, Tidewheel
from tidewheel.settings import SETTINGS, SettingOptions, Settings, load_settings


def load(given: dict[str, Any], environment: dict[str, str], directory: Path) -> Settings:
    return load_settings(given, environment=environment, directory=directory)


def test_a_keyword_beats_the_environment_which_beats_pyproject_which_beats_the_default(
    tmp_path: Path,
) -> None:
    """Four places, one order."""
    (tmp_path / "pyproject.toml").write_text(
        "[tool.tidewheel]\nlease = 11\nconcurrency = 12\ntimeout = 13\n", "utf-8"
    )
    settings = load({"lease": 31}, {"TIDEWHEEL_LEASE": "21", "TIDEWHEEL_CONCURRENCY": "22"}, tmp_path)
    assert (settings.lease, settings.concurrency, settings.timeout, settings.poll_interval) == (31, 22, 13, 1)


def test_the_nearest_pyproject_upwards_is_read(tmp_path: Path) -> None:
    """A program started in a sub-directory finds its project's settings, and only those."""
    inner = tmp_path / "project"
    deep = inner / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.tidewheel]\nlease = 99\n", "utf-8")
    (inner / "pyproject.toml").write_text("[tool.tidewheel]\nconcurrency = 3\n", "utf-8")
    settings = load({}, {}, deep)
    assert (settings.concurrency, settings.lease) == (3, 60)


def test_the_url_comes_from_the_environment_and_has_a_default(tmp_path: Path) -> None:
    """``Tidewheel()`` without arguments is a SQLite file in the working directory."""
    assert load({}, {}, tmp_path).url == "sqlite:///tidewheel.db"
    assert load({}, {"TIDEWHEEL_URL": "memory://"}, tmp_path).url == "memory://"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("timeout", "none", None),
        ("timeout", "0.5", 0.5),
        ("strict_tasks", "on", True),
        ("migrate", "FALSE", False),
        ("prefetch", "None", None),
        ("max_attempts", " 7 ", 7),
        ("lease", "", 60),
    ],
)
def test_environment_text_becomes_the_settings_type(tmp_path: Path, name: str, text: str, value: Any) -> None:
    """Numbers, seconds, switches and none are understood; an empty variable is not set."""
    assert getattr(load({}, {SETTINGS[name].environment: text}, tmp_path), name) == value


def test_durations_may_be_given_as_timedelta(tmp_path: Path) -> None:
    """Seconds are the unit, and a timedelta is seconds that say so."""
    assert load({"retention": timedelta(days=2)}, {}, tmp_path).retention == 172_800


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        ({"lease": 1}, {}, ["lease is 1", "keyword", "2 to 86,400"]),
        ({"lease": 86_401}, {}, ["lease is 86401", "2 to 86,400"]),
        ({"lease": float("nan")}, {}, ["lease is nan"]),
        ({"lease": "60"}, {}, ["lease is '60'", "seconds"]),
        ({"concurrency": 0}, {}, ["concurrency is 0", "1 to 10,000"]),
        ({"concurrency": True}, {}, ["concurrency is True", "whole number"]),
        ({"concurrency": 2.0}, {}, ["concurrency is 2.0", "whole number"]),
        ({"timeout": 0}, {}, ["timeout is 0", "none (no timeout)"]),
        ({"strict_tasks": "yes"}, {}, ["strict_tasks is 'yes'", "true or false"]),
        ({"tenant": "a b"}, {}, ["tenant is 'a b'", "200"]),
        ({"leese": 60}, {}, ["'leese'", "did you mean lease?"]),
        ({"zzz": 1}, {}, ["'zzz'", "the settings are url, token, lease"]),
        (
            {},
            {"TIDEWHEEL_CONCURRENCY": "many"},
            ["concurrency is 'many'", "TIDEWHEEL_CONCURRENCY", "1 to 10,000"],
        ),
        ({}, {"TIDEWHEEL_MIGRATE": "perhaps"}, ["migrate is 'perhaps'", "true or false"]),
    ],
)
def test_a_bad_setting_is_refused_with_name_value_and_range(
    tmp_path: Path, given: dict[str, Any], environment: dict[str, str], words: list[str]
) -> None:
    """The message alone is enough to repair it."""
    with pytest.raises(ConfigurationError) as refused:
        load(given, environment, tmp_path)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.tidewheel]\nleese = 60\n", ["'leese'", "pyproject.toml", "did you mean lease?"]),
        ("[tool.tidewheel]\nlease = 1\n", ["lease is 1", "pyproject.toml"]),
        ("[tool]\ntidewheel = 3\n", ["[tool.tidewheel]", "must be a table"]),
        ("not toml", ["pyproject.toml", "cannot be read"]),
    ],
)
def test_a_bad_pyproject_is_refused_with_its_path(tmp_path: Path, text: str, words: list[str]) -> None:
    """A typo in a file is as loud as one in a call."""
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as refused:
        load({}, {}, tmp_path)
    for word in words:
        assert word in str(refused.value)


def test_none_in_pyproject_is_written_as_text(tmp_path: Path) -> None:
    """TOML has no null; the word none stands for it."""
    (tmp_path / "pyproject.toml").write_text('[tool.tidewheel]\ntimeout = "none"\n', "utf-8")
    assert load({}, {}, tmp_path).timeout is None


def test_every_setting_is_a_keyword_and_has_help() -> None:
    """The typed keywords, the frozen class and the table are one and the same list."""
    names = {item.name for item in fields(Settings)}
    assert names == set(SETTINGS) == set(SettingOptions.__annotations__) | {"url"}
    assert all(setting.help.endswith(".") and setting.allowed for setting in SETTINGS.values())


def test_every_default_passes_its_own_check() -> None:
    """A default outside of its range would be a setting nobody could write down."""
    for setting in SETTINGS.values():
        assert setting.check(setting.default, "default") == setting.default


def test_an_app_takes_settings_as_keywords() -> None:
    """What the app uses is what was given."""
    assert Tidewheel("memory://", concurrency=3).settings.concurrency == 3
    with pytest.raises(ConfigurationError, match="did you mean concurrency"):
        Tidewheel("memory://", concurency=3)  # type: ignore[call-arg]


def test_a_url_that_names_no_store_is_refused_when_the_app_is_made() -> None:
    """A wrong URL is an error at once, not at the first job."""
    with pytest.raises(ConfigurationError, match="names no store"):
        Tidewheel("mysql://host/db")


# -- secrets and addresses ------------------------------------------------------------------------------

FOREIGN = "https://jobs.example.org"
PG = "postgresql://shop@db.example.org/shop"


def project(directory: Path, **settings: str) -> Path:
    lines = "".join(f'{name} = "{value}"\n' for name, value in settings.items())
    (directory / "pyproject.toml").write_text(f"[tool.tidewheel]\n{lines}", "utf-8")
    return directory


@pytest.mark.parametrize(
    ("given", "environment"),
    [({}, {"TIDEWHEEL_TOKEN": "tw_secret"}), ({"token": "tw_secret"}, {})],
    ids=["environment", "keyword"],
)
def test_a_token_is_not_sent_to_a_server_that_a_pyproject_names(
    tmp_path: Path, given: dict[str, Any], environment: dict[str, str]
) -> None:
    """The file may be a stranger's, in a directory somebody works in. The remedy is told, the token not."""
    for settings in ({"url": FOREIGN}, {"url": FOREIGN, "token": "tw_of_the_file"}):
        with pytest.raises(ConfigurationError, match=f"TIDEWHEEL_URL={FOREIGN} or give --url") as caught:
            load(given, environment, project(tmp_path, **settings))
        assert "tw_" not in str(caught.value)


def test_a_token_of_a_pyproject_is_not_sent_to_another_server(tmp_path: Path) -> None:
    """It belongs to the server that the file names."""
    place = project(tmp_path, url=FOREIGN, token="tw_of_the_file")  # noqa: S106
    for given, environment in (
        ({"url": "http://other:8080"}, {}),
        ({}, {"TIDEWHEEL_URL": "http://other:8080"}),
    ):
        with pytest.raises(ConfigurationError, match="set TIDEWHEEL_TOKEN") as caught:
            load(given, environment, place)
        assert "tw_" not in str(caught.value)
    assert load({}, {"TIDEWHEEL_URL": "http://other:8080", "TIDEWHEEL_TOKEN": "none"}, place).token is None


@pytest.mark.parametrize(
    ("given", "environment", "settings", "token"),
    [
        ({}, {}, {"url": FOREIGN, "token": "tw_a"}, "tw_a"),
        ({}, {"TIDEWHEEL_URL": FOREIGN, "TIDEWHEEL_TOKEN": "tw_b"}, {"url": "http://other"}, "tw_b"),
        ({"url": FOREIGN}, {"TIDEWHEEL_TOKEN": "tw_c"}, {"url": "http://other", "token": "tw_a"}, "tw_c"),
        ({}, {"TIDEWHEEL_TOKEN": "tw_d"}, {"url": "sqlite:///jobs.db"}, "tw_d"),
        ({}, {}, {"url": FOREIGN}, None),
    ],
    ids=["both in the file", "both in the environment", "command line", "no server", "no token"],
)
def test_a_url_and_a_token_of_one_source_belong_together(
    tmp_path: Path, given: dict[str, Any], environment: dict[str, str], settings: dict[str, str], token: str
) -> None:
    """The command line and the environment are both of whoever works there."""
    assert load(given, environment, project(tmp_path, **settings)).token == token


def test_the_password_of_postgresql_is_not_sent_to_a_server_that_a_pyproject_names(tmp_path: Path) -> None:
    """PGPASSWORD is for no host in particular. A password file is; and so is a URL of the same source."""
    environment = {"PGPASSWORD": "hunter2"}
    for url in (PG, "postgresql:///shop?host=db.example.org"):
        with pytest.raises(ConfigurationError, match=r"PGPASSWORD; db\.example\.org would get it") as caught:
            load({}, environment, project(tmp_path, url=url))
        assert "hunter2" not in str(caught.value)
    assert load({}, environment | {"TIDEWHEEL_URL": PG}, tmp_path).url == PG
    assert load({"url": PG}, environment, tmp_path).url == PG
    for url in (
        "postgresql://shop@localhost/shop",
        "postgresql:///shop",
        "postgresql:///shop?host=/run/postgresql",
        "postgresql://shop:own@db.example.org/shop",
    ):
        assert load({}, environment, project(tmp_path, url=url)).url == url
    assert load({}, {}, project(tmp_path, url=PG)).url == PG

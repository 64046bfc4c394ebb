"""The settings."""

from __future__ import annotations

import os

import pytest

from sage_server.domain.models import ModelProvider
from sage_server.settings import PREFIX, Settings, SettingsError, load_settings


def settings(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name in [name for name in os.environ if name.startswith((PREFIX, "OPENAI_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_a_key_or_an_address_makes_a_provider_of_language_models(monkeypatch: pytest.MonkeyPatch) -> None:
    openai = "https://api.openai.com/v1"
    for variables, expected in [
        ({}, {}),
        ({"SAGE_LLM_MODEL": "gpt-x"}, {}),
        ({"SAGE_LLM_API_KEY": "own"}, {"openai": ModelProvider(openai, "own")}),
        ({"OPENAI_API_KEY": "plain"}, {"openai": ModelProvider(openai, "plain")}),
        ({"OPENAI_API_KEY": "plain", "SAGE_LLM_API_KEY": ""}, {"openai": ModelProvider(openai, "plain")}),
        ({"OPENAI_API_KEY": "plain", "SAGE_LLM_API_KEY": "own"}, {"openai": ModelProvider(openai, "own")}),
        ({"SAGE_LLM_BASE_URL": "http://host:1/v1"}, {"openai": ModelProvider("http://host:1/v1")}),
    ]:
        assert settings(monkeypatch, **variables).model_providers == expected


def test_more_providers_have_names_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(
        monkeypatch,
        SAGE_LLM_PROVIDERS="near=http://127.0.0.1:8000/v1, far=https://far.example/v1?a=b",
        SAGE_LLM_PROVIDER_KEYS="far=k=1",
    )
    assert found.model_providers == {
        "near": ModelProvider("http://127.0.0.1:8000/v1"),
        "far": ModelProvider("https://far.example/v1?a=b", "k=1"),
    }
    assert "k=1" not in f"{found!r} {found.model_providers!r}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SAGE_LLM_BASE_URL", "canary.example/v1"),
        ("SAGE_LLM_BASE_URL", "https://"),
        ("SAGE_LLM_BASE_URL", "https://canary:port/v1"),
        ("SAGE_LLM_API_KEY", "canary\n"),
        ("SAGE_LLM_API_KEY", "canäry"),
        ("SAGE_LLM_MODEL", "the canary"),
        ("SAGE_LLM_PROVIDERS", "https://canary.example/v1"),
        ("SAGE_LLM_PROVIDERS", "canary=canary.example"),
        ("SAGE_LLM_PROVIDERS", "openai=https://canary.example/v1"),
        ("SAGE_LLM_PROVIDERS", "local=https://canary.example/v1"),
        ("SAGE_LLM_PROVIDERS", "offline=https://canary.example/v1"),
        ("SAGE_LLM_PROVIDERS", "a=https://canary.example/v1,a=https://canary.example/v2"),
        ("SAGE_LLM_PROVIDER_KEYS", "canary=key"),
        ("SAGE_LLM_PROVIDER_KEYS", "canary"),
    ],
)
def test_a_wrong_provider_is_refused_without_its_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    with pytest.raises(SettingsError, match=name) as refused:
        settings(monkeypatch, **{name: value})
    assert "can" not in str(refused.value)


def test_variables_of_the_clients_command_line_are_no_settings_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings(monkeypatch, SAGE_CLIENT_ADDRESS="127.0.0.1:1", SAGE_CLIENT_TOKEN="x")
    with pytest.raises(SettingsError, match="SAGE_CLIENTS: there is no such setting"):
        settings(monkeypatch, SAGE_CLIENTS="x")


@pytest.mark.parametrize(
    "address", ["foo", "127.0.0.1", "127.0.0.1:99999", ":50051", "127.0.0.1:http", "off"]
)
def test_an_address_without_a_port_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with pytest.raises(SettingsError, match=r"^SAGE_LISTEN: must be an address and a port"):
        settings(monkeypatch, SAGE_LISTEN=address)
    if address != "off":
        with pytest.raises(SettingsError, match=r"^SAGE_METRICS_LISTEN: "):
            settings(monkeypatch, SAGE_METRICS_LISTEN=address)


def test_keys_of_tokens_are_fetched_over_http_only(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"SAGE_AUTH": "required", "SAGE_JWT_ISSUER": "i", "SAGE_JWT_AUDIENCE": "a"}
    assert settings(monkeypatch, **wanted, SAGE_JWT_JWKS_URL="https://id.example/keys")
    with pytest.raises(SettingsError, match="SAGE_JWT_JWKS_URL: must begin with") as refused:
        settings(monkeypatch, **wanted, SAGE_JWT_JWKS_URL="file:///etc/canary")
    assert "canary" not in str(refused.value)


def test_a_misspelled_setting_is_named_with_the_one_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as refused:
        settings(monkeypatch, SAGE_LISEN="x", SAGE_LLM_URL="x", SAGE_ZZZ="x")
    assert str(refused.value).splitlines() == [
        "SAGE_LISEN: there is no such setting (did you mean SAGE_LISTEN?)",
        "SAGE_LLM_URL: there is no such setting (did you mean SAGE_LLM_BASE_URL?)",
        "SAGE_ZZZ: there is no such setting",
    ]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SAGE_AUTH", "canary", "must be `none` or `required`"),
        ("SAGE_LOG_LEVEL", "canary", "must be `debug`, `info`, `warning` or `error`"),
        ("SAGE_NOTIFY", "canary", "must be true or false"),
        ("SAGE_POOL_MAX", "canary", "must be a whole number"),
        ("SAGE_POOL_MAX", "0", "must be at least 1"),
        ("SAGE_POOL_MAX", "5000", "must be at most 1000"),
        ("SAGE_DRAIN", "canary", "must be a number"),
        ("SAGE_POOL_TIMEOUT", "0", "must be more than 0"),
    ],
)
def test_what_a_setting_may_be_is_said_in_plain_words(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    with pytest.raises(SettingsError, match=rf"^{name}: {expected}$"):
        settings(monkeypatch, **{name: value})

from __future__ import annotations

import pytest

from registry.errors import InputError
from serving.settings import load_settings


def test_options_go_before_the_environment_and_the_rest_has_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("IRONWORKS_PORT", "8123")
    monkeypatch.setenv("IRONWORKS_MAX_SLOTS", "3")
    monkeypatch.chdir(tmp_path)
    settings = load_settings(max_slots=5, model=None)
    assert (settings.port, settings.max_slots) == (8123, 5)
    assert settings.service_name == "replica-8123"
    assert settings.state == tmp_path / "var"
    assert settings.max_in_system == 5 + settings.max_waiting


def test_models_are_split_in_order():
    assert load_settings(model=" b, a,,b ").models == ("b", "a")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", "70000"),
        ("device", "tpu"),
        ("service", "../etc"),
        ("dtype", "int4"),
        ("drain_seconds", "-1"),
        ("on_audit_unavailable", "ignore"),
    ],
)
def test_a_bad_value_is_refused_by_name_and_not_repeated(monkeypatch, field, value):
    monkeypatch.setenv(f"IRONWORKS_{field.upper()}", value)
    with pytest.raises(InputError) as caught:
        load_settings()
    assert caught.value.where == f"IRONWORKS_{field.upper()}"


def test_a_refused_value_is_not_repeated(monkeypatch):
    monkeypatch.setenv("IRONWORKS_PORT", "secret")
    with pytest.raises(InputError) as caught:
        load_settings()
    assert "secret" not in str(caught.value)

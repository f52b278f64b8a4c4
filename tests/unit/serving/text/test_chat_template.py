"""A template from an untrusted checkpoint: what it may do, and what stops it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from registry.errors import CheckpointError, InputError
from serving.text import chat_template
from serving.text.chat_template import ChatTemplate, read_template, special_tokens

DOUBLING = (
    "{% set ns = namespace(s='a') %}{% for i in range(99) %}"
    "{% set ns.s = ns.s ? ns.s %}{% endfor %}"
)
MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "<hi> & é"}]


def render(source: str, **tokens: str) -> str:
    return ChatTemplate(source, tokens).render(MESSAGES)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", "<s>hello"),
        ("{{ messages | tojson }}", json.dumps(MESSAGES, ensure_ascii=False)),
        ("{% for m in messages %}{{ loop.index }}{{ loop.last }} {% endfor %}", "1False 2True "),
        ("{% for m in messages if m.role == 'user' %}{{ loop.length }}{% endfor %}", "1"),
        ("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}x{% endfor %}", "x"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
         "{{ ns.n }}", "2"),
        ("{% generation %}{{ 'a' ~ 1 ~ none }}{% endgeneration %}", "a1None"),
        ("{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
         "role=user;content=hello;"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('a') * 3 }}", "[a][a][a]"),
        ("{{ messages[0].content.split('l')[0] | upper | indent(2) }}", "HE"),
        ("{{ messages | map(attribute='role') | join(', ') | replace('s', 'z') }}",
         "uzer, azziztant"),
        ("  {% if add_generation_prompt %}\nyes{% endif %}", "yes"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)  # fmt: skip
def test_what_templates_are_written_with_works(source: str, text: str) -> None:
    assert render(source, bos_token="<s>") == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% set _ = messages.append({}) %}",
        "{{ messages[0].update(role='system') }}",
        "{% include 'other' %}",
        "{{ messages[7].content }}",
        "{{ 1 / 0 }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_reaching_for_python_or_failing_is_a_plain_error(source: str) -> None:
    with pytest.raises(InputError) as refused:
        render(source)
    assert refused.value.where == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) + f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{{ loop(messages) }}{% endfor %}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ [0] * 10 ** 10 }}",
        "{{ 9 ** 9 ** 9 }}",
        DOUBLING.replace("?", "~"),
        DOUBLING.replace("?", "+"),
        "{% set a = 'a' * 99999 %}{{ a | replace('a', a) | replace('a', a) }}",
        "{% set a = 'a' * 99999 %}{{ a.replace('a', a).replace('a', a) }}",
        "{{ range(99999) | join('a' * 99999) }}",
        "{{ ('a' * 99999).join(range(99999) | map('string')) }}",
        "{{ ('a' * 99999).join(messages[0].content * 99999) }}",
        "{{ 'a'.ljust(10 ** 9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    ],
)
def test_running_for_ever_or_filling_memory_is_stopped(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "RENDER_SECONDS", 0.2)
    with pytest.raises(InputError):
        render(source)


@pytest.mark.parametrize("name", ["center", "format", "pprint", "urlize", "wordwrap", "xmlattr"])
def test_filters_that_multiply_text_are_not_there(name: str) -> None:
    with pytest.raises(CheckpointError):
        render("{{ 'a' | " + name + " }}")


def test_an_error_does_not_quote_the_messages() -> None:
    template = ChatTemplate("{{ messages[0].content + 1 }}", {})
    with pytest.raises(InputError) as refused:
        template.render([{"role": "user", "content": "my secret"}])
    assert "secret" not in str(refused.value)


def test_the_templates_own_refusal_is_passed_on() -> None:
    with pytest.raises(InputError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize("source", ["{% for %}", "{{", "{% endfor %}", "x" * 300_000])
def test_a_template_that_cannot_be_used_is_named(source: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        ChatTemplate(source, {})
    assert refused.value.where == "chat_template.jinja"


def test_where_a_template_is_looked_for(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert read_template(tmp_path, {}) is None
    assert read_template(tmp_path, {"chat_template": "C"}) == "C"
    assert read_template(tmp_path, {"chat_template": named}) == "D"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert read_template(tmp_path, {"chat_template": "C"}) == "J"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError):
        read_template(tmp_path, {})


def test_special_tokens_are_texts_or_objects() -> None:
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "x": "y"}
    assert special_tokens(config) == {"bos_token": "<s>", "eos_token": "</s>"}

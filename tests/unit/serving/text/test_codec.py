from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from registry.errors import CheckpointError, InputError
from serving.text.chat_template import ChatTemplate
from serving.text.codec import TextCodec

CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 🏴‍☠️ é\n\n漢"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "<|im_end|> {{ not.a.template }}"},
    ],
]


@pytest.fixture
def text_files(demo_model_dir: Path, tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(demo_model_dir / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_a_conversation_becomes_what_transformers_makes_of_it(
    demo_model_dir: Path, codec: TextCodec, messages: list[dict[str, Any]]
) -> None:
    from transformers import AutoTokenizer  # the reference; slow to import

    reference = AutoTokenizer.from_pretrained(demo_model_dir)
    text = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert codec.chat_text(messages) == text
    assert codec.render_chat(messages) == list(ids)
    for message in messages:
        assert codec.encode(message["content"]) == reference(message["content"])["input_ids"]


@pytest.mark.parametrize(
    "source",
    [
        "{{ bos_token }}{% for message in messages %}\n  {% if message.role == 'user' %}\n"
        "[U] {{ message.content | trim }}\n  {%- elif loop.last %} !{% endif %}\n{% endfor %}\n",
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}"
        "{% for m in messages[::-1] %}{{ m | tojson(indent=2) }}{% if not loop.last %},{% endif %}"
        "{% endfor %}{{ eos_token }}",
        "{% macro turn(m) %}<{{ m.role }}>{{ m.content.split('\n')[-1] }}{% endmacro %}"
        "{% for m in messages %}{{ turn(m) ~ loop.index * 2 }}{% continue %}never{% endfor %}"
        "{% if tools %}T{% endif %}{{ messages | map(attribute='role') | unique | join('/') }}"
        "{% generation %}{{ messages[0]['content'].replace('a', '<<') }}{% endgeneration %}",
    ],
)
def test_templates_render_as_in_transformers(codec: TextCodec, source: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for messages in CONVERSATIONS:
        (expected,), _ = render_jinja_template(
            [messages], chat_template=source, add_generation_prompt=True, **tokens
        )
        assert ChatTemplate(source, tokens).render(messages) == expected


def test_text_survives_encoding(codec: TextCodec) -> None:
    text = "Iron 🏴‍☠️ works — 漢字"
    assert codec.decode(codec.encode(text)) == text
    assert codec.vocab_size == 49152


def test_a_model_without_template_says_what_to_use(text_files: Path) -> None:
    (text_files / "chat_template.jinja").unlink()
    codec = TextCodec.from_directory(text_files)
    assert not codec.has_chat_template
    with pytest.raises(InputError, match="/v1/completions"):
        codec.render_chat([{"role": "user", "content": "x"}])


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"model": {"type": "?"}}'])
def test_a_damaged_tokenizer_is_named(text_files: Path, content: bytes) -> None:
    (text_files / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        TextCodec.from_directory(text_files)
    assert refused.value.where.endswith("tokenizer.json")


@pytest.mark.parametrize("content", ["[]", "{", "[" * 100_000])
def test_a_damaged_configuration_is_named(text_files: Path, content: str) -> None:
    (text_files / "tokenizer_config.json").write_text(content)
    with pytest.raises(CheckpointError) as refused:
        TextCodec.from_directory(text_files)
    assert refused.value.where.endswith("tokenizer_config.json")


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        TextCodec.from_directory(tmp_path)


def test_a_tokenizer_saved_with_truncation_reads_all(text_files: Path) -> None:
    path = text_files / "tokenizer.json"
    saved = json.loads(path.read_text())
    saved["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    path.write_text(json.dumps(saved))
    assert len(TextCodec.from_directory(text_files).encode("word " * 50)) > 40

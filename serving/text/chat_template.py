"""Chat templates: found in a model directory, rendered inside limits.

The template is looked for where transformers looks: ``chat_template.jinja``, then the
``chat_template`` of ``tokenizer_config.json`` (a text, or a list of named texts of which
``default`` is taken).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError, UndefinedError

from registry.errors import CheckpointError, InputError
from serving.text.sandbox import MAX_TEXT, TemplateEnvironment, TemplateLimitError, check_deadline

TEMPLATE_FILE = "chat_template.jinja"
MAX_SOURCE_BYTES = 256 * 1024
"""The longest templates published in 2025 are about 20 kB."""
RENDER_SECONDS = 2.0
"""A render takes well under a millisecond per message; the rest is room for a busy host."""

Message = Mapping[str, Any]


class ChatTemplate:
    """One compiled template; rendering is safe from several threads at once.

    Args:
        source: the Jinja text.
        special_tokens: names a template may use (``bos_token``, ``eos_token``, …).

    Raises:
        CheckpointError: the template is too long or is not valid Jinja.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        if len(source.encode()) > MAX_SOURCE_BYTES:
            raise CheckpointError(
                f"the chat template is longer than {MAX_SOURCE_BYTES} bytes",
                where=TEMPLATE_FILE,
                fix="ship a shorter template with the model",
            )
        self._environment = TemplateEnvironment()
        self._special_tokens = dict(special_tokens)
        try:
            self._template = self._environment.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise CheckpointError(
                f"the chat template does not compile: {error}",
                where=TEMPLATE_FILE,
                fix="correct the template in the model directory",
            ) from None

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """Write ``messages`` (``role``, ``content``, …) as the text the model was trained on.

        Raises:
            InputError: the template refuses these messages, or exceeds its limits on them.
        """
        pieces: list[str] = []
        size = 0
        try:
            with self._environment.time_limit(RENDER_SECONDS):
                for piece in self._template.generate(
                    messages=[dict(message) for message in messages],
                    tools=None,
                    documents=None,
                    add_generation_prompt=add_generation_prompt,
                    **self._special_tokens,
                ):
                    check_deadline()
                    pieces.append(piece)
                    size += len(piece)
                    if size > MAX_TEXT:
                        raise TemplateLimitError(f"it writes more than {MAX_TEXT} characters")
        except TemplateLimitError as error:
            raise InputError(
                f"the model's chat template was stopped: {error}",
                where="messages",
                fix="send fewer or shorter messages; if it persists the template is at fault",
            ) from None
        except (UndefinedError, SecurityError):
            # Their texts may quote message content.
            raise InputError(
                "the model's chat template failed on these messages",
                where="messages",
                fix="send messages of the roles and content this model was trained on",
            ) from None
        except TemplateError as error:
            # The template's own `raise_exception`: written by its author for this reader.
            raise InputError(
                f"the model's chat template refuses these messages: {str(error)[:200]}",
                where="messages",
                fix="order the roles as this model expects",
            ) from None
        except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError):
            raise InputError(
                "the model's chat template failed on these messages",
                where="messages",
                fix="send messages of the roles and content this model was trained on",
            ) from None
        return "".join(pieces)


def read_template(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """Return the Jinja source that a model directory carries, or None.

    Raises:
        CheckpointError: the file is too long or is not UTF-8.
    """
    path = directory / TEMPLATE_FILE
    if path.is_file():
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise CheckpointError(
                f"the chat template is longer than {MAX_SOURCE_BYTES} bytes",
                where=str(path),
                fix="ship a shorter template with the model",
            )
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise CheckpointError(
                "the chat template is not UTF-8 text", where=str(path), fix="save it as UTF-8"
            ) from None
    configured = tokenizer_config.get("chat_template")
    if isinstance(configured, list):
        named = {entry.get("name"): entry.get("template") for entry in configured}
        configured = named.get("default")
    return configured if isinstance(configured, str) else None


def special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Collect ``*_token`` entries, which are texts or ``{"content": text}`` objects."""
    found: dict[str, str] = {}
    for key, value in tokenizer_config.items():
        text = value.get("content") if isinstance(value, Mapping) else value
        if key.endswith("_token") and isinstance(text, str):
            found[key] = text
    return found


def read_tokenizer_config(directory: Path) -> dict[str, Any]:
    """Read ``tokenizer_config.json`` (empty when absent).

    Raises:
        CheckpointError: it is not a JSON object.
    """
    path = directory / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise CheckpointError(
            "the tokenizer's configuration is not a JSON object",
            where=str(path),
            fix="copy the model directory again from its source",
        )
    return config

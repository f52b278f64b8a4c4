"""The place where a checkpoint's chat template runs: no Python within reach, bounded work.

A chat template comes with the weights and is as untrusted as they are. Jinja's immutable
sandbox keeps it from reaching Python objects; it does not keep it from running for ever or
from building a string larger than memory. This environment adds both limits: every loop
step and every call looks at a deadline, and the operations that multiply text (``*``, ``~``,
``+``, ``%``, ``join``, ``replace``, padding) are bounded by ``MAX_TEXT`` characters. It is not
a memory limit: a list that holds one long text many times still prints as their sum.

The environment offers what chat templates are written against (the names and the
whitespace rules of transformers): ``raise_exception``, ``strftime_now``, ``tojson`` without
HTML escapes, ``{% break %}``, ``{% continue %}`` and ``{% generation %}``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, NoReturn

from jinja2 import Environment, TemplateError, nodes, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_TEXT = 8 * 1024 * 1024
"""Most characters a template may build, in the end or on the way."""
MAX_NUMBER = 100_000
"""Largest whole number a template may pass to a call (widths, repetitions, ranges)."""

_REMOVED_FILTERS = ("center", "format", "pprint", "urlize", "wordwrap", "xmlattr")
"""Filters that multiply their input and that no chat template needs."""

_deadline: ContextVar[float] = ContextVar("chat_template_deadline", default=float("inf"))


class TemplateLimitError(TemplateError):
    """A template ran too long or built too much text."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with limits on time and on text."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
        )
        for name in _REMOVED_FILTERS:
            del self.filters[name]
        self.filters["indent"] = _indent
        self.filters["join"] = _join_filter
        self.filters["replace"] = _replace_filter
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        """Let templates rendered by this thread inside the block run for ``seconds``."""
        token = _deadline.set(time.monotonic() + seconds)
        try:
            yield
        finally:
            _deadline.reset(token)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        metered = _Metering().visit(tree)
        assert isinstance(metered, nodes.Template)
        return metered

    def metered(self, items: Iterable[Any]) -> Iterator[Any]:
        """Pass ``items`` on, checking the deadline at each; every ``for`` is compiled to this."""
        for item in items:
            check_deadline()
            yield item

    def joined(self, *parts: Any) -> str:
        """``a ~ b`` with a bound on the result; every concatenation is compiled to this."""
        texts = [str(part) for part in parts]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call like the sandbox does, within the deadline and with bounded arguments."""
        check_deadline()
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > MAX_NUMBER:
                raise TemplateLimitError(f"the number {MAX_NUMBER} is exceeded by an argument")
        # The sandbox wraps `str.format` to check attribute access, not widths.
        method = getattr(__obj, "__wrapped__", __obj)
        name, text = getattr(method, "__name__", ""), getattr(method, "__self__", None)
        if isinstance(text, str):
            if name in ("format", "format_map"):
                _check_format(text)
            elif name in ("join", "replace"):
                __obj = partial(_join if name == "join" else _replace, text)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):
            _check_size(len(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute ``left operator right`` unless the result would be out of bounds."""
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(times, int):
                    _check_size(len(sequence) * times)
        elif operator == "**" and (abs(left) > MAX_NUMBER or abs(right) > 64):
            raise TemplateLimitError("a power is too large")
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
        elif operator == "+" and isinstance(left, str | list | tuple):
            _check_size(len(left) + len(right))
        return super().call_binop(context, operator, left, right)


def check_deadline() -> None:
    """Raise `TemplateLimitError` when this thread's rendering has used up its time."""
    if time.monotonic() > _deadline.get():
        raise TemplateLimitError("it ran for too long")


def _check_size(size: int) -> None:
    if size > MAX_TEXT:
        raise TemplateLimitError(f"it builds more than {MAX_TEXT} characters")


def _join(separator: str, items: Iterable[Any]) -> str:
    texts = [str(item) for item in items]
    _check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    _check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


@pass_environment
def _join_filter(
    environment: Environment, items: Iterable[Any], d: str = "", attribute: str | None = None
) -> str:
    if attribute is not None:
        items = map(make_attrgetter(environment, attribute), items)
    return _join(str(d), items)


def _replace_filter(text: Any, old: str, new: str, count: int | None = None) -> str:
    return _replace(str(text), old, new, -1 if count is None else count)


def _check_format(template: str) -> None:
    if re.search(r"\d{6,}|%[^a-z%]*\*|\{[^}]*\{", template):
        raise TemplateLimitError("a format asks for too wide a field")


class _Metering(NodeTransformer):
    """Route the loops and the concatenations of a template through the environment."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _environment_call("metered", node.iter, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return _environment_call("joined", *node.nodes, lineno=node.lineno)


def _environment_call(method: str, *arguments: nodes.Node, lineno: int) -> nodes.Call:
    callee = nodes.EnvironmentAttribute(method, lineno=lineno)
    return nodes.Call(callee, list(arguments), [], None, None, lineno=lineno)


class _GenerationBlock(Extension):
    """``{% generation %}…{% endgeneration %}`` marks answers for training; serving prints them."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and not 0 <= indent <= 16:
        raise SecurityError("tojson takes an indent of 0 to 16")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    if (width if isinstance(width, int) else len(width)) > 64:
        raise SecurityError("indent takes a width of at most 64")
    return do_indent(text, width, first, blank)

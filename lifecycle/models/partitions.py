"""One partition of the model assets is one model version, ``model@version``."""

import re
from dataclasses import dataclass

from dagster import DynamicPartitionsDefinition

from registry.errors import InputError

MODEL_VERSION = DynamicPartitionsDefinition(name="model_version")

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


@dataclass(frozen=True, order=True)
class VersionKey:
    """A model's name and one version of it, as the two levels of the drop folder spell them."""

    model: str
    version: str

    def __post_init__(self) -> None:
        for field, value in (("model", self.model), ("version", self.version)):
            if not _NAME.match(value):
                raise InputError(
                    f"{value[:100]!r} can't name a {field}",
                    where=f"{self.model[:100]}/{self.version[:100]}",
                    fix="use letters, digits, '.', '_' and '-', up to 100, beginning with a "
                    "letter or a digit",
                )

    def __str__(self) -> str:
        return f"{self.model}@{self.version}"

    @classmethod
    def parse(cls, text: str) -> "VersionKey":
        """Read ``model@version``.

        Raises:
            InputError: the text has no single ``@``, or a part is not a name.
        """
        parts = text.split("@")
        if len(parts) != 2:
            raise InputError(
                "a partition key is model@version", where=text[:200], fix="add it by that form"
            )
        return cls(*parts)

"""One partition of the model assets is one model version, ``model@version``."""

from dataclasses import dataclass

from dagster import DynamicPartitionsDefinition

from registry.errors import InputError
from registry.names import check_name, split_reference

MODEL_VERSION = DynamicPartitionsDefinition(name="model_version")


@dataclass(frozen=True, order=True)
class VersionKey:
    """A model's name and one version of it, as the two levels of the drop folder spell them.

    Raises:
        InputError: the registry would not take one of the names.
    """

    model: str
    version: str

    def __post_init__(self) -> None:
        check_name("model", self.model)
        check_name("version", self.version)

    def __str__(self) -> str:
        return f"{self.model}@{self.version}"

    @classmethod
    def parse(cls, text: str) -> "VersionKey":
        """Read ``model@version``.

        Raises:
            InputError: the text is something else.
        """
        parts = split_reference(text)
        if isinstance(parts, str):
            raise InputError(
                f"{text[:80]!r} is not a partition of models",
                where="partition",
                fix="add partitions as model@version",
            )
        return cls(*parts)

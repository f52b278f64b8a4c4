"""The bodies in ``/openapi.json``: the routes read them themselves, so say what they read."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from serving.api.routes import chat, completions
from serving.api.schemas.chat import ChatCompletionRequest
from serving.api.schemas.completions import CompletionRequest
from serving.api.schemas.generation import GenerationRequest

BODIES: dict[str, type[GenerationRequest]] = {
    chat.PATH: ChatCompletionRequest,
    completions.PATH: CompletionRequest,
}


def describe_bodies(app: FastAPI) -> None:
    """Add the request bodies to the schema that ``app`` publishes."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            references, definitions = models_json_schema(
                [(model, "validation") for model in BODIES.values()],
                ref_template="#/components/schemas/{model}",
            )
            schema.setdefault("components", {}).setdefault("schemas", {}).update(
                definitions["$defs"]
            )
            for path, model in BODIES.items():
                schema["paths"][path]["post"]["requestBody"] = {
                    "required": True,
                    "content": {"application/json": {"schema": references[(model, "validation")]}},
                }
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

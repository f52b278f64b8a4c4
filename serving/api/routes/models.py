"""``GET /v1/models`` and ``GET /v1/models/{model}``."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from serving.api.answer import MODEL_VERSION_HEADER
from serving.api.errors import ApiError
from serving.api.schemas.responses import Model, ModelList
from serving.api.services import ServicesDependency
from serving.hub.protocol import ModelCard

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("", summary="Models of this replica")
async def list_models(services: ServicesDependency) -> Response:
    """Every model of this replica, also one that is restarting."""
    models = ModelList(data=[_model(card) for card in services.hub.models()])
    return Response(msgspec.json.encode(models), media_type="application/json")


@router.get("/{model}", summary="One model of this replica")
async def retrieve_model(model: str, services: ServicesDependency) -> Response:
    """The model of that name, with the version it serves."""
    for card in services.hub.models():
        if card.name == model:
            return Response(
                msgspec.json.encode(_model(card)),
                headers={MODEL_VERSION_HEADER: card.short},
                media_type="application/json",
            )
    raise ApiError(
        404,
        "this replica does not serve a model of that name; see /v1/models",
        param="model",
        code="model_not_found",
    )


def _model(card: ModelCard) -> Model:
    return Model(
        id=card.name,
        created=card.created,
        version=card.version,
        digest=card.digest,
        max_model_len=card.max_model_len,
        state=card.state,
    )

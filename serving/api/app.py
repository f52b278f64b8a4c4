"""The HTTP application of a replica."""

from __future__ import annotations

from importlib import metadata

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from registry.errors import IronworksError
from serving.api.admission import Admission
from serving.api.errors import (
    ApiError,
    handle_api_error,
    handle_http_exception,
    handle_ironworks_error,
)
from serving.api.middleware.access_log import AccessLogMiddleware
from serving.api.middleware.body import BodyMiddleware
from serving.api.middleware.failures import FailureMiddleware
from serving.api.middleware.request_id import RequestIdMiddleware
from serving.api.openapi import describe_bodies
from serving.api.routes import chat, completions, health, models
from serving.api.services import Services
from serving.hub.protocol import ModelHub
from serving.settings import Settings
from serving.telemetry.metrics import ServingMetrics
from serving.telemetry.sketches import Sketches


def create_app(hub: ModelHub, settings: Settings, sketches: Sketches | None = None) -> FastAPI:
    """Build the application that serves ``hub`` within the limits of ``settings``.

    Args:
        hub: the models; started and closed by the caller.
        settings: the replica's settings.
        sketches: where requests are counted; shared with the admin application.

    Returns:
        An ASGI application; its metrics are those of this application alone.
    """
    app = FastAPI(
        title="Ironworks",
        version=metadata.version("ironworks"),
        summary="OpenAI-compatible inference on audited weights",
        # The pages that FastAPI offers load their scripts from the internet.
        docs_url=None,
        redoc_url=None,
    )
    metrics = ServingMetrics(hub)
    admission = Admission(
        settings.max_in_system,
        metrics.admission_rejections,
        behind_proxy=settings.behind_proxy,
    )
    app.state.services = Services(
        hub, metrics, admission, settings.stall_seconds, sketches or Sketches()
    )
    for module in (chat, completions, models, health):
        app.include_router(module.router)

    app.add_exception_handler(ApiError, handle_api_error)
    app.add_exception_handler(IronworksError, handle_ironworks_error)
    app.add_exception_handler(HTTPException, handle_http_exception)

    # Added innermost first. The body comes in last, so that what refuses or hangs up
    # while it does is logged and has an id like everything else.
    app.add_middleware(BodyMiddleware, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(FailureMiddleware)
    app.add_middleware(AccessLogMiddleware, metrics=metrics)
    app.add_middleware(RequestIdMiddleware)
    describe_bodies(app)
    return app

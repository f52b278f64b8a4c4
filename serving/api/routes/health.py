"""Health and metrics of a replica; none of these endpoints asks an engine for anything."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from serving.api.errors import SERVER_ERROR, ApiError
from serving.api.services import ServicesDependency
from serving.telemetry.metrics import CONTENT_TYPE

router = APIRouter(tags=["health"])


@router.head("/livez", include_in_schema=False)
@router.get("/livez", summary="Whether the process answers")
async def livez() -> Response:
    """200 as long as the process answers at all."""
    return JSONResponse({"status": "ok"})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", summary="Whether the replica takes work")
async def readyz(services: ServicesDependency) -> Response:
    """200 when the replica takes work, else 503 with the reason."""
    state = services.hub.ready()
    if state.ok:
        return JSONResponse({"status": "ok"})
    raise ApiError(
        503, f"not ready: {state.reason}", type=SERVER_ERROR, code="not_ready", retry_after=1
    )


@router.head("/healthz/progress", include_in_schema=False)
@router.get("/healthz/progress", summary="Whether running work moves")
async def progress(services: ServicesDependency) -> Response:
    """200 while every engine that has work ends steps, else 503 with what stands still."""
    engines = services.hub.progress()
    problems = [problem for e in engines if (problem := e.problem(services.stall_seconds))]
    if problems:
        raise ApiError(
            503, f"no progress: {'; '.join(problems)}", type=SERVER_ERROR, code="no_progress"
        )
    return JSONResponse({"status": "ok", "engines": [asdict(engine) for engine in engines]})


@router.get("/metrics", summary="Metrics in Prometheus' text format")
async def metrics(services: ServicesDependency) -> Response:
    """Metrics of this replica."""
    return Response(services.metrics.render(), headers={"content-type": CONTENT_TYPE})

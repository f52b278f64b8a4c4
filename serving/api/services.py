"""What the routes work with; one set per application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from serving.api.admission import Admission
from serving.hub.protocol import ModelHub
from serving.telemetry.metrics import ServingMetrics
from serving.telemetry.sketches import Sketches


@dataclass(frozen=True)
class Services:
    """The replica's parts as the HTTP tier uses them."""

    hub: ModelHub
    metrics: ServingMetrics
    admission: Admission
    stall_seconds: float
    """An engine that has work and ends no step for this long is stuck."""
    sketches: Sketches
    """What traffic looks like, for the drift report."""


def services_of(request: Request) -> Services:
    """Return the services of the application that serves ``request``."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


ServicesDependency = Annotated[Services, Depends(services_of)]

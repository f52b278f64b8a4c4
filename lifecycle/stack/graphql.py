"""The few questions the stack asks Dagster's web server."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx

from registry.errors import IronworksError

_HEALTH = """
query Health {
  workspaceOrError {
    ... on Workspace {
      locationEntries {
        loadStatus
        locationOrLoadError { __typename ... on PythonError { message } }
      }
    }
  }
  instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } }
}
"""

_RUNS = """
query Runs($filter: RunsFilter!, $limit: Int!) {
  runsOrError(filter: $filter, limit: $limit) {
    __typename
    ... on Runs { results { runId jobName status } }
    ... on PythonError { message }
  }
}
"""

_EVENTS = """
query Events($run: ID!, $cursor: String) {
  logsForRun(runId: $run, afterCursor: $cursor, limit: 200) {
    __typename
    ... on EventConnection {
      cursor
      hasMore
      events {
        __typename
        ... on MessageEvent { message stepKey level timestamp }
        ... on StepEvent { stepKey }
        ... on ExecutionStepFailureEvent { error { message causes { message } } }
        ... on RunFailureEvent { error { message } }
        ... on AssetCheckEvaluationEvent {
          evaluation { checkName success severity description }
        }
      }
    }
    ... on PythonError { message }
  }
}
"""


class DagsterError(IronworksError):
    """Dagster's web server refused a question, or a run has failed."""

    code = "dagster"


@dataclass(frozen=True)
class Health:
    """How the control plane stands.

    Attributes:
        ok: the location is loaded and every required daemon beats.
        summary: what is missing, in words.
        load_error: why the definitions do not load, "" if they do or are being loaded.
    """

    ok: bool
    summary: str
    load_error: str = ""


@dataclass(frozen=True)
class Run:
    """One run, as far as the stack cares."""

    run_id: str
    job: str
    status: str

    @property
    def ended(self) -> bool:
        """Whether its status will not change any more."""
        return self.status in ("SUCCESS", "FAILURE", "CANCELED")


@dataclass(frozen=True)
class Events:
    """A page of a run's events, oldest first, and where the next page begins."""

    events: list[dict[str, Any]]
    cursor: str | None


class DagsterClient:
    """Asks one web server over GraphQL; a context manager.

    Args:
        url: of the web server, e.g. ``http://127.0.0.1:3000``.
        timeout: seconds that one question may take.
    """

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self._url = url
        self._http = httpx.Client(base_url=url, timeout=timeout, trust_env=False)

    def __enter__(self) -> DagsterClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def health(self) -> Health:
        """Look once; a web server that does not answer is one that starts."""
        try:
            data = self.ask(_HEALTH)
        except httpx.TransportError:
            return Health(False, "the web server starts")
        entries = data["workspaceOrError"].get("locationEntries") or []
        for entry in entries:
            location = entry["locationOrLoadError"] or {}
            if entry["loadStatus"] == "LOADED" and location.get("__typename") == "PythonError":
                message = str(location.get("message", ""))
                # The web server may look before the code server listens; it looks again.
                if "Could not reach user code server" in message:
                    return Health(False, "the code server starts")
                return Health(False, "the definitions do not load", message)
        loaded = entries and all(
            (entry["locationOrLoadError"] or {}).get("__typename") == "RepositoryLocation"
            for entry in entries
        )
        if not loaded:
            return Health(False, "the definitions are loaded")
        statuses = data["instance"]["daemonHealth"]["allDaemonStatuses"]
        silent = [s["daemonType"] for s in statuses if s["required"] and not s["healthy"]]
        if silent:
            return Health(False, f"no heartbeat yet of {', '.join(sorted(silent)).lower()}")
        return Health(True, "healthy")

    def runs(self, job: str, partition: str, limit: int = 1) -> list[Run]:
        """The latest runs of a job for one partition, newest first."""
        tags = [{"key": "dagster/partition", "value": partition}]
        filters = {"pipelineName": job, "tags": tags}
        answer = self.ask(_RUNS, filter=filters, limit=limit)["runsOrError"]
        if answer["__typename"] != "Runs":
            raise DagsterError(str(answer.get("message", answer["__typename"])), where=self._url)
        return [Run(r["runId"], r["jobName"], r["status"]) for r in answer["results"]]

    def events(self, run_id: str, cursor: str | None) -> Events:
        """The next events of a run."""
        answer = self.ask(_EVENTS, run=run_id, cursor=cursor)["logsForRun"]
        if answer["__typename"] != "EventConnection":
            raise DagsterError(str(answer.get("message", answer["__typename"])), where=run_id)
        return Events(answer["events"], answer["cursor"])

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Send one query.

        Raises:
            DagsterError: the server does not understand it.
            httpx.TransportError: no server answers.
        """
        response = self._http.post("/graphql", json={"query": query, "variables": variables})
        body = response.json()
        if "errors" in body:
            raise DagsterError(str(body["errors"][0]["message"])[:300], where=self._url)
        data: dict[str, Any] = body["data"]
        return data

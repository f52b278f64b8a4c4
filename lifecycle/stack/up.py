"""`make up`: from a state folder, empty or not, to an answer over HTTP.

Every step looks first and acts only on what is missing, so that a second call is quick and
changes nothing, and a call after a crash goes on where the first one ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.ports import require_free
from lifecycle.fleet.proxy.process import find_haproxy
from lifecycle.fleet.supervisors.local import LocalSupervisor
from lifecycle.models.service import ServedModels
from lifecycle.stack.demo import demo_model, drop
from lifecycle.stack.follow import await_run, follow
from lifecycle.stack.graphql import DagsterClient
from lifecycle.stack.report import Report
from lifecycle.stack.services import ControlPlane
from lifecycle.stack.settings import StackSettings
from registry.database import Database
from registry.errors import ConflictError
from registry.migrate import migrate
from registry.paths import STATE_VARIABLE, StatePaths
from registry.store import DATABASE_FILE, Registry, Version

ALIAS = "production"
RELOAD = "reload_model"
PROMPT = "What is the capital of France?"

# A sensor looks every 10 s; after a failed reload it pauses, longer each time.
SENSOR_SECONDS = 120.0


class Up:
    """One call of `make up`.

    Args:
        settings: where.
        report: is told each step.
    """

    def __init__(self, settings: StackSettings, report: Report) -> None:
        self._settings = settings
        self._report = report
        self._plane = ControlPlane(settings)
        self._fleet = ManagedFleet(settings.paths, settings.layout, LocalSupervisor(settings.paths))
        self._models = ServedModels(self._fleet)

    def run(self) -> None:
        """Bring everything up and print how to reach it.

        Raises:
            IronworksError: a step failed; says which and what to do. What runs goes on.
        """
        settings, report = self._settings, self._report
        settings.paths.create()
        with _alone(settings.paths.run / "up.lock"):
            self._plane.require_same_ports()
            self._plane.require_port()
            self._require_fleet()
            if self._production() is None:
                model = demo_model(settings.paths, report)
                drop(model, settings.paths, settings.model, settings.version, report)
            started = self._plane.start()
            if started:
                report.step(f"started {', '.join(started)}")
            with DagsterClient(settings.dagster_url) as dagster:
                self._plane.await_healthy(dagster, report.detail)
                report.step(f"Dagster is healthy at {settings.dagster_url}")
                production = self._production() or self._take_in(dagster)
                self._deploy(dagster, production)
            self._settle()
            self._prove(production)

    def _require_fleet(self) -> None:
        """Check what replicas and proxy need, before anything is started.

        Raises:
            InputError: a port is taken by a process that is not ours.
            ProxyError: a proxy is needed and there is none.
        """
        settings, fleet = self._settings, self._fleet
        self._migrate()
        if fleet.proxy is not None:
            program = find_haproxy()
            self._report.step(f"HAProxy {program.version} ({program.origin}: {program.path})")
            if fleet.proxy.pid() is None:
                require_free(settings.host, settings.port, setting="PORT")
        declared = [replica for replica in fleet.desired() if settings.layout.holds(replica)]
        for replica in declared or settings.layout.initial(settings.model, ALIAS):
            if not fleet.supervisor.status(replica.service).running:
                require_free(settings.host, replica.port, setting="PORT")

    def _migrate(self) -> None:
        """Bring a registry of an older release to this one's schema."""
        file = self._settings.paths.registry / DATABASE_FILE
        if not file.exists():
            return
        database = Database(file)
        try:
            backup = migrate(database)
        finally:
            database.close()
        if backup is not None:
            self._report.step(f"migrated the registry; the old one is kept as {backup.name}")

    def _settle(self) -> None:
        """Bring back what else is declared and does not run; only where there is a proxy.

        Raises:
            IronworksError: a replica does not come up; the others serve.
        """
        if self._fleet.proxy is not None:
            self._fleet.reconcile(say=self._report.detail).require_settled()

    def _take_in(self, dagster: DagsterClient) -> Version:
        """Follow the run that the drop-folder sensor starts, to the promoted version."""
        self._follow(
            dagster,
            "intake_model",
            self._settings.partition,
            sensor="drop-folder",
            needless=lambda: self._production() is not None,
        )
        version = self._production()
        if version is None:
            raise ConflictError(
                f"intake_model has ended, but {self._settings.model} has no {ALIAS} version",
                where=self._settings.dagster_url,
                fix=f"promote one: ironworks registry promote {self._settings.partition} "
                f"--alias {ALIAS}",
            )
        return version

    def _deploy(self, dagster: DagsterClient, version: Version) -> None:
        """Follow the run that the promotions sensor starts, unless the version is served."""

        def served() -> bool:
            running = [view for view in self._models.views(version.model) if view.running]
            return bool(running) and all(
                view.serves(version.model, version.digest) for view in running
            )

        if not served():
            # What earlier calls of `make up` have run says nothing of this one.
            ended = {r.run_id for r in dagster.runs(RELOAD, version.name, limit=50) if r.ended}
            self._follow(
                dagster, RELOAD, version.name, sensor="promotions", needless=served, ended=ended
            )
        self._report.step(f"{version.name} ({version.short}) is served by {self._models.name}")

    def _follow(
        self,
        dagster: DagsterClient,
        job: str,
        partition: str,
        *,
        sensor: str,
        needless: Callable[[], bool],
        ended: Container[str] = (),
    ) -> None:
        url = self._settings.dagster_url
        run = await_run(
            dagster,
            job,
            partition,
            seconds=SENSOR_SECONDS,
            waiting_for=f"the {sensor} sensor, which looks every 10 s",
            say=self._report.detail,
            needless=needless,
            ended=ended,
        )
        if run is not None:
            self._report.step(f"Dagster runs {job} for {partition}: {url}/runs/{run.run_id}")
            follow(dagster, run, partition, url, self._report.detail)

    def _production(self) -> Version | None:
        """The version in production of the demo model, None before the first promotion."""
        with Registry.open(self._settings.paths.registry) as registry:
            alias = registry.alias(self._settings.model, ALIAS)
            return None if alias is None else registry.version(alias.digest)

    def _prove(self, version: Version) -> None:
        """Ask one question over HTTP and print the answer and the addresses."""
        self._report.step(f"asking: {PROMPT}")
        answer = self._models.ask(version.model, PROMPT, max_tokens=48, timeout=120)
        if answer.model_version != version.short:
            raise ConflictError(
                f"{answer.model_version} has answered, not {version.short}",
                where=self._settings.api_url,
                fix="something else moves it; see `ironworks audit timeline`",
            )
        for line in answer.text.strip().splitlines():
            self._report.detail(line)
        self._report.step(f"answered by {version.name}, x-model-version {answer.model_version}")
        for name, address in addresses(self._settings):
            print(f"  {name:10} {address}", flush=True)


def addresses(settings: StackSettings) -> list[tuple[str, str]]:
    """What a person may open or run next, by name."""
    program = Path(sys.executable).parent / "ironworks"
    with contextlib.suppress(ValueError):
        program = program.relative_to(Path.cwd())
    command = f"{program} audit as-of --at now"
    if settings.paths.root != StatePaths(Path("var").resolve()).root:
        command = f"{STATE_VARIABLE}={settings.paths.root} {command}"
    return [
        ("Dagster", settings.dagster_url),
        ("API", f"{settings.api_url}/v1/chat/completions"),
        ("metrics", f"{settings.api_url}/metrics"),
        ("GPUs", f"http://{settings.host}:{settings.metrics_port}/metrics"),
        ("audit", command),
    ]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock file, so that two calls at once do not both start everything."""
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(
                "another `make up` is at work", where=str(lock), fix="wait for it"
            ) from error
        yield

"""Runs the jobs of Gatehouse, with threads or asyncio. It needs only the standard library.

    from gatehouse_worker import Worker

    def report(job):
        return {"rows": 3, "input": job.input}

    Worker("https://gatehouse.example.com", KEY, {"nightly-report": report}).run()
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import datetime
import http.client
import inspect
import json
import math
import random
import re
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.parse
import uuid
from collections import deque
from typing import Any, Awaitable, Callable, Mapping

__all__ = ["AsyncJob", "Job", "JobFailed", "JobLost", "RequestFailed", "Worker"]

MAX_WORKFLOWS = 20
MAX_CLAIMED = 100
#: Requests of one report until it is given up.
MAX_REPORTS = 12
#: The longest wait between two tries, and the longest Retry-After that is obeyed, in seconds.
MAX_WAIT = 10.0
MAX_RETRY_AFTER = 60.0
#: The completions of one request, and their bytes.
MAX_COMPLETIONS = 1_000
MAX_COMPLETIONS_BYTES = 6 * 1024 * 1024
#: The longest error and stack of a report, in characters.
MAX_ERROR_LENGTH = 10_000
#: The lines of one request, those that wait to be sent, and the characters of one.
MAX_SENT_LINES = 100
MAX_WAITING_LINES = 1_000
MAX_LINE_LENGTH = 2_000
LOG_LEVELS = ("debug", "info", "warn", "error")
#: The characters of a note, and of the name of a step.
MAX_NOTE_LENGTH = 1_000
MAX_STEP_NAME = 255
#: How long a line waits for others, the pause after a claim without a job, and the deadline of a request, in seconds.
LINE_INTERVAL = 1.0
EMPTY_PAUSE = 0.2
TIMEOUT = 45.0
#: What an answer has if it has no `success`.
LISTS = {"claim": "jobs", "complete-batch": "jobs", "get": "steps"}


class JobFailed(Exception):
    """The job cannot succeed: it fails without a retry. Raise it in a handler."""


class JobLost(Exception):
    """The job is canceled, or another worker has it."""


class RequestFailed(Exception):
    """The service refused a request, or did not answer (status 0). The text has the sentence of the service."""

    def __init__(self, message: str, status: int = 0, code: str = "", retry_after: float = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after

    @property
    def is_transient(self) -> bool:
        """What a proxy says in place of the service, without a code, may pass, but a redirect stays."""
        is_foreign = self.code == "" and not 300 <= self.status < 400
        return is_foreign or self.status == 429 or self.status >= 500 or self.code == "limit_reached"

    @property
    def is_refusal(self) -> bool:
        """Whether the request is refused for what it contains: by the service, or by a proxy for its size."""
        return self.status == 413 or self.code == "invalid_request"


def _backoff(failures: int, error: RequestFailed) -> float:
    wait = min(MAX_WAIT, 0.1 * 2 ** min(failures, 10)) * random.uniform(0.8, 1.2)
    return max(wait, min(MAX_RETRY_AFTER, error.retry_after))


def _clean(text: object, length: int = MAX_ERROR_LENGTH, at_end: bool = False) -> str:
    """Text that the service accepts: its first or last UTF-16 units, which are not cut inside a pair."""
    clean = _text_of(text).replace("\0", "").encode("utf-16-le", "surrogatepass")
    cut = clean[-2 * length :] if at_end else clean[: 2 * length]
    if len(cut) < len(clean):
        if at_end and 0xDC <= cut[1] <= 0xDF:
            cut = cut[2:]
        elif not at_end and 0xD8 <= cut[-1] <= 0xDB:
            cut = cut[:-2]
    return cut.decode("utf-16-le", "replace")


def _text_of(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return ""


class _Number:
    """A number of JSON that Python would write otherwise. It is sent as its text, which `str` returns."""

    text: str
    #: Whether there has been one.
    is_met = False

    def __str__(self) -> str:
        return self.text


class _Int(_Number, int):
    pass


class _Float(_Number, float):
    pass


def _number(kind: type[int] | type[float], exact: type[_Int] | type[_Float]) -> Callable[[str], Any]:
    """Reads a number of JSON as an int or a float."""

    def read(text: str) -> Any:
        value = kind(text)
        if repr(value) == text:
            return value
        _Number.is_met = True
        number = exact(value)
        number.text = text
        return number

    return read


_read_int, _read_float = _number(int, _Int), _number(float, _Float)


def _loads(text: bytes) -> Any:
    return json.loads(text, parse_int=_read_int if b"-0" in text else None, parse_float=_read_float)


#: Stands for a number in JSON until its text takes its place: nobody else knows it.
_MARK = uuid.uuid4().hex


def _marked(value: Any, texts: list[str]) -> Any:
    """A copy of a value, in which strings stand for numbers that have a text."""
    if isinstance(value, _Number):
        texts.append(value.text)
        return f"{_MARK}{len(texts) - 1}"
    if isinstance(value, dict):
        return {name: _marked(one, texts) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(one, texts) for one in value]
    return value


def _dumps(value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
        if not _Number.is_met:
            return text
        texts: list[str] = []
        marked = json.dumps(_marked(value, texts))
        return re.sub(f'"{_MARK}([0-9]+)"', lambda found: texts[int(found[1])], marked) if texts else text
    except (TypeError, ValueError, RecursionError) as error:
        raise JobFailed(f"The result is not JSON: {error}") from error


def _ignore(_: object) -> None:
    pass


class _Service:
    """Requests to the service, over one connection for each thread."""

    def __init__(self, url: str, key: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if "@" in parts.netloc:
            raise ValueError("The URL must have no user name or password. The key is enough.")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is not an http or https URL.")
        # An error of http.client would repeat it.
        if not re.fullmatch(r"[\t\x20-\x7e\x80-\xff]*", key):
            raise ValueError("The key has characters that no header can have, such as a line break.")
        self._url, self._path = url, parts.path.rstrip("/")
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connect = lambda: kind(parts.hostname, parts.port, timeout=getattr(self._local, "timeout", TIMEOUT))
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._local = threading.local()

    def hurry(self, timeout: float) -> None:
        """Sets the deadline of the requests of this thread, in seconds."""
        self._local.timeout = min(TIMEOUT, timeout)

    def post(self, operation: str, body: str, opened: Callable[[http.client.HTTPConnection], None] = _ignore) -> Any:
        """Posts JSON to an operation under /v1/jobs. A connection that was closed while idle is replaced once."""
        connection = getattr(self._local, "connection", None)
        for is_reused in (True, False) if connection is not None else (False,):
            if not is_reused:
                connection = self._local.connection = self._connect()
            try:
                opened(connection)
                connection.request("POST", f"{self._path}/v1/jobs/{operation}", body.encode(), self._headers)
                response = connection.getresponse()
                text = response.read()
                return self._read(operation, response, text)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._local.connection = None
                if not (is_reused and isinstance(error, (ConnectionError, http.client.BadStatusLine))):
                    raise RequestFailed(f"{self._url} does not answer: {error or type(error).__name__}") from error
        raise AssertionError("unreachable")

    def _read(self, operation: str, response: http.client.HTTPResponse, text: bytes) -> Any:
        try:
            answer = _loads(text)
        except (ValueError, RecursionError):
            # One that is nested too deep for Python 3.11 is a claim, whose jobs come back when their leases end.
            answer = None
        fields = answer if isinstance(answer, dict) else {}
        is_ok, expected = response.status < 300, LISTS.get(operation)
        if is_ok and (isinstance(fields.get(expected), list) if expected else fields.get("success") is True):
            return fields
        code, said = ("" if is_ok else fields.get("code")), fields.get("error") or fields.get("message")
        if not (isinstance(code, str) and code and isinstance(said, str)):
            code, said = "", f"{self._url} answers with status {response.status}, but not as Gatehouse does. Check the address."
        after = response.headers.get("retry-after", "")
        raise RequestFailed(said, 0 if is_ok else response.status, code, float(after) if after.isdecimal() else 0)


class Job:
    """A claimed job, for its handler."""

    def __init__(self, worker: Worker, claimed: Mapping[str, Any]) -> None:
        self._worker = worker
        self.job_id: str = claimed["job_id"]
        self.workflow: str = claimed["workflow"]
        self.input: Any = claimed["input"]
        self.deployment_id: str | None = claimed["deployment_id"]
        #: How often the job was claimed, with this claim.
        self.attempt: int = claimed["attempt"]
        #: Set when the job is no longer this worker's: canceled, lost, or the worker stops.
        self.lost = threading.Event()
        self._future: concurrent.futures.Future[Any] | None = None
        self._steps: dict[str, Any] | None = {} if self.attempt == 1 else None
        #: The names of the steps that this attempt has results of.
        self._used: set[str] = set()
        self._lines: deque[dict[str, str]] = deque(maxlen=MAX_WAITING_LINES)
        self._sending = threading.Lock()

    def _post(self, operation: str, **fields: Any) -> Any:
        body = _dumps({"job_id": self.job_id, "attempt": self.attempt, **fields})
        return self._worker._service.post(operation, body)

    def _patiently(self, request: Callable[[], Any]) -> Any:
        """Repeats a request that may succeed later, while the job is this worker's."""
        for failures in range(MAX_REPORTS + 1):
            try:
                return request()
            except RequestFailed as error:
                if not error.is_transient or failures == MAX_REPORTS:
                    raise
                if self.lost.wait(_backoff(failures, error)):
                    raise JobLost("The job was lost.") from error

    def _decorate(self, operation: str, **fields: Any) -> None:
        """Sends what decorates the job, which never decides it. Raises only JobLost."""

        def request() -> None:
            try:
                self._post(operation, **fields)
            except RequestFailed as error:
                if error.code != "limit_reached":
                    raise
                self._worker._on_error(error, self.job_id)

        try:
            self._patiently(request)
        except RequestFailed as error:
            if error.code in ("conflict", "not_found"):
                self._lose()
                raise JobLost(f"The job was lost: {error}") from error
            self._worker._on_error(error, self.job_id)

    def _lose(self) -> None:
        self.lost.set()
        if self._future is not None:
            self._future.cancel()

    def log(self, text: str, level: str = "info") -> None:
        """Keeps a line with the job: debug, info, warn or error. Sent about every second, and before the outcome."""
        at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        level = level if level in LOG_LEVELS else "info"
        self._lines.append({"at": at, "level": level, "text": _clean(text, MAX_LINE_LENGTH)})

    def _send_lines(self) -> None:
        with self._sending:
            while self._lines:
                lines = [self._lines.popleft() for _ in range(min(len(self._lines), MAX_SENT_LINES))]
                try:
                    self._decorate("log", lines=lines)
                except JobLost:
                    pass  # Lines of a lost job are nobody's.

    def _heartbeat(self, progress: float, note: str | None) -> None:
        fields: dict[str, Any] = {} if note is None else {"note": _clean(note, MAX_NOTE_LENGTH)}
        if math.isfinite(progress):
            fields["progress"] = min(1.0, max(0.0, float(progress)))
        self._decorate("heartbeat", lease_seconds=self._worker._lease, **fields)

    def _step(self, name: str) -> tuple[bool, Any]:
        if not name or _clean(name, MAX_STEP_NAME) != name:
            raise JobFailed(f"The name of a step must be text of 1 to {MAX_STEP_NAME} characters.")
        # Otherwise another attempt would take the result of the first one for both.
        if name in self._used:
            raise JobFailed(f'The job has done a step "{name}": each step needs a name of its own.')
        if self._steps is None:
            found = self._patiently(lambda: self._worker._service.post("get", _dumps({"job_id": self.job_id})))
            self._steps = {step["name"]: step["result"] for step in found["steps"]}
        if name not in self._steps:
            return False, None
        self._used.add(name)
        return True, self._steps[name]

    def _keep_step(self, name: str, result: Any) -> Any:
        kept = _dumps(result)
        self._used.add(name)
        try:
            self._patiently(lambda: self._post("step", name=name, result=result))
        except RequestFailed as error:
            # Each attempt would do the step again, and its result would be refused again.
            if not error.is_refusal:
                raise
            raise JobFailed(f"The result of the step is not kept: {error}") from error
        return _loads(kept.encode())

    def progress(self, progress: float, note: str | None = None) -> None:
        """Reports how much of the work is done, 0 to 1, and what the worker does now. Raises only JobLost."""
        self._heartbeat(progress, note)

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Does a step once: its result is kept with the job as JSON, and this attempt and each other one get that.

        A step that fails is not kept, and done again by another attempt. One whose result cannot be kept, or whose name
        the attempt has used, fails the job.
        """
        is_done, result = self._step(name)
        return result if is_done else self._keep_step(name, work())


class AsyncJob(Job):
    """A claimed job, for a handler that is a coroutine function. It is canceled when the job is lost."""

    async def progress(self, progress: float, note: str | None = None) -> None:  # type: ignore[override]
        await asyncio.to_thread(self._heartbeat, progress, note)

    async def step(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:  # type: ignore[override]
        is_done, result = await asyncio.to_thread(self._step, name)
        return result if is_done else await asyncio.to_thread(self._keep_step, name, await work())


class _Completions:
    """Completes jobs. Those that end while a request is in flight share the next one."""

    def __init__(self, service: _Service) -> None:
        self._service = service
        self._waiting: deque[tuple[str, concurrent.futures.Future[None]]] = deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="gatehouse completions", daemon=True).start()

    def complete(self, body: str) -> None:
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._changed:
            self._waiting.append((body, done))
            self._changed.notify()
        done.result()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                batch, size = [], 0
                while self._waiting and len(batch) < MAX_COMPLETIONS:
                    size += len(self._waiting[0][0])
                    if batch and size > MAX_COMPLETIONS_BYTES:
                        break
                    batch.append(self._waiting.popleft())
            self._send(batch)

    def _send(self, batch: list[tuple[str, concurrent.futures.Future[None]]]) -> None:
        try:
            if len(batch) == 1:
                self._service.post("complete", batch[0][0])
                batch[0][1].set_result(None)
                return
            bodies = ",".join(body for body, _ in batch)
            outcomes = self._service.post("complete-batch", f'{{"jobs":[{bodies}]}}')["jobs"]
            for (_, done), outcome in zip(batch, outcomes, strict=True):
                if outcome["success"]:
                    done.set_result(None)
                else:
                    done.set_exception(RequestFailed(outcome["message"], 409, outcome.get("code", "")))
        except Exception as error:
            failure = error if isinstance(error, RequestFailed) else RequestFailed(f"The response is odd: {error}")
            # One result that is refused must not fail the others.
            if len(batch) > 1 and failure.is_refusal:
                for one in batch:
                    self._send([one])
            else:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(failure)


def _log_error(error: Exception, job_id: str | None) -> None:
    where = "" if job_id is None else f", job {job_id}"
    print(f"gatehouse worker{where}: {error}", file=sys.stderr, flush=True)


Handler = Callable[[Any], Any]


class Worker:
    """Claims jobs, extends their leases, reports results with the fence, and retries failed attempts.

    A handler is a function of a `Job`, which runs in a thread, or a coroutine function of an `AsyncJob`; then call
    `serve`. What it returns is the result. An exception fails the attempt, and the job is retried.

    concurrency: the most jobs at the same time.
    lease_seconds: how long a claim is valid without a heartbeat, 1 to 3600. The worker extends it in time.
    wait_seconds: how long a claim waits for a job, 0 to 30.
    grace_seconds: how long a stop waits for jobs in flight. Then their `lost` is set, and their leases expire.
    on_error: receives what goes wrong, with the id of the job or None. Default: prints to standard error.
    """

    def __init__(
        self,
        url: str,
        key: str,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        lease_seconds: int = 60,
        wait_seconds: int = 20,
        grace_seconds: float = 30,
        on_error: Callable[[Exception, str | None], None] = _log_error,
    ) -> None:
        if not 1 <= len(handlers) <= MAX_WORKFLOWS:
            raise ValueError(f"handlers must have 1 to {MAX_WORKFLOWS} workflows. Start another worker for the others.")
        if concurrency < 1:
            raise ValueError("concurrency must be 1 or more.")
        self._service = _Service(url, key)
        self._completions = _Completions(self._service)
        self._handlers = dict(handlers)
        self._concurrency, self._grace = concurrency, grace_seconds
        self._lease, self._wait = lease_seconds, wait_seconds
        self._tell = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: set[Job] = set()
        self._changed = threading.Condition(threading.RLock())
        self._stopping = threading.Event()
        self._claiming: http.client.HTTPConnection | None = None

    def _on_error(self, error: Exception, job_id: str | None) -> None:
        # A fault of the callback, as when standard error is closed, must not end the thread that keeps leases.
        with contextlib.suppress(Exception):
            self._tell(error, job_id)

    def run(self) -> None:
        """Works until `stop`, SIGTERM or SIGINT. Raises RequestFailed when the service refuses the worker."""
        if any(map(inspect.iscoroutinefunction, self._handlers.values())):
            raise TypeError("A handler is a coroutine function: await serve() in place of run().")
        if threading.current_thread() is not threading.main_thread():
            return self._run()
        before = {one: signal.signal(one, lambda *_: self.stop()) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._run()
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    async def serve(self) -> None:
        """Works as `run` does, beside the other tasks of the event loop. Stops when it is canceled, too."""
        self._loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        for one in signals:
            self._loop.add_signal_handler(one, self.stop)
        running = asyncio.ensure_future(asyncio.to_thread(self._run))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise
        finally:
            for one in signals:
                self._loop.remove_signal_handler(one)

    def stop(self) -> None:
        """Claims no more jobs. `run` and `serve` return when those in flight have ended."""
        self._stopping.set()
        claiming = self._claiming
        if claiming is not None and claiming.sock is not None:
            try:
                claiming.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        keeping = threading.Event()
        for act, interval in ((self._keep_leases, self._lease / 3), (self._send_lines, LINE_INTERVAL)):
            threading.Thread(target=self._repeat, args=(act, interval, keeping), daemon=True).start()
        try:
            while not self._stopping.is_set():
                with self._changed:
                    self._changed.wait_for(lambda: len(self._jobs) < self._concurrency or self._stopping.is_set())
                    free = self._concurrency - len(self._jobs)
                claimed = self._claim(free)
                for one in claimed:
                    self._begin(one)
                if not claimed:
                    self._stopping.wait(EMPTY_PAUSE)
        finally:
            self._stopping.set()
            with self._changed:
                self._changed.wait_for(lambda: not self._jobs, min(self._grace, threading.TIMEOUT_MAX))
                for job in list(self._jobs):
                    job._lose()
            keeping.set()

    @staticmethod
    def _repeat(act: Callable[[], None], interval: float, end: threading.Event) -> None:
        while not end.wait(interval):
            act()

    def _claim(self, free: int) -> list[Mapping[str, Any]]:
        fields = {"workflows": list(self._handlers), "lease_seconds": self._lease, "wait_seconds": self._wait}
        body = _dumps({**fields, "limit": min(free, MAX_CLAIMED)})

        def opened(connection: http.client.HTTPConnection) -> None:
            self._claiming = connection
            if self._stopping.is_set():
                raise RequestFailed("The worker has stopped.")

        failures = 0
        while not self._stopping.is_set():
            try:
                return self._service.post("claim", body, opened)["jobs"]
            except RequestFailed as error:
                if self._stopping.is_set():
                    break
                self._on_error(error, None)
                if not error.is_transient:
                    raise
                self._stopping.wait(_backoff(failures, error))
                failures += 1
            finally:
                self._claiming = None
        return []

    def _keep_leases(self) -> None:
        # One request without an answer, and the next in time, still extend the lease.
        self._service.hurry(max(1.0, self._lease / 6))
        with self._changed:
            jobs = list(self._jobs)
        for job in jobs:
            try:
                job._post("heartbeat", lease_seconds=self._lease)
            except RequestFailed as error:
                # Other faults may pass: until then the fence protects the job.
                if error.code in ("conflict", "not_found") and job in self._jobs:
                    self._on_error(JobLost(f"The job was lost: {error}"), job.job_id)
                    job._lose()

    def _send_lines(self) -> None:
        with self._changed:
            jobs = [job for job in self._jobs if job._lines]
        for job in jobs:
            job._send_lines()

    def _begin(self, claimed: Mapping[str, Any]) -> None:
        is_async = inspect.iscoroutinefunction(self._handlers[claimed["workflow"]])
        job = (AsyncJob if is_async else Job)(self, claimed)
        with self._changed:
            self._jobs.add(job)
        threading.Thread(target=self._do, args=(job,), name=f"gatehouse {job.job_id}", daemon=True).start()

    def _do(self, job: Job) -> None:
        """Runs the handler of a job, and reports its outcome unless the job is lost."""
        try:
            report = self._handle(job)
            job._send_lines()
            if not job.lost.is_set():
                job._patiently(report)
        except (RequestFailed, JobLost) as error:
            if not job.lost.is_set():
                self._on_error(error, job.job_id)
        finally:
            with self._changed:
                self._jobs.discard(job)
                self._changed.notify_all()

    def _handle(self, job: Job) -> Callable[[], Any]:
        """Runs the handler; returns what reports the outcome."""

        def fail(error: BaseException, retry: bool) -> Any:
            message = _clean(error) or type(error).__name__
            stack = _clean("".join(traceback.format_exception(error)), at_end=True)
            return job._post("fail", error=message, mapped_stack=stack, retry=retry)

        def complete() -> Any:
            try:
                return self._completions.complete(body)
            except RequestFailed as error:
                # A result that the service does not accept is a failure of the job.
                if error.code == "limit_reached":
                    return fail(JobFailed(f"The result is not stored: {error}"), True)
                if not error.is_refusal:
                    raise
                return fail(JobFailed(f"The result is not accepted: {error}"), False)

        try:
            result = self._handlers[job.workflow](job)
            if inspect.isawaitable(result):
                if self._loop is None:
                    raise TypeError("The handler returns an awaitable: await serve() in place of run().")
                job._future = asyncio.run_coroutine_threadsafe(_awaited(result), self._loop)
                result = job._future.result()
            body = _dumps({"job_id": job.job_id, "attempt": job.attempt, "result": result})
            return complete
        except JobFailed as error:
            failure: BaseException = error
            return lambda: fail(failure, False)
        except BaseException as error:
            failure = error
            return lambda: fail(failure, True)


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result

"""Shows that no thread of the worker ends by a fault: neither that of completions, nor the one that keeps leases."""

import threading

from gatehouse_worker import RequestFailed, Worker, _Completions


class Service:
    """Answers a completion of one job late, and of several with a list that is not the service's."""

    def __init__(self) -> None:
        self.asked, self.open = threading.Event(), threading.Event()

    def post(self, operation: str, body: str) -> dict[str, object]:
        self.asked.set()
        self.open.wait()
        return {"success": True} if operation == "complete" else {"jobs": [{"success": True}, "odd"]}


def complete() -> None:
    try:
        completions.complete("{}")
        said.append("completed")
    except RequestFailed as error:
        said.append("transient" if error.is_transient else "refused")


said: list[str] = []
service = Service()
completions = _Completions(service)
threads = [threading.Thread(target=complete, daemon=True) for _ in range(4)]
threads[0].start()
service.asked.wait()
for thread in threads[1:]:
    thread.start()
with completions._changed:
    completions._changed.wait_for(lambda: len(completions._waiting) == 3)
service.open.set()
for thread in threads:
    thread.join(10)
complete()
print(*sorted(said))


class Claimed:
    """A job whose heartbeats are refused."""

    job_id, beats = "1", 0

    def _post(self, operation: str, **fields: object) -> None:
        self.beats += 1
        raise RequestFailed("It has finished.", 409, "conflict")

    def _lose(self) -> None:
        pass


def closed(error: Exception, job_id: str | None) -> None:
    raise ValueError("I/O operation on closed file.")


worker = Worker("http://127.0.0.1:9", "key", {"w": print}, on_error=closed)
jobs = [Claimed(), Claimed()]
worker._jobs.update(jobs)
try:
    worker._keep_leases()
except ValueError as error:
    print(error)
print(*(job.beats for job in jobs))

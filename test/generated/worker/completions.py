"""Completes a small job, and two whose results together are too large for one request. Prints the largest request."""

import threading

from gatehouse_worker import _Completions

MIB = 1024 * 1024


class Service:
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.asked, self.open = threading.Event(), threading.Event()

    def post(self, operation: str, body: str) -> dict[str, object]:
        self.asked.set()
        self.open.wait()
        self.sizes.append(len(body))
        return {"jobs": [{"success": True}] * body.count('"result"')}


service = Service()
completions = _Completions(service)
bodies = ['{"result":"' + "x" * size + '"}' for size in (1, 5 * MIB, 4 * MIB)]
threads = [threading.Thread(target=completions.complete, args=(body,)) for body in bodies]
threads[0].start()
service.asked.wait()
for thread in threads[1:]:
    thread.start()
with completions._changed:
    completions._changed.wait_for(lambda: len(completions._waiting) == 2)
service.open.set()
for thread in threads:
    thread.join()
print(max(service.sizes) <= 8 * MIB, len(service.sizes))

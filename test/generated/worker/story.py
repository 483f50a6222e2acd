"""The same story with threads and, as `story.py asyncio`, with asyncio."""

import asyncio
import os
import sys
import time

from gatehouse_worker import JobFailed, Worker

charges = []


def say(text):
    print(text, flush=True)


def total(job):
    job.progress(0.5, "half")
    return {"sum": sum(job.input), "attempt": job.attempt}


def check_step(result):
    if result["pair"] != [1, 2]:
        raise JobFailed("A step returns something else than another attempt gets.")


def large(job):
    return job.step("large", lambda: say("large made") or "x" * 300_000)


def twice(job):
    return [job.step("same", lambda: 1) for _ in range(2)]


def order(job):
    job.log(f"attempt {job.attempt} \0", "debug")
    charge = job.step("charge", lambda: charges.append(1) or {"number": len(charges), "pair": (1, 2)})
    job.step("nothing", lambda: None)
    check_step(charge)
    if job.attempt == 1:
        raise ValueError("no paper")
    return charge


def decorated(job):
    for text in ("\ud83d", "😀" * 1_500, "a\0b", ""):
        job.log(text)
    job.progress(1.000000000001, "x" + "😀" * 600)
    job.progress(float("nan"))
    raise ValueError("x" + "😀" * 6_000)


def exact(job):
    read = job.step("read", lambda: job.input)
    assert job.input["id"] == 9007199254740993 and job.input["in"][0] + 1 == 2 and str(job.input["in"][1]) == "1e-400"
    return {"read": read, "copy": {**job.input, "id": job.input["id"] + 1}, "one": job.input["in"][0], "sum": job.input["in"][0] + 0.5}


def hopeless(job):
    raise JobFailed("no such report")


def slow(job):
    time.sleep(2.5)
    return "done"


def endless(job):
    job.lost.wait()
    say("aborted")


async def async_total(job):
    await job.progress(0.5, "half")
    return {"sum": sum(job.input), "attempt": job.attempt}


async def async_order(job):
    async def charge():
        charges.append(1)
        return {"number": len(charges), "pair": (1, 2)}

    async def nothing():
        return None

    job.log(f"attempt {job.attempt} \0", "debug")
    result = await job.step("charge", charge)
    await job.step("nothing", nothing)
    check_step(result)
    if job.attempt == 1:
        raise ValueError("no paper")
    return result


async def async_decorated(job):
    for text in ("\ud83d", "😀" * 1_500, "a\0b", ""):
        job.log(text)
    await job.progress(1.000000000001, "x" + "😀" * 600)
    await job.progress(float("nan"))
    raise ValueError("x" + "😀" * 6_000)


async def async_slow(job):
    await asyncio.sleep(2.5)
    return "done"


async def async_endless(job):
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        say("aborted")
        raise


class Told(Worker):
    def stop(self):
        super().stop()
        # The handler of a signal must not print: it may have interrupted a print.
        os.write(1, b"stops\n")


def worker(handlers):
    faults = lambda error, job_id: say(f"fault: {error}")
    url, key = os.environ["GATEHOUSE_URL"], os.environ["GATEHOUSE_TOKEN"]
    return Told(url, key, handlers, lease_seconds=1, grace_seconds=float("inf"), on_error=faults)


# A handler that is no coroutine function runs in a thread, also beside those that are.
common = {"exact": exact, "hopeless": hopeless, "odd": lambda job: object(), "large": large, "twice": twice}
if sys.argv[1:] == ["asyncio"]:
    handlers = {"sum": async_total, "order": async_order, "decorated": async_decorated, "slow": async_slow, "endless": async_endless}
    asyncio.run(worker({**common, **handlers}).serve())
else:
    worker({**common, "sum": total, "order": order, "decorated": decorated, "slow": slow, "endless": endless}).run()

"""Jobs on threads that start at one moment."""

from __future__ import annotations

import threading
from collections.abc import Callable


def together(*jobs: Callable[[], None]) -> None:
    """Run the jobs on threads, started at one moment; raise what the first of them to fail raised."""
    start = threading.Barrier(len(jobs))
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            start.wait()
            job()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def numbered(job: Callable[[int], None], threads: int) -> list[Callable[[], None]]:
    """The job once for each number."""
    return [lambda number=number: job(number) for number in range(threads)]

"""How much memory the arrays of a program take at its fullest moment.

Kernels run in the order of the program, except that one which frees at least what it takes runs as soon as it can:
the compiler orders them to need little memory, and so an optimizer's update uses up its gradient at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from torus.twin.analytic.kernels import Kernel


def ordered(kernels: list[Kernel], size: Callable[[int], int], free: Collection[int]) -> list[Kernel]:
    """`kernels` in the order they run. Values in `free` take no memory of their own and free none: the arguments."""
    waits, wanted = _waits(kernels), _readers(kernels)
    left = {value: len(readers) for value, readers in wanted.items()}
    done: set[int] = set()
    order: list[Kernel] = []

    def frees(kernel: Kernel) -> int:
        freed = sum(size(i) for i in kernel.reads if left[i] == 1 and i not in free)
        return freed - sum(size(i) for i in kernel.writes if i not in free)

    def run(kernel: Kernel) -> None:
        queue = [kernel]
        while queue:
            current = queue.pop()
            if current.at in done:
                continue
            done.add(current.at)
            order.append(current)
            for i in current.reads:
                left[i] -= 1
            touched: dict[int, Kernel] = {}
            for i in current.writes:
                for reader in wanted.get(i, ()):
                    waits[reader.at] -= 1
                    touched[reader.at] = reader
            for i in current.reads:
                if left[i] == 1 and i not in free:
                    touched.update((r.at, r) for r in wanted[i] if r.at not in done)
            queue += [k for k in touched.values() if waits[k.at] == 0 and frees(k) >= 0]

    for kernel in kernels:
        run(kernel)
    return order


def _waits(kernels: list[Kernel]) -> dict[int, int]:
    """For each kernel how many of its reads are yet to be made."""
    made = {i for k in kernels for i in k.writes}
    return {k.at: sum(i in made for i in k.reads) for k in kernels}


def _readers(kernels: list[Kernel]) -> dict[int, list[Kernel]]:
    readers: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        for i in kernel.reads:
            readers.setdefault(i, []).append(kernel)
    return readers


def peak(
    kernels: list[Kernel], size: Callable[[int], int], free: Collection[int], kept: Collection[int]
) -> tuple[int, list[int]]:
    """The largest sum of the sizes of arrays that live at a time, and the arrays of that moment.

    Values in `free` do not count; those in `kept` live to the end.
    """
    last = {i: position for position, kernel in enumerate(kernels) for i in (*kernel.writes, *kernel.reads)}
    ending: dict[int, list[int]] = {}
    for value, position in last.items():
        if value not in kept:
            ending.setdefault(position, []).append(value)
    live: dict[int, int] = {}
    now = most = 0
    moment: list[int] = []
    for position, kernel in enumerate(kernels):
        for i in kernel.writes:
            if i not in free and i not in live:
                live[i] = size(i)
                now += live[i]
        if now + kernel.inside > most:
            most, moment = now + kernel.inside, list(live)
        for i in ending.get(position, ()):
            now -= live.pop(i, 0)
    return most, moment

"""All runs of a plan: every policy with every seed. Several runs share the cores of this machine."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple, Protocol

import msgspec

from gpushare.obs.errors import UserError
from gpushare.sim import arrivals, lifetimes, loading
from gpushare.sim.arrivals import Arrivals
from gpushare.sim.results import Run
from gpushare.sim.trace import Trace

STEPS = 50  # pods between two reports of progress
LOOK_SECONDS = 0.1

Progress = Callable[[int, int], None]
"""Called with the pods that came so far, and those of all runs."""


class Plan(NamedTuple):
    policies: Sequence[str]
    seeds: Sequence[int]
    load: float
    arrivals_file: str = ""
    departures: bool = False


class _Count(Protocol):
    value: int


class _Job(NamedTuple):
    policy: str
    seed: int
    arrivals: Arrivals


def run(trace: Trace, plan: Plan, progress: Progress) -> list[Run]:
    if plan.departures:
        _check_times(trace)
    drawn = {seed: _arrivals(trace, plan, seed) for seed in plan.seeds}
    jobs = [_Job(policy, seed, drawn[seed]) for policy in plan.policies for seed in plan.seeds]
    pods = sum([len(job.arrivals.order) for job in jobs])
    cores = min(len(jobs), os.cpu_count() or 1)
    if cores == 1:
        runs = [_Worker(trace, plan, _Reported(progress, pods)).run(job) for job in jobs]
    else:
        runs = _in_processes(trace, plan, jobs, cores, lambda came: progress(came, pods))
    for run in runs:
        if not run.pods:
            why = f"with seed {run.seed} the first pod asks for more than {plan.load} of all GPUs"
            raise UserError("no pod came", why, "a larger --load")
    return runs


def _in_processes(
    trace: Trace, plan: Plan, jobs: Sequence[_Job], cores: int, progress: Callable[[int], None]
) -> list[Run]:
    came = multiprocessing.Value("q", 0)
    with ProcessPoolExecutor(cores, initializer=_begin, initargs=(trace, plan, came)) as pool:
        runs = [pool.submit(_run, job) for job in jobs]
        try:
            while wait(runs, LOOK_SECONDS).not_done:
                progress(came.value)
            return [run.result() for run in runs]
        except BrokenProcessPool:
            why = "its process was ended, perhaps because memory ran out"
            raise UserError("a replay did not end", why, "replay fewer policies and seeds at once") from None
        except BaseException:
            for run in runs:
                run.cancel()
            for process in multiprocessing.active_children():  # on Ctrl-C nobody waits for what is under way
                process.terminate()
            raise


def _check_times(trace: Trace) -> None:
    if not trace.timed:
        raise UserError("the trace has no times", "--departures needs when pods come and end", "leave out --departures")
    times = [pod.arrival for pod in trace.pods]
    if min(times) == max(times):
        raise UserError("all pods of the trace come at once", "then no time passes", "leave out --departures")


def _arrivals(trace: Trace, plan: Plan, seed: int) -> Arrivals:
    if plan.arrivals_file:
        return arrivals.read(trace, plan.arrivals_file, seed)
    if plan.departures:
        return arrivals.in_time(trace, seed)
    return arrivals.drawn(trace, seed, plan.load)


class _Reported:
    """The count of pods that came, in one process: each change is reported."""

    def __init__(self, progress: Progress, pods: int) -> None:
        self._progress, self._pods, self._value = progress, pods, 0

    @property
    def value(self) -> int:
        return self._value

    @value.setter
    def value(self, came: int) -> None:
        self._value = came
        self._progress(came, self._pods)


class _Worker:
    def __init__(self, trace: Trace, plan: Plan, came: _Count) -> None:
        self._trace, self._plan, self._came, self._steps = trace, plan, came, 0

    def run(self, job: _Job) -> Run:
        began = time.process_time()
        if self._plan.departures:
            run = lifetimes.replay(self._trace, job.policy, job.arrivals.ranks, self._step)
        else:
            order, ranks = job.arrivals
            run = loading.replay(self._trace, job.policy, order, ranks, self._plan.load, self._step)
        spent = time.process_time() - began
        return msgspec.structs.replace(run, seed=job.seed, cpu_seconds=round(spent, 2))

    def _step(self) -> None:
        self._steps += 1
        if self._steps % STEPS == 0:
            self._came.value += STEPS


_workers: list[_Worker] = []  # of this process: one


def _begin(trace: Trace, plan: Plan, came: _Count) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits: it ends the others
    _workers.append(_Worker(trace, plan, came))


def _run(job: _Job) -> Run:
    return _workers[0].run(job)

"""Judge candidates on the nodes of a Ray cluster; this process asks the samplers and keeps the trials.

A host is an actor on a node that holds the evaluator which would judge there without Ray, with its disposable worker
processes: time limits, dying processes and caches of compiled kernels are those of one machine. Without a GPU a node
has one host with all its cores; with GPUs, one for each GPU with its part of the cores. Where candidates are measured,
nodes without a GPU compile for those that have one: what they made travels once, from the one to the other.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.families import study_hash
from kernels.problem import GemmShape
from kernels.rocm.toolchain import triton_version
from search.device.ahead import Artefacts, keep_artefacts
from search.device.finals import FinalsEvaluator, decide
from search.evaluation import Candidate, Evaluation, FinalsFailedError, FinalTimes, Point
from search.evaluators import Evaluator
from search.evaluators.device import COMPILE_TIMEOUT_S, Compilation, begin_compiling, compile_to_send, lost_compiler
from search.results.trials import KeptTrials
from search.workers.pool import WorkerDied, WorkerPool, WorkerTimedOut

Make = Callable[[int], Evaluator]  # of so many worker processes
Compile = Callable[[Candidate], tuple[Compilation, Artefacts]]
MakeCompile = Callable[[DeviceKey], Compile]
LOSSES: Final = 3  # hosts that a candidate may take with it before it is to blame
START_S: Final = 300.0  # for every node to import torch and Triton, and to start its processes
CONNECT_S: Final = 10.0  # for a node to answer
RAY_ADDRESSES: Final = ("auto", "local")  # that Ray finds itself
LOOK_S: Final = 2.0  # between two looks at which nodes there are
ANSWER_THREADS: Final = 8  # of a host, beyond its candidates: finals, its description
MISSING: Final = "--engine ray: Ray is not installed; pip install 'mxfp4-tune[ray]'"


@dataclass(frozen=True)
class HostFacts:
    """What a host judges for, and with what.

    Args:
        node: Name for people.
        sources: Hash of the kernels' sources.
        capacity: Candidates to keep submitted.
    """

    node: str
    device: DeviceKey
    protocol: str
    sources: str
    triton: str
    capacity: int

    def differs_from(self, other: HostFacts) -> str | None:
        """What a user has to make alike; None where nothing matters."""
        for what, mine, theirs in (
            ("device", self.device, other.device), ("protocol", self.protocol, other.protocol),
            ("source hash", self.sources, other.sources), ("Triton", self.triton, other.triton),
        ):  # fmt: skip
            if mine != theirs:
                return f"its {what} is {mine}, that of {other.node} {theirs}; install the same version there"
        return None


class Compiler:
    """The actor of a node that compiles for others."""

    def __init__(self, make: MakeCompile, jobs: int, node: str, model: HostFacts) -> None:
        begin = partial(begin_compiling, model.device)
        self._pool = WorkerPool(make(model.device), jobs, begin, fork=begin_compiling.__module__)
        self._pool.start(START_S)
        self._facts = HostFacts(node, model.device, model.protocol, study_hash(), triton_version(), 2 * jobs)

    def facts(self) -> HostFacts:
        """What it compiles for."""
        return self._facts

    def compile(self, candidate: Candidate) -> tuple[Evaluation | None, Artefacts]:
        """The verdict if that is the end of it, and what a launch needs."""
        try:
            compiled, artefacts = self._pool.submit(candidate, COMPILE_TIMEOUT_S).result()
        except (WorkerDied, WorkerTimedOut) as error:
            return lost_compiler(error), Artefacts()
        return compiled if isinstance(compiled, Evaluation) else None, artefacts

    def close(self) -> None:
        """Stop the worker processes."""
        self._pool.close()


class Host:
    """The actor: an evaluator on a node."""

    def __init__(self, make: Make, jobs: int, node: str) -> None:
        self._evaluator = make(jobs)
        self._evaluator.start(START_S)
        self._node = node
        self._judging: dict[Candidate, Future[Evaluation]] = {}

    def facts(self) -> HostFacts:
        """See :class:`HostFacts`."""
        judge = self._evaluator
        return HostFacts(self._node, judge.device, judge.protocol, study_hash(), triton_version(), judge.capacity)

    def judge(self, candidate: Candidate, artefacts: Artefacts | None = None) -> Evaluation:
        """The verdict; ``artefacts`` were compiled elsewhere."""
        keep_artefacts(artefacts or Artefacts())
        answer = self._judging[candidate] = self._evaluator.submit(candidate)
        try:
            return answer.result()
        finally:
            self._judging.pop(candidate, None)

    def withdraw(self, candidate: Candidate) -> bool:
        """Give it up if nothing was done for it yet."""
        answer = self._judging.get(candidate)
        return answer is not None and self._evaluator.withdraw(answer)

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> FinalTimes:
        """Of an evaluator that measures."""
        return cast(FinalsEvaluator, self._evaluator).finals(candidates, rounds=rounds, seed=seed).result()

    def confirm(self, winner: Candidate, rounds: int, seed: int) -> FinalTimes:
        """Of an evaluator that measures."""
        return cast(FinalsEvaluator, self._evaluator).confirm(winner, rounds=rounds, seed=seed).result()

    def study_ended(self, shape: GemmShape) -> None:
        """No more candidates of ``shape`` come."""
        self._evaluator.study_ended(shape)

    def close(self) -> None:
        """Stop the worker processes."""
        self._evaluator.close()


@dataclass(eq=False)
class _Remote:
    """A host as it is seen from here."""

    actor: Any
    facts: HostFacts
    running: int = 0
    shapes: set[GemmShape] = field(default_factory=set)

    @property
    def load(self) -> float:
        """Candidates that it has, as a part of what it can take."""
        return self.running / self.facts.capacity


class ClusterEvaluator(Evaluator):
    """Judges candidates on the nodes of a cluster.

    Args:
        make: Makes a node's evaluator, on that node.
        address: Of the cluster's head, ``auto`` for the one that runs here; None starts one on this machine.
        gpus: Whether candidates are measured.
        note: Told of each node that is left out or has left.

    Raises:
        InputError: No Ray, no cluster at ``address``, or no node that can judge.
    """

    def __init__(
        self,
        make: Make,
        *,
        address: str | None = None,
        gpus: bool = False,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._ray = _connected(address)
        self._start = partial(_on_node, self._ray, make=make, gpus=gpus)
        self._note = note
        self._lock = threading.Lock()
        self._judging: dict[Future[Evaluation], tuple[_Remote, Candidate]] = {}
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        self._nodes = {node["NodeID"] for node in nodes}  # that were looked at
        self._compilers: list[_Remote] = []
        self._hosts = _first_hosts(self._ray, [one for node in nodes for one in self._start(node)], gpus, note)
        first = self._hosts[0].facts
        self.device, self.protocol = first.device, first.protocol
        self._count()
        self._closed = threading.Event()
        self._watching = threading.Thread(target=self._watch, args=(nodes,), daemon=True)
        self._watching.start()

    def _helpers(self, node: Mapping[str, Any]) -> list[_Started]:
        """Actors of a node that judges nothing itself, begun."""
        return []

    def _count(self) -> None:
        self.capacity = max(1, sum(one.facts.capacity for one in [*self._hosts, *self._compilers]))
        self.nodes = Counter(host.facts.node for host in self._hosts)

    def _watch(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Thread: take in the helpers on ``nodes``, and the nodes that come later."""
        coming = {one.facts: one for node in nodes for one in self._helpers(node)}  # by the answer that is awaited
        while not self._closed.wait(LOOK_S):
            nodes = [node for node in self._ray.nodes() if node["Alive"] and node["NodeID"] not in self._nodes]
            self._nodes |= {node["NodeID"] for node in nodes}
            coming |= {one.facts: one for node in nodes for one in [*self._start(node), *self._helpers(node)]}
            for ready in self._ray.wait(list(coming), timeout=0)[0] if coming else ():
                self._join(coming.pop(ready))

    def _join(self, started: _Started) -> None:
        with self._lock:
            host = _admitted(self._ray, started, self._hosts)
            if isinstance(host, _Remote):
                (self._compilers if started.compiles else self._hosts).append(host)
                self._count()
        self._note(host if isinstance(host, str) else f"{started.node} has joined")

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Start judging ``candidate``; where its node leaves, it is judged again on another one."""
        answer: Future[Evaluation] = Future()
        self._send(candidate, answer, losses=0)
        return answer

    def withdraw(self, answer: Future[Evaluation]) -> bool:
        """Give up a candidate that waits on its node."""
        with self._lock:
            host, candidate = self._judging.get(answer, (None, None))
        if host is None:
            return False
        try:
            return bool(self._ray.get(host.actor.withdraw.remote(candidate)))
        except self._ray.exceptions.RayActorError:
            return False  # it is judged again elsewhere

    def close(self) -> None:
        """Stop the hosts; the cluster goes on, unless it was started here."""
        self._closed.set()
        self._watching.join()
        with self._lock:
            hosts, self._hosts, self._compilers = [*self._hosts, *self._compilers], [], []
        if self._ray.is_initialized():
            for host in hosts:
                self._ray.kill(host.actor)
            self._ray.shutdown()

    def _send(self, candidate: Candidate, answer: Future[Evaluation], losses: int, artefacts: Any = None) -> None:
        if not answer.running() and not answer.set_running_or_notify_cancel():
            return
        try:
            host = self._host(candidate.shape)
        except InputError as error:
            answer.set_exception(error)
            return
        with self._lock:
            host.running += 1
            self._judging[answer] = host, candidate
        done = host.actor.judge.remote(candidate, artefacts).future()
        done.add_done_callback(partial(self._answered, candidate, answer, host, losses))

    def _answered(
        self, candidate: Candidate, answer: Future[Evaluation], host: _Remote, losses: int, done: Future[Evaluation]
    ) -> None:
        with self._lock:
            host.running -= 1
            self._judging.pop(answer, None)
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        elif isinstance(_cause(error), self._ray.exceptions.RayError) and _cause(error) is not error:
            self._send(candidate, answer, losses)  # what was compiled for it is lost
        elif not isinstance(error, self._ray.exceptions.RayActorError):
            answer.set_exception(_cause(error))
        elif losses + 1 < LOSSES:
            self._lost(host)
            self._send(candidate, answer, losses + 1)
        else:
            self._lost(host)
            answer.set_result(Evaluation("crashed", f"{LOSSES} nodes were lost while they judged it"))

    def _lost(self, host: _Remote) -> None:
        """A node has left; what it judged goes elsewhere."""
        with self._lock:
            if host not in [*self._hosts, *self._compilers]:
                return
            (self._hosts if host in self._hosts else self._compilers).remove(host)
            self._count()
        self._note(f"{host.facts.node} has left; its candidates are judged elsewhere")

    def _host(self, shape: GemmShape) -> _Remote:
        """Where a candidate of ``shape`` is judged: on the least busy host.

        Raises:
            InputError: Every node has left.
        """
        with self._lock:
            if not self._hosts:
                raise InputError("--engine ray: every node has left; start one, and the same command goes on")
            return min(self._hosts, key=lambda host: host.load)


def compiling(device: DeviceKey) -> Compile:
    """How nodes without a GPU compile for ``device``."""
    return partial(compile_to_send, device=device)


class MeasuringCluster(ClusterEvaluator):
    """Measures candidates on the GPUs of a cluster: each study, and its finals, on one GPU.

    Args:
        compiles: Makes what a node without a GPU compiles with.
    """

    offline = False
    ahead = True

    def __init__(
        self,
        make: Make,
        *,
        address: str | None = None,
        note: Callable[[str], None] = lambda line: None,
        compiles: MakeCompile = compiling,
    ) -> None:
        self._compiles = compiles
        super().__init__(make, address=address, gpus=True, note=note)
        self.lanes = len(self._hosts)

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Start judging ``candidate``: it is compiled where there is most room, and measured on its study's GPU."""
        host = self._host(candidate.shape)
        with self._lock:
            compiler = min(self._compilers, key=lambda one: one.load, default=host)
            if host.load <= compiler.load:
                compiler = host
            else:
                compiler.running += 1
        if compiler is host:
            return super().submit(candidate)
        answer: Future[Evaluation] = Future()
        verdict, artefacts = compiler.actor.compile.options(num_returns=2).remote(candidate)
        verdict.future().add_done_callback(partial(self._compiled, candidate, answer, compiler, artefacts))
        return answer

    def _compiled(
        self, candidate: Candidate, answer: Future[Evaluation], compiler: _Remote, artefacts: Any, done: Future[Any]
    ) -> None:
        """Send what was compiled, of which only the reference is here, to the GPU of the study."""
        with self._lock:
            compiler.running -= 1
        error = done.exception()
        if isinstance(error, self._ray.exceptions.RayActorError):
            self._lost(compiler)
            self._send(candidate, answer, losses=0)
        elif error is None and done.result() is None:
            self._send(candidate, answer, losses=0, artefacts=artefacts)
        elif answer.set_running_or_notify_cancel():
            if error is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(_cause(error))

    def _helpers(self, node: Mapping[str, Any]) -> list[_Started]:
        """A compiler, where there is no GPU."""
        cores = int(node["Resources"].get("CPU", 0))
        if node["Resources"].get("GPU", 0) or not cores:
            return []
        name = _name(node)
        actor = _pinned(self._ray, Compiler, node, cores).remote(self._compiles, cores, name, self._hosts[0].facts)
        return [_Started(name, actor, actor.facts.remote(), compiles=True)]

    def study_ended(self, shape: GemmShape) -> None:
        """The GPU of ``shape`` is free for the study of another one."""
        with self._lock:
            for host in self._hosts:
                if shape in host.shapes:
                    host.shapes.discard(shape)
                    host.actor.study_ended.remote(shape)

    def hold_finals(self, kept: KeptTrials, shape: GemmShape, incumbent: Point | None, seed: int) -> None:
        """Settle on the study's GPU which of its trials is the fastest, see :func:`search.device.finals.decide`."""
        decide(kept, shape, self, incumbent, seed)

    def finals(self, candidates: Sequence[Candidate], *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        """As :meth:`search.evaluators.device.DeviceEvaluator.finals`."""
        shape = candidates[0].shape
        return self._timed(shape, lambda host: host.actor.finals.remote(candidates, rounds, seed))

    def confirm(self, winner: Candidate, *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        """As :meth:`search.evaluators.device.DeviceEvaluator.confirm`."""
        return self._timed(winner.shape, lambda host: host.actor.confirm.remote(winner, rounds, seed))

    def _timed(self, shape: GemmShape, begin: Callable[[_Remote], Any]) -> Future[FinalTimes]:
        answer: Future[FinalTimes] = Future()
        host = self._host(shape)

        def settle(done: Future[FinalTimes]) -> None:
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            elif isinstance(error, self._ray.exceptions.RayActorError):
                self._lost(host)
                answer.set_exception(FinalsFailedError(f"{host.facts.node} has left"))
            else:
                answer.set_exception(_cause(error))

        begin(host).future().add_done_callback(settle)
        return answer

    def _host(self, shape: GemmShape) -> _Remote:
        """The GPU of the shape's study: when its first candidate comes, the one with the fewest studies."""
        with self._lock:
            for host in self._hosts:
                if shape in host.shapes:
                    return host
        if not self._hosts:
            return super()._host(shape)
        with self._lock:
            host = min(self._hosts, key=lambda host: (len(host.shapes), host.running))
            host.shapes.add(shape)
            return host


def _connected(address: str | None) -> Any:
    """Ray, once it is connected to a cluster."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError(MISSING) from error
    if address not in (None, *RAY_ADDRESSES):
        _check_address(address)
    try:
        ray.init(address=address or "local", log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        cause = str(error).strip().splitlines()[0]
        raise InputError(f"--address {address}: no Ray cluster ({cause}); start one with `ray start --head`") from error
    return ray


def _check_address(address: str) -> None:
    """Refuse what nobody listens at: Ray waits there for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"--address {address}: is no address of a Ray cluster; give HOST:PORT, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        cause = error.strerror or str(error)
        raise InputError(
            f"--address {address}: nobody answers there ({cause}); `ray start --head` prints the address"
        ) from error


@dataclass(frozen=True, eq=False)
class _Started:
    """A host that comes up.

    Args:
        facts: Where Ray will put what it says of itself.
    """

    node: str
    actor: Any
    facts: Any
    compiles: bool = False


def _first_hosts(ray: Any, started: Sequence[_Started], gpus: bool, note: Callable[[str], None]) -> list[_Remote]:
    """The hosts of a cluster; those that are unlike the first are left out by name.

    Raises:
        InputError: There is none.
    """
    hosts: list[_Remote] = []
    refusals = []
    for one in started:
        host = _admitted(ray, one, hosts)
        if isinstance(host, str):
            refusals.append(host)
        else:
            hosts.append(host)
    if not hosts:
        ray.shutdown()
        why = refusals[0] if refusals else "`ray status` lists what it has"
        raise InputError(f"--engine ray: no {'GPU' if gpus else 'node'} of the cluster can judge; {why}")
    for line in refusals:
        note(line)
    return hosts


def _admitted(ray: Any, started: _Started, hosts: Sequence[_Remote]) -> _Remote | str:
    """A host once it is up, or why it is left out: it has to be like the others."""
    facts = _facts(ray, started.facts)
    refusal = facts if isinstance(facts, str) else facts.differs_from(hosts[0].facts if hosts else _here(facts))
    if refusal is None:
        return _Remote(started.actor, cast(HostFacts, facts))
    ray.kill(started.actor)
    return f"{started.node} is left out: {refusal}"


def _facts(ray: Any, answer: Any) -> HostFacts | str:
    """What a host says of itself, or why it does not."""
    try:
        facts: HostFacts = ray.get(answer, timeout=START_S)
    except (ray.exceptions.RayError, TimeoutError) as error:
        return str(_cause(error)).strip().splitlines()[-1]
    return facts


def _on_node(ray: Any, node: Mapping[str, Any], make: Make, gpus: bool) -> list[_Started]:
    """The hosts of a node."""
    count = int(node["Resources"].get("GPU", 0)) if gpus else 1
    cores = int(node["Resources"].get("CPU", 0))
    if count < 1 or cores < count:
        return []
    jobs, name = cores // count, _name(node)
    actors = [_pinned(ray, Host, node, jobs, int(gpus)).remote(make, jobs, name) for _ in range(count)]
    return [_Started(name, actor, actor.facts.remote()) for actor in actors]


def _name(node: Mapping[str, Any]) -> str:
    """Of a node, for people."""
    return f"{node['NodeManagerHostname']} ({node['NodeID'][:6]})"


def _pinned(ray: Any, kind: type[Any], node: Mapping[str, Any], cores: int, gpus: int = 0) -> Any:
    """Actors of ``kind`` on that node and no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    return ray.remote(kind).options(
        num_cpus=cores, num_gpus=gpus, scheduling_strategy=there, max_concurrency=4 * cores + ANSWER_THREADS
    )


def _here(facts: HostFacts) -> HostFacts:
    """What the first host has to be like: this process's sources and Triton."""
    return HostFacts("this process", facts.device, facts.protocol, study_hash(), triton_version(), facts.capacity)


def _cause(error: BaseException) -> BaseException:
    """What the host raised, without Ray's wrapping."""
    from ray.exceptions import RayTaskError

    return cast(BaseException, error.cause) if isinstance(error, RayTaskError) else error

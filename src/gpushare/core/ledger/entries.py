"""What is written in the ledger: nodes, holdings, nominations, kept GPUs. The only place that has these dictionaries.

The first half is what everybody may read. The second half is how an entry is put and taken: always the same amount, so
that nothing leaks, and what is free on the node is worked out again. `questions` and `ledger` are made of these.
"""

from collections.abc import Hashable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from operator import gt

from gpushare.core.facts import units
from gpushare.core.facts.model import NodeFacts, PodFacts, Request
from gpushare.core.facts.packing import chance
from gpushare.core.facts.packing.model import Ask, Mixture, Scorer, View
from gpushare.core.facts.policies import POLICIES
from gpushare.core.facts.scoring.adjusted import Scoring
from gpushare.core.facts.scoring.order import Order
from gpushare.core.facts.scoring.settings import Settings
from gpushare.core.ledger.answers import Shapes
from gpushare.core.ledger.holding import Holding, Kept, State
from gpushare.core.ledger.index import Index
from gpushare.core.ledger.loads import Measured
from gpushare.core.ledger.node_record import NodeRecord
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.ledger.supplies import Supplies
from gpushare.core.order.changes import Changes
from gpushare.core.order.ranked import Ranked
from gpushare.core.order.tables import Tables
from gpushare.core.placement.room import Room

VIEWS = 4  # for each node, before sharing begins anew


class Entries:
    def __init__(self) -> None:
        self._nodes: dict[str, NodeRecord] = {}
        self._holdings: dict[str, Holding] = {}
        self._nominations: dict[str, str] = {}  # uid -> node
        self._kept: dict[str, Kept] = {}  # by uid
        self._assumed: dict[str, Holding] = {}  # these end by time
        self._timed: set[str] = set()  # nodes with something else that ends by time
        self._grown: set[str] = set()
        self._measured: dict[str, Measured] = {}  # by node, also of nodes that share no GPU
        self.scoring = Scoring()  # what all points depend on
        self.supplies = Supplies()
        self.mixture = Mixture()
        self._scorers: dict[str, Scorer] = {}  # by policy, made when asked for
        self._packs_by: set[str] = set()
        self._views: dict[Hashable, View] = {}  # by content: nodes that are alike share one
        self._now = 0.0  # the last time that was told
        self._respects_reservations = False
        self._index = Index()
        self._changes = Changes()
        self._shapes = Shapes(self._changes)
        self._orders: Tables[Hashable, Ranked] = Tables()

    # What everybody may read

    def node(self, name: str) -> NodeState | None:
        return self._nodes.get(name)

    def facts(self, node: str) -> NodeFacts | None:
        """What a node offers; None if it shares no GPU."""
        state = self._nodes.get(node)
        return state.facts if state is not None else None

    def nodes(self) -> ValuesView[NodeState]:
        return self._nodes.values()

    def node_names(self) -> KeysView[str]:
        return self._nodes.keys()

    def rooms(self) -> Iterator[Room]:
        """What is free on each node that shares GPUs, promises aside."""
        return (state.room for state in self._nodes.values() if state.room is not None)

    def holding(self, uid: str) -> Holding | None:
        return self._holdings.get(uid)

    def holdings(self) -> ValuesView[Holding]:
        return self._holdings.values()

    def bound(self, uid: str) -> Holding | None:
        """What a pod holds if it is bound; None if it is not, as far as is known."""
        holding = self._holdings.get(uid)
        return holding if holding is not None and holding.state is State.BOUND else None

    def nomination(self, uid: str) -> str | None:
        """The node that a pod is nominated to after a preemption."""
        return self._nominations.get(uid)

    def kept_for(self, uid: str) -> Kept | None:
        return self._kept.get(uid)

    def kept(self) -> ValuesView[Kept]:
        return self._kept.values()

    def has_promises(self) -> bool:
        """Whether anything is nominated or kept: then what is free depends on who asks."""
        return bool(self._nominations or self._kept)

    def is_promised(self, uid: str) -> bool:
        """Whether something is nominated to or kept for this pod."""
        return uid in self._nominations or uid in self._kept

    def order(self, node: str, pod: PodFacts, request: Request, policy: str) -> Order | None:
        """The points of each GPU of a node for such a pod; None if the policy gives none."""
        state, scorer = self._nodes.get(node), self.scorer(policy)
        if state is not None and state.facts is not None and POLICIES[policy].by_chance:
            return Order(chance.points(pod.uid, node, len(state.facts.gpus)))
        if state is None or scorer is None:
            return state.order(policy, self.scoring, single=request.one_gpu) if state is not None else None
        view = self.view(node, pod) if request.one_gpu and not request.shares[0].kind.slots else None
        best = scorer.one_gpu(Ask.of(pod), view) if view is not None else None
        if best is None or view is None:
            return None
        return Order(tuple([int(gpu == best.gpu) for gpu in range(len(view.free))]))

    def scorer(self, policy: str) -> Scorer | None:
        """Of a policy that packs."""
        scorer = self._scorers.get(policy)
        make = POLICIES[policy].packing
        if scorer is None and make is not None:
            self._packs_by.add(policy)
            scorer = self._scorers[policy] = make(self.mixture)
        return scorer

    @property
    def packs_by(self) -> Set[str]:
        """The policies that pack and were ever asked for."""
        return frozenset(self._packs_by)

    @property
    def scorers(self) -> Mapping[str, Scorer]:
        """Of policies that pack, as far as they are made."""
        return self._scorers

    def view(self, node: str, pod: PodFacts) -> View | None:
        """What policies that pack see of a node for this pod."""
        state = self._nodes.get(node)
        if state is None:
            return None
        return state.known_view or self._new_view(state, pod)

    def _new_view(self, state: NodeState, pod: PodFacts) -> View | None:
        view = state.view(pod, self.supplies.left)
        if view is None:
            return None
        if len(self._views) > VIEWS * len(self._nodes):
            self._views.clear()
        view = self._views.setdefault(view.content, view)
        if not state.promised:
            state.known_view = view
        return view

    def take_grown(self) -> set[str]:
        """The nodes where something came free, or may be had again, since this was last asked."""
        grown, self._grown = self._grown, set()
        return grown

    # What points depend on

    def measure(self, node: str, measured: Measured | None) -> None:
        """A node said what its GPUs do. None: that is unknown, or too old to count."""
        if measured is not None:
            self._measured[node] = measured
        elif self._measured.pop(node, None) is None:
            return
        record = self._nodes.get(node)
        if record is not None:
            record.measured = measured
            record.forget_points()
            self._changes.note(node, len(self._nodes))

    def offer(self, node: str, cpu: int, memory: int) -> None:
        """A node has so much CPU (in thousandths) and memory (MiB) for pods."""
        if self.supplies.offer(node, cpu, memory):
            self._looks_different(node)

    def offer_no_longer(self, node: str) -> None:
        """The node is gone."""
        self.supplies.withdraw(node)

    def use(self, uid: str, node: str, cpu: int, memory: int) -> None:
        """A pod that asks for no GPU is on a node."""
        for name in self.supplies.use(uid, node, cpu, memory):
            self._looks_different(name)

    def use_no_longer(self, uid: str) -> None:
        for name in self.supplies.end(uid):
            self._looks_different(name)

    def _looks_different(self, node: str) -> None:
        record = self._nodes.get(node)
        if record is not None:
            record.forget_points()
            self._changes.note(node, len(self._nodes))

    def apply(self, settings: Settings) -> None:
        """What an admin says about points."""
        if settings != self.scoring.settings:
            self.scoring = Scoring(settings, self.scoring.largest)

    def _see_sizes(self, facts: NodeFacts) -> None:
        """The largest GPU ever seen is what others are compared with."""
        mib = units.BYTES_IN[facts.unit] >> 20
        largest = max([gpu.total * mib for gpu in facts.gpus], default=0)
        if largest > self.scoring.largest:
            self.scoring = Scoring(self.scoring.settings, largest)

    # How an entry is put and taken

    def keep(self, kept: Kept) -> None:
        """From now on, what comes free on these GPUs is for this pod, not for others of at most its priority."""
        self.keep_no_longer(kept.pod.uid)
        record = self._record(kept.node)
        self._kept[kept.pod.uid] = kept
        record.keep(kept)
        self._refresh(record)

    def keep_no_longer(self, uid: str) -> None:
        """The pod is placed or gone, or its turn is over."""
        kept = self._kept.pop(uid, None)
        if kept is not None:
            record = self._nodes[kept.node]
            record.keep_no_longer(uid)
            self._refresh(record, changed=True)
            self._drop_if_empty(record)

    def _put(self, record: NodeRecord, holding: Holding) -> None:
        self._holdings[holding.pod.uid] = holding
        if holding.state is State.ASSUMED:
            self._assumed[holding.pod.uid] = holding
        self.supplies.use(holding.pod.uid, holding.node, holding.pod.cpu, holding.pod.memory)
        record.put(holding)

    def _take(self, record: NodeRecord, holding: Holding) -> None:
        del self._holdings[holding.pod.uid]
        self._assumed.pop(holding.pod.uid, None)
        self.supplies.end(holding.pod.uid)
        record.take(holding)

    def _shows(self, record: NodeRecord, old: Holding, new: Holding) -> bool:
        """Put a holding in the place of another of that pod there. False: not so simply, because it takes something
        else, or what is free depends on who asks. Nearly always it is true, and all that is free stays as it is."""
        if record.promised or old.node != new.node or not old.is_like(new):
            return False
        self._holdings[new.pod.uid] = new
        self._assumed.pop(new.pod.uid, None)
        record.show(new)
        return True

    def _remove(self, uid: str) -> None:
        """A pod holds nothing any more."""
        holding = self._holdings.get(uid)
        if holding is not None:
            record = self._nodes[holding.node]
            self._take(record, holding)
            record.drop_old_place(uid)
            self._refresh(record, changed=True)
            self._drop_if_empty(record)

    def _nominate(self, pod: PodFacts) -> None:
        if self._nominations.get(pod.uid) != pod.nominated:
            self._end_nomination(pod.uid)
        record = self._record(pod.nominated)
        if record.nominate(pod):
            self._nominations[pod.uid] = pod.nominated
            self._refresh(record)

    def _end_nomination(self, uid: str) -> None:
        node = self._nominations.pop(uid, None)
        if node is not None:
            record = self._nodes[node]
            record.end_nomination(uid)
            self._refresh(record, changed=True)
            self._drop_if_empty(record)

    def _record(self, name: str) -> NodeRecord:
        record = self._nodes.get(name)
        if record is None:
            record = self._nodes[name] = NodeRecord(name)
            record.measured = self._measured.get(name)
        return record

    def _refresh(self, record: NodeRecord, *, changed: bool = False) -> None:
        """Work out again what is free on a node, and update everything that was derived from it. `changed`: a pod may
        go there now for another reason than that more is free. What is promised shifts with all that happens."""
        before = record.room
        record.renew()
        self._index.update(record)
        self._changes.note(record.name, len(self._nodes))
        if record.room is not None:
            grew = (
                before is None
                or _grew(record.room.free, before.free)
                or _grew(record.room.free_slots, before.free_slots)
            )
            if grew or changed or record.promised:
                self._grown.add(record.name)

    def _drop_if_empty(self, record: NodeRecord) -> None:
        if record.is_empty:
            del self._nodes[record.name]
            self._index.forget(record.name)
            self._timed.discard(record.name)
            self._changes.note(record.name, len(self._nodes))


def _grew(now: Sequence[int], before: Sequence[int]) -> bool:
    return any(map(gt, now, before))

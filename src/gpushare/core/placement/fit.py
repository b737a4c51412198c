"""Does a request fit a node, and if not, why.

Pure. A `Question` is prepared once per request and asked of many nodes. People see the sentences below in `kubectl
describe pod`. kube-scheduler counts equal strings, so a sentence names the request, never the node.

What happens next: the reasons go back to kube-scheduler (`extender/verbs.py`). `extender/events.py` says the same in an
event.
"""

from gpushare.core.facts.model import NodeFacts, Pin, Places, Refusal, Request, Role, Share, Unit
from gpushare.core.facts.policies import POLICIES
from gpushare.core.facts.scoring.order import Order
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget, TooHard
from gpushare.core.placement.room import Room
from gpushare.core.placement.task import Task

NO_SHARED_GPU = Refusal("NoSharedGpu", "node(s) without a shared GPU", forever=True)
COUNTS_OTHERWISE = "node(s) whose GPU memory unit is {unit}"
ONE_CONTAINER = Refusal("OneContainer", "node(s) whose plugin serves one container on one GPU", forever=True)
PINS_BY_PLUGIN = Refusal("PinsByPlugin", "node(s) that pin by device plugin", forever=True)
NEEDS_POLICY = Refusal("NeedsPolicy", "node(s) that need gpushare's admission policy", forever=True)
NVIDIA_TOO = Refusal("NvidiaToo", "node(s) whose GPUs NVIDIA's plugin also gives out")
SELLS_GPUS = Refusal("SellsGpus", "node(s) that sell only whole GPUs or replicas", forever=True)
PLUGIN_DOWN = Refusal("PluginDown", "node(s) whose GPU plugin is down")
RESERVED = Refusal("Reserved", "node(s) that are reserved")
OTHER_NODE = Refusal("OtherNode", "node(s) other than the one its annotation nodeName names", forever=True)
ONLY_MPS = Refusal("OnlyMps", "node(s) whose GPUs serve MPS clients only", forever=True)
MPS_DOWN = Refusal("MpsDown", "node(s) whose MPS daemon does not work")
JUST_REFUSED = Refusal("JustRefused", "node(s) that refused this request just now")
STILL_STARTING = Refusal("LikeUnderWay", "node(s) still starting an identical GPU request")

OVER_LIMIT = "node(s) that allow less than {each} {unit} per container"
TOO_LARGE = "no GPU is as large as {each} {unit}"
TOO_FEW_GPUS = "node(s) with fewer than {gpus} GPUs"
NO_SINGLE_GPU = "no single GPU has {each} {unit} free"
NO_HEALTHY_GPU = "no healthy GPU has {each} {unit} free"
NO_GPUS_EACH = "no {gpus} GPUs have {each} {unit} free each"
NO_WHOLE_GPU = "no GPU is wholly free"
NO_WHOLE_GPUS = "no {gpus} GPUs are wholly free"
NO_GPUS_FOR = "no GPUs for containers of {parts}"
NO_SLOT = "no single GPU has a free MPS slot"
NO_SLOTS = "no {gpus} GPUs have a free MPS slot each"
NO_SLOTS_FOR = "no GPUs with free MPS slots for containers of {parts}"
NO_MPS_MEMORY = "no GPU with a free MPS slot has {each} {unit} free"
NO_MPS_PART = "no GPU with a free MPS slot has its part of the memory free"
NO_MPS_GPUS = "no {gpus} GPUs with a free MPS slot have {each} {unit} free each"
NO_MPS_PARTS = "no {gpus} GPUs with a free MPS slot have their part of the memory free"
NO_INIT_GPU = "no single GPU for init and app containers ({each} {unit})"
TOO_HARD = "placing {containers} containers takes too long to work out"
KEPT_FOR_OTHER = "{reason} besides what is kept for a pod that has waited too long"
FEW_PIECES = 8  # of a request; for so few it is found exactly what their plan leaves free
MOST_PARTS = 4  # containers named in one sentence


class Question:
    """One request, with everything that does not depend on the node worked out in advance."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._one_app = request.one_share and request.shares[0].role is Role.APP
        self._plain = sorted((share.each for share in request.shares), reverse=True) if _is_plain(request) else None
        self._largest = max([share.units for share in request.shares])  # of one container, over all its GPUs
        self._not_sold = [k for k in dict.fromkeys([s.kind for s in request.shares]) if k.not_sold is not None]
        self._by_mps = any(kind.slots for kind in self._not_sold)
        # By pin and unit: what has to be placed, and of any of its parts the most GPUs and the most units on one.
        self._tasks: dict[tuple[Pin, Unit], tuple[Task | None, int, int]] = {}
        self._never: dict[tuple[Pin, Unit, int, tuple[int, ...]], bool] = {}  # by slots and sizes of a node's GPUs
        self._sentences: dict[tuple[str, Unit, int, int, bool], Refusal] = {}

    def off_limits(self, facts: NodeFacts) -> Refusal | None:
        """Why this request may not use such a node, however much is free there."""
        if facts.blocked is not None:
            return facts.blocked
        if self.request.pin is not Pin.DIRECT and facts.pin is Pin.DIRECT:
            return NEEDS_POLICY
        if self.request.pin is not Pin.PLUGIN and facts.pin is not Pin.DIRECT:
            return PINS_BY_PLUGIN
        if (facts.only_mps or self._not_sold) and (not_served := self._not_served(facts)) is not None:
            return not_served
        if self.request.unit is not None and facts.unit != self.request.unit:
            return self._say("CountsOtherwise", COUNTS_OTHERWISE, facts.unit, forever=True)
        if facts.pin is Pin.ALIYUN and not self._one_app:
            return ONE_CONTAINER
        if facts.limit and self._largest > facts.limit:
            return self._say("OverLimit", OVER_LIMIT, facts.unit, each=self._largest, forever=True)
        return None

    def _not_served(self, facts: NodeFacts) -> Refusal | None:
        """Why such a node does not serve what is asked, whatever it has."""
        if facts.only_mps and not self.request.by_mps:
            return ONLY_MPS
        for kind in self._not_sold:
            if not any(kind.sells(facts, gpu) for gpu in facts.gpus):
                return kind.not_sold
        return MPS_DOWN if facts.mps_down and (self._by_mps or facts.only_mps) else None

    def refusal(self, room: Room, budget: Budget | None = None) -> Refusal | None:
        """The reason why the node cannot take the request, or None if it can."""
        refusal = self.off_limits(room.facts)
        if refusal is not None:
            return refusal
        if len(self.request.shares) > gpu_choice.MOST_SHARES:
            return self.too_hard
        budget = budget or Budget(cost.SEARCH_LOOKS)
        try:
            return None if self._has_room(room, budget) else self._why(room, budget)
        except TooHard:
            return self.too_hard

    @property
    def too_hard(self) -> Refusal:
        """The search for a place was given up."""
        return self._say("TooHard", TOO_HARD, "MiB", forever=len(self.request.shares) > gpu_choice.MOST_SHARES)

    def places(self, room: Room, policy: str, budget: Budget, order: Order | None = None) -> Places | None:
        """The GPUs it would get there; None if it does not fit, or if the search was given up. `order`: the points of
        the GPUs, if the policy gives some."""
        try:
            return gpu_choice.search(self.request, room, policy, budget, self._task(room.facts), order=order)
        except TooHard:
            return None

    def left_after(self, room: Room, policy: str, budget: Budget) -> int | None:
        """The sum of what stays free on the GPUs it would get there; None as for `places`."""
        task = self._task(room.facts)
        try:
            # Between GPUs with equal room this may choose otherwise than a plan: for many containers that is near
            # enough. Not with init containers: they may cost more than the containers that stay.
            if task is not None and len(task.pieces) > FEW_PIECES and not task.inits:
                left = task.greedy(room, budget, emptiest_first=POLICIES[policy].emptiest_first)
                if left is not None:
                    return left
        except TooHard:
            return None
        places = self.places(room, policy, budget)
        if places is None:
            return None
        budget.left -= 2 * sum(map(len, places))
        taken = gpu_choice.charges(self.request.shares, room.facts, places)
        return sum(room.free[charge.gpu] - charge.units for charge in taken)

    def _has_room(self, room: Room, budget: Budget) -> bool:
        if self._plain is None or len(self._plain) > 2:
            task = self._task(room.facts)
            return task is not None and gpu_choice.fits(task, room, budget)
        budget.spend(1)
        if not room.rising or room.rising[-1] < self._plain[0]:
            return False
        if len(self._plain) == 1:
            return True
        # Either on two GPUs, or both on the largest: no other way can be better.
        first, second = self._plain
        two = len(room.rising) > 1 and room.rising[-2] >= second
        return two or room.rising[-1] >= first + second

    def _why(self, room: Room, budget: Budget) -> Refusal:
        facts, (task, gpus, each) = room.facts, self._needs(room.facts)
        if task is None:
            each = max(share.units for share in self.request.shares)
            return self._say("NoInitGpu", NO_INIT_GPU, facts.unit, each=each, forever=True)
        if gpus > len(facts.gpus):
            return self._say("TooFewGpus", TOO_FEW_GPUS, facts.unit, gpus=gpus, forever=True)
        if each > room.largest:
            return self._say("TooLarge", TOO_LARGE, facts.unit, each=each, forever=True)
        if self._can_never_fit(room, budget):
            if task.most_with_slots:  # slots and memory may both be short now: say what is short on the empty node
                budget.left -= cost.NODE_LOOKS
                room = room.emptied()
            return self._full(room, budget, heals=False, forever=True)
        some_unhealthy = len(room.rising) < len(facts.gpus)
        return self._full(room, budget, heals=some_unhealthy and self._has_room(room.healed(), budget))

    def _can_never_fit(self, room: Room, budget: Budget) -> bool:
        """Whether the node could not take it even if all its GPUs were healthy and free. No, if that takes too long to
        find. It is found once for each set of GPU sizes, with a budget of its own: the answer must not depend on what
        else was asked before."""
        if self._plain is not None and sum(self._plain) <= room.largest:
            return False  # one GPU is enough for all of it
        if all(room.empty) and len(room.rising) == len(room.free):
            return True  # it is so already
        facts = room.facts
        sizes = facts.pin, facts.unit, facts.slots, tuple(sorted([gpu.total for gpu in facts.gpus]))
        never = self._never.get(sizes)
        if never is None:
            own = Budget(cost.NEVER_LOOKS)
            try:
                never = not self._has_room(room.emptied(), own)
            except TooHard:
                never = False
            budget.left -= cost.NEVER_LOOKS - own.left
            self._never[sizes] = never
        return never

    def _task(self, facts: NodeFacts) -> Task | None:
        """What has to be placed on such nodes; None if it can never be placed there."""
        return self._needs(facts)[0]

    def _needs(self, facts: NodeFacts) -> tuple[Task | None, int, int]:
        known = self._tasks.get((facts.pin, facts.unit))
        if known is None:
            task = gpu_choice.task_of(self.request, facts.pin, facts.unit)
            needs = [(share.gpus, share.each_in(facts.unit)) for share in self.request.shares]
            needs += [(piece.gpus, piece.each) for piece in task.pieces] if task is not None else []
            known = (task, max(gpus for gpus, _ in needs), max(each for _, each in needs))
            self._tasks[facts.pin, facts.unit] = known
        return known

    def _full(self, room: Room, budget: Budget, *, heals: bool, forever: bool = False) -> Refusal:
        """There is no room now. `heals`: there would be, if all GPUs of the node were healthy. `forever`: there never
        will be, whatever ends."""
        share, facts, unit = self.request.shares[0], room.facts, room.facts.unit
        code = "NoHealthyGpu" if heals else ""
        if self.request.one_share:
            template = NO_HEALTHY_GPU if heals else NO_SINGLE_GPU
            return self._say(code or "NoSingleGpu", template, unit, each=share.units)
        task = self._task(facts)
        pooled = next((p for p in task.pieces if len(p.shares) > 1), None) if task is not None else None
        if pooled is not None and not pooled.kind.exclusive:
            return self._say(code or "NoInitGpu", _healthy(NO_INIT_GPU, heals), unit, each=pooled.each, forever=forever)
        if len(self.request.shares) > 1:
            slots = len(self.request.shares) if forever else facts.slots  # no pod needs more of them on one GPU
            if task is not None and task.most_with_slots and self._would_fit(room.with_slots(slots), budget):
                return self._say(code or "NoSlot", _healthy(NO_SLOTS_FOR, heals), unit, forever=forever)
            return self._say(code or "NoGpusFor", _healthy(NO_GPUS_FOR, heals), unit, forever=forever)
        if share.kind.slots:
            return self._no_mps_share(share, room, code, forever=forever)
        if share.kind.exclusive:
            template = NO_WHOLE_GPU if share.gpus == 1 else NO_WHOLE_GPUS
            return self._say(code or "NoWholeGpu", _healthy(template, heals), unit, gpus=share.gpus, forever=forever)
        template = _healthy(NO_GPUS_EACH, heals)
        return self._say(code or "NoGpusEach", template, unit, gpus=share.gpus, each=share.each, forever=forever)

    def _would_fit(self, room: Room, budget: Budget) -> bool:
        """Whether it would fit another room. No, if that takes too long to find: that it does not fit is known."""
        own = Budget(cost.NEVER_LOOKS)
        try:
            return self._has_room(room, own)
        except TooHard:
            return False
        finally:
            budget.left -= cost.NEVER_LOOKS - own.left

    def _no_mps_share(self, share: Share, room: Room, code: str, *, forever: bool) -> Refusal:
        """Slots are short, or memory on the GPUs that have one free."""
        rows = zip(room.facts.gpus, room.free_slots, strict=True)
        with_slot = sum(slots > 0 for gpu, slots in rows if gpu.healthy)
        unit, gpus, each, heals = room.facts.unit, share.gpus, share.each_in(room.facts.unit), bool(code)
        if with_slot < gpus:
            template = _healthy(NO_SLOT if gpus == 1 else NO_SLOTS, heals)
            return self._say(code or "NoSlot", template, unit, gpus=gpus, forever=forever)
        one, many = (NO_MPS_MEMORY, NO_MPS_GPUS) if each else (NO_MPS_PART, NO_MPS_PARTS)
        template = _healthy(one if gpus == 1 else many, heals)
        return self._say(code or "NoMpsMemory", template, unit, each=each, gpus=gpus, forever=forever)

    def _say(
        self, code: str, template: str, unit: Unit, *, each: int = 0, gpus: int = 0, forever: bool = False
    ) -> Refusal:
        """One object per sentence, for any number of nodes."""
        key = (template, unit, each, gpus, forever)
        refusal = self._sentences.get(key)
        if refusal is None:
            words = {"each": each, "gpus": gpus, "unit": unit, "containers": len(self.request.shares)}
            message = template.format(**words, parts=parts(self.request, unit))
            refusal = self._sentences[key] = Refusal(code, message, forever)
        return refusal


def kept_for_other(refusal: Refusal) -> Refusal:
    """The refusal of a request that would fit if nothing were kept for another pod."""
    return Refusal("KeptForOther", KEPT_FOR_OTHER.format(reason=refusal.message))


def parts(request: Request, unit: Unit) -> str:
    """The containers of a request in words, largest first: `14000 + 12000 MiB`."""
    ordered = sorted(request.shares, key=lambda share: (not share.kind.exclusive, -share.units))
    listed, memory = [], -1
    for i, share in enumerate(ordered[:MOST_PARTS]):
        memory = memory if share.kind.counts_gpus else i
        amount = f"{share.each_in(unit)} {unit}" if share.slot_bytes else str(share.units or "")
        listed.append(share.kind.in_words(amount, share.gpus))
    if memory >= 0:  # the unit is said once
        listed[memory] += f" {unit}"
    rest = len(ordered) - len(listed)
    return " + ".join([*listed, f"{rest} more"] if rest else listed)


def _is_plain(request: Request) -> bool:
    """Containers that run side by side and ask for memory on one GPU each: one or two of them need no search."""
    return all(
        share.gpus == 1 and not share.kind.counts_gpus and share.role is not Role.INIT for share in request.shares
    ) or (request.one_share)


def _healthy(template: str, heals: bool) -> str:
    """`no 2 healthy GPUs ...` out of `no 2 GPUs ...`."""
    return template.replace("GPU", "healthy GPU", 1) if heals else template

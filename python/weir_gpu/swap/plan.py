"""A swap plan from `weir run`, checked against the step it is for. It is adjusted when copies turn out to be late."""

import json

from ..abi import EXCHANGE_VERSION, BadShape, SwapPlan

MARGIN = 1.2
# A swap-in may begin earlier only if the load stays below the planned peak plus this share.
TOLERATED = 0.02


class BadPlan(Exception):
    pass


class Plan:
    def __init__(self, key, kinds, values, sizes, times, load, expected):
        self.key = key
        self.kinds, self.values, self.sizes = kinds, values, sizes
        self.count = len(kinds)
        self.times = times
        self.load = load
        self.expected = expected
        self.moves = {}  # ("record", "item" or "layer", index) -> Move
        self.outs, self.drops, self.backs = {}, {}, {}
        self.items = set()
        self.limit = None
        self.release_at = None  # tick at which cached memory is given back to the GPU, once

    def fits(self, items):
        """Whether the optimizer state is that of the plan."""
        return all(index < len(items) and items[index].size == self.moves[("item", index)].size for index in self.items)

    def emptiest(self):
        """The tick with the lowest load. Memory is given back in large pieces, and most of these are free then."""
        return min(range(self.count), key=self.load.__getitem__)

    def index(self):
        """Sorts the moves by tick."""
        self.outs, self.drops, self.backs = {}, {}, {}
        for who, move in sorted(self.moves.items(), key=lambda move: move[1].number):
            self.outs.setdefault(move.out, []).append(who)
            self.drops.setdefault(move.drop, []).append(who)
        for who, move in sorted(self.moves.items(), key=lambda move: (move[1].back, move[1].turn)):
            self.backs.setdefault(move.back, []).append(who)
        self.items = {who[1] for who in self.moves if who[0] == "item"}

    def most(self):
        return self.limit if self.limit is not None else self.expected.peak * (1 + TOLERATED)

    def swap_in_earlier(self, whose, late_us, rate):
        """Begins swap-ins earlier: the last of those that were waited for together, and those it queued behind.

        `rate`: bytes that are copied per microsecond. Returns how many were changed."""
        known = [who for who in whose if who in self.moves]
        if not known:
            return 0
        last = max(known, key=lambda who: (self.moves[who].back, self.moves[who].turn))
        moved = sum(self._swap_in_earlier(self.moves[who], late_us) for who in self._queue_of(last, rate))
        self.index()
        return moved

    def _queue_of(self, last, rate):
        """The swap-ins up to `last` that follow each other without a pause."""
        queue, free = [], 0.0
        for who in (who for tick in sorted(self.backs) for who in self.backs[tick]):
            move = self.moves[who]
            begins = self.times[move.back]
            if begins >= free:
                queue, free = [], begins
            queue.append(who)
            free += move.size / rate
            if who == last:
                break
        return queue

    def _swap_in_earlier(self, move, late_us):
        wanted = self.times[move.back] - MARGIN * late_us
        # Not before it is swapped out. For optimizer state that may have been in the previous step.
        lowest = 0 if move.back < move.drop else move.drop + 1
        target = move.back
        while target > lowest and self.times[target] > wanted and self.load[target - 1] + move.size <= self.most():
            target -= 1
            self.load[target] += move.size
        moved = target != move.back
        move.back = target
        return moved

    def swap_out_later(self, whose, late_us, rate):
        """Frees memory later, since the copy out was not over in time. The same for copies before it that were due at the same tick:
        each of them is less late, by the time that the copies after it take."""
        moved = 0
        for last in (who for who in whose if who in self.moves):
            together = self.drops[self.moves[last].drop]
            late = late_us
            for who in reversed(together[: together.index(last) + 1]):
                if late <= 0:
                    break
                moved += self._swap_out_later(self.moves[who], late)
                late -= self.moves[who].size / rate
            self.index()
        return moved

    def _swap_out_later(self, move, late_us):
        wanted = self.times[move.drop] + MARGIN * late_us
        highest = self.count - 1 if move.back < move.drop else move.back - 1
        target = move.drop
        while target < highest and self.times[target] < wanted and self.load[target] + move.size <= self.most():
            self.load[target] += move.size
            target += 1
        moved = target != move.drop
        move.drop = target
        return moved


class Move:
    __slots__ = ("size", "out", "drop", "back", "number", "turn")

    def __init__(self, size, out, drop, back, number, turn):
        self.size, self.out, self.drop, self.back, self.number, self.turn = size, out, drop, back, number, turn


def read_plan(path, profiles):
    """Reads a plan for one of the profiles that were sent; raises BadPlan with a reason if it does not fit."""
    with open(path, encoding="utf-8") as source:
        data = json.load(source)
    try:
        sent = SwapPlan.read(data)
    except BadShape as error:
        raise BadPlan(str(error)) from None
    if sent.version != EXCHANGE_VERSION:
        raise BadPlan("it is of another version")
    profile = profiles.get(sent.key)
    if profile is None:
        raise BadPlan("it is for a step that was not sent")
    ticks = profile.ticks
    plan = Plan(sent.key, ticks.kind, ticks.value, ticks.size, ticks.us, [int(peak) for peak in ticks.peak], sent.expected)
    plan.limit = profile.limit or None
    count = plan.count
    lists = {"record": profile.records, "item": profile.items, "layer": profile.passages}
    for number, move in enumerate(sent.moves):
        kind, index, out, drop, back = move.class_, move.index, move.out, move.drop, move.back
        if not 0 <= index < len(lists[kind]):
            raise BadPlan(f"move {number} is of {kind} {index}")
        tensor = lists[kind][index]
        if move.size != tensor.size:
            raise BadPlan(f"move {number} has another size than {kind} {index}")
        if not all(0 <= tick < count for tick in (out, drop, back)):
            raise BadPlan(f"move {number} has ticks beyond the step")
        if kind == "record":
            first_use = tensor.uses[0] if tensor.uses else -1
            if not tensor.sole <= out <= drop < back <= first_use:
                raise BadPlan(f"move {number} is not between the uses of record {index}")
        elif kind == "item":
            # Between an optimizer's step and its next step, which may be in the program's next step.
            left, dropped, begun, needed = ((tick - tensor.post) % count for tick in (out, drop, back, tensor.pre))
            if tensor.pre < 0 or not 0 < left < dropped < begun <= (needed or count):
                raise BadPlan(f"move {number} is not between the steps of item {index}")
        elif not tensor.left <= out <= drop < back <= tensor.needed:
            raise BadPlan(f"move {number} is not between the passes of layer {index}")
        who = (kind, index)
        if who in plan.moves:
            raise BadPlan(f"{kind} {index} moves twice")
        plan.moves[who] = Move(move.size, out, drop, back, number, move.turn)
        tick = drop
        while tick != back:
            plan.load[tick] -= move.size
            tick = (tick + 1) % count
    plan.host_bytes = sent.host_bytes or sum(move.size for move in plan.moves.values())
    plan.index()
    return plan

"""Begins and ends swaps at each tick: as planned, or, under a limit without a matching plan, whatever can be swapped.

No decision depends on whether a copy has ended, so two runs of a program do the same.
"""

import weakref
from collections import deque

from .profile import LEFT, NEEDED, PACK, UNPACK
from .records import RESIDENT, SWAPPED_OUT, SWAPPING_OUT

# Without a plan: the number of storages that are swapped out at once, and prefetched.
STASH = 2
AHEAD = 2
# A saved tensor that somebody else still holds after this many ticks is not swapped out.
PATIENCE = 64
# A saved tensor that is still there this many ticks after its swap-in is kept for another backward pass.
REST_TICKS = 8


class Mover:
    def __init__(self, copies, saved, guard, layers):
        self.copies, self.saved, self.guard, self.layers = copies, saved, guard, layers
        self.late = []  # (last tick, weak record): swap-outs that the plan wanted begun already
        self.pending = deque()  # without a plan: records to be swapped out
        self.swapping_out = deque()  # without a plan: records whose copy out has begun
        self.resting = deque()  # (tick at which it may be swapped out again, weak record)
        self.left = None  # without a plan: the layer that is being swapped out

    def begin_step(self):
        self.pending.clear()
        self.swapping_out.clear()
        self.late = []
        self.left = None
        # Ticks start at 0 again. Nearly all of these records died with their step.
        self.resting = deque((0, record) for _, record in self.resting if record() is not None)

    def abandon_plan(self, reactive):
        self.late = []
        if reactive:
            for reference in self.saved.records:
                record = reference()
                if record is not None and record.state == RESIDENT and not record.copied:
                    self.pending.append(reference)

    def want_swap_out(self, record):
        self.pending.append(weakref.ref(record))

    def was_swapped_in(self, record, tick):
        self.resting.append((tick + REST_TICKS, weakref.ref(record)))

    # ---- with a plan

    def act(self, plan, tick):
        if self.late or tick in plan.drops or tick in plan.backs or tick in plan.outs:
            with self.copies.batch():
                self._act(plan, tick)

    def _act(self, plan, tick):
        counts = self.copies.counts
        # Starts with the last copy: one wait is enough for all.
        for who in reversed(plan.drops.get(tick, ())):
            if who[0] == "item":
                item = self.guard.items[who[1]]
                if item.state == SWAPPING_OUT:
                    self.guard.end_swap_out(item)
                continue
            if who[0] == "layer":
                self.layers.end_layer_swap_out(self.layers.passages[who[1]])
                continue
            record = self.saved.of_index(who[1])
            if record is None:
                continue
            if record.state == SWAPPING_OUT:
                self.saved.end_swap_out(record)
            elif record.state == RESIDENT:
                counts["kept"] += 1
        self._begin_swap_ins(plan.backs.get(tick, ()))
        if self.late:
            self._try_late(tick)
        for who in plan.outs.get(tick, ()):
            if who[0] == "layer":
                layer = self.layers.passages[who[1]]
                # If it was needed already, on another stream, nobody would ask for it again.
                if layer.passage == who[1]:
                    self.layers.begin_layer_swap_out(layer)
                else:
                    counts["kept"] += 1
                continue
            if who[0] == "item":
                item = self.guard.items[who[1]]
                if self.guard.is_protected(item):
                    self.guard.begin_swap_out(item)
                continue
            record = self.saved.of_index(who[1])
            if record is not None and record.state == RESIDENT and not self.saved.begin_swap_out(record, tick):
                counts["late_out"] += 1
                self.late.append((plan.moves[who].drop, weakref.ref(record)))

    def has_room_for(self, begin, what):
        try:
            with self.copies.options.attempting():
                begin(what)
        except RuntimeError as error:
            if not self.copies.backend.out_of_memory(error):
                raise
            return False
        return True

    def _begin_swap_ins(self, whose):
        """Begins swap-ins. Without memory for one, it is swapped in when needed. State is allocated first, so that its copies wait once."""
        ready = set()
        for who in whose:
            if who[0] == "item" and self.guard.items[who[1]].state == SWAPPED_OUT:
                if self.has_room_for(self.guard.take_memory, self.guard.items[who[1]]):
                    ready.add(who)
                else:
                    self.copies.counts["misses"] += 1
        for who in whose:
            if who[0] == "item":
                if who in ready:
                    self.guard.begin_copy_in(self.guard.items[who[1]])
            elif not self.has_room_for(self._begin_swap_in, who):
                self.copies.counts["misses"] += 1

    def _begin_swap_in(self, who):
        if who[0] == "layer":
            self.layers.begin_layer_swap_in(self.layers.passages[who[1]])
            return
        record = self.saved.of_index(who[1])
        if record is not None and record.state == SWAPPED_OUT:
            self.saved.begin_swap_in(record)

    def _try_late(self, tick):
        still = []
        for until, reference in self.late:
            record = reference()
            if record is None or record.state != RESIDENT or tick >= until:
                continue
            if not self.saved.begin_swap_out(record, tick):
                still.append((until, reference))
        self.late = still

    def after_optimizer(self, optimizer, plan):
        """With a plan, state is swapped out bit by bit at the following ticks. Programs read their loss now, and such small copies
        would queue behind large ones. Without a plan, state is swapped out at once."""
        if plan is not None and not plan.items:
            return
        if not self.guard.protect(optimizer) or plan is not None:
            return
        place = self.guard.ordinal(optimizer)
        with self.copies.batch():
            for item in self.guard.items:
                if item.optimizer == place:
                    self.guard.begin_swap_out(item)

    # ---- without a plan

    def react(self, kind, tick):
        """Swaps out every saved tensor as soon as we are its only owner. Two storages are in flight at any time."""
        if kind == LEFT:
            if self.left is not None:
                self.layers.end_layer_swap_out(self.left)
            self.left = self.layers.passages[-1]
            self.layers.begin_layer_swap_out(self.left)
        if kind not in (UNPACK, NEEDED):
            for _ in range(len(self.pending)):
                reference = self.pending.popleft()
                record = reference()
                if record is None or record.state != RESIDENT or record.frozen:
                    continue
                if self.saved.begin_swap_out(record, tick):
                    self.swapping_out.append(reference)
                elif record.waited_ticks < PATIENCE:
                    record.waited_ticks += 1
                    self.pending.append(reference)
                if len(self.swapping_out) > STASH:
                    self._end_oldest()
            for item in self.guard.items:
                if item.state == SWAPPING_OUT and kind == PACK:
                    self.guard.end_swap_out(item)
        while self.resting and self.resting[0][0] <= tick:
            record = self.resting.popleft()[1]()
            # Kept for another backward pass: its host copy is still valid.
            if record is not None and record.state == RESIDENT and record.copied and record.storage is not None and not record.frozen:
                self.saved.end_swap_out(record)

    def _end_oldest(self):
        record = self.swapping_out.popleft()()
        if record is not None and record.state == SWAPPING_OUT:
            self.saved.end_swap_out(record)

    def fetch_layer_ahead(self, passage):
        if passage > 0:
            self.has_room_for(self.layers.begin_layer_swap_in, self.layers.passages[passage - 1])

    def fetch_ahead(self, record):
        """Prefetches: the backward pass needs saved tensors in reverse order."""
        if record.index < 0:
            return
        fetched = 0
        for index in range(record.index - 1, max(-1, record.index - 1 - 2 * AHEAD), -1):
            other = self.saved.of_index(index)
            if other is None:
                continue
            if other.state == SWAPPED_OUT and not self.has_room_for(self.saved.begin_swap_in, other):
                return
            fetched += 1
            if fetched == AHEAD:
                return

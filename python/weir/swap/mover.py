"""What moves at a tick: what the plan says, or, under a limit without a plan that fits, whatever can.

All of it happens in the order of the host program, never by looking whether a copy is over: two runs do the same thing.
"""

import weakref
from collections import deque

from .profile import LEFT, NEEDED, PACK, UNPACK
from .records import GONE, LEAVING, RESIDENT

# Storages on their way out at once, and on their way back, when there is no plan.
STASH = 2
AHEAD = 2
# A saved tensor that somebody else still holds so many ticks later is given up on.
PATIENCE = 64
# What came back and is still there so many ticks later is kept for another backward.
REST_TICKS = 8


class Traffic:
    def __init__(self, copies, saved, guard, layers):
        self.copies, self.saved, self.guard, self.layers = copies, saved, guard, layers
        self.late = []  # (last tick, weak record) of copies out that the plan wanted begun already
        self.pending = deque()  # without a plan: records that are to leave
        self.leaving = deque()  # without a plan: records whose memory is to be given up
        self.resting = deque()  # (tick at which they may leave again, weak record)
        self.left = None  # without a plan: the layer on its way out

    def begin_step(self):
        self.pending.clear()
        self.leaving.clear()
        self.late = []
        self.left = None
        # Ticks begin anew; nearly all of these went with their step.
        self.resting = deque((0, record) for _, record in self.resting if record() is not None)

    def leave_plan(self, reactive):
        self.late = []
        if reactive:
            for reference in self.saved.records:
                record = reference()
                if record is not None and record.state == RESIDENT and not record.copied:
                    self.pending.append(reference)

    def wants_out(self, record):
        self.pending.append(weakref.ref(record))

    def came_back(self, record, tick):
        self.resting.append((tick + REST_TICKS, weakref.ref(record)))

    # ---- with a plan

    def act(self, plan, tick):
        if self.late or tick in plan.drops or tick in plan.backs or tick in plan.outs:
            with self.copies.together():
                self._act(plan, tick)

    def _act(self, plan, tick):
        counts = self.copies.counts
        # The last to be copied first: one wait is enough.
        for who in reversed(plan.drops.get(tick, ())):
            if who[0] == "item":
                item = self.guard.items[who[1]]
                if item.state == LEAVING:
                    self.guard.drop(item)
                continue
            if who[0] == "layer":
                self.layers.layer_drops(self.layers.passages[who[1]])
                continue
            record = self.saved.of_index(who[1])
            if record is None:
                continue
            if record.state == LEAVING:
                self.saved.drop(record)
            elif record.state == RESIDENT:
                counts["kept"] += 1
        self._begin_returns(plan.backs.get(tick, ()))
        if self.late:
            self._try_late(tick)
        for who in plan.outs.get(tick, ()):
            if who[0] == "layer":
                self.layers.layer_leaves(self.layers.passages[who[1]])
                continue
            if who[0] == "item":
                item = self.guard.items[who[1]]
                if self.guard.is_protected(item):
                    self.guard.leave(item)
                continue
            record = self.saved.of_index(who[1])
            if record is not None and record.state == RESIDENT and not self.saved.leave(record, tick):
                counts["late_out"] += 1
                self.late.append((plan.moves[who].drop, weakref.ref(record)))

    def _has_room_for(self, begin, what):
        try:
            begin(what)
        except RuntimeError as error:
            if not self.copies.backend.out_of_memory(error):
                raise
            return False
        return True

    def _begin_returns(self, whose):
        """Where there is no room now, it comes when it is needed. State gets all its memory first, and its copies wait once."""
        ready = set()
        for who in whose:
            if who[0] == "item" and self.guard.items[who[1]].state == GONE:
                if self._has_room_for(self.guard.take_memory, self.guard.items[who[1]]):
                    ready.add(who)
                else:
                    self.copies.counts["misses"] += 1
        for who in whose:
            if who[0] == "item":
                if who in ready:
                    self.guard.begin_copy_back(self.guard.items[who[1]])
            elif not self._has_room_for(self._begin_return, who):
                self.copies.counts["misses"] += 1

    def _begin_return(self, who):
        if who[0] == "layer":
            self.layers.layer_begins_return(self.layers.passages[who[1]])
            return
        record = self.saved.of_index(who[1])
        if record is not None and record.state == GONE:
            self.saved.begin_return(record)

    def _try_late(self, tick):
        still = []
        for until, reference in self.late:
            record = reference()
            if record is None or record.state != RESIDENT or tick >= until:
                continue
            if not self.saved.leave(record, tick):
                still.append((until, reference))
        self.late = still

    def after_optimizer(self, optimizer, plan):
        """By a plan its state leaves bit by bit in what follows: programs read their loss now, and such small copies would have to
        wait for all that have begun. Without a plan it leaves at once."""
        if plan is not None and not plan.items:
            return
        if not self.guard.protect(optimizer) or plan is not None:
            return
        place = self.guard.ordinal(optimizer)
        for item in self.guard.items:
            if item.optimizer == place:
                self.guard.leave(item)

    # ---- without a plan

    def react(self, kind, tick):
        """Everything leaves as soon as it is ours alone, and two storages are always on their way."""
        if kind == LEFT:
            if self.left is not None:
                self.layers.layer_drops(self.left)
            self.left = self.layers.passages[-1]
            self.layers.layer_leaves(self.left)
        if kind not in (UNPACK, NEEDED):
            for _ in range(len(self.pending)):
                reference = self.pending.popleft()
                record = reference()
                if record is None or record.state != RESIDENT or record.frozen:
                    continue
                if self.saved.leave(record, tick):
                    self.leaving.append(reference)
                elif record.waited_ticks < PATIENCE:
                    record.waited_ticks += 1
                    self.pending.append(reference)
                if len(self.leaving) > STASH:
                    self._drop_oldest()
            for item in self.guard.items:
                if item.state == LEAVING and kind == PACK:
                    self.guard.drop(item)
        while self.resting and self.resting[0][0] <= tick:
            record = self.resting.popleft()[1]()
            # Kept for another backward: its host copy is still good.
            if record is not None and record.state == RESIDENT and record.copied and record.storage is not None and not record.frozen:
                self.saved.drop(record)

    def _drop_oldest(self):
        record = self.leaving.popleft()()
        if record is not None and record.state == LEAVING:
            self.saved.drop(record)

    def fetch_layer_ahead(self, passage):
        if passage > 0:
            self._has_room_for(self.layers.layer_begins_return, self.layers.passages[passage - 1])

    def fetch_ahead(self, record):
        """Backward goes the way of forward in reverse."""
        if record.index < 0:
            return
        fetched = 0
        for index in range(record.index - 1, max(-1, record.index - 1 - 2 * AHEAD), -1):
            other = self.saved.of_index(index)
            if other is None:
                continue
            if other.state == GONE and not self._has_room_for(self.saved.begin_return, other):
                return
            fetched += 1
            if fetched == AHEAD:
                return

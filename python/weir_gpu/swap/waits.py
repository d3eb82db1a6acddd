"""How long the compute stream waited for copies in planned steps: a copy that was late begins earlier from then on."""

from collections import deque

LATE_US = 20.0


class Waits:
    def __init__(self, copies):
        self.copies = copies
        self.now = []  # (whose copy, event before, event after), of this step
        self.old = deque()  # (plan, its waits) of steps that the GPU may still be running

    def add(self, what, before, after):
        self.now.append((what, before, after))

    def end_step(self, plan=None):
        """`plan`: the plan that the step has followed to its end."""
        if plan is not None:
            self.old.append((plan, self.now))
        self.now = []

    def learn(self, bandwidths):
        """Reads the waits of steps that are over."""
        backend, counts = self.copies.backend, self.copies.counts
        while self.old:
            plan, waits = self.old[0]
            if waits and not backend.finished(waits[-1][2]):
                return
            self.old.popleft()
            for (whose, way), before, after in waits:
                late = backend.elapsed_us(before, after)
                if late <= LATE_US:
                    continue
                counts["stalls"] += 1
                counts["stall_us"] += late
                adjust = plan.swap_in_earlier if way == "in" else plan.swap_out_later
                counts["adjusted"] += adjust(whose, late, (bandwidths.in_both if way == "in" else bandwidths.out_both) / 1e6)

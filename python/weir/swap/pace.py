"""What swapping costs: how long steps take with a plan, against equal steps without one.

Copies share the GPU's memory with its kernels, which no plan knows of beforehand. Times are the GPU's own, from the end of one step to
the end of the next; nobody waits for them.
"""

from collections import deque
from statistics import median

# Steps in which a plan is taken up are like no others.
SETTLING = 2
LEAST_PLAIN = 3
JUDGED = 8
MOST_KEYS = 32
MOST_KEPT = 16


class Pace:
    def __init__(self, backend):
        self.backend = backend
        self.begun = None  # the event at the beginning of this step
        self.pending = deque()  # (durations it belongs to, begin, end)
        self.plain = {}  # step -> durations, without a plan
        self.planned = {}  # the same with the plan that is followed
        self.settling = 0

    def step_begins(self):
        self.begun = self.backend.event(self.backend.compute, timing=True)

    def step_ends(self, key, is_plain, is_planned):
        """Neither: a step that was watched, or left its plan."""
        if is_planned and self.settling > 0:
            self.settling -= 1
        elif self.begun is not None and (is_plain or is_planned):
            steps = self.plain if is_plain else self.planned
            if key not in steps and len(steps) == MOST_KEYS:
                del steps[next(iter(steps))]
            self.pending.append((steps.setdefault(key, []), self.begun, self.backend.event(self.backend.compute, timing=True)))
        while self.pending and self.backend.finished(self.pending[0][2]):
            durations, begin, end = self.pending.popleft()
            durations.append(self.backend.elapsed_us(begin, end))
            del durations[:-MOST_KEPT]

    def new_plan(self, key):
        self.planned[key] = []
        self.settling = SETTLING

    def measured(self, key):
        """Medians of a step without a plan, and with it; None where not enough were seen."""
        return tuple(
            median(durations) if len(durations) >= least else None
            for durations, least in ((self.plain.get(key, ()), LEAST_PLAIN), (self.planned.get(key, ()), JUDGED))
        )

    def cost(self, key):
        """Share of the step's time that the plan costs beyond doubt; None if that cannot be said yet."""
        plain, planned = self.measured(key)
        if plain is None or planned is None:
            return None
        doubt = error_of(self.plain[key]) + error_of(self.planned[key])
        return max(0.0, planned - plain - doubt) / plain


def error_of(durations):
    """How far a median may be off: steps of some programs take now this long, now that."""
    middle = median(durations)
    return median(abs(duration - middle) for duration in durations) / len(durations) ** 0.5

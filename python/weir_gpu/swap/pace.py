"""The cost of swapping: step times with a plan, compared with equal steps without one, and what follows from it.

Copies share the GPU's memory bandwidth with kernels, and the host has to begin them. No plan can know these costs beforehand.
Times are measured by the GPU from the beginning of a step to its end; nobody waits for them.
"""

from collections import deque
from statistics import median

# The first steps with a new plan are not typical.
SETTLING = 2
LEAST_PLAIN = 3
# If steps are uneven, up to this many of them are looked at before a plan is used: fewer would not tell what it costs.
MOST_PLAIN = 9
# A plan is judged after each of these numbers of steps, until it is clear. The fewest show only what costs many times what it may.
# Each look has the share of the doubt that speaks for the plan: in the end, a plan is to show that it costs nothing.
LOOKS = {4: 1, 6: 1, 8: 1, 12: 1, 16: 1, 32: 0.75, 64: 0.5}
LEAST_JUDGED = 8
LEAST_ACCEPTED = 16
MOST_LOOKED_AT = 64
EARLY = 3
MOST_KEYS = 32
MOST_KEPT = MOST_LOOKED_AT
# The standard error of the median is about 1.86 * median deviation / sqrt(number of steps). A difference of two such errors counts.
ERROR = 1.86
BEYOND_DOUBT = 2 * ERROR
# Of so many durations, one may be far off: that step has waited for something else.
FEW = 6
# If a plan costs too much time, the next one aims at this share of its saving.
LEAST_AIM, MOST_AIM, CAUTION = 0.25, 0.7, 0.6
LEAST_SHARE = 0.1
# A plan that costs so many times what it may has no smaller one that is worth trying.
HOPELESS = 10


class Pace:
    def __init__(self, backend):
        self.backend = backend
        self.begun = None  # event at the beginning of this step
        self.pending = deque()  # (list for the duration, begin event, end event)
        self.plain = {}  # step key -> durations without a plan
        self.planned = {}  # step key -> durations with the current plan
        self.settling = {}

    def step_begins(self):
        self.begun = self.backend.event(self.backend.compute, timing=True)

    def step_ends(self, key, is_plain, is_planned):
        """Neither flag is set for a step that was profiled or left its plan."""
        if is_planned and self.settling.get(key, 0) > 0:
            self.settling[key] -= 1
        elif self.begun is not None and (is_plain or is_planned):
            steps = self.plain if is_plain else self.planned
            if key not in steps and len(steps) == MOST_KEYS:
                del steps[next(iter(steps))]
            self.pending.append((steps.setdefault(key, []), self.begun, self.backend.event(self.backend.compute, timing=True)))
        self.read_finished()

    def read_finished(self):
        while self.pending and self.backend.finished(self.pending[0][2]):
            durations, begin, end = self.pending.popleft()
            durations.append(self.backend.elapsed_us(begin, end))
            del durations[:-MOST_KEPT]

    def new_plan(self, key):
        self.planned[key] = []
        self.settling[key] = SETTLING

    def measured(self, key):
        """Median durations of a step without a plan and with it; None if too few were seen."""
        return tuple(
            median(durations) if len(durations) >= least else None
            for durations, least in ((self.plain.get(key, ()), LEAST_PLAIN), (self.planned.get(key, ()), LEAST_ACCEPTED))
        )

    def plain_so_far(self, key):
        """Median duration of the steps without a plan, however few; None if there is none."""
        durations = self.plain.get(key)
        return median(durations) if durations else None

    def is_known(self, key, tolerance):
        """Whether enough equal steps without a plan were seen to tell a cost of `tolerance`."""
        durations = self.plain.get(key, ())
        count = len(durations)
        if count < LEAST_PLAIN or count >= MOST_PLAIN:
            return count >= MOST_PLAIN
        usual = median(durations)
        spread = sorted(abs(duration - usual) for duration in durations)[-1 if count < FEW else -2]
        return ERROR * spread / count**0.5 <= tolerance * usual

    def steps_planned(self, key):
        return len(self.planned.get(key, ()))

    def cost(self, key):
        """The share of the step's time that the plan costs, and how far off that may be; None if unknown."""
        plain, planned = self.plain.get(key, ()), self.planned.get(key, ())
        if len(plain) < LEAST_PLAIN or not planned:
            return None
        usual = median(plain)
        # A few steps may be alike by chance.
        spread = max(spread_of(plain), spread_of(planned))
        doubt = BEYOND_DOUBT * spread * (1 / len(plain) + 1 / len(planned)) ** 0.5
        return (median(planned) - usual) / usual, doubt / usual


def spread_of(durations):
    """The median distance from the median: a single step that waits for something else, such as host memory, says nothing."""
    middle = median(durations)
    return median(abs(duration - middle) for duration in durations)


class Judge:
    """Judges each plan. One that costs too much is replaced by one that saves less, and in the end by none. An accepted one stays."""

    def __init__(self, tolerance):
        self.tolerance = tolerance  # share of a step's time; None for any
        self.shares = {}  # step key -> share of the possible saving that its plan aims at
        self.accepted = set()
        self.looked_at = {}  # step key -> after how many steps its plan was last judged

    def share_of(self, key):
        return self.shares.get(key, 1.0)

    def is_given_up(self, key):
        return self.share_of(key) == 0

    def give_up(self, key):
        self.shares[key] = 0.0

    def new_plan(self, key):
        self.accepted.discard(key)
        self.looked_at.pop(key, None)

    def cost_of(self, pace, key):
        """None if it cannot be judged yet, 0 if the plan is accepted, otherwise its cost; then the next plan aims at less."""
        steps = max((look for look in LOOKS if look <= pace.steps_planned(key)), default=0)
        if key in self.accepted or self.looked_at.get(key, 0) == steps:
            return None
        self.looked_at[key] = steps
        found = pace.cost(key)
        cost, doubt = found if found is not None else (0.0, 0.0)
        doubt *= LOOKS[steps]
        if (cost <= self.tolerance and steps >= LEAST_ACCEPTED) or (cost <= doubt and steps == MOST_LOOKED_AT):
            self.accepted.add(key)
            return 0.0
        least = EARLY * self.tolerance + doubt if steps < LEAST_JUDGED else max(self.tolerance, doubt)
        # Maybe above the tolerance by chance: more steps will tell.
        if cost <= least:
            return None
        share = self.share_of(key) * max(LEAST_AIM, min(MOST_AIM, CAUTION * self.tolerance / cost))
        self.shares[key] = share if share >= LEAST_SHARE and cost <= HOPELESS * self.tolerance else 0.0
        return cost

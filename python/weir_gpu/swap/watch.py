"""Which steps are watched, for what, and when enough equal ones were: a plan needs memory from one step and times from two."""

from .profile import StepProfile

TIMED_STEPS = 2
# Steps between the first one that is profiled and the others: profiling takes time, and these show how much. Others follow while
# the plan is made.
PLAIN_STEPS = 1
MOST_WATCHED = 16
# Watched steps that are measured for memory, the others for time. If the kind of the first one does not come again, another gets one.
MEMORY_STEPS = (1, 5, 8, 13)
# Of more kinds of steps, only one that makes up a third of all is worth the watching of the others.
MOST_KINDS = 4
LEAST_SHARE = 1 / 3
# Fewer steps do not tell how many are of a kind.
LEAST_STEPS = 16


class Watch:
    def __init__(self, is_timed):
        """`is_timed`: whether it matters what swapping costs."""
        self.is_timed = is_timed
        self.kinds = {}  # step key -> steps since watching began
        self.seen = {}  # step key -> profiles of equal steps
        self.begin()

    def begin(self):
        self.watched = 0
        self.plain_left = PLAIN_STEPS if self.is_timed else 0
        self.seen.clear()
        self.kinds.clear()

    def count(self, key):
        self.kinds[key] = self.kinds.get(key, 0) + 1

    def next_profile(self, backend, streamed=frozenset()):
        """The profile of the step that begins now; None if it is only timed."""
        if self.watched > 0 and self.plain_left > 0:
            self.plain_left -= 1
            return None
        self.watched += 1
        return StepProfile(backend, memory=self.watched in MEMORY_STEPS, streamed=streamed)

    def steps_left(self):
        """The number of further steps that are needed, if all are equal."""
        return TIMED_STEPS + self.plain_left

    def is_over(self):
        """Whether so many steps were watched that others will not help."""
        return self.watched >= MOST_WATCHED

    def note(self, key, profile):
        """Returns the profiles of all equal steps if they are enough for a plan, otherwise None."""
        # What is streamed does not count as memory of a step.
        alike = [run for run in self.seen.get(key, ()) if run.streamed == profile.streamed]
        self.seen[key] = alike
        alike.append(profile)
        sized = sum(run.memory for run in alike)
        return alike if sized >= 1 and len(alike) - sized >= TIMED_STEPS and self.is_common([key]) else None

    def is_common(self, keys):
        """Whether steps of these kinds come often enough to be worth a plan. If time does not matter, they always do."""
        if not self.is_timed:
            return True
        found, steps = sum(self.kinds.get(key, 0) for key in keys), sum(self.kinds.values())
        if len(self.kinds) <= MOST_KINDS:
            return found > 0
        return steps >= LEAST_STEPS and found >= LEAST_SHARE * steps

"""Ratios of two things measured in turns, with an interval in which the true one lies."""

import random
import statistics

RESAMPLES = 2000
# With fewer, an interval means nothing.
LEAST_ROUNDS = 6


class Estimate:
    """The median of values, and the 95 % interval of it by bootstrap: what medians of values drawn again from these are."""

    def __init__(self, values):
        self.count = len(values)
        self.median = statistics.median(values) if values else float("nan")
        draw = random.Random(1)
        medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)) if values else [self.median]
        self.low, self.high = medians[int(0.025 * len(medians))], medians[int(0.975 * (len(medians) - 1))]

    def figures(self):
        return {"median": self.median, "low": self.low, "high": self.high, "rounds": self.count}


def schedule(base, ways, draw):
    """One round: the base before and after each of the ways, which come in random order."""
    order = [base]
    for way in draw.sample(ways, len(ways)):
        order += [way, base]
    return order


def pairs(order, base, measured):
    """{way: (what was measured, the mean of the base just before and just after)}. `measured` is in the order of `order`."""
    return {way: (measured[at], (measured[at - 1] + measured[at + 1]) / 2) for at, way in enumerate(order) if way != base}

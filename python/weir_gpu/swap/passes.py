"""Passes of a step: graphs that were made and dropped. A program without an optimizer that we see would make one endless step of them."""

# A step with more passes or ticks than these has no end that we could see.
MOST_PASSES = 256
MOST_TICKS = 1 << 17


class Passes:
    def __init__(self, saved):
        self.saved = saved
        self.count = 0

    def are_too_many(self, ticks):
        """Asked before a storage is saved for the first time."""
        if ticks >= MOST_TICKS:
            return True
        if self.saved.count:
            self.saved.clear_dead()
            # All graphs are gone, so this is the first tensor of another one.
            self.count += not self.saved.by_index
        return self.count >= MOST_PASSES

"""Recognizes steps by the hash of their ticks, and follows the swap plan of each.

Equal steps are profiled and sent to `weir run`. Its plan is followed tick by tick and left at the first tick that differs.
"""

import os
import weakref

from ..abi import CopyRates, StepTimes
from .exchange import Exchange
from .pace import Judge, Pace
from .passes import Passes
from .plan import BadPlan, read_plan
from .profile import BEGIN, LEFT, NEEDED, PACK, PRE, UNPACK, bytes_to_measure, measure_copies
from .swapped_tensors import unobserved
from .waits import Waits
from .watch import Watch

# A plan waits for no more steps than this to learn what steps without it take.
MOST_HELD = 16
# The share of the optimizer state for which host memory is pinned before there is a plan. Nearly all plans need more.
EARLY_SHARE = 1 / 2
UNMATCHED_STEPS = 8
PLAN_STEPS = 200
# Successors of this many steps are known.
MOST_SUCCESSORS = 64
NO_COPIES = CopyRates(out_alone=12e9, in_alone=12e9, out_both=10e9, in_both=10e9, fixed_us=30)

WATCHING, AWAITING, FOLLOWING, RESTING = "watching", "awaiting", "following", "resting"


class Steps:
    def __init__(self, options, copies, saved, guard, layers, mover, remove_hooks, say):
        self.options = options
        self.limit = options.limit
        self.copies, self.saved, self.guard, self.layers, self.mover = copies, saved, guard, layers, mover
        self.remove_hooks = remove_hooks
        self.say = say
        self.counts = copies.counts

        self.phase = WATCHING
        self.done = 0
        self.tick_count = 0
        self.signature = 0
        self.profile = None  # of this step, if it is profiled
        self.following = None  # the plan of this step
        self.reactive = self.limit is not None  # swaps without a plan, to keep a limit
        self.waits = Waits(copies)

        self.plans = {}
        self.successor = {}
        self.last_key = None
        self.unmatched = 0
        self.sent = {}
        self.asked_at, self.asked_key = 0, None
        self.held = None  # a plan that waits for steps to compare it with
        self.full_steps = 0  # planned steps for which all host memory was there
        self.exchange = Exchange(options)
        self.bandwidths = None
        self.peak_allocated = 0
        self.peak_reserved = 0
        # Without a limit, plans may cost next to no time.
        self.judge = Judge(options.tolerance if self.limit is None and not options.debug else None)
        self.pace = None
        self.watch = Watch(is_timed=self.judge.tolerance is not None)
        self.is_plain = False  # this step is neither profiled nor swapped
        self.is_settled = False
        self.passes = Passes(saved)
        self.is_endless = False  # this step has no end that we could see
        self.ended = 0  # steps of the program, whether or not anything is swapped in them

    # ---- ticks

    def tick(self, kind, value, size):
        with unobserved():
            return self._tick(kind, value, size)

    def _tick(self, kind, value, size):
        self.clean_up()
        tick = self.tick_count
        self.tick_count = tick + 1
        self.signature = hash((self.signature, kind, value, size))
        if self.profile is not None:
            self.profile.tick(kind, value, size, self.planned_out())
        following = self.following
        if following is not None:
            if (
                tick < following.count
                and following.kinds[tick] == kind
                and following.values[tick] == value
                and following.sizes[tick] == size
            ):
                self.mover.act(following, tick)
                if tick == following.release_at and self.copies.slab.is_ready():
                    following.release_at = None
                    self.copies.backend.release_cached()
            else:
                self.off_plan()
        if self.reactive:
            self.mover.react(kind, tick)
        return tick

    def before_record(self):
        """A storage is about to be saved for the first time. Ends the watching of a step that never ends. Returns whether to record it."""
        if self.passes.are_too_many(self.tick_count):
            self.forget_step()
        return self.reactive or not self.is_endless

    def forget_step(self):
        """No optimizer ends this step. Nothing is planned or watched before the next one; under a limit, everything is swapped."""
        if not self.is_endless:
            self.say(
                "endless",
                f"no optimizer step in {self.passes.count} passes: {self.instead()} until the next one. "
                "Without an optimizer of torch.optim, call weir_gpu.swap.step() after each step.",
            )
        self.is_endless = True
        self.is_plain = False
        self.profile = None
        if self.following is not None:
            self.off_plan()
        self.layers.swap_in_all(planned=self.reactive)
        self.begin_ticks()

    def instead(self):
        return "swapping without a plan" if self.limit is not None else "nothing is swapped"

    def packed(self, record, size):
        tick = self.tick(PACK, record.index, size)
        if self.profile is not None:
            self.profile.packed(record.index, size, weakref.ref(record), tick)

    def unpacked(self, record):
        tick = self.tick(UNPACK, record.index, record.size)
        if self.profile is not None and record.index >= 0:
            self.profile.used(record.index, tick)

    def layer_left(self, layer):
        """The forward pass of a layer is over."""
        layer.passage = len(self.layers.passages)
        self.layers.passages.append(layer)
        self.layers.layer_ends(layer)
        tick = self.tick(LEFT, layer.ordinal, layer.size)
        if self.profile is not None:
            self.profile.layer_left(layer, tick)

    def optimizer_begins(self, place):
        tick = self.tick(PRE, place, 0)
        if self.profile is not None:
            self.profile.all_layers_needed(tick)

    def layer_needed(self, layer):
        tick = self.tick(NEEDED, layer.ordinal, layer.size)
        if self.profile is not None:
            self.profile.layer_needed(layer.passage, tick)

    def clean_up(self):
        """Does what destructors have left to do."""
        guard = self.guard
        lost = (guard.lost or guard.dead or guard.has_gaps) and guard.clear_lost()
        lost = self.layers.clear_lost() or lost
        if lost and self.following is not None:
            self.off_plan()
        self.saved.clear_dead()
        self.copies.clear_pending_frees()

    def off_plan(self):
        """This step differs from the plan. What is swapped out is swapped in when needed."""
        self.following = None
        self.waits.end_step()
        self.counts["off_plan"] += 1
        self.options.mark("weir swap plan left")
        self.reactive = self.limit is not None
        self.mover.abandon_plan(self.reactive)

    def stop(self):
        self.following = None
        self.profile = None
        self.reactive = False
        self.mover.pending.clear()

    # ---- waits

    def planned_out(self):
        """Bytes on the host that a plan is to know of."""
        return self.copies.swapped_out - self.guard.streamed_out()

    def times_waits(self):
        return self.following is not None or self.profile is not None

    def waited(self, what, before, after):
        # A streamed step always waits.
        if self.profile is not None and not self.guard.is_streaming:
            self.profile.waited(before, after)
        if self.following is not None:
            self.waits.add(what, before, after)

    # ---- from one step to the next

    def end(self):
        """After the anchor's step(), before its state is swapped out again."""
        self.clean_up()
        self.done += 1
        self.copies.counts["checked"] += self.copies.checks.compare()
        self.mark_step()
        key = f"{self.signature & (2**64 - 1):016x}-{self.tick_count}"
        is_first = self.pace is None
        if is_first:
            self.pace = Pace(self.copies.backend)
        # While host memory is still being pinned, steps with a plan are not typical.
        self.pace.step_ends(key, is_plain=self.is_plain, is_planned=self.end_plan() and self.copies.slab.is_ready())
        if is_first:
            self.pin_early()
        stalls = self.counts["stalls"]
        self.waits.learn(self.bandwidths)
        if self.counts["stalls"] > stalls:
            self.options.mark("weir swap waited")
        # The first step, which makes optimizer state, is like no other.
        if self.phase == WATCHING and self.done > 1:
            self.watch.count(key)
        if self.profile is not None:
            self.profile.finish(self.planned_out())
            self.note_profile(key, self.profile)
            self.profile = None
        if self.last_key is not None:
            self.successor[self.last_key] = key
            if len(self.successor) > MOST_SUCCESSORS:
                del self.successor[next(iter(self.successor))]
        self.last_key = key
        self.change_phase(key)
        if self.options.gauges is not None:
            counts = self.counts
            self.options.gauges(
                self.copies.backend.index, counts["bytes_out"], counts["bytes_in"], counts["stalls"], int(counts["stall_us"] * 1000)
            )
        self.begin(key)

    def end_plan(self):
        whole = self.following is not None and self.tick_count == self.following.count
        if whole:
            self.counts["steps_planned"] += 1
            self.full_steps += self.copies.slab.is_ready()
            allocated, reserved = self.copies.backend.take_peak()
            # In the first of them, memory from before still counts.
            if self.full_steps > 1:
                self.peak_allocated = max(self.peak_allocated, allocated)
                self.peak_reserved = max(self.peak_reserved, reserved)
        elif self.following is not None:
            self.off_plan()
        if not whole and self.plans:
            self.counts["steps_off"] += 1
        self.waits.end_step(self.following if whole else None)
        return whole

    def change_phase(self, key):
        if self.phase == FOLLOWING:
            self.unmatched = 0 if key in self.plans or self.judge.is_given_up(key) else self.unmatched + 1
            if self.unmatched >= UNMATCHED_STEPS:
                self.phase, self.unmatched = WATCHING, 0
                self.watch.begin()
                self.say("again", f"step {self.done}: the steps have changed; watching again")
        if self.phase == WATCHING and self.watch.is_over():
            self.steps_vary()
        if self.phase == FOLLOWING and self.judge.tolerance is not None and key in self.plans:
            self.judge_plan(key)
        if self.phase == AWAITING:
            self.look_for_plan()
        if self.phase == AWAITING and self.held is None and self.done - self.asked_at > PLAN_STEPS:
            self.judge.give_up(self.asked_key)
            self.go_on_without("plan", "no plan arrived; going on without one")
        if self.phase == FOLLOWING and self.judge.tolerance is None and self.copies.slab.is_ready():
            self.settle()

    def pin_early(self):
        """After the first step, which has shown what is state. Pinning takes longer than the steps that are watched."""
        if self.limit is None and self.exchange.is_open():
            state = sum(item.size for item in self.guard.items)
            self.copies.slab.reserve(max(bytes_to_measure(), int(EARLY_SHARE * state)))

    def steps_vary(self):
        if self.plans and not self.watch.is_common(self.plans):
            for key in self.plans:
                self.judge.give_up(key)
            self.plans.clear()
            self.options.mark("weir swap plan given up")
        self.go_on_without("varies", f"the steps are too different from each other to be planned; {self.instead()}")

    def go_on_without(self, topic, text):
        """Goes on without a new plan."""
        self.phase = FOLLOWING if self.plans else RESTING
        self.held = None
        self.settle()
        self.say(topic, text)
        if not self.plans and self.limit is None:
            self.remove_hooks()
            self.guard.release_all()
            self.copies.give_host_memory_back()

    def begin_ticks(self):
        self.saved.begin_step()
        self.mover.begin_step()
        self.layers.begin_step()
        self.passes.count = self.tick_count = self.signature = 0

    def begin(self, key):
        """`key` is that of the previous step."""
        self.begin_ticks()
        self.is_endless = False
        self.following = None
        if self.plans and self.phase in (FOLLOWING, AWAITING):
            expected = self.successor.get(key, key)
            self.following = self.plans.get(expected) or self.plans.get(key)
            # Any plan may fit this step. But while a plan is awaited, steps of its kind must not follow another one.
            if self.following is None and self.phase == FOLLOWING and not self.judge.is_given_up(expected):
                self.following = next(iter(self.plans.values()), None)
            if self.following is not None and not self.following.fits(self.guard.items):
                self.following = None
        self.reactive = self.following is None and self.limit is not None
        # The first step makes optimizer state and chooses kernels, so it is not profiled.
        if self.phase == WATCHING and self.done >= 1 and self.exchange.is_open():
            self.profile = self.watch.next_profile(self.copies.backend, self.guard.streamed)
            self.say("watching", f"watching steps {self.done + 1}-{self.done + 1 + self.watch.steps_left()}")
        self.is_plain = self.profile is None and self.following is None and not self.reactive
        self.pace.step_begins()
        self.tick(BEGIN, 0, 0)

    # ---- what plans cost

    def judge_plan(self, key):
        cost = self.judge.cost_of(self.pace, key)
        if not cost:
            if cost is not None:
                self.settle()
            return
        percent = f"{100 * cost:.1f} %"
        if self.judge.is_given_up(key):
            del self.plans[key]
            self.options.mark("weir swap plan given up")
            self.go_on_without("pace", f"step {self.done}: swapping costs {percent} of the step time; nothing is swapped in it any more")
            return
        share = self.judge.share_of(key)
        self.say(f"pace {key} {share}", f"step {self.done}: swapping costs {percent} of the step time; planning to swap less")
        self.sent[key].share = share
        self.ask_for_plan(self.sent[key])

    def settle(self):
        """From now on steps stay as they are: offsets may be planned for them."""
        if not self.is_settled:
            self.is_settled = True
            self.options.mark("weir swap settled")
            self.options.steps(self.ended, True)

    def mark_step(self):
        self.ended += 1
        self.options.mark("weir step")
        self.options.steps(self.ended, self.is_settled)

    def step_times(self):
        """Microseconds per step, without the last plan and with it."""
        key = next(reversed(self.plans), None)
        plain, planned = (None, None) if self.pace is None or key is None else self.pace.measured(key)
        return StepTimes(plain=plain, planned=planned)

    # ---- profiles and plans

    def note_profile(self, key, profile):
        if self.phase != WATCHING:
            return
        if self.judge.is_given_up(key):
            self.go_on_without("again", "no plan: swapping in these steps cost too much time before")
            return
        alike = self.watch.note(key, profile)
        if alike is None:
            return
        # From here on, the events of all these steps can be read.
        self.copies.backend.synchronize()
        if self.bandwidths is None:
            self.bandwidths = measure_copies(self.copies.backend, self.copies.slab) or NO_COPIES
        items = profile.state_items(self.guard.items)
        self.pace.read_finished()
        plain_us = self.pace.plain_so_far(key)
        sent = profile.merged(key, items, self.bandwidths, self.limit, self.options.host_budget.limit(), alike, plain_us)
        sent.pid, sent.device, sent.step, sent.share = os.getpid(), self.copies.backend.index, self.done, self.judge.share_of(key)
        self.sent[key] = sent
        self.watch.seen.clear()
        self.ask_for_plan(sent)
        self.say(
            "watched",
            f"watched up to step {self.done}: {len(sent.records)} saved tensors, "
            f"{len(items)} tensors of optimizer state, {len(sent.passages)} passes of layers",
        )

    def ask_for_plan(self, profile):
        self.phase = AWAITING
        self.asked_at, self.asked_key = self.done, profile.key
        self.exchange.send(profile)

    def look_for_plan(self):
        if self.held is None:
            self.held = self.take_plan()
        plan = self.held
        if plan is None:
            return
        tolerance = self.judge.tolerance
        # If there is a plan already, this one is to save less.
        known = tolerance is None or plan.key in self.plans or self.pace.is_known(plan.key, tolerance)
        if known or self.done - self.asked_at > MOST_HELD:
            self.held = None
            self.use(plan)

    def take_plan(self):
        """A new plan that swaps something; None if there is none."""
        try:
            path = self.exchange.take()
            if path is None:
                return None
            plan = read_plan(path, self.sent)
        except FileNotFoundError:
            return None
        except (BadPlan, ValueError, KeyError, TypeError, OSError) as error:
            self.judge.give_up(self.asked_key)
            self.go_on_without("plan", f"the plan cannot be used: {error}")
            return None
        if not plan.moves and self.limit is None:
            self.plans.pop(plan.key, None)
            self.judge.give_up(plan.key)
            self.go_on_without("plan", "planned: nothing can be swapped without cost")
            return None
        self.copies.slab.reserve(plan.host_bytes + plan.host_bytes // 10)
        return plan

    def use(self, plan):
        self.phase = FOLLOWING
        self.plans[plan.key] = plan
        self.pace.new_plan(plan.key)
        self.judge.new_plan(plan.key)
        # The next step is assumed to be of the same kind, until another kind has followed.
        self.successor[plan.key] = plan.key
        self.guard.release_slots_except(self.plans.values())
        plan.release_at = plan.emptiest()
        expected = plan.expected
        planned = f"planned {gib(expected.from_)} -> {gib(expected.peak)} GiB"
        self.options.mark(f"weir swap plan {len(self.plans)}: {planned}")
        self.say(
            f"plan {plan.key} {self.judge.share_of(plan.key)}",
            f"step {self.done}: {planned}, {expected.stalls} stalls expected, {gib(expected.moved)} GiB swapped out and in per step",
        )


def gib(size):
    return f"{size / 2**30:.1f}"

"""Decides, at every tick of a step, what leaves, what is given up and what comes back.

A tick is a saved tensor of 1 MiB or more being packed or unpacked, or an optimizer beginning or ending its step. All that happens
here happens in the order of the host program, never by looking whether a copy is over: two runs do the same thing.
"""

import json
import os
import threading
import traceback
import weakref
from collections import deque

import torch

from .host import HostSlab
from .optimizer_state import StateGuard
from .plan import BadPlan, read_plan
from .profile import BEGIN, PACK, POST, PRE, UNPACK, StepProfile, measure_copies
from .records import GONE, LEAVING, RESIDENT, RETURNING, Record, changed

LEAST_BYTES = 1 << 20
# With less than this many elements no tensor has LEAST_BYTES.
FEW = LEAST_BYTES // 16
STASH = 2
AHEAD = 2
# A saved tensor that somebody else still holds so many ticks later is given up on.
PATIENCE = 64
REST_TICKS = 8
TIMED_STEPS = 2
MOST_WATCHED = 16
UNMATCHED_STEPS = 8
PLAN_STEPS = 200
LATE_US = 20.0
NO_COPIES = {"outAlone": 12e9, "inAlone": 12e9, "outBoth": 10e9, "inBoth": 10e9, "fixedUs": 30}

WATCHING, AWAITING, FOLLOWING, RESTING = "watching", "awaiting", "following", "resting"


class Corrupted(RuntimeError):
    """Debugging found content changed. Nothing to be quiet about."""


class Manager:
    def __init__(self, options, make_backend, say):
        self.options = options
        self.make_backend = make_backend
        self.backend = None
        self.say = say
        self.limit = options.limit
        self.debug = options.debug
        self.directory = options.directory
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.graveyard = deque()
        self.dead = deque()
        self.slab = None
        self.guard = StateGuard(self, options.least)
        self.least = options.least
        self.few = max(1, options.least // 16)
        self.hooks = None
        self.stopped = None  # why nothing is swapped any more

        self.phase = WATCHING
        self.steps = 0
        self.tick_count = 0
        self.signature = 0
        self.records = []  # of this step, weak, by index
        self.by_cdata = {}
        self.anchor = None
        self.following = None
        self.plans = {}
        self.successor = {}
        self.last_key = None
        self.unmatched = 0
        self.watched = 0
        self.seen = {}  # key -> profiles of equal steps
        self.sent = {}
        self.plan_stamp = None
        self.profile = None
        self.reactive = self.limit is not None
        self.pending = deque()
        self.leaving = deque()
        self.returned = deque()
        self.late = []
        self.waits = []
        self.old_waits = deque()
        self.checks = []
        self.away = 0
        self.copies_in = 0
        self.copies = None
        self.counts = dict.fromkeys(
            ("bytes_out", "bytes_in", "stalls", "stall_us", "misses", "off_plan", "kept", "steps_planned", "steps_off", "adjusted", "late_out"), 0
        )
        self.peak_allocated = 0
        self.peak_reserved = 0
        self.asked_at = 0

    # ---- entering and leaving

    def activate(self, tensor):
        """At the first large tensor on a GPU, which is when its streams can be made."""
        self.backend = self.make_backend(tensor)
        self.slab = HostSlab(self.backend.pinned, self.options.host_limit, self.say)

    def stop(self, why, report=True):
        """Everything comes back and stays."""
        with self.lock:
            if self.stopped:
                return
            self.stopped = why
            self.following = None
            self.profile = None
            self.reactive = False
            self.pending.clear()
            if report:
                self.say("stop", f"swapping stops: {why}")
            if self.backend is not None:
                self.guard.bring_back_all()

    def failed(self, where):
        """An error of ours is told and ends the swapping, not the training."""
        self.say("error", f"swapping stops after an error of its own in {where}:\n{traceback.format_exc()}")
        try:
            self.stop(f"error in {where}", report=False)
        except Exception:
            self.stopped = self.stopped or where
            raise

    # ---- hooks of autograd

    def pack(self, tensor):
        if tensor.numel() >= self.few and not self.stopped:
            try:
                handle = self._pack(tensor)
            except Exception:
                self.failed("pack")
                handle = None
            if handle is not None:
                return handle
        # As PyTorch does it itself: leaves stay the objects they are, other tensors must not keep their own history alive.
        return (tensor if tensor.is_leaf else tensor.detach()), tensor._version

    def unpack(self, packed):
        if type(packed) is tuple:
            tensor, version = packed
            if tensor._version != version:
                raise changed(tensor, tensor._version, version)
            return tensor
        return self._unpack(packed)

    def _eligible(self, tensor):
        if type(tensor) is not torch.Tensor or tensor.numel() * tensor.element_size() < self.least:
            return False
        if tensor.layout != torch.strided or (tensor.requires_grad and tensor.is_leaf):
            return False
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            return False
        if self.backend is None:
            if not self.options.is_device(tensor):
                return False
            self.activate(tensor)
        backend = self.backend
        if not backend.is_mine(tensor) or not backend.on_compute() or backend.capturing():
            return False
        # Somebody looks at every operation: ours are not theirs to see.
        return torch._C._len_torch_dispatch_stack() == 0

    def _pack(self, tensor):
        if not self._eligible(tensor):
            return None
        with self.lock:
            storage = tensor.untyped_storage()
            size, cdata = storage.nbytes(), storage._cdata
            del storage
            if size < self.least:
                return None
            reference = self.by_cdata.get(cdata)
            record = reference() if reference is not None else None
            if record is not None and (record.storage is not None or record.state in (GONE, RETURNING)):
                # A tensor that came back and is saved once more: the host copy is not known to be what it holds now.
                record.frozen = True
                if record.index >= 0:
                    self.tick(PACK, record.index, size)
                return None
            if record is None:
                record = Record(self, size, cdata, len(self.records))
                record.position = len(self.records)
                reference = weakref.ref(record)
                self.by_cdata[cdata] = reference
                self.records.append(reference)
                if self.reactive:
                    self.pending.append(reference)
            elif record.state == LEAVING or record.copied:
                # Saved again after its copy began: the copy may be old.
                self._cancel(record)
                if self.reactive:
                    self.pending.append(reference)
            if record.index < 0:
                return record.add(tensor)
            handle = record.add(tensor)
            tick = self.tick(PACK, record.index, size)
            if self.profile is not None:
                self.profile.packed(record.index, size, reference, tick)
            return handle

    def _unpack(self, handle):
        with self.lock:
            record, backend = handle.record, self.backend
            aside = not backend.on_compute()
            modes = torch._C._len_torch_dispatch_stack()
            if modes:
                from torch.utils._python_dispatch import _disable_current_modes

                with _disable_current_modes():
                    self._come_back(record, aside)
                    return self._view(handle, record, aside)
            self._come_back(record, aside)
            return self._view(handle, record, aside)

    def _come_back(self, record, aside):
        if self.stopped:
            self.clear_away()
        elif not aside and not self.backend.capturing():
            try:
                tick = self.tick(UNPACK, record.index, record.size)
                if self.profile is not None and record.index >= 0:
                    self.profile.used(record.index, tick)
            except Exception:
                self.failed("unpack")
        if record.state == LEAVING:
            record.state = RESIDENT
        elif record.state == GONE:
            planned = self.reactive and self.following is None
            if not planned:
                self.counts["misses"] += 1
            self.begin_return(record)
        if record.state == RETURNING:
            self.end_return(record)
            self.returned.append((self.tick_count, weakref.ref(record)))
        if not aside and not self.stopped and self.following is None:
            try:
                self.fetch_ahead(record)
            except Exception:
                self.failed("prefetch")

    def _view(self, handle, record, aside):
        if handle.alias is None:
            handle.check()
            handle.rebuild(record.storage, self.backend.device)
        handle.check()
        tensor = handle.alias.detach()
        if aside:
            self.let_current_follow()
            tensor.record_stream(self.backend.current())
        return tensor

    # ---- hooks of optimizers

    def before_step(self, optimizer):
        """Whatever happens here, the step must find its state."""
        if self.backend is None:
            return
        with self.lock:
            place = self.guard.ordinal(optimizer)
            if not self.stopped and self.backend.on_compute() and not self.backend.capturing():
                try:
                    self.tick(PRE, place, 0)
                except Exception:
                    self.failed("optimizer step")
            moved = False
            following = self.following
            for item in self.guard.items:
                if item.optimizer != place:
                    continue
                if item.state in (GONE, RETURNING):
                    planned = item.state == RETURNING or (following is None and self.reactive)
                    self.guard.bring_back(item, planned)
                    moved = True
                elif item.state == LEAVING:
                    item.state = RESIDENT
            if moved:
                self.let_current_follow()

    def after_step(self, optimizer):
        if self.backend is None:
            self.steps += 1
            return
        if self.stopped:
            self.clear_away()
            return
        if not self.backend.on_compute() or self.backend.capturing():
            return
        try:
            with self.lock:
                anchor = self.anchor() if self.anchor is not None else None
                if anchor is None:
                    self.anchor = weakref.ref(optimizer)
                    anchor = optimizer
                if self.phase != RESTING or self.reactive:
                    if self.guard.scan(optimizer) and self.following is not None:
                        self.off_plan()
                if anchor is optimizer:
                    self.end_of_step()
                else:
                    self.tick(POST, self.guard.ordinal(optimizer), 0)
                self.state_leaves(optimizer)
        except Corrupted:
            raise
        except Exception:
            self.failed("optimizer step")

    def mark(self):
        """The end of a step in a program that has no optimizer of torch.optim."""
        if self.backend is None or self.stopped:
            self.steps += 1
            return
        try:
            with self.lock:
                self.end_of_step()
        except Corrupted:
            raise
        except Exception:
            self.failed("step")

    def state_leaves(self, optimizer):
        place = self.guard.ordinal(optimizer)
        wanted = self.following.items if self.following is not None else None
        if wanted is None and not self.reactive:
            return
        if wanted is not None and not wanted:
            return
        if not self.guard.protect(optimizer):
            return
        for item in self.guard.items:
            if item.optimizer == place and (wanted is None or item.index in wanted):
                self.guard.leave(item)

    # ---- ticks

    def tick(self, kind, value, size):
        self.clear_away()
        tick = self.tick_count
        self.tick_count = tick + 1
        self.signature = hash((self.signature, kind, value, size))
        if self.profile is not None:
            self.profile.tick(kind, value, size, self.away)
        following = self.following
        if following is not None:
            if (
                tick < following.count
                and following.kinds[tick] == kind
                and following.values[tick] == value
                and following.sizes[tick] == size
            ):
                self.act(following, tick)
            else:
                self.off_plan()
        if self.following is None:
            if self.reactive:
                self.react(kind)
        return tick

    def clear_away(self):
        """What destructors have left to do."""
        if self.guard.lost and self.guard.clear_lost() and self.following is not None:
            self.off_plan()
        while self.dead:
            slot, bytes_away, cdata = self.dead.popleft()
            self.away -= bytes_away
            if slot is not None:
                slot.release()
            reference = self.by_cdata.get(cdata)
            if reference is not None and reference() is None:
                del self.by_cdata[cdata]
        while self.graveyard:
            thing, event = self.graveyard.popleft()
            self.backend.wait(self.backend.compute, event)
            del thing

    def act(self, plan, tick):
        for who in plan.drops.get(tick, ()):
            if who[0] == "item":
                item = self.guard.items[who[1]]
                if item.state == LEAVING:
                    self.guard.drop(item)
                continue
            record = self.of_index(who[1])
            if record is None:
                continue
            if record.state == LEAVING:
                self.drop(record)
            elif record.state == RESIDENT:
                self.counts["kept"] += 1
        for who in plan.backs.get(tick, ()):
            try:
                if who[0] == "item":
                    item = self.guard.items[who[1]]
                    if item.state == GONE:
                        self.guard.begin_return(item)
                    continue
                record = self.of_index(who[1])
                if record is not None and record.state == GONE:
                    self.begin_return(record)
            except RuntimeError as error:
                if not self.backend.out_of_memory(error):
                    raise
                # No room now: it comes when it is needed.
                self.counts["misses"] += 1
        if self.late:
            still = []
            for until, record in self.late:
                record = record()
                if record is None or record.state != RESIDENT or tick >= until:
                    continue
                if not self.leave(record):
                    still.append((until, weakref.ref(record)))
            self.late = still
        for who in plan.outs.get(tick, ()):
            record = self.of_index(who[1])
            if record is not None and record.state == RESIDENT and not self.leave(record):
                self.counts["late_out"] += 1
                self.late.append((plan.moves[who].drop, weakref.ref(record)))

    def react(self, kind):
        """Without a plan: everything leaves as soon as it is ours alone, and two storages are always on their way."""
        if kind != UNPACK:
            for _ in range(len(self.pending)):
                reference = self.pending.popleft()
                record = reference()
                if record is None or record.state != RESIDENT or record.frozen:
                    continue
                if self.leave(record):
                    self.leaving.append(reference)
                elif record.waited_ticks < PATIENCE:
                    record.waited_ticks += 1
                    self.pending.append(reference)
                if len(self.leaving) > STASH:
                    self.drop_oldest()
            for item in self.guard.items:
                if item.state == LEAVING and kind == PACK:
                    self.guard.drop(item)
        while self.returned and self.returned[0][0] + REST_TICKS <= self.tick_count:
            record = self.returned.popleft()[1]()
            # Kept for another backward: its host copy is still good.
            if record is not None and record.state == RESIDENT and record.copied and record.storage is not None and not record.frozen:
                self.drop(record)

    def drop_oldest(self):
        record = self.leaving.popleft()()
        if record is not None and record.state == LEAVING:
            self.drop(record)

    def fetch_ahead(self, record):
        """Backward goes the way of forward in reverse."""
        if record.index < 0:
            return
        fetched = 0
        for index in range(record.index - 1, max(-1, record.index - 1 - 2 * AHEAD), -1):
            other = self.of_index(index)
            if other is None:
                continue
            if other.state == GONE:
                try:
                    self.begin_return(other)
                except RuntimeError as error:
                    if not self.backend.out_of_memory(error):
                        raise
                    return
            fetched += 1
            if fetched == AHEAD:
                return

    def of_index(self, index):
        return self.records[index]() if 0 <= index < len(self.records) else None

    # ---- movements of saved tensors

    def leave(self, record):
        """Copies out, but only what nobody else can reach: from here to the end of the gap the bytes cannot change."""
        if record.frozen or not record.is_ours() or not record.unchanged():
            return False
        if record.slot is None:
            record.slot = self.slab.take(record.size)
            if record.slot is None:
                record.frozen = True
                return False
        backend = self.backend
        storage = record.live_handles()[0].alias.untyped_storage()
        source = backend.bytes_of(storage)
        record.check = self.checksum(source)
        backend.wait(backend.out, backend.event(backend.compute))
        if record.slot.busy is not None:
            backend.wait(backend.out, record.slot.busy[1])
        backend.copy(backend.out, record.slot.bytes, source)
        record.unwaited = backend.event(backend.out)
        record.state = LEAVING
        record.copied = True
        if record.sole_at < 0:
            record.sole_at = max(0, self.tick_count - 1)
        self.counts["bytes_out"] += record.size
        return True

    def drop(self, record):
        """Gives the memory up, in the order of the compute stream: whoever gets it next comes after the copy."""
        if record.frozen or not record.is_ours() or not record.unchanged():
            self.counts["kept"] += 1
            record.state = RESIDENT
            return False
        backend = self.backend
        if record.unwaited is not None:
            self.wait_timed(record.unwaited, ("out", record.index))
            record.unwaited = None
        handles = record.live_handles()
        storage = next(handle.alias for handle in handles if handle.alias is not None).untyped_storage()
        backend.belongs_to_compute(storage)
        self.poison(storage)
        for handle in handles:
            handle.let_go()
        reference = self.by_cdata.get(record.cdata)
        if reference is not None and reference() is record:
            del self.by_cdata[record.cdata]
        record.storage = None
        record.cdata = 0
        del storage
        record.state = GONE
        self.away += record.size
        return True

    def begin_return(self, record):
        backend = self.backend
        storage = backend.new_storage(record.size)
        target = backend.bytes_of(storage)
        # The memory may have been in use a moment ago, on the compute stream.
        backend.wait(backend.back, backend.event(backend.compute))
        backend.copy(backend.back, target, record.slot.bytes)
        record.unwaited = backend.event(backend.back)
        record.slot.busy = self.number(record.unwaited)
        record.storage = storage
        record.cdata = storage._cdata
        self.by_cdata[record.cdata] = weakref.ref(record)
        record.state = RETURNING
        self.away -= record.size
        self.counts["bytes_in"] += record.size

    def end_return(self, record):
        self.wait_timed(record.unwaited, ("in", record.index))
        record.unwaited = None
        record.state = RESIDENT
        self.verify(record.check, self.backend.bytes_of(record.storage))

    def _cancel(self, record):
        """The copy is not to be used; the slot is given back in the order of the copies out, which never overtake each other."""
        record.state = RESIDENT
        record.copied = False
        if record.slot is not None:
            record.slot.release()
            record.slot = None

    def number(self, event):
        self.copies_in += 1
        return self.copies_in, event

    def wait_timed(self, event, what):
        """The compute stream waits, the host does not. How long is looked at steps later."""
        backend = self.backend
        if self.following is None and self.profile is None:
            backend.wait(backend.compute, event)
            return
        before = backend.event(backend.compute, timing=True)
        backend.wait(backend.compute, event)
        after = backend.event(backend.compute, timing=True)
        if self.profile is not None and not self.profile.memory:
            self.profile.waits.append((max(0, len(self.profile.kinds) - 1), before, after))
        if self.following is not None:
            self.waits.append((what, before, after))

    def let_current_follow(self):
        backend = self.backend
        if not backend.on_compute():
            backend.wait_current(backend.event(backend.compute))

    # ---- debugging: stray readers see poison, copies are summed up before and after

    def checksum(self, content):
        if not self.debug:
            return None
        whole = content[: content.numel() // 8 * 8].view(torch.int64)
        # A sum of words would not notice two of them changing places.
        half = whole.numel() // 2
        return torch.stack((whole.sum(), whole[:half].sum()))

    def verify(self, expected, content):
        if expected is not None:
            self.checks.append((expected, self.checksum(content)))

    def poison(self, storage):
        if self.debug:
            self.backend.bytes_of(storage).fill_(0xFF)

    def compare_checks(self):
        checks, self.checks = self.checks, []
        for expected, found in checks:
            if not torch.equal(expected, found):
                raise Corrupted("weir: a tensor came back from host memory with other content than it left with")

    # ---- steps

    def off_plan(self):
        """This step goes another way. What is away comes when it is needed."""
        self.following = None
        self.late = []
        self.waits = []
        self.counts["off_plan"] += 1
        self.reactive = self.limit is not None
        if self.reactive:
            for reference in self.records:
                record = reference()
                if record is not None and record.state == RESIDENT and not record.copied:
                    self.pending.append(reference)

    def end_of_step(self):
        """After the anchor's step(), before its state leaves again."""
        self.clear_away()
        self.steps += 1
        if self.debug:
            self.compare_checks()
        key = f"{self.signature & (2**64 - 1):016x}-{self.tick_count}"
        whole = self.following is not None and self.tick_count == self.following.count
        if self.following is not None:
            if whole:
                self.counts["steps_planned"] += 1
                self.old_waits.append((self.following, self.waits))
                allocated, reserved = self.backend.take_peak()
                # The step in which a plan is taken up still holds what was there before.
                if self.counts["steps_planned"] > 1:
                    self.peak_allocated = max(self.peak_allocated, allocated)
                    self.peak_reserved = max(self.peak_reserved, reserved)
            else:
                self.off_plan()
        if not whole and self.plans:
            self.counts["steps_off"] += 1
        self.waits = []
        self.learn_from_waits()
        if self.profile is not None:
            self.profile.finish(self.away)
            self.note_profile(key, self.profile)
            self.profile = None
        if self.last_key is not None:
            self.successor[self.last_key] = key
        self.last_key = key
        if self.phase == FOLLOWING:
            self.unmatched = 0 if key in self.plans else self.unmatched + 1
            if self.unmatched >= UNMATCHED_STEPS:
                self.phase, self.watched, self.unmatched = WATCHING, 0, 0
                self.seen.clear()
                self.say("again", f"step {self.steps}: the steps have changed; watching again")
        if self.phase == WATCHING and self.watched >= MOST_WATCHED:
            self.phase = FOLLOWING if self.plans else RESTING
            self.say("varies", "no two steps were alike; " + ("swapping without a plan" if self.limit is not None else "nothing is swapped"))
            if self.phase == RESTING and self.limit is None and not self.plans:
                self.let_hooks_go()
        if self.phase == AWAITING:
            self.look_for_plan()
        if self.phase == AWAITING and self.steps - self.asked_at > PLAN_STEPS:
            self.phase = FOLLOWING if self.plans else RESTING
            self.say("plan", "no plan came; going on without")
            if not self.plans and self.limit is None:
                self.let_hooks_go()
        if self.options.gauges is not None:
            counts = self.counts
            self.options.gauges(
                self.backend.index, counts["bytes_out"], counts["bytes_in"], counts["stalls"], int(counts["stall_us"] * 1000)
            )
        self.begin_step(key)

    def begin_step(self, key):
        for reference in self.records:
            record = reference()
            if record is not None:
                record.index = -1
        self.records = []
        self.pending.clear()
        self.leaving.clear()
        self.late = []
        self.tick_count = 0
        self.signature = 0
        self.following = None
        if self.plans and self.phase in (FOLLOWING, AWAITING):
            expected = self.successor.get(key, key)
            self.following = self.plans.get(expected) or self.plans.get(key) or next(iter(self.plans.values()), None)
            if self.following is not None and not self.fits_items(self.following):
                self.following = None
        self.reactive = self.following is None and self.limit is not None
        # The first step makes optimizer state and picks kernels: it is like no other.
        if self.phase == WATCHING and self.steps >= 1 and (self.directory or self.options.on_profile):
            self.watched += 1
            self.say("watching", f"watching steps {self.steps}-{self.steps + TIMED_STEPS + 1}")
            self.profile = StepProfile(self.backend, memory=self.watched % (TIMED_STEPS + 1) == 1)
        self.tick(BEGIN, 0, 0)

    def fits_items(self, plan):
        return all(index < len(self.guard.items) and self.guard.items[index].size == plan.moves[("item", index)].size for index in plan.items)

    def note_profile(self, key, profile):
        if self.phase != WATCHING:
            return
        alike = self.seen.setdefault(key, [])
        alike.append(profile)
        if sum(run.memory for run in alike) < 1 or sum(not run.memory for run in alike) < TIMED_STEPS:
            return
        if self.copies is None:
            self.copies = measure_copies(self.backend, self.slab) or NO_COPIES
        posts = {}
        pres = {}
        for tick, kind in enumerate(profile.kinds):
            if kind == PRE:
                pres.setdefault(profile.values[tick], tick)
            elif kind == POST:
                posts[profile.values[tick]] = tick
        items = [
            {"size": item.size, "pre": pres.get(item.optimizer, -1), "post": posts.get(item.optimizer, 0)} for item in self.guard.items
        ]
        data = alike[-1].as_json(key, items, self.copies, self.limit, self.options.host_limit, alike)
        data.update(pid=self.pid, device=self.backend.index, step=self.steps)
        self.sent[key] = data
        self.phase = AWAITING
        self.asked_at = self.steps
        self.seen.clear()
        if self.options.on_profile:
            self.options.on_profile(data)
        else:
            write_json(os.path.join(self.directory, f"{self.pid}.profile.json"), data)
        self.say("watched", f"watched steps 1-{self.steps}: {len(data['records'])} saved tensors, {len(items)} of optimizer state")

    def look_for_plan(self):
        path = os.path.join(self.directory, f"{self.pid}.swap.json") if self.directory else None
        plan_of = self.options.take_plan
        try:
            if plan_of is not None:
                path = plan_of()
                if path is None:
                    return
            else:
                stamp = os.stat(path)
                stamp = (stamp.st_mtime_ns, stamp.st_ino, stamp.st_size)
                if stamp == self.plan_stamp:
                    return
                self.plan_stamp = stamp
            plan = read_plan(path, self.sent)
        except FileNotFoundError:
            return
        except (BadPlan, ValueError, KeyError, TypeError, OSError) as error:
            self.say("plan", f"the plan cannot be used: {error}")
            self.phase = RESTING
            return
        self.phase = FOLLOWING
        self.plans[plan.key] = plan
        # One step stands for all until another shape has its own.
        self.successor[plan.key] = plan.key
        if not plan.moves and self.limit is None:
            self.say("plan", "planned: nothing to swap at no cost")
            self.let_hooks_go()
            self.phase = RESTING
            self.plans.clear()
            return
        self.slab.reserve(plan.host_bytes + plan.host_bytes // 10)
        self.backend.release_cached()
        expected = plan.expected
        self.say(
            f"plan {plan.key}",
            f"step {self.steps}: planned {gib(expected.get('from', 0))} -> {gib(expected.get('peak', 0))} GiB, "
            f"{expected.get('stalls', 0)} stalls expected, {gib(expected.get('moved', 0))} GiB out and back per step",
        )

    def learn_from_waits(self):
        """Waits of steps that are over: late copies are begun earlier from now on."""
        while self.old_waits:
            plan, waits = self.old_waits[0]
            if waits and not self.backend.finished(waits[-1][2]):
                return
            self.old_waits.popleft()
            for (what, index), before, after in waits:
                late = self.backend.elapsed_us(before, after)
                if late <= LATE_US:
                    continue
                self.counts["stalls"] += 1
                self.counts["stall_us"] += late
                who = ("item" if what.startswith("state") else "record", index)
                moved = plan.come_earlier(who, late) if what.endswith("in") else plan.go_later(who, late)
                if moved:
                    self.counts["adjusted"] += 1

    def let_hooks_go(self):
        if self.hooks is not None:
            self.hooks.remove()

    # ---- telling

    def report(self):
        expected = next(reversed(self.plans.values())).expected if self.plans else {}
        return {
            "version": 1,
            "pid": self.pid,
            "device": self.backend.index if self.backend is not None else None,
            "phase": self.phase,
            "stopped": self.stopped,
            "steps": self.steps,
            "plans": len(self.plans),
            "expected": expected,
            "limit": self.limit,
            "peakAllocated": self.peak_allocated,
            "peakReserved": self.peak_reserved,
            "hostBytes": self.slab.peak if self.slab is not None else 0,
            "hostPinned": self.slab.capacity if self.slab is not None else 0,
            "copies": self.copies,
            **{camel(name): value for name, value in self.counts.items()},
        }


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def gib(size):
    return f"{size / 2**30:.1f}"


def write_json(path, data):
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as target:
        json.dump(data, target, separators=(",", ":"))
    os.replace(temporary, path)

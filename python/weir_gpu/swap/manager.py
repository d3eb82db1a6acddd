"""The entry of all hooks: turns their calls into ticks, swaps in what they need, and stops swapping after an error.

A tick is one of these: a saved tensor of 1 MiB or more is packed or unpacked, a layer's forward pass ends, a layer is needed again,
an optimizer begins or ends its step.
"""

import os
import sys
import traceback
import weakref

import torch

from ..abi import EXCHANGE_VERSION, SwapReport
from .copies import Copies, Corrupted
from .layers import Layers
from .lock import Lock
from .mover import Mover
from .optimizer_state import StateGuard
from .profile import PACK, POST
from .records import RESIDENT, SWAPPED_OUT, SWAPPING_IN, SWAPPING_OUT, changed
from .relief import Relief
from .saved_tensors import SavedTensors
from .steps import RESTING, Steps
from .streamed_step import StreamedSteps
from .swapped_tensors import is_observed, unobserved

# If this many steps have no large tensor on a GPU, later ones will not either.
SMALL_STEPS = 8


class Manager:
    def __init__(self, options, make_backend, say):
        self.options = options
        self.make_backend = make_backend
        self.say = say
        self.pid = os.getpid()
        self.lock = Lock()
        self.least = options.least
        # A tensor with fewer elements is smaller than `least` bytes.
        self.few = max(1, options.least // 16)
        self.hooks = None
        self.stopped = None  # why swapping ended; None while it goes on
        self.anchor = None  # weak reference to the optimizer whose steps are the training steps

        self.copies = Copies(options, say, self.lock)
        self.copies.pending_frees = self.lock.leftovers()
        self.saved = SavedTensors(self.copies)
        self.saved.dead = self.lock.leftovers()
        self.guard = StateGuard(self.copies, self.lock, options.least)
        self.layers = Layers(self.copies, self.saved, self.lock, options.least)
        self.mover = Mover(self.copies, self.saved, self.guard, self.layers)
        self.steps = Steps(options, self.copies, self.saved, self.guard, self.layers, self.mover, self.remove_hooks, say)
        self.copies.observer = self.steps
        self.copies.relief = Relief(self)
        self.streamed = StreamedSteps(self)
        self.relieve = self.copies.relief.relieve
        self.lock.do(self._work_off)

    @property
    def backend(self):
        return self.copies.backend

    @property
    def phase(self):
        return self.steps.phase

    @property
    def directory(self):
        return self.options.directory

    # ---- stopping

    def stop(self, why, report=True):
        """Swaps everything in and ends swapping."""
        with self.lock:
            if self.stopped:
                return
            self.stopped = why
            self.steps.stop()
            self.copies.stop_pinning()
            self.steps.settle()
            if report:
                self.say("stop", f"swapping stops: {why}")
            if self.backend is not None:
                self.guard.swap_in_all()
                self.layers.swap_in_all()
                # Memory is pinned before there is a plan that uses it.
                if not self.backend.capturing():
                    self.copies.give_unused_host_memory_back()

    def failed(self, where):
        """Reports an error of ours and ends swapping, not the training."""
        self.say("error", f"swapping stops after an error of its own in {where}:\n{traceback.format_exc()}")
        # The last line names the error and begins what it says.
        reason = traceback.format_exception_only(*sys.exc_info()[:2])[-1].split("\n")[0]
        try:
            self.stop(f"error in {where}: {reason}", report=False)
        except Exception:
            self.stopped = self.stopped or where
            raise

    def remove_hooks(self):
        if self.hooks is not None:
            self.hooks.remove()

    def _work_off(self):
        """Does what destructors have left to do, without waiting for the next tick: there may be none any more."""
        if self.backend is None or self.pid != os.getpid() or self.backend.capturing():
            return
        try:
            something_died = bool(self.guard.dead or self.layers.lost)
            with unobserved():
                self.guard.bury_dead()
                self.layers.clear_resident_lost()
                self.saved.clear_dead()
                self.copies.clear_pending_frees()
            if something_died and self.guard.is_idle():
                self.copies.give_unused_host_memory_back()
        except Exception:
            self.failed("clean-up")

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
        # As PyTorch does without hooks: leaf tensors stay the same objects, and other tensors must not keep their history alive.
        return (tensor if tensor.is_leaf else tensor.detach()), tensor._version

    def unpack(self, packed):
        if type(packed) is tuple:
            tensor, version = packed
            if self.layers.by_parameter:
                layer = self.layers.of_parameter(tensor)
                if layer is not None and layer.passage is not None:
                    self.layer_is_needed(layer)
            if tensor._version != version:
                raise changed(tensor, tensor._version, version)
            return tensor
        return self._unpack(packed)

    def _eligible(self, tensor):
        # A dispatch mode sees every operation, and must not see ours. A transform's tensors have no memory of their own.
        if type(tensor) is not torch.Tensor or tensor.numel() * tensor.element_size() < self.least or is_observed():
            return False
        if tensor.layout != torch.strided or (tensor.requires_grad and tensor.is_leaf):
            return False
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
            return False
        if self.backend is None:
            # Streams cannot be made before CUDA has started.
            if not self.options.is_device(tensor):
                return False
            self.copies.open(self.make_backend(tensor))
        backend = self.backend
        why = self.copies.sides.why_not()
        if why is not None:
            self.stop(why)
            return False
        return backend.is_mine(tensor) and backend.on_compute() and not backend.capturing()

    def _pack(self, tensor):
        if not self._eligible(tensor):
            return None
        with self.lock:
            storage = tensor.untyped_storage()
            size, cdata = storage.nbytes(), storage._cdata
            # Otherwise the handles would not be its only owners.
            del storage
            if size < self.least:
                return None
            record = self.saved.on_storage(cdata)
            if record is not None and (record.storage is not None or record.state in (SWAPPED_OUT, SWAPPING_IN)):
                # The tensor was swapped in and is saved again: the host copy may differ from what it holds now.
                record.frozen = True
                if record.index >= 0:
                    self.steps.tick(PACK, record.index, size)
                return None
            if record is None:
                if not self.steps.before_record():
                    return None
                if self.anchor is None:
                    self.hooks.others.look_after(self.steps.passes.count)
                record = self.saved.add(size, cdata)
                record.layer = self.layers.of_storage(cdata)
                record.frozen = record.layer is not None
                if self.steps.reactive:
                    self.mover.want_swap_out(record)
            elif record.state == SWAPPING_OUT or record.copied:
                # Saved again after its copy began: the copy may be out of date.
                self.saved.cancel_swap_out(record)
                if self.steps.reactive:
                    self.mover.want_swap_out(record)
            # We are called by `pack`, and `pack` by the operation: from Python, or from autograd's thread, which has no frame.
            record.unread = record.unread or self.hooks.functions.is_running(sys._getframe(1).f_back)
            handle = record.add(tensor)
            if record.index >= 0:
                self.steps.packed(record, size)
            return handle

    def _unpack(self, handle):
        layer = handle.record.layer
        if layer is not None and layer.passage is not None:
            self.layer_is_needed(layer)
        with self.lock:
            aside = not self.backend.on_compute()
            with unobserved():
                self._make_resident(handle.record, aside)
                return self._view(handle, aside)

    def _make_resident(self, record, aside):
        steps = self.steps
        if self.stopped:
            steps.clean_up()
        elif not aside and not self.backend.capturing():
            try:
                steps.unpacked(record)
            except Exception:
                self.failed("unpack")
        if record.state == SWAPPING_OUT:
            record.state = RESIDENT
        elif record.state == SWAPPED_OUT:
            if not steps.reactive:
                self.copies.counts["misses"] += 1
            self.copies.relief.begin_needed(lambda: self.saved.begin_swap_in(record), record.size)
        if record.state == SWAPPING_IN:
            self.saved.end_swap_in(record)
            self.mover.was_swapped_in(record, steps.tick_count - 1)
        if not aside and not self.stopped and steps.following is None:
            try:
                self.mover.fetch_ahead(record)
            except Exception:
                self.failed("prefetch")

    def _view(self, handle, aside):
        if handle.alias is None:
            handle.check()
            handle.rebuild(handle.record.storage, self.backend.device)
        handle.check()
        tensor = handle.alias.detach()
        if aside:
            self.copies.make_current_wait()
            tensor.record_stream(self.backend.current())
        return tensor

    # ---- hooks of modules

    def module_begins(self, module):
        layers = self.layers
        if layers.chosen:
            layer = layers.of_module(module)
            if layer is None:
                return
            if not self.backend.on_compute():
                layer.elsewhere = True
            if layer.passage is not None:
                self.layer_is_needed(layer)
        elif torch.is_grad_enabled() and not layers.given_up and not self.stopped:
            try:
                layers.note_module(module)
            except Exception:
                self.failed("forward")

    def module_ends(self, module):
        layer = self.layers.of_module(module)
        if layer is None or layer.elsewhere or self.stopped or not torch.is_grad_enabled():
            return
        # During backward, a layer is run again by checkpointing and stays needed until that is over.
        if torch._C._current_graph_task_id() != -1 or is_observed() or not self.hooks.save_parameters():
            return
        try:
            with self.lock:
                if self.backend.on_compute() and not self.backend.capturing():
                    self.steps.layer_left(layer)
        except Exception:
            self.failed("forward")

    def _end_of_layers(self):
        """The end of a step, for layers. A closure may have swapped some out inside of step()."""
        layers = self.layers
        layers.swap_in_all(planned=self.steps.reactive)
        if layers.chosen:
            layers.renew()
        elif not layers.given_up:
            layers.choose()

    def layer_is_needed(self, layer):
        """Swaps the layer in, whatever else fails."""
        with self.lock:
            passage = layer.passage
            if passage is not None and not self.stopped and self.backend.on_compute() and not self.backend.capturing():
                try:
                    self.steps.layer_needed(layer)
                except Exception:
                    self.failed("layer")
            self.layers.layer_is_needed(layer, planned=self.steps.reactive)
            layer.passage = None
            if passage is not None and not self.stopped and self.steps.reactive:
                try:
                    self.mover.fetch_layer_ahead(passage)
                except Exception:
                    self.failed("prefetch")

    # ---- hooks of optimizers

    def before_step(self, optimizer, arguments=(), named=None):
        """Swaps the optimizer's state in, whatever else fails."""
        self.streamed.forget()
        if self.backend is None:
            return
        with self.lock, unobserved():
            place = self.guard.ordinal(optimizer)
            is_streamed = False
            can_swap = not self.stopped and self.backend.on_compute() and not self.backend.capturing()
            if can_swap:
                try:
                    self.steps.optimizer_begins(place)
                except Exception:
                    self.failed("optimizer step")
            self.layers.swap_in_all(planned=self.steps.reactive)
            if can_swap and not self.stopped:
                try:
                    is_streamed = self.streamed.begin(optimizer, arguments, named or {})
                except Exception:
                    self.failed("optimizer step")
            self.guard.note_step(optimizer, is_streamed)
            if not is_streamed:
                self._swap_in_state(place)

    def _swap_in_state(self, place):
        items = [item for item in self.guard.items if item.optimizer == place]
        self.guard.wait_for_swap_ins(items)
        moved = False
        for item in items:
            if item.state in (SWAPPED_OUT, SWAPPING_IN):
                self.guard.swap_in(item, planned=item.state == SWAPPING_IN or self.steps.reactive)
                moved = True
            elif item.state == SWAPPING_OUT:
                self.guard.cancel_swap_out(item)
        if moved:
            self.copies.make_current_wait()

    def after_step(self, optimizer):
        steps = self.steps
        self.streamed.check(optimizer)
        if self.backend is None or self.stopped or not self.backend.on_compute() or self.backend.capturing():
            self._skip_step()
            return
        try:
            with self.lock, unobserved():
                place = self.guard.ordinal(optimizer)
                anchor = self.anchor() if self.anchor is not None else None
                if anchor is None:
                    self.anchor = weakref.ref(optimizer)
                    anchor = optimizer
                is_changed = self.streamed.end(optimizer)
                if steps.phase != RESTING or steps.reactive:
                    if (self.guard.scan(optimizer) or is_changed) and steps.following is not None:
                        steps.off_plan()
                if anchor is optimizer:
                    self._end_of_layers()
                    steps.end()
                else:
                    steps.tick(POST, place, 0)
                if steps.following is not None or steps.reactive:
                    self.mover.after_optimizer(optimizer, steps.following)
        except Corrupted:
            raise
        except Exception:
            self.failed("optimizer step")

    def _skip_step(self):
        """A step in which nothing can be swapped."""
        if self.backend is None:
            self.steps.done += 1
            # No large tensor has been seen so far.
            if self.steps.done > SMALL_STEPS:
                self.steps.settle()
        elif self.stopped:
            self.steps.clean_up()
        self.steps.mark_step()

    def mark(self):
        """The end of a step in a program without an optimizer of torch.optim."""
        if self.backend is None or self.stopped:
            self._skip_step()
            return
        try:
            with self.lock, unobserved():
                self._end_of_layers()
                self.steps.end()
        except Corrupted:
            raise
        except Exception:
            self.failed("step")

    # ---- report

    def report(self):
        steps, slab = self.steps, self.copies.slab
        return SwapReport(
            version=EXCHANGE_VERSION,
            pid=self.pid,
            device=self.backend.index if self.backend is not None else None,
            phase=steps.phase,
            stopped=self.stopped,
            steps=steps.done,
            plans=len(steps.plans),
            expected=next(reversed(steps.plans.values())).expected if steps.plans else None,
            limit=self.options.limit,
            peak_allocated=steps.peak_allocated,
            peak_reserved=steps.peak_reserved,
            host_bytes=slab.peak if slab is not None else 0,
            host_pinned=slab.capacity if slab is not None else 0,
            copies=steps.bandwidths,
            step_us=steps.step_times(),
            **self.copies.counts,
        )

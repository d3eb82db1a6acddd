"""The profile of one step, by ticks: times, memory in between, saved tensors, optimizer state and layers."""

from ..abi import EXCHANGE_VERSION, CopyRates, LayerPassage, ProfileTicks, SavedRecord, StateItem, SwapProfile

BEGIN, PACK, UNPACK, PRE, POST, LEFT, NEEDED = range(7)
# Bytes per copy when bandwidths are measured. More would make a pause of more than 50 ms on a slow link.
MEASURED = 16 << 20


class StepProfile:
    """A profile has either memory and owners, or times: reading memory at every tick takes time itself."""

    def __init__(self, backend, memory, streamed=frozenset()):
        self.backend = backend
        self.memory = memory
        self.streamed = streamed  # ordinals of optimizers whose state is not to be planned
        self.events = []
        self.kinds, self.values, self.sizes, self.peaks, self.swapped_out = [], [], [], [], []
        self.records = []
        self.passages = []
        self.waits = []  # (tick, before, after): events around a wait of the compute stream
        self.open = {}  # records of which we are not yet the only owner

    def tick(self, kind, value, size, swapped_out):
        if self.memory:
            peak = self.backend.take_peak()[0]
            if self.kinds:
                self.peaks.append(peak)
                self.swapped_out.append(swapped_out)
        self.kinds.append(kind)
        self.values.append(value)
        self.sizes.append(size)
        if not self.memory:
            self.events.append(self.backend.event(self.backend.compute, timing=True))
        tick = len(self.kinds) - 1
        if self.memory:
            self.look_for_owners(tick)
        return tick

    def look_for_owners(self, tick):
        """Notes since when we are the only owner of a record."""
        for index, reference in list(self.open.items()):
            record = reference()
            if record is None:
                del self.open[index]
            elif record.sole_at >= 0 or record.is_exclusive():
                if record.sole_at < 0:
                    record.sole_at = tick
                self.records[index].sole = record.sole_at
                del self.open[index]

    def packed(self, index, size, reference, tick):
        if index == len(self.records):
            self.records.append(SavedRecord(size=size, first=tick, sole=-1, uses=[]))
        self.records[index].sole = -1
        reference().sole_at = -1
        self.open[index] = reference

    def used(self, index, tick):
        self.records[index].uses.append(tick)

    def layer_left(self, layer, tick):
        self.passages.append(LayerPassage(size=layer.size, left=tick, needed=-1))

    def layer_needed(self, passage, tick):
        self.passages[passage].needed = tick

    def all_layers_needed(self, tick):
        """The optimizer needs every layer that the backward pass did not need."""
        for passage in self.passages:
            if passage.needed < 0:
                passage.needed = tick

    def waited(self, before, after):
        if not self.memory:
            self.waits.append((max(0, len(self.kinds) - 1), before, after))

    def finish(self, swapped_out):
        """After the last tick."""
        if self.memory:
            self.peaks.append(self.backend.take_peak()[0])
            self.swapped_out.append(swapped_out)
            return
        self.events.append(self.backend.event(self.backend.compute, timing=True))

    def read_times(self):
        """When the GPU is done with the step. Nobody waits for it at the end of the step: the program would lose its lead."""
        first = self.events[0]
        times = [self.backend.elapsed_us(first, event) for event in self.events]
        # If copies are on time, these waits do not happen.
        for tick, before, after in self.waits:
            stood = max(0.0, self.backend.elapsed_us(before, after))
            for later in range(tick + 1, len(times)):
                times[later] -= stood
        for tick in range(1, len(times)):
            times[tick] = max(times[tick], times[tick - 1])
        self.times, self.period = times[:-1], times[-1]
        self.events = []

    def state_items(self, items):
        """Optimizer state: when its optimizer begins and ends its step."""
        posts, pres = {}, {}
        for tick, kind in enumerate(self.kinds):
            if kind == PRE:
                pres.setdefault(self.values[tick], tick)
            elif kind == POST:
                posts[self.values[tick]] = tick
        for place in self.streamed:
            # As if there were no step that needs it.
            pres.pop(place, None)
        return [StateItem(size=item.size, pre=pres.get(item.optimizer, -1), post=posts.get(item.optimizer, 0)) for item in items]

    def merged(self, key, items, copies, limit, host_limit, runs, plain_us=None):
        """The profile of several equal steps: highest peaks, shortest times. `plain_us`: duration of a step that was not profiled.

        The GPU is done with all of them."""
        sized = [run for run in runs if run.memory]
        timed = [run for run in runs if not run.memory]
        for run in timed:
            run.read_times()
        times, period = least_times([(run.times, run.period) for run in timed], plain_us)
        count = len(self.kinds)
        records = []
        for index, record in enumerate(self.records):
            soles = [run.records[index].sole for run in sized]
            sole = -1 if -1 in soles else max(soles)
            records.append(SavedRecord(size=record.size, first=record.first, sole=sole, uses=record.uses))
        peaks = [max(run.peaks[tick] + run.swapped_out[tick] for run in sized) for tick in range(count)]
        return SwapProfile(
            version=EXCHANGE_VERSION,
            key=key,
            period_us=period,
            ticks=ProfileTicks(us=times, kind=self.kinds, value=self.values, size=self.sizes, peak=peaks),
            records=records,
            items=items,
            passages=self.passages,
            copies=copies,
            limit=limit,
            host_limit=host_limit,
        )


def least_times(runs, plain_us=None):
    """For steps given as (times of ticks, period): the shortest duration of each interval.

    A plan that counts on a pause of the host would have late copies in every step without that pause. Profiling takes time as well,
    so times are scaled to a step that was not profiled."""
    intervals = [[end - begin for begin, end in zip(times, [*times[1:], period])] for times, period in runs]
    times = [0.0]
    for durations in zip(*intervals):
        times.append(times[-1] + min(durations))
    faster = min(1.0, plain_us / times[-1]) if plain_us and times[-1] > 0 else 1.0
    times = [time * faster for time in times]
    return times[:-1], times[-1]


def bytes_to_measure():
    """Pinned memory that `measure_copies` needs."""
    return 2 * MEASURED


def measure_copies(backend, slab):
    """Waits for the GPU. Returns bytes per second in each direction, alone and both at once; None if there is no memory to measure it."""
    size = MEASURED
    rounds = 4
    with slab.waiting():
        first = slab.take(size)
        second = slab.take(size)
    made = []
    try:
        if first is None or second is None:
            return None
        made = [backend.new_storage(size) for _ in range(2)]
        backend.synchronize()

        def run(out, back):
            streams = [stream for stream, wanted in ((backend.out_stream, out), (backend.in_stream, back)) if wanted]
            ends = [[backend.event(stream, timing=True)] for stream in streams]
            for _ in range(rounds):
                if out:
                    backend.wait(backend.out_stream, backend.event(backend.compute))
                    backend.copy_out(first.bytes, made[0])
                if back:
                    backend.wait(backend.in_stream, backend.event(backend.compute))
                    backend.copy_in(made[1], second.bytes)
            for end, stream in zip(ends, streams):
                end.append(backend.event(stream, timing=True))
            backend.synchronize()
            return [rounds * size / max(1e-9, backend.elapsed_us(*end) / 1e6) for end in ends]

        run(True, True)
        (out_alone,) = run(True, False)
        (in_alone,) = run(False, True)
        out_both, in_both = run(True, True)
        return CopyRates(
            out_alone=out_alone,
            in_alone=in_alone,
            out_both=min(out_alone, out_both),
            in_both=min(in_alone, in_both),
            fixed_us=15,
        )
    except RuntimeError as error:
        if backend.out_of_memory(error):
            return None
        raise
    finally:
        made.clear()
        for slot in (first, second):
            if slot is not None:
                slot.release()

"""What one step does, in ticks: when, how much memory in between, which saved tensors and which optimizer state."""

BEGIN, PACK, UNPACK, PRE, POST, LEFT, NEEDED = range(7)
# Bytes per copy when bandwidths are measured.
MEASURED = 64 << 20


class StepProfile:
    """Either of memory and its owners or of time: asking for them at every tick takes time itself."""

    def __init__(self, backend, memory):
        self.backend = backend
        self.memory = memory
        self.events = []
        self.kinds, self.values, self.sizes, self.peaks, self.away = [], [], [], [], []
        self.records = []
        self.passages = []
        self.waits = []  # (tick, before, after): time in which the compute stream stood still
        self.open = {}  # records not yet ours alone

    def tick(self, kind, value, size, away):
        if self.memory:
            peak = self.backend.take_peak()[0]
            if self.kinds:
                self.peaks.append(peak)
                self.away.append(away)
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
        """Since when a record is ours alone."""
        for index, reference in list(self.open.items()):
            record = reference()
            if record is None:
                del self.open[index]
            elif record.sole_at >= 0 or record.is_ours():
                if record.sole_at < 0:
                    record.sole_at = tick
                self.records[index]["sole"] = record.sole_at
                del self.open[index]

    def packed(self, index, size, reference, tick):
        if index == len(self.records):
            self.records.append({"size": size, "first": tick, "sole": -1, "uses": []})
        self.records[index]["sole"] = -1
        reference().sole_at = -1
        self.open[index] = reference

    def used(self, index, tick):
        self.records[index]["uses"].append(tick)

    def layer_left(self, layer, tick):
        self.passages.append({"size": layer.size, "left": tick, "needed": -1})

    def layer_needed(self, passage, tick):
        self.passages[passage]["needed"] = tick

    def all_layers_needed(self, tick):
        """By the optimizer: what backward had no need of."""
        for passage in self.passages:
            if passage["needed"] < 0:
                passage["needed"] = tick

    def waited(self, before, after):
        if not self.memory:
            self.waits.append((max(0, len(self.kinds) - 1), before, after))

    def finish(self, away):
        """After the last tick; waits for the GPU, once."""
        if self.memory:
            self.peaks.append(self.backend.take_peak()[0])
            self.away.append(away)
            return
        self.events.append(self.backend.event(self.backend.compute, timing=True))
        self.backend.synchronize()
        first = self.events[0]
        times = [self.backend.elapsed_us(first, event) for event in self.events]
        # What a wait cost in this step is not there when copies are on time.
        for tick, before, after in self.waits:
            stood = max(0.0, self.backend.elapsed_us(before, after))
            for later in range(tick + 1, len(times)):
                times[later] -= stood
        for tick in range(1, len(times)):
            times[tick] = max(times[tick], times[tick - 1])
        self.times, self.period = times[:-1], times[-1]
        self.events = []

    def as_json(self, key, items, copies, limit, host_limit, runs, plain_us=None):
        """Of several profiles of equal steps: peaks are their greatest, times their least. `plain_us`: a step that is not watched."""
        sized = [run for run in runs if run.memory]
        times, period = least_times([(run.times, run.period) for run in runs if not run.memory], plain_us)
        count = len(self.kinds)
        records = []
        for index, record in enumerate(self.records):
            soles = [run.records[index]["sole"] for run in sized]
            records.append({**record, "sole": -1 if -1 in soles else max(soles)})
        return {
            "version": 1,
            "key": key,
            "periodUs": period,
            "ticks": {
                "us": times,
                "kind": self.kinds,
                "value": self.values,
                "size": self.sizes,
                "peak": [max(run.peaks[tick] + run.away[tick] for run in sized) for tick in range(count)],
            },
            "records": records,
            "items": items,
            "passages": self.passages,
            "copies": copies,
            "limit": limit,
            "hostLimit": host_limit,
        }


def least_times(runs, plain_us=None):
    """Of steps as (times of ticks, period): the least that each interval took, since a plan that counts on a pause of the host's has
    copies late in every step without one. Watching takes time, too: a step that was not watched may have been faster."""
    intervals = [[end - begin for begin, end in zip(times, [*times[1:], period])] for times, period in runs]
    times = [0.0]
    for durations in zip(*intervals):
        times.append(times[-1] + min(durations))
    faster = min(1.0, plain_us / times[-1]) if plain_us and times[-1] > 0 else 1.0
    times = [time * faster for time in times]
    return times[:-1], times[-1]


def measure_copies(backend, slab):
    """Bytes per second each way, alone and both at once; None when there is no room to find out."""
    size = MEASURED
    rounds = 4
    first = slab.take(size)
    second = slab.take(size)
    made = []
    try:
        if first is None or second is None:
            return None
        made = [backend.new_storage(size) for _ in range(2)]
        backend.synchronize()

        def run(out, back):
            streams = [stream for stream, wanted in ((backend.out, out), (backend.back, back)) if wanted]
            ends = [[backend.event(stream, timing=True)] for stream in streams]
            for _ in range(rounds):
                if out:
                    backend.wait(backend.out, backend.event(backend.compute))
                    backend.copy_out(first.bytes, made[0])
                if back:
                    backend.wait(backend.back, backend.event(backend.compute))
                    backend.copy_back(made[1], second.bytes)
            for end, stream in zip(ends, streams):
                end.append(backend.event(stream, timing=True))
            backend.synchronize()
            return [rounds * size / max(1e-9, backend.elapsed_us(*end) / 1e6) for end in ends]

        run(True, True)
        (out_alone,) = run(True, False)
        (in_alone,) = run(False, True)
        out_both, in_both = run(True, True)
        return {
            "outAlone": out_alone,
            "inAlone": in_alone,
            "outBoth": min(out_alone, out_both),
            "inBoth": min(in_alone, in_both),
            "fixedUs": 15,
        }
    except RuntimeError as error:
        if backend.out_of_memory(error):
            return None
        raise
    finally:
        made.clear()
        for slot in (first, second):
            if slot is not None:
                slot.release()

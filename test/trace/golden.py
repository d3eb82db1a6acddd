"""Prints what the snapshots in samples/ hold according to Python's own pickle, for snapshot-samples.test.ts.

Run from the repository root:  python3 test/trace/golden.py > test/trace/golden.json
"""

import glob
import gzip
import json
import pickle

P = 1000003
KINDS = {
    "alloc": 1,
    "free_requested": 2,
    "free_completed": 3,
    "segment_alloc": 4,
    "segment_free": 5,
    "segment_map": 6,
    "segment_unmap": 7,
    "oom": 8,
    "snapshot": 9,
    "annotate": 19,
}
STATES = {"active_allocated": "live", "active_pending_free": "pending", "inactive": "free"}


def address(entry):
    return entry["device_free"] if entry["action"] == "oom" else entry["addr"]


def event(entry):
    frames = [[f["name"], f["filename"], f["line"]] for f in entry.get("frames", [])]
    return [entry["action"], address(entry), entry["size"], entry["stream"], entry["time_us"], entry["user_metadata"], frames]


def describe(snapshot):
    traces = []
    for device, entries in enumerate(snapshot["device_traces"]):
        segments = [s for s in snapshot["segments"] if s["device"] == device]
        if not entries and not segments:
            continue
        counts, sizes, checksum, frames, lines = {}, {}, 0, 0, 0
        for e in entries:
            counts[e["action"]] = counts.get(e["action"], 0) + 1
            sizes[e["action"]] = sizes.get(e["action"], 0) + e["size"]
            row = address(e) % P + 3 * (e["size"] % P) + 5 * (e["time_us"] % P) + 7 * (e["stream"] % P) + 11 * KINDS[e["action"]]
            checksum = (checksum * 31 + row) % P
            for f in e.get("frames", []):
                frames += 1
                lines = (lines * 31 + f["line"]) % P
        blocks = [b for s in segments for b in s["blocks"]]
        layout = 0
        for s in segments:
            layout = (layout * 31 + s["address"] % P + 3 * (s["total_size"] % P) + 5 * (s["stream"] % P)) % P
            for b in s["blocks"]:
                state = list(STATES).index(b["state"])
                layout = (layout * 31 + b["address"] % P + 3 * (b["size"] % P) + 5 * (b["requested_size"] % P) + state) % P
        states = {}
        for b in blocks:
            states[STATES[b["state"]]] = states.get(STATES[b["state"]], 0) + b["size"]
        traces.append(
            {
                "device": device,
                "counts": counts,
                "sizes": sizes,
                "checksum": checksum,
                "frames": frames,
                "lines": lines,
                "first": event(entries[0]),
                "last": event(entries[-1]),
                "segments": len(segments),
                "reserved": sum(s["total_size"] for s in segments),
                "small": sum(s["segment_type"] == "small" for s in segments),
                "expandable": sum(s["is_expandable"] for s in segments),
                "segmentPools": sorted({s["segment_pool_id"] for s in segments}),
                "blocks": len(blocks),
                "states": states,
                "layout": layout,
                "streams": sorted({e["stream"] for e in entries} | {s["stream"] for s in segments}),
            }
        )
    annotations = [[a["stage"], a["name"], a["device"], a["time_us"]] for a in snapshot["external_annotations"]]
    return {
        "traces": traces,
        "settings": snapshot["allocator_settings"],
        "annotations": len(annotations),
        "firstAnnotation": annotations[0] if annotations else None,
        "total": snapshot.get("total"),
        "frac": snapshot.get("frac"),
    }


golden = {}
for path in sorted(glob.glob("samples/*.pickle.gz") + glob.glob("samples/exact/*")):
    data = open(path, "rb").read()
    golden[path.removeprefix("samples/")] = describe(pickle.loads(gzip.decompress(data) if path.endswith(".gz") else data))
print(json.dumps(golden, indent=1))

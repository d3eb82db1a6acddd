"""Figures of runs with swapping against runs without, and the goals they are held to. Pure: tests feed it made-up runs."""

import statistics
from concurrent.futures import ThreadPoolExecutor

from swap_runs import GIB, MOST_PAUSE_S, MOST_STEPS, MOST_WATCHING, first_planned

# The goals.
LOWER = 0.66
NEAR_BOUND = 1.05
MOST_STEP_TIME = 1.01


def merged(ranks):
    """One run: the slowest rank's times, the highest peaks, everybody's losses."""
    return {
        "losses": [rank["losses"] for rank in ranks],
        "weights": [rank["weights"] for rank in ranks],
        "times": [max(step) for step in zip(*(rank["times"] for rank in ranks))],
        "peaks": [max(step) for step in zip(*(rank["peaks"] for rank in ranks))],
        "reserved": [max(step) for step in zip(*(rank["reserved"] for rank in ranks))],
        "planned": [min(step) for step in zip(*(rank["planned"] for rank in ranks))],
        "reports": [rank["report"] for rank in ranks],
    }


def settled_of(values):
    """The last third."""
    return values[-max(1, len(values) // 3) :]


def least(runs):
    """The shortest time of each step: a step that waits for something outside of the program does not do so in every run."""
    return [min(step) for step in zip(*(run["times"] for run in runs))]


def compare(natives, swapped):
    """Figures of one run with swapping, against one or more without."""
    natives, ours = [merged(told) for told in natives], merged(swapped)
    shortest = least(natives)
    usual = statistics.median(settled_of(shortest))
    first = first_planned(ours["planned"])
    pauses = [mine - theirs for mine, theirs in zip(ours["times"], shortest)][1:]
    watched = slice(1, (first or len(ours["times"])) - 1)
    memory = {}
    for name in ("peaks", "reserved"):
        theirs = natives[0][name]
        memory[name] = {
            "native": {"whole": max(theirs), "settled": max(settled_of(theirs))},
            "swapped": {"whole": max(ours[name]), "settled": max(settled_of(ours[name]))},
        }
    return {
        "stepS": usual,
        "stepRatio": statistics.median(settled_of(ours["times"])) / usual,
        "noise": max(statistics.median(settled_of(native["times"])) for native in natives) / usual,
        "inUseAt": first,
        "pauseS": max(pauses),
        "pauseStep": pauses.index(max(pauses)) + 2,
        "watching": statistics.median(ours["times"][watched] or [0]) / (statistics.median(shortest[watched] or [0]) or 1),
        "memory": memory,
        "bound": bound_of(swapped),
        "stalls": sum(report["stalls"] for report in ours["reports"]),
        "misses": sum(report["misses"] for report in ours["reports"]),
        "stopped": next((report["stopped"] for report in ours["reports"] if report["stopped"]), None),
        "phase": ours["reports"][0]["phase"],
        "same": sameness(natives[0], ours),
        "steps": len(ours["times"]),
    }


def bound_of(ranks):
    """Of the rank that is furthest above its bound; None if there was no plan."""
    rows = []
    for rank in ranks:
        bound = ((rank["report"]["expected"] or {}).get("bound") or {}).get("peak")
        if bound:
            peak = max(settled_of(rank["peaks"]))
            rows.append({"peak": bound, "distance": peak / bound - 1, "expected": rank["report"]["expected"]["peak"]})
    return max(rows, key=lambda row: row["distance"]) if rows else None


def sameness(native, ours):
    """Steps whose losses are compared, and how many are the same in all ranks; weights if both runs are of one length."""
    pairs = [list(zip(theirs, mine)) for theirs, mine in zip(native["losses"], ours["losses"])]
    compared = min((len(pair) for pair in pairs), default=0)
    different = [step for pair in pairs for step, (one, other) in enumerate(pair, 1) if one != other]
    whole = len(native["times"]) == len(ours["times"])
    return {
        "steps": compared,
        "firstDifferent": min(different, default=None),
        "weights": native["weights"] == ours["weights"] if whole else None,
    }


def judge_same(what, same, verdicts):
    where = "" if same["firstDifferent"] is None else f"; they differ from step {same['firstDifferent']} on"
    weights = {True: ", and all weights at the end", False: "; the weights at the end differ", None: ""}[same["weights"]]
    good = same["steps"] > 0 and same["firstDifferent"] is None and same["weights"] is not False
    verdicts.check(good, f"{what}: losses of {same['steps']} steps equal native's to the bit{weights}{where}")


def judge_bits(what, native, swapped, verdicts):
    """Of runs whose times do not count. The shorter one decides what is compared."""
    judge_same(what, sameness(merged(native), merged(swapped)), verdicts)
    stopped = [rank["report"]["stopped"] for rank in swapped if rank["report"]["stopped"]]
    verdicts.check(not stopped, f"{what}: swapping ended early: {stopped[0] if stopped else 'no'}")


def judge(name, figures, verdicts):
    check = verdicts.check
    judge_same(name, figures["same"], verdicts)
    check(figures["stopped"] is None, f"{name}: swapping ended early: {figures['stopped'] or 'no'}")
    first = figures["inUseAt"]
    check(first is not None and first <= 1 + MOST_STEPS, f"{name}: first planned step: {first} (goal: at most {1 + MOST_STEPS})")
    pause, most = 1000 * figures["pauseS"], 1000 * MOST_PAUSE_S
    check(pause <= most, f"{name}: longest pause {pause:.1f} ms, in step {figures['pauseStep']} (goal: at most {most:.0f} ms)")
    check(figures["watching"] <= MOST_WATCHING, f"{name}: steps before the plan take {figures['watching']:.3f} of native ones")
    check(
        figures["stepRatio"] <= MOST_STEP_TIME,
        f"{name}: step time {figures['stepRatio']:.3f} of {1000 * figures['stepS']:.0f} ms "
        f"(two native runs: {figures['noise']:.3f}; goal: at most {MOST_STEP_TIME})",
    )
    allocated, reserved = figures["memory"]["peaks"], figures["memory"]["reserved"]
    judge_peak(name, allocated, figures["bound"], verdicts)
    whole = allocated["swapped"]["whole"] / allocated["native"]["whole"]
    check(whole < 1, f"{name}: peak allocated of the whole run: {text(allocated, 'whole')}")
    verdicts.note(f"{name}: peak reserved: whole run {text(reserved, 'whole')}; settled {text(reserved, 'settled')}")
    verdicts.note(f"{name}: {figures['stalls']} stalls, {figures['misses']} misses in {figures['steps']} steps")


def text(memory, part):
    ours, native = memory["swapped"][part], memory["native"][part]
    return f"{ours / GIB:.2f} GiB, {ours / max(1, native):.3f} of native's {native / GIB:.2f} GiB"


def judge_peak(name, allocated, bound, verdicts):
    """A third lower where the bound allows it, near to the bound elsewhere."""
    words = f"{name}: settled peak allocated: {text(allocated, 'settled')}"
    ours, native = allocated["swapped"]["settled"], allocated["native"]["settled"]
    if bound is None:
        verdicts.check(False, f"{words}; no plan, so no bound")
        return
    told = f"bound {bound['peak'] / GIB:.2f} GiB, {100 * bound['distance']:+.1f} % from it"
    if bound["peak"] <= LOWER * native:
        verdicts.check(ours <= LOWER * native, f"{words}; {told} (goal: at most {LOWER})")
    else:
        verdicts.check(bound["distance"] <= NEAR_BOUND - 1, f"{words}; {told} (goal: within {100 * (NEAR_BOUND - 1):.0f} % of the bound)")


# ---- the smallest memory


def search(trains, low, high, precision, at_once):
    """The smallest size known to train and the largest known not to; None where there is none.

    `trains(size, at_once)` says whether; None if it was not run. Whoever trains in some size trains in any larger one."""
    trained = failed = None
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            if trained is None:
                # The largest first: without it there is nothing to search.
                sizes = [low + (high - low) * part // at_once for part in range(1, at_once + 1)]
            else:
                floor = failed if failed is not None else low
                if trained - floor <= precision:
                    return trained, failed
                count = min(at_once, -(-(trained - floor) // precision) - 1)
                sizes = [floor + (trained - floor) * part // (count + 1) for part in range(1, max(1, count) + 1)]
            answers = dict(zip(sizes, pool.map(lambda size: trains(size, len(sizes)), sizes)))
            if any(answer is None for answer in answers.values()):
                return trained, failed
            good = [size for size, answer in answers.items() if answer]
            if not good and trained is None:
                return None, max(sizes)
            trained = min([*good, *([trained] if trained is not None else [])])
            bad = [size for size, answer in answers.items() if not answer and size < trained]
            failed = max([*bad, *([failed] if failed is not None else [])], default=None)


def under_limit(native, told):
    """Of a run in a limit, against a native one without."""
    ours = merged(told)
    step, usual = statistics.median(settled_of(ours["times"])), statistics.median(settled_of(native["times"]))
    return {"stepS": step, "stepRatio": step / usual, "peakReserved": max(ours["reserved"])}


def judge_limits(name, found, verdicts):
    """Weir trains in less than all others."""
    sizes = {method: row["bytes"] for method, row in found.items() if row["bytes"] is not None}
    ours = sizes.pop("weir", None)
    told = ", ".join(f"{method} {size / GIB:.2f}" for method, size in sizes.items()) or "none"
    mine = "none" if ours is None else f"{ours / GIB:.2f} GiB"
    verdicts.check(
        ours is not None and all(ours <= size for size in sizes.values()), f"{name}: smallest memory: Weir {mine}; others, GiB: {told}"
    )

"""What stack_costs.py has measured, with verdicts: for programs and as a table."""

import math
import sys

from paired import LEAST_ROUNDS


def verdict(figures, most, noise):
    """Whether it is at most this much, if all of it may be wrong by the noise."""
    if figures["rounds"] >= LEAST_ROUNDS and figures["low"] - noise > most:
        return "no"
    return "yes" if figures["rounds"] >= LEAST_ROUNDS and figures["high"] + noise <= most else "not settled"


def judge(found, control):
    """Adds verdicts. The noise is how far the control is from being the same."""
    again = found.get(control, {})
    time_noise = max((abs(again["ratio"][end] - 1) for end in ("low", "high")), default=0) if "ratio" in again else 0
    cpu_noise = max((abs(again["cpu"]["share"][end]) for end in ("low", "high")), default=0) if "cpu" in again else 0
    for way, one in found.items():
        if "ratio" not in one or way == control:
            continue
        one["atMost3Percent"] = {"time": verdict(one["ratio"], 1.03, time_noise), "cpu": verdict(one["cpu"]["share"], 0.03, cpu_noise)}
        if "againstHistory" in one:
            # Equal is not above; it can be told apart by half a percent at best.
            of = one["againstHistory"]
            of["notAbove"] = {
                "time": verdict(of["ratio"], 1.005, time_noise),
                "cpu": verdict(of["cpu"]["share"], 0.005, cpu_noise),
            }
        if "stacksAlone" in one:
            # In one process, so nothing but the interval is noise.
            of = one["stacksAlone"]
            of["atMost3Percent"] = {"time": verdict(of["ratio"], 1.03, 0), "cpu": verdict(of["cpu"]["share"], 0.03, 0)}


def show(found, requests, rounds, steps):
    asked = f", {requests:.0f} requests per step" if requests else ""
    print(f"  {rounds} rounds of {steps} steps{asked}")
    times = f"{'ms':>8} {'time':>6} {'95 % interval':>15} {'<= 1.03':>11}"
    print(f"  {'way':14} {times} {'CPU':>7} {'95 % interval':>17} {'<= 3 %':>11} {'us/req':>6}")
    for way, one in found.items():
        if "left out" in one:
            print(f"  {way:14} left out: {one['left out']}")
            continue
        print(row(way, one, f"{one['ms']:8.2f}", one.get("atMost3Percent")) + f" {one['cpu'].get('usPerRequest', math.nan):6.2f}")
        if "stacksAlone" in one:
            print(row("  stacks alone", one["stacksAlone"], " " * 8, one["stacksAlone"]["atMost3Percent"]))
        if "againstHistory" in one:
            print(row("  over history", one["againstHistory"], " " * 8, one["againstHistory"]["notAbove"]) + "  (not above it?)")
        if "large" in way and "share" in one:
            print(f"  {'':14} {one['share']:.1%} of the requests have a stack")
        if one.get("dropped"):
            print(f"  {'':14} {one['dropped']} events were dropped")
    sys.stdout.flush()


def row(name, one, ms, verdicts):
    ratio, share, verdicts = one["ratio"], one["cpu"]["share"], verdicts or {"time": "", "cpu": ""}
    times = f"{ratio['median']:6.3f} {ratio['low']:6.3f} to {ratio['high']:5.3f} {verdicts['time']:>11}"
    return f"  {name:14} {ms} {times} {share['median']:7.2%} {share['low']:7.2%} to {share['high']:6.2%} {verdicts['cpu']:>11}"

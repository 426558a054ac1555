"""Searches for the settings with which NCCL's socket transport is fastest, at each size, and sets them beside our plugin.

Started by run_nccl.sh search, which measures. This program prints what it wants measured, `socket NAME VARIABLE=VALUE...` or
`plugin on|off` (GDR), and reads one line back: the result of bandwidth.py, or `failed`. Lines behind `say ` are for people.

Every measurement costs the start of a job, far more than the sizes it measures, so each one covers all sizes. The search begins with the
settings known to be good and goes on with neighbours, one step of one coordinate away, of each size's best in turn: with the one that
most sizes have beside their best. What was best at some size is measured again at the end, next to the plugin, and these figures
are compared: the best of many noisy figures is partly luck. Of a setting that fails then, the table says that its figure is older.
"""

import argparse
import collections
import json
import sys
import time

KIB = 1 << 10
MIB = 1 << 20

# From small to large; a step is to a neighbour. NCCL rounds channels to powers of two.
COORDINATES = {
    "chunk": [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB],
    "sockets": [1, 2, 4, 8],  # of each thread of a connection
    "channels": [1, 2, 4, 8, 16, 32],
    "threads": [0, 1, 2, 4, 8],  # 0: NCCL's one proxy thread moves the bytes of all connections itself, as it does by default
    "task": [16 * KIB, 64 * KIB, 256 * KIB],  # the least that a thread gets of a chunk
    "low_latency": [0, 1],  # whether short messages may go with their flags beside them, which costs NCCL more memory
}
Setting = collections.namedtuple("Setting", COORDINATES)
STARTS = [
    Setting(chunk=512 * KIB, sockets=2, channels=8, threads=2, task=64 * KIB, low_latency=0),  # the best known
    Setting(chunk=4 * MIB, sockets=2, channels=8, threads=2, task=64 * KIB, low_latency=0),  # better yet for 64 MiB on one H100
    Setting(chunk=128 * KIB, sockets=4, channels=4, threads=4, task=64 * KIB, low_latency=0),
    Setting(chunk=128 * KIB, sockets=1, channels=2, threads=0, task=64 * KIB, low_latency=0),  # what NCCL does by default
]
SOCKETS_AT_MOST = 64  # of a connection; NCCL would use fewer and warn
CHUNKS_IN_BUFFER = 8  # NCCL cuts the chunk down to this part of a buffer, without a word
BUFFER = 4 * MIB
GDR = ["on", "off"]


def bytes_text(size):
    for unit, name in ((MIB, "M"), (KIB, "K")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


def name_of(setting):
    name = f"{bytes_text(setting.chunk)}-{setting.threads}x{setting.sockets}-{setting.channels}ch"
    if setting.task != 64 * KIB:
        name += f"-task{bytes_text(setting.task)}"
    return name + ("-LL" if setting.low_latency else "")


def variables_of(setting):
    variables = {
        "NCCL_P2P_NET_CHUNKSIZE": setting.chunk,
        "NCCL_NSOCKS_PERTHREAD": setting.sockets,
        "NCCL_SOCKET_NTHREADS": setting.threads,
        "NCCL_NCHANNELS_PER_NET_PEER": setting.channels,
        "NCCL_MIN_P2P_NCHANNELS": setting.channels,
        "NCCL_SOCKET_MIN_TASKSIZE": setting.task,
        "NCCL_ALLOC_P2P_NET_LL_BUFFERS": setting.low_latency,
    }
    if setting.chunk * CHUNKS_IN_BUFFER > BUFFER:
        variables["NCCL_BUFFSIZE"] = setting.chunk * CHUNKS_IN_BUFFER
    return [f"{name}={value}" for name, value in variables.items()]


def neighbours(setting):
    for coordinate, values in COORDINATES.items():
        here = values.index(getattr(setting, coordinate))
        for there in (here + 1, here - 1):
            if not 0 <= there < len(values):
                continue
            neighbour = setting._replace(**{coordinate: values[there]})
            if neighbour.threads == 0:  # no threads have no sockets and no tasks
                neighbour = neighbour._replace(sockets=1, task=64 * KIB)
            if neighbour != setting and neighbour.threads * neighbour.sockets <= SOCKETS_AT_MOST:
                yield neighbour


def figures(result):
    """By row, (what is measured, bytes), a number that is larger when NCCL is faster."""
    rows = {("GB/s", int(size)): spread[1] for size, spread in result["gbps"].items()}
    rows.update({("us", int(size)): -spread[1] for size, spread in result["half_round_trip_us"].items()})
    return rows


def winners(results):
    """By row, the fastest setting."""
    best = {}
    for setting, result in results.items():
        for row, figure in figures(result).items() if result else ():
            if row not in best or figure > best[row][0]:
                best[row] = (figure, setting)
    return {row: setting for row, (_, setting) in best.items()}


def next_setting(results):
    best = winners(results)
    votes = collections.Counter(neighbour for setting in best.values() for neighbour in neighbours(setting) if neighbour not in results)
    turn = len(results) % max(1, len(best))  # the sizes in turn, lest those that agree leave no time for the others
    for setting in [*best.values()][turn:] + [*best.values()][:turn]:
        untried = [neighbour for neighbour in neighbours(setting) if neighbour in votes]
        if untried:
            return max(untried, key=votes.__getitem__)
    return None


def search(measure, seconds, say, now=time.monotonic):
    """Until nothing is better one step away, or `seconds` are over. `measure(kind, name, variables)` returns a result, or None when it
    failed. Returns results by setting, and those of the end: by setting, and by what the plugin does with GPU memory."""
    begin = now()
    results = {}
    waiting = list(STARTS)
    while True:
        setting = waiting.pop(0) if waiting else next_setting(results)
        if setting is None:
            say("nothing is better one step away")
            break
        at_the_end = len(set(winners(results).values())) + len(GDR)
        if winners(results) and (now() - begin) * (1 + (1 + at_the_end) / len(results)) > seconds:
            say("the time is over")
            break
        before = winners(results)
        results[setting] = measure("socket", name_of(setting), variables_of(setting))
        won = [row for row, best in winners(results).items() if best == setting and row in before]
        say(f"{now() - begin:4.0f} s  {name_of(setting)}: {describe(results[setting])}"
            + (f"; best yet at {', '.join(bytes_text(size) for _, size in won)}" if won else ""))
    plugin = {gdr: measure("plugin", gdr, []) for gdr in GDR}
    ends = {setting: measure("socket", name_of(setting), variables_of(setting)) for setting in dict.fromkeys(winners(results).values())}
    return results, ends, plugin


def describe(result):
    if result is None:
        return "failed"
    rows = figures(result).items()
    return "; ".join(", ".join(f"{bytes_text(size)} {abs(figure):.4g}" for (unit, size), figure in rows if unit == wanted) + f" {wanted}"
                     for wanted in ("GB/s", "us"))


def table(results, ends, plugin):
    """Lines: per row NCCL's best at the end, and the plugin with GDR on and off: figure, its ratio to NCCL's, core-seconds per GB."""
    def cells(result, row, reference):
        if result is None:
            return f"{'failed':>10} {'':>6} {'':>9}"
        figure = abs(figures(result)[row])
        ratio = f"x{figure / reference:.2f}" if reference else ""
        cost = result["core_seconds_per_gb"].get(str(row[1])) if row[0] == "GB/s" else None
        return f"{figure:10.4g} {ratio:>6} {'' if cost is None else format(cost, '9.3f'):>9}"

    # A setting that won and then failed is judged by what it did before.
    older = {setting for setting, result in ends.items() if not result}
    ends = {setting: result or results[setting] for setting, result in ends.items()}
    lines = [f"{'':11} {'NCCL':>10} {'':>6} {'core-s/GB':>9}" + "".join(f"{'GDR ' + gdr:>10} {'':>6} {'core-s/GB':>9}" for gdr in GDR)
             + "  NCCL's best setting"]
    for row, setting in winners(ends).items():
        reference = abs(figures(ends[setting])[row])
        lines.append(f"{bytes_text(row[1]):>6} {row[0]:4} {cells(ends[setting], row, None)}"
                     + "".join(cells(plugin[gdr], row, reference) for gdr in GDR) + f"  {name_of(setting)}"
                     + (" (failed at the end; figure of the search)" if setting in older else ""))
    lines += ["", "Medians; us are half a round trip, where a ratio below 1 is ours. The settings:"]
    lines += [f"  {name_of(setting)}: {' '.join(variables_of(setting))}" for setting in dict.fromkeys(winners(ends).values())]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300, help="for everything, about (default: %(default)s)")
    parser.add_argument("--json", help="file for every result, one line each")
    options = parser.parse_args()
    kept = open(options.json, "w", buffering=1) if options.json else None

    def measure(kind, name, variables):
        print(kind, name, *variables, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            sys.exit("search: nobody measures")
        result = json.loads(answer) if answer.startswith("{") else None
        if kept:
            kept.write(json.dumps({"kind": kind, "name": name, "variables": variables, "result": result}) + "\n")
        return result

    results, ends, plugin = search(measure, options.seconds, lambda text: print(text, file=sys.stderr, flush=True))
    if not winners(results):
        sys.exit("search: every setting failed")
    for line in table(results, ends, plugin):
        print("say", line, flush=True)
    sys.exit(any(result is None for result in plugin.values()))


if __name__ == "__main__":
    main()

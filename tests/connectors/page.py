"""The page of the connectors: what ran, what was a stand-in, and how each run ended."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from connectors.pair import SOURCE
from connectors.registry import CONNECTORS, OF_PEERLANE

#: The name of the file tier's runs, beside those of the connectors.
TIERS = "file-tier"


class Run(NamedTuple):
    """How a run ended.

    Attributes
    ----------
    ending : mapping
        What `pair` printed.
    findings : sequence of (str, bool)
        Of ``peerlane check``: the kind, and whether it is certain.
    text : str
        All output.
    """

    ending: Mapping[str, Any]
    findings: Sequence[tuple[str, bool]]
    text: str


_PAGE = """\
# Connectors of serving systems

`make test-connectors` runs these connectors on two virtual devices, and writes this page. The files of the connectors
are not part of this repository: they come from the wheels of their projects, and run unmodified. Prefill and decode
are processes of their own.

{date}: {versions}, Python {python}, PyTorch {torch} for the CPU, no GPU.

One run alone, in the environment that `make test-connectors` makes:

```sh
export PYTHONPATH=tests
.venv-connectors/bin/python -m peerlane run --dialect nixl --devices 2 -m connectors.pair vllm-nixl-pull kill
```

`run` may be `check`, and the last word is `right`, `delay`, `kill`, `kill@SECONDS` or `early`.

## How the requests ended

Prefill computes {blocks} blocks of a request, and decode asks for them. After each run all blocks of decode are
compared, byte for byte: with prefill's bytes if the connector says that they are there, and with zeros if nobody
asked for them. {wrong}

{rows}

* **Delayed**: prefill stops for two seconds when decode is about to ask.
* **Killed before the request**: prefill is killed there. The table has what decode's side of the connector says, and
  after how many seconds.
* **Killed later**: at a moment that is drawn within 0.1 s after the request, under the schedule `seeded`.
{with_wheel}
## What orders decode's reads

| connector | what brings them behind the transfer | in the log | `check` | `check`, early look |
|---|---|---|---|---|
{orders}

* **`check`** has an uncertain race where a variable takes the order on: a thread of decode receives the message, and
  another one reads what it sets. The log has [the message](design/checker.md#messages-of-zeromq) alone.
* **An early look** is a mistake of ours: decode reads the blocks before the connector says that they are there.
  `check` has to name the connector's transfer and the line that reads. If each look was over before the transfer
  began, the race is uncertain: [a variable or a message](design/checker.md#certain-findings) may then have brought
  the transfer behind the look. So this cell changes with the load of the machine.

[`peerlane.order`](guides/checking.md#what-is-seen-and-what-is-not) declares an order that the log does not have.

## What ran

| connector | ran unmodified | stand-ins |
|---|---|---|
{parts}

## What fails in the connectors

{defects}

## File tiers

SGLang's `HiCacheNixl`, unmodified, stores pages in files by NIXL's back-end POSIX, with a stand-in for the host's
pool: 32 pages are written, found, read and compared; then files are cut, which the tier must notice, and cleared.

| layout | outcome |
|---|---|
{tiers}

vLLM's tier `fs` moves bytes without NIXL, and its tier `obj` needs the plugin OBJ, which peerlane does not have.
LMCache's own tests of its tiers on NIXL [run as on the wheel](facts/nixl.md#13-file-tiers-of-serving-systems).

## Dynamo's block manager (KVBM)

KVBM does not run. Its core is native: `kvbm/_core.abi3.so` links `libnixl.so` directly and loads `libcuda.so.1`, so
the dialect `nixl`, which is modules of Python, has no part in it. It was tried by hand on 2026-11-30: kvbm 1.6.1 with
NVIDIA's wheel nixl 1.3.2 under `peerlane run --dialect cuda --devices 2`, the leader and the worker in processes of
their own, as vLLM has them. vLLM was a stand-in, and so were the tensors: they have addresses of device memory.

* The worker's `register_kv_caches`, the handshake with the leader, the pool of the host and NIXL's agents in both
  processes run, and so do the leader's slots, matches and metadata.
* Blocks do not move. KVBM copies between device and host by a kernel of its own, and `cuModuleLoadData` answers
  `CUDA_ERROR_NOT_SUPPORTED`. KVBM logs this and reports the request as saved. It offers the blocks to the next
  request, whose load does not end.
* The tier of files asks NIXL for `GDS_MT`, which the wheel cannot load without `libcufile.so.0`. The leader waits.
* What would serve it: this kernel on the processor, and a `libcufile.so.0` on virtual devices.
* The leader waits under Python's GIL for a thread that calls CUDA. If its process has not called CUDA before, both
  [wait for ever](design/c-libraries.md#threads-that-are-awaited-under-the-gil); `cuInit` before it helps.
"""

_ROWS = """\
| connector | right | delayed | killed before the request | killed later |
|---|---|---|---|---|"""

_WITH_WHEEL = """
## With NVIDIA's wheel of NIXL

The same connectors on the wheel nixl {nixl} with its UCX, on memory of CUDA's driver: `--dialect cuda`, and names
such as `vllm-nixl-pull-wheel`. `make test-connectors` runs those that `CONNECTORS` names, if the wheel is installed.

{rows}

| connector | `check` | `check`, early look |
|---|---|---|
{findings}

**`check`** has uncertain races here: UCX's threads move the bytes, and the log does not see their atomic words. It
sees nothing in vLLM's tier, whose memory is the host's: UCX moves that without CUDA.

UCX's threads poll. On two cores with 20 other programs transfers took longer than the connectors wait, and requests
ended with "no answer".
"""

#: Ends of orders that go on by what no log has: a variable, LMCache's router.
_UNSEEN = ("`poll` reads", "to the router")


def page_of(runs: Mapping[str, Mapping[str, Run]], version: Callable[[str], str]) -> str:
    """Return the page of the runs of each connector by event, and of the file tier by its layout.

    ``version`` returns that of a distribution.
    """
    results = {name: runs[name] for name in CONNECTORS if name in runs}
    with_wheel = {name: runs for name, runs in results.items() if name not in OF_PEERLANE}
    own = {name: CONNECTORS[name] for name in results if name not in with_wheel}
    tiers = runs.get(TIERS, {})
    distributions = dict.fromkeys(CONNECTORS[name].distribution for name in results)
    return _PAGE.format(
        date=datetime.date.today(),
        versions=", ".join(f"{each} {version(each)}" for each in distributions),
        python=platform.python_version(),
        torch=version("torch").partition("+")[0],
        blocks=len(SOURCE),
        wrong=_wrong(results),
        rows=_rows({name: runs for name, runs in results.items() if name not in with_wheel}),
        with_wheel=_wheel_section(version("nixl"), with_wheel) if with_wheel else "",
        tiers="\n".join(f"| {name} | {_ending(run)} |" for name, run in tiers.items()),
        orders="\n".join(
            f"| {each.title} | {each.order} | {logged} | {_both(results[name])} |"
            for name, each in own.items()
            for logged in ["no" if each.order.endswith(_UNSEEN) else "yes"]
        ),
        parts="\n".join(f"| {each.title} | {each.ran} | {each.stand_ins} |" for each in own.values()),
        defects="\n".join(f"* {each.title}: {defect}." for each in own.values() for defect in each.defects),
    )


def _wrong(results: Mapping[str, Mapping[str, Run]]) -> str:
    wrong = [
        f"{CONNECTORS[name].title}, {event}: {len(run.ending['wrong'])} blocks"
        for name, runs in results.items()
        for event, run in runs.items()
        if run.ending["wrong"]
    ]
    return (
        f"Wrong were: {'; '.join(wrong)}."
        if wrong
        else "None was wrong in any run, also where prefill was killed."
    )


def _rows(results: Mapping[str, Mapping[str, Run]]) -> str:
    return "\n".join([_ROWS, *(_row(CONNECTORS[name].title, runs) for name, runs in results.items())])


def _row(title: str, runs: Mapping[str, Run]) -> str:
    killed = [_ending(run) for event, run in runs.items() if event.startswith("kill@")]
    cells = [*(_ending(runs[event]) for event in ("right", "delay", "kill")), "; ".join(killed)]
    return f"| {title} | {' | '.join(cells)} |"


def _wheel_section(version: str, results: Mapping[str, Mapping[str, Run]]) -> str:
    findings = [f"| {CONNECTORS[name].title} | {_both(runs)} |" for name, runs in results.items()]
    return _WITH_WHEEL.format(nixl=version, rows=_rows(results), findings="\n".join(findings))


def _both(runs: Mapping[str, Run]) -> str:
    return " | ".join(_findings(runs[event]) for event in ("check", "early"))


def _ending(run: Run) -> str:
    ending = run.ending
    if ending["done"]:
        return "says done, wrong bytes" if ending["wrong"] else "all right"
    error = (
        ending["error"].partition(":")[0] if "Error" in ending["error"] else ending["error"].partition(";")[0]
    )
    return (
        error
        if error.startswith("no ") or "seconds" not in ending
        else f"{error} ({ending['seconds']:.0f} s)"
    )


def _findings(run: Run) -> str:
    if not run.ending["done"]:
        return _ending(run)
    if not run.findings:
        return "no findings"
    counts = Counter(f"{'certain' if certain else 'uncertain'} {kind}" for kind, certain in run.findings)
    return ", ".join(f"{number} {what}{'s' * (number > 1)}" for what, number in counts.items())

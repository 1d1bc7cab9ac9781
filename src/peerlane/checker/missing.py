"""The text of a missing order: whose call, on which stream, between which lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from peerlane.checker.sites import Data, Site, are_of_one_launch
from peerlane.checker.texts import location_of, nth, span_text
from peerlane.diagnostics.log.log_files import ProcessLog
from peerlane.dialects import manifest_of, registered
from peerlane.dialects._shared.c_names import in_names_of_c, is_of_c
from peerlane.dialects._shared.manifests import Orders


def _orders_of_torch(module: str) -> Orders:
    return Orders(
        sync=f"{module}.Event.synchronize or {module}.Stream.synchronize",
        event=f"{module}.Stream.wait_stream or {module}.Stream.wait_event",
        keep="Tensor.record_stream",
        wait="wait_signal of symmetric memory or torch.distributed.recv",
        record="put_signal of symmetric memory or torch.distributed.send",
        token="signal",
        barrier="torch.distributed.barrier",
    )


#: Of libraries that are no dialects, by the names that their operations have in logs.
_LIBRARIES = {module: _orders_of_torch(module) for module in ("torch", "torch.cuda")}


def _names_of_c(calls: Orders) -> Orders:
    own = {name: in_names_of_c(call) for name, call in asdict(calls).items()}
    own["threads"] = "a join, or a wait for a stream or an event"
    own["processes"] = "a join or a message"
    return Orders(**own)


def _calls_of(dialect: str, *sites: Site) -> Orders:
    """Return the calls of a dialect as the program names its own, or peerlane's if the name is not a dialect's."""
    if dialect not in registered():
        calls = _LIBRARIES.get(dialect, Orders())
        if dialect in _LIBRARIES and sites and sites[0].data["event_kind"] == "collective":
            calls = replace(calls, event=f"torch.distributed.Work.wait, {calls.event}")
        return calls
    manifest = manifest_of(dialect)
    calls = manifest.orders
    for beginning, others in manifest.orders_of.items():
        if any(each.called.startswith(beginning) for each in sites):
            calls = replace(calls, **others)
    return calls


def missing_order(
    data: Data,
    first: Site,
    second: Site,
    help_site: Site | None,
    logs: Mapping[int, ProcessLog],
    skipped: Mapping[str, Any] | None,
    elsewhere: Sequence[Mapping[str, Any]],
) -> str:
    """Return the order that would make a finding go away."""
    calls = _calls_of(_dialect(data, first, second, help_site), first, second)
    if is_in_c(first, second):
        calls = _names_of_c(calls)
    if skipped is not None:
        return _skipped_wait(skipped, calls)
    if elsewhere:
        return _right_offset(data, second, elsewhere)
    if _are_own_notifies(data, first, second):
        calls = replace(calls, record=calls.own_record, wait=calls.own_wait)
    if are_of_one_launch(first, second):
        return _edge(first, second, calls)
    if data["reused"] and calls.keep:
        return _kept_memory(data, first, second, calls, logs)
    index, messages = data["notify"], _messages(first, second)
    channel = f"this channel and {_where(first)}"
    match data["missing"]:
        case "arrival" if help_site and (waiter := _earlier_wait(data, help_site, logs)):
            return (
                f"{waiter} was for an earlier record at {help_site.line}. If {second.point} is to see these bytes: "
                f"a record ({calls.record}) after {first.point}, and a wait ({calls.wait}) for it before "
                f"{second.point}. If not, {_first_an_answer(first, second)}"
            )
        case "arrival" if help_site and data["help_is_enough"]:
            return f"{_wait_for_record(data, second, help_site, logs, calls)}{_too_late(data, first, second)}"
        case "arrival" if help_site and data["is_aside"]:
            return (
                f"a record ({calls.record}) of notify {index} {_where(first)}, as {first.point}. The one at "
                f"{help_site.line}, for which {second.owner} waits, is made {_where(help_site)}, and no bytes of "
                f"{first.point} come with it"
            )
        case "arrival":
            wrong = ""
            if help_site:
                record = f"the record of notify {index} at {help_site.line}"
                is_late = help_site.data["event"] > first.data["event"]
                wrong = f" ({record} is made {_where(help_site) if is_late else 'before the write'})"
            return (
                f"a wait ({calls.wait}) of {second.owner} for a notify that {first.owner} records "
                f"({calls.record}){_behind_fence(data, calls)} on {channel}, after {first.point}, before "
                f"{second.point}{wrong}{_too_late(data, first, second)}"
            )
        case "relay":
            owner = f"rank {data['owner']}"
            apart = ""
            if all(each.data["access"] == "write" for each in (first, second)):
                lines = " or ".join(dict.fromkeys((first.line, second.line)))
                apart = (
                    f"if the two are to write different bytes, another offset at {lines}. If they are to write the "
                    "same: "
                )
            return (
                f"{apart}{first.owner}'s bytes come to {owner}, which must tell {second.owner}: after {first.point} "
                f"{first.owner} records a notify{_behind_fence(data, calls)} on {channel} ({calls.record}), {owner} "
                f"waits for it ({calls.wait}) and then records one for {second.owner}, and {second.owner} waits for "
                f"that before {second.point}; or {owner} and {second.owner} meet in a barrier ({calls.barrier}) in "
                f"place of the second notify. If {second.owner} is to come first: the same the other way round"
            )
        case "thread" if second.data["body_of"]:  # which of the two came first is chance
            return _behind_stream(data, second, first, calls, logs)
        case "sync" if second.is_sight:
            return (
                f"a synchronization ({calls.sync}) of {second.owner} with {first.actor}, after {first.point}, before "
                "the program writes there again; or other memory for what is written meanwhile"
            )
        case "sync":
            return _behind_stream(data, first, second, calls, logs)
        case "event":
            return (
                f"a wait ({calls.event}) of {second.actor} for an event that {first.actor} records after "
                f"{first.end}, or a synchronization ({calls.sync}) with {first.actor}, before "
                f"{second.beginning_of_all}{_late_sync(data, second, logs)}{_reverse_order(data, first, second)}"
            )
        case "thread":
            return (
                f"an order between {first.actor} and {second.actor} of {second.owner}, after {first.point}, before "
                f"{second.beginning_of_all}: {calls.threads}{_reverse_order(data, first, second)}"
            )
        case "answer":
            return _answer(data, first, second, help_site, calls, logs)
        case "meeting" if messages and messages == _calls_of(first.dialect) and first.data["stream"]:
            return (
                f"a look ({messages.wait}) of {second.owner} for the notification of the transfer that {first.owner} "
                f"begins at {first.line}; it must come before {second.line}"
            )
        case "meeting" if messages:
            return (
                f"a notification ({messages.message}) of {first.owner} after {first.point}, and a look "
                f"({messages.wait}) of {second.owner} for it, before {second.beginning}"
            )
        case "meeting" if not calls.barrier:  # the dialect's own notifies and events need no channel
            return _answer(data, first, second, help_site, calls, logs)
        case "meeting":
            over = f" and a synchronization ({calls.sync}) with {first.actor}" if first.data["stream"] else ""
            order = f"a barrier ({calls.barrier}) of {first.owner} and {second.owner}"
            if min(first.rank, second.rank) < 0:
                order = f"{calls.processes} between {first.owner} and {second.owner}"
            return f"{order}, after {first.point}{over}, before {second.beginning}"
        case "fence":
            if not help_site:
                return (
                    f"a fence ({calls.fence}) of the channel by {first.owner}, after {first.point}, before "
                    f"{second.beginning}"
                )
            return (
                f"a fence ({calls.fence}) of the channel by {first.owner}, after {first.point}, before the record of "
                f"notify {index} at {help_site.line}: no notify brings nonblocking operations without one. "
                f"{second.owner} must wait for that record before {second.point}"
            )
        case "consumption":
            wait = f" at {help_site.line}" if help_site else ""
            is_own = not first.data["channel"]
            waiter = "the receiver"
            if help_site:
                waiter = help_site.actor if is_own else help_site.owner
            return (
                f"an answer: {waiter} records a notify ({calls.record}) after its wait{wait} for notify {index}, and "
                f"{second.actor if is_own else second.owner} waits for it ({calls.wait}) before {second.beginning}"
                f"{f'; or {calls.fifo}' if calls.fifo else ''}"
            )
        case "wait" if second.data["event_kind"] == "notify_wait":
            return (
                f"a record of the notify for which {second.owner} waits at {second.point}, or a wait for notify "
                f"{index}, which {first.owner} records at {first.point}"
            )
        case "wait":
            record = f"notify {index}, which {first.owner} records at {first.point}"
            return f"a wait ({calls.wait}) of the receiver for {record}"
        case "earlier use":
            return (
                f"{first.point} must come before {second.point}, or use a copy made before that (view.copy()): "
                "a view of closed memory keeps the bytes, and a device's memory has another owner by then"
            )
        case "write":
            return f"a write of these bytes before {second.point}"
        case _:
            return (
                f"a wait ({calls.wait}) of {second.owner} for each record by itself, after {first.point}, before "
                f"{second.point}: the wait consumed several records, and only the first of them is promised"
            )


def _kept_memory(data: Data, first: Site, second: Site, calls: Orders, logs: Mapping[int, ProcessLog]) -> str:
    """Return what keeps the memory that a cache handed out again between the two accesses."""
    log, site = data["reused"]
    frames = logs[log].sites.get(site) or [("", 0, "")]
    file, line, _ = frames[second.depth_in(frames)]
    return (
        f"{calls.keep} with {first.actor} for the memory that {first.point} uses, before the program frees it: "
        f"{location_of(file, line)} got it for something else. Or a wait ({calls.event}) of {second.actor} for "
        f"{first.actor} after {first.point}, before {second.beginning}"
    )


def _edge(first: Site, second: Site, calls: Orders) -> str:
    """Return what orders two operations of a graph, or of two graphs that one line launches."""
    return (
        f"an edge ({calls.edge}) from the node of {first.point} to the node of {second.point}; in a capture a wait "
        f"({calls.event}) of the second stream for an event of the first one. If these are two graphs: such a wait "
        "between their launches"
    )


def _messages(first: Site, second: Site) -> Orders | None:
    """Return the calls of the first site's dialect if it has messages, or else the second's if that has them."""
    both = (_calls_of(each.dialect) for each in (first, second))
    return next((each for each in both if each.message), None)


def _skipped_wait(skipped: Mapping[str, Any], calls: Orders) -> str:
    record, before = skipped["record"], skipped["before"]
    has_file = len({record["file"], before["file"], skipped["wait"][0]}) > 1

    def line(file: str, number: int) -> str:
        return location_of(file, number) if has_file else f"line {number}"

    def named(site: Mapping[str, Any]) -> str:
        frames = [(site["file"], site["line"]), *(each[:2] for each in site["callers"])]
        return line(*frames[site["helpers"]])

    waiter = f"rank {skipped['rank']}" if skipped["rank"] >= 0 else f"process {skipped['pid']}"
    recorder = f"rank {record['rank']}" if record["rank"] >= 0 else f"process {record['pid']}"
    records, waits = skipped["records"], skipped["waits"]
    counted = ""
    if records > waits:
        counted = f": {records:,} record{'s' * (records != 1)}, {waits:,} wait{'s' * (waits != 1)}"
    return (
        f"a wait ({skipped['call'] or calls.wait}) of {waiter} for notify {skipped['notify']}{counted}. The wait at "
        f"{line(*skipped['wait'])} did not run before {named(before)}{_time(' ran', skipped['before_nth'])}, "
        f"for the record that {recorder} made at {named(record)}{_time('', skipped['record_nth'])}"
    )


def _time(ran: str, number: int) -> str:
    return f"{ran} the {nth(number)} time" if number else ""


def _where(site: Site) -> str:
    return f"on {site.actor}" if site.data["stream"] else "without a stream"


def _right_offset(data: Data, second: Site, elsewhere: Sequence[Mapping[str, Any]]) -> str:
    lines = " or ".join(dict.fromkeys(location_of(each["file"], each["line"]) for each in elsewhere))
    return f"a write of {span_text(data['bytes'])} before {second.point}: look at the offset of the write at {lines}"


def _are_own_notifies(data: Data, first: Site, second: Site) -> bool:
    """Return whether the notifies of a finding go between streams of one process, without a channel."""
    if data["missing"] == "promise":  # the sites are accesses, not records
        return first.log is second.log and first.rank == second.rank
    return data["missing"] in ("consumption", "wait") and not first.data["channel"]


def _dialect(data: Data, first: Site, second: Site, record: Site | None) -> str:
    """Return the dialect in which the program makes, or would make, the missing call; empty for none."""
    if data["missing"] in ("arrival", "answer", "relay", "fence", "consumption", "wait", "promise"):
        # A rank waits with the calls of the dialect that made its channel, whichever dialect copies the bytes.
        of_channel = [each for each in (record, first, second) if each is not None and each.data["channel"]]
        if of_channel:
            return of_channel[0].dialect
    if (
        first.dialect
        or second.dialect
        or {each.data["event_kind"] for each in (first, second)} != {"host_access"}
    ):
        return first.dialect or second.dialect
    # An access of the host is not a call of a dialect.
    known = {*first.log.dialects.values(), *second.log.dialects.values()}
    return known.pop() if len(known) == 1 else ""


def is_in_c(first: Site, second: Site) -> bool:
    """Return whether the program calls C at these sites; if no call of theirs is known, whether it does anywhere."""
    sites = (first, second)
    called = {each.log.calls[each.data["site"]] for each in sites if each.data["site"] in each.log.calls}
    anywhere = {call for each in sites for call in each.log.calls.values()}
    return any(map(is_of_c, called or anywhere))


def _wait_for_record(
    data: Data, second: Site, record: Site, logs: Mapping[int, ProcessLog], calls: Orders
) -> str:
    """Return the wait for an existing record, and whether some wait takes the record."""
    became = "; the wait"
    if data["is_untaken"]:
        became = " and no wait takes; a wait for it"
    elif late := _late(data, second, logs):
        became = f"; the wait at {late} comes too late: it"
    return (
        f"a wait ({calls.wait}) of {second.owner} for notify {data['notify']}, which {record.owner} records at "
        f"{record.line}{became} must come before {second.beginning}"
    )


def _late(data: Data, second: Site, logs: Mapping[int, ProcessLog]) -> str:
    """Return the line of the missing call if the program makes it too late, after the second access; else empty."""
    if data["late"] is None:
        return ""
    log, site = data["late"]
    frames = logs[log].sites.get(site)
    if not frames:
        return ""
    file, line, _ = frames[second.depth_in(frames)]
    return f"line {line}" if file == second.named[0] and not second.has_file else location_of(file, line)


def _late_sync(data: Data, second: Site, logs: Mapping[int, ProcessLog]) -> str:
    if not (late := _late(data, second, logs)):
        return ""
    log, site = data["late"]
    if site in logs[log].with_ends:
        return f"; the end of the `with` of {late}, which synchronizes, comes too late"
    return f"; the {logs[log].calls.get(site, 'synchronization')} at {late} comes too late"


def _answer(
    data: Data, first: Site, second: Site, record: Site | None, calls: Orders, logs: Mapping[int, ProcessLog]
) -> str:
    stream = f" on {first.actor}" if first.data["stream"] else ""
    article = "an" if calls.token.startswith("i") else "a"
    answer = (
        f"a wait ({calls.wait}) of {second.owner} for {article} {calls.token} that {first.owner} records "
        f"({calls.record}){stream} after {first.point}; the wait must come before {second.beginning}"
    )
    if record is not None and data["help_is_enough"]:
        answer = _wait_for_record(data, second, record, logs, calls)
    if data["kind"] == "race":  # which one came first is chance: either order can be the one meant
        answer += (
            f". If {second.point} is to come first: a wait of {first.owner} for {article} {calls.token} that "
            f"{second.owner} records{_behind_fence(data, calls)} after {second.point}, before {first.point}"
        )
    if min(first.rank, second.rank) < 0:
        answer += f". {calls.processes.capitalize()} can order two processes, too"
    return answer


def _first_an_answer(first: Site, second: Site) -> str:
    stream = f" on {second.actor}" if second.data["stream"] else ""
    return (
        f"an answer: a notify that {second.owner} records{stream} after {second.point}, and for which {first.owner} "
        f"waits before {first.point}"
    )


def _too_late(data: Data, first: Site, second: Site) -> str:
    """Return what to do if the bytes arrived too early: few programs mean to wait for bytes and overwrite them."""
    if data["kind"] != "race" or second.data["access"] != "write":
        return ""
    return f". If {second.point} is to come first: {_first_an_answer(first, second)}"


def _behind_stream(
    data: Data, first: Site, second: Site, calls: Orders, logs: Mapping[int, ProcessLog]
) -> str:
    """Return the order of a thread's access after an operation, or a callback, of a stream."""
    own = _calls_of(first.dialect)
    if own.done:
        return (
            f"a look ({own.sync}) of {second.owner}, which must say {own.done} of the transfer that begins at "
            f"{first.line}, before {second.beginning}{_late_sync(data, second, logs)}"
        )
    order = (
        f"a synchronization ({calls.sync}) of {second.owner} with {first.actor}, after {first.end}, before "
        f"{second.beginning}{_late_sync(data, second, logs)}"
    )
    if not first.data["body_of"] or data["kind"] != "race":
        return order
    return (
        f"{order}; with an event that {first.actor} records after the callback, the thread can wait for that alone. "
        f"If {second.point} is to come first: submit the callback after it"
    )


def _reverse_order(data: Data, first: Site, second: Site) -> str:
    """Return the reverse order, where it is chance which access of a process comes first."""
    bodies = [each.data["body_of"] for each in (first, second)]
    if data["kind"] != "race" or not (any(bodies) or first.data["thread"] != second.data["thread"]):
        return ""
    return f". If {second.end} is to come first: the same the other way round"


def _behind_fence(data: Data, calls: Orders) -> str:
    return f", behind a fence ({calls.fence})," if data["needs_fence"] else ""


def _earlier_wait(data: Data, help_site: Site, logs: Mapping[int, ProcessLog]) -> str:
    """Return the wait that took an earlier record made at the helping line, if it came before the second access."""
    order = data["last_order"]
    if order is None or tuple(order[:3]) != (*(help_site.data[name] for name in ("log", "site")), "notify"):
        return ""
    frames = logs[order[3]].sites.get(order[4])
    return f"{logs[order[3]].name}'s wait{f' at line {frames[0][1]}' if frames else ''}"

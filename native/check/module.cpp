// peerlane._check: the analysis of event logs, as plain data.  It shares no state with peerlane._core.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "check/analysis.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane::check;

namespace {

constexpr const char* kKinds[] = {"race", "lost-notify", "unconsumed-notify", "use-after-free", "unwritten-read", "relied-on-schedule"};
constexpr const char* kUnwatchedNames[] = {"source", "destination", "alias"};
static_assert(std::size(kUnwatchedNames) == kUnwatched);
constexpr const char* kMissing[] = {"arrival", "sync", "event", "thread", "relay", "answer", "meeting", "fence", "consumption", "wait", "write", "earlier use", "promise"};

constexpr std::pair<const char*, uint64_t Stats::*> kCounts[] = {
    {"events", &Stats::events}, {"dropped", &Stats::dropped}, {"forgotten", &Stats::forgotten}, {"unexplained", &Stats::unexplained},
    {"cells", &Stats::cells}, {"accesses", &Stats::accesses}, {"actors", &Stats::actors}, {"waiting", &Stats::waiting}, {"compactions", &Stats::compactions}};

nb::dict as_dict(const EventRef& ref) {
    nb::dict fields;
    fields["log"] = ref.log;
    fields["site"] = ref.site;
    const bool is_body = (ref.thread & EventRef::kBody) != 0;
    fields["thread"] = is_body ? 0 : ref.thread;
    fields["body_of"] = is_body ? ref.thread & ~EventRef::kBody : 0;
    fields["event_kind"] = peerlane::log::kKindNames[static_cast<size_t>(ref.kind)];
    fields["op"] = ref.op;
    fields["access"] = ref.is_write ? "write" : "read";
    fields["loose"] = ref.is_loose;
    fields["fetch"] = ref.is_fetch;
    fields["stream"] = ref.stream;
    fields["sequence"] = ref.sequence;
    fields["channel"] = ref.channel;
    fields["rank"] = ref.rank;
    fields["event"] = ref.event;
    fields["nth"] = ref.nth;
    fields["time_ns"] = ref.time_ns;
    return fields;
}

nb::dict as_dict(const Finding& finding) {
    nb::dict fields;
    fields["kind"] = kKinds[static_cast<size_t>(finding.kind)];
    fields["certain"] = finding.certain;
    fields["is_of_unseen"] = finding.is_of_unseen;
    fields["is_of_look"] = finding.is_of_look;
    fields["count"] = finding.count;
    fields["first"] = as_dict(finding.first);
    fields["second"] = as_dict(finding.second);
    fields["bytes"] = nb::make_tuple(finding.from, finding.to);
    fields["memory"] = nb::none();
    if (finding.in_allocation) {
        nb::dict memory;
        memory["log"] = finding.memory_log;
        memory["site"] = finding.memory_site;
        memory["rank"] = finding.memory_rank;
        memory["allocation"] = finding.allocation;
        memory["size"] = finding.size;
        fields["memory"] = memory;
    }
    fields["reused"] = finding.is_reused ? nb::object(nb::make_tuple(finding.reuse_log, finding.reuse_site)) : nb::object(nb::none());
    fields["missing"] = kMissing[static_cast<size_t>(finding.missing)];
    fields["help"] = nb::none();
    if (finding.has_help) fields["help"] = as_dict(finding.help);
    fields["help_is_enough"] = finding.help_is_enough;
    fields["is_untaken"] = finding.is_untaken;
    fields["late"] = finding.has_late ? nb::object(nb::make_tuple(finding.late_log, finding.late_site)) : nb::object(nb::none());
    fields["runs_again"] = finding.runs_again;
    fields["needs_fence"] = finding.needs_fence;
    fields["is_aside"] = finding.is_aside;
    fields["notify"] = finding.notify;
    fields["owner"] = finding.owner;
    fields["cause"] = finding.cause == Finding::kNoCause ? nb::object(nb::none()) : nb::object(nb::int_(finding.cause));
    fields["skipped"] = nb::none();
    if (finding.is_skipped) {
        nb::dict skipped;
        skipped["record"] = as_dict(finding.skipped.record);
        skipped["before"] = as_dict(finding.skipped.before);
        skipped["log"] = finding.skipped.log;
        skipped["site"] = finding.skipped.site;
        skipped["notify"] = finding.skipped.notify;
        skipped["records"] = finding.skipped.records;
        skipped["waits"] = finding.skipped.waits;
        fields["skipped"] = skipped;
    }
    nb::list elsewhere;
    for (const WrittenElsewhere& each : finding.elsewhere) {
        nb::dict written = as_dict(each.ref);
        written["bytes"] = nb::make_tuple(each.from, each.to);
        elsewhere.append(written);
    }
    fields["elsewhere"] = elsewhere;
    fields["last_order"] = nb::none();
    if (finding.has_last_order) {
        const Edge& edge = finding.last_order;
        fields["last_order"] = nb::make_tuple(edge.from_log, edge.from_site, peerlane::log::kKindNames[static_cast<size_t>(edge.from)], edge.to_log, edge.to_site,
                                            peerlane::log::kKindNames[static_cast<size_t>(edge.to)]);
    }
    return fields;
}

}  // namespace

NB_MODULE(_check, m) {
    m.doc() = "The analysis of event logs (docs/design/checker.md), as plain data.";
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const peerlane::log::BadLog& error) {
            PyErr_SetString(PyExc_ValueError, error.what());
        }
    });
    nb::class_<Analysis>(m, "Analysis", "Finds, in the event logs of all processes, which two events are not ordered.  One thread uses it at a time.")
        .def(nb::init<uint64_t>(), "limit"_a = uint64_t{768} << 20,
             "With more than about `limit` bytes of history the older half is forgotten; `stats` counts it.")
        .def("add", &Analysis::add, "path"_a, "may_give_back"_a = false, "shift_ns"_a = 0,
             "Return the number of the log at `path`, which may still grow.  With `may_give_back` what was read is freed in the file.  Its times are `shift_ns` later on the clock of the other logs.  ValueError: not a log.")
        .def("close", &Analysis::close, "log"_a, "The process of this log has ended: nothing will be added.")
        .def("end_growth", &Analysis::end_growth, nb::call_guard<nb::gil_scoped_release>(), "End the growth of each log's newest record, which the next poll can read.")
        .def("poll", &Analysis::poll, "horizon_ns"_a, nb::call_guard<nb::gil_scoped_release>(),
             "Read what the logs have, but for events after `horizon_ns` (CLOCK_MONOTONIC): another process may still publish an earlier one.")
        .def("finish", &Analysis::finish, nb::call_guard<nb::gil_scoped_release>(), "Read the rest of all logs, whose processes have ended.")
        .def(
            "findings",
            [](Analysis& self) {
                nb::list all;
                for (const Finding& finding : self.findings()) all.append(as_dict(finding));
                return all;
            },
            nb::sig("def findings(self) -> list[dict[str, typing.Any]]"), "Return what was found so far.")
        .def(
            "unwatched",
            [](const Analysis& self) {
                nb::list all;
                for (size_t i = 0; i < kUnwatched; ++i) {
                    const UnwatchedCount& each = self.unwatched(static_cast<Unwatched>(i));
                    if (each.count != 0) all.append(nb::make_tuple(kUnwatchedNames[i], each.count, each.log, each.site));
                }
                return all;
            },
            nb::sig("def unwatched(self) -> list[tuple[str, int, int, int]]"),
            "Return what no event tells: its name, how often it happened, and the log and the site of the first time.")
        .def(
            "facts",
            [](const Analysis& self, uint32_t log) {
                const Analysis::LogFacts facts = self.facts(log);
                return nb::make_tuple(facts.pid, facts.rank, facts.problem);
            },
            "log"_a, nb::sig("def facts(self, log: int) -> tuple[int, int, str]"),
            "Return the process of a log, its rank (-1: not known), and why it could not be read to its end, else an empty text.")
        .def(
            "verbs_of_lines",
            [](const Analysis& self, uint32_t log) {
                nb::dict fields;
                for (const auto& [site, verbs] : self.verbs_of_lines(log)) fields[nb::int_(site)] = verbs;
                return fields;
            },
            "log"_a, nb::sig("def verbs_of_lines(self, log: int) -> dict[int, int]"), "Return, for the lines of a log, a number that two lines share if they made the same kinds of calls.")
        .def(
            "stats",
            [](const Analysis& self) {
                const Stats stats = self.stats();
                nb::dict fields;
                for (const auto& [name, count] : kCounts) fields[name] = stats.*count;
                return fields;
            },
            nb::sig("def stats(self) -> dict[str, int]"), "Return counts: of events, of what was dropped or forgotten, and of what is kept.");
}

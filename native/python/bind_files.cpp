// Copies between memory and files.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "python/bind_operands.h"
#include "stream/descriptor.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

// Pieces that are copied many times; what lies at their addresses may change in between.
struct FilePieces {
    bool reads;
    std::vector<FilePiece> pieces;
    struct File {
        int fd;
        dev_t device;
        ino_t number;
    };
    std::vector<File> files;
    enum class AtOnce : uint8_t { asks, by_cache, never } at_once = AtOnce::asks;   // not all file systems say whether they would wait

    // Pins the memory into `batch`; throws Refusal.
    std::shared_ptr<FileCopies> resolve(Batch& batch) const {
        const auto copies = std::make_shared<FileCopies>(reads, pieces.size());
        PinList pins(batch);
        batch.pieces.reserve(pieces.size());
        for (const FilePiece& piece : pieces) {
            if (piece.size == 0) {
                copies->add(piece, nullptr);
                continue;
            }
            const Range memory = reads ? pins.dst(piece.address, piece.size) : pins.src(piece.address, piece.size);
            Heap::get().check_access(reads ? memory : Range{}, reads ? Range{} : memory, batch.actor);
            copies->add(piece, memory.host);
            batch.pieces.push_back({reads ? memory.host : nullptr, reads ? nullptr : memory.host, piece.size, false});
        }
        return copies;
    }
};

// It does not ask for times: the next write of a file whose times were asked for takes longer.
bool have_changed(const FilePieces& files) {
    return std::any_of(files.files.begin(), files.files.end(), [](const FilePieces::File& file) {
        struct statx about;
        return statx(file.fd, "", AT_EMPTY_PATH, STATX_INO, &about) != 0 || makedev(about.stx_dev_major, about.stx_dev_minor) != file.device ||
               about.stx_ino != file.number;
    });
}

bool run_at_once(FilePieces& files) {
    Heap::get().check_usable();
    if (files.at_once == FilePieces::AtOnce::never || log::is_logging() || have_changed(files)) return false;
    Batch batch;
    const auto copies = files.resolve(batch);
    if (files.at_once == FilePieces::AtOnce::asks) {
        const FileCopies::AtOnce outcome = copies->run_at_once();
        if (outcome != FileCopies::AtOnce::is_unknown) return outcome == FileCopies::AtOnce::done;
        files.at_once = copies->is_cached() ? FilePieces::AtOnce::by_cache : FilePieces::AtOnce::never;
        if (files.at_once == FilePieces::AtOnce::never) return false;
    }
    const nb::gil_scoped_release release;
    return copies->run_through_cache();
}

std::shared_ptr<FileCopies> submit_files(const FilePieces& files, const StreamHandle& stream) {
    Heap::get().check_usable();
    auto batch = std::make_unique<FileBatch>();
    batch->actor = stream.stream->device;
    batch->copies = files.resolve(*batch);
    batch->copies->keep_files();
    auto copies = batch->copies;
    Op op{.kind = OpKind::file, .extra = batch.get()};
    submit(stream, op, nb::handle());
    batch.release();
    return copies;
}

nb::object failure_of(const FileCopies& copies) {
    const FileCopies::Failure* const failure = copies.failure();
    return failure ? nb::object(nb::make_tuple(failure->error, failure->piece, failure->moved)) : nb::none();
}

}  // namespace

void bind_files(nb::module_& m) {
    nb::class_<FileCopies>(m, "FileCopies", "Copies between memory and files that were given to a stream.")
        .def_prop_ro("failure", failure_of, nb::sig("def failure(self) -> tuple[int, int, int] | None"),
                     "Once they are over: the system's error, or 0 where the file ends; the index of the piece, and how many of its bytes were copied.");
    nb::class_<FilePieces>(m, "FilePieces", "Pieces of memory and of files, between which bytes are copied.")
        .def("__init__",
             [](FilePieces* self, bool reads, const std::vector<std::tuple<int, uint64_t, uint64_t, uint64_t>>& pieces,
                const std::vector<std::tuple<int, uint64_t, uint64_t>>& files) {
                 std::vector<FilePiece> parts;
                 parts.reserve(pieces.size());
                 for (const auto& [fd, offset, address, size] : pieces) parts.push_back({fd, offset, address, size});
                 std::vector<FilePieces::File> known;
                 known.reserve(files.size());
                 for (const auto& [fd, device, number] : files) known.push_back({fd, device, number});
                 new (self) FilePieces{reads, std::move(parts), std::move(known)};
             },
             "reads"_a, "pieces"_a, "files"_a,
             "``pieces``: the file's descriptor and offset, the memory's address, and bytes.  ``files``: each descriptor, and the device and inode of its file.")
        .def("run_at_once", run_at_once, "Copy them now, if the page cache has or takes the bytes; False: some of it has to be submitted, or a descriptor is another file's by now.")
        .def("submit", submit_files, "stream"_a, "Copy them on a stream.");
}

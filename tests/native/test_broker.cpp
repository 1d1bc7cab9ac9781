// Handing out descriptors: open, let go, abandon and withdraw in every order, rights, kinds, many at a time.
#include "peers.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";

std::vector<std::string> here(const Place& place) { return importer_words(place, kName, kNode, getpid()); }

void one_after_the_other() {
    const Place place;
    broker().open(place.fd, kName, 0, kNode);
    broker().open(place.fd, kName, 0, kNode);   // idempotent
    CHECK(refuses(Why::closed, [&] { broker().open(place.fd, "other.sock", 1, kNode); }));
    const Shared shared;
    shared.write(4711);
    Child peer("importer", here(place));
    CHECK(shared.importers() == 0);
    CHECK(peer.ask("open " + shared.words()) == "ok 4711");
    CHECK(shared.importers() == 1);
    CHECK(peer.ask("open " + shared.words()) == "ok 4711" && shared.importers() == 1);   // twice by one process
    CHECK(peer.ask("go " + shared.words()) == "ok");
    CHECK(peer.ask("open " + shared.words()) == "ok 4711");
    CHECK(shared.importers() == 1);
    for (int i = 0; i < 5; ++i) CHECK(peer.ask("go " + shared.words()) == "ok");   // more than there were
    CHECK(comes_true([&] { return shared.importers() == 0; }) && *shared.gone == 0);
    // The short form of the nonce.
    const std::string brief = std::to_string(shared.ticket.index) + " " + std::to_string(shared.ticket.nonce & kShortNonce);
    CHECK(peer.ask("open " + brief + " 28") == "ok 4711" && shared.importers() == 1);
    CHECK(peer.ask("go " + brief) == "ok" && comes_true([&] { return shared.importers() == 0; }));
    peer.finish();
    broker().close();
    CHECK(*shared.gone == 1 && place.is_empty() && !broker().is_open());
}

}  // namespace

int main(int argc, char** argv) {
    return play(argc, argv, {}, [] { one_after_the_other(); });
}

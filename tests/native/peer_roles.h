// Roles of the other processes of the tests: honest importers and exporters.
#pragma once
#include "peers.h"
#include "share/importer.h"

namespace peers {

std::vector<std::string> importer_words(const SocketDirectory& socket_directory, const std::string& name, uint64_t node, pid_t exporter);

// The role of an honest importer.  Arguments: directory, socket's name, node, exporter's pid, its start time.
//   open INDEX NONCE [BITS] [KIND]   -> "ok WORD" or a refusal
//   keep INDEX NONCE, peek           the same, and the word of what was kept
//   again INDEX NONCE COUNT          opens and lets go COUNT times -> nanoseconds of one open (the median)
//   flood INDEX NONCE COUNT          the same without letting go
//   crowd INDEX NONCE THREADS COUNT  COUNT opens by each of THREADS at a time, each let go -> ok
//   within SECONDS                   the deadline of what follows
//   go INDEX NONCE                   lets go                -> ok
//   fork                             -> pid of a child that keeps every descriptor
//   dead, lost, fds, leave (drops the connection)
std::function<std::string(Words)> importer(const std::vector<std::string>& words);
int import_lines(const std::vector<std::string>& words);

// The role of an exporter.  Arguments: directory, socket's name.
//   offer WORD       -> "INDEX NONCE"
//   importers INDEX NONCE, abandon INDEX NONCE, gone, fork, close
int export_lines(const std::vector<std::string>& words);

using Role = std::function<int(const std::vector<std::string>&)>;

// Runs the tests, or the role that this process was started for.
int play(int argc, char** argv, std::map<std::string, Role> roles, const std::function<void()>& tests);

}  // namespace peers

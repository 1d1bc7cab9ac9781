// Blocks exported to other processes, and opened from them.
#pragma once
#include "memory/block.h"
#include "share/broker.h"
#include "share/importer.h"

namespace peerlane {

// Offer a block, which is held until nobody can open it any more.  Of the grant kind, rights, device, offset, length
// notify_kind and count are the caller's.  When nobody else holds the block, it lives as long as some process has opened it.
// Throws Refusal: closed (the broker does not serve), shared_blocks, descriptors, imported.
ExportKey offer_block(Block* block, Grant grant, bool everyone);

// Let these processes open what was offered.  Throws Refusal, and then it is offered no more.
void allow_all(const ExportKey& key, const std::vector<int32_t>& pids);

// The block of an offer, whose descriptor is taken over: the one that this process has already, if it has it.  The
// caller drops it.  Throws Refusal.
Block* adopt_offer(Offer& offer, Opening opening, uint32_t device, std::shared_ptr<Ledger> ledger);

// A new descriptor of a block's file, the caller's to close, which keeps the bytes whatever becomes of this process.
// Throws Refusal.
int export_file(Block& block, bool read_only);

// The newest connections are kept, so that the next open need not connect, until their process ends or this one
// leaves its node.
void keep_connection(std::shared_ptr<Exporter> exporter);
void forget_lost_connections();
void forget_connections();

}  // namespace peerlane

// Tells peers that this rank will not do what they wait for.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "stream/channel_lines.h"
#include "stream/operation.h"

namespace peerlane {

class Farewell {
  public:
    // `lines`: those that this rank records, of each of its channels.
    explicit Farewell(std::vector<std::shared_ptr<ChannelLines>> lines) : lines_(std::move(lines)) {}
    Farewell(const Farewell&) = delete;

    // The lines of one more channel.
    void add(std::shared_ptr<ChannelLines> lines);

    // Ends the peers' waits for these lines, as if this rank had closed its channels.
    void send();
    bool is_sent() const { return is_sent_.load(std::memory_order_acquire); }

  private:
    std::mutex mutex_;
    std::vector<std::shared_ptr<ChannelLines>> lines_;   // none is added once it is sent
    std::atomic<bool> is_sent_{false};
};

// An operation that follows those that peers wait for: it sends the farewell if it is dropped before it runs.
class Behind final : public Stepwise {
  public:
    explicit Behind(std::shared_ptr<Farewell> farewell) : farewell_(std::move(farewell)) {}
    ~Behind() override {
        if (!is_over_) farewell_->send();
    }
    Step advance(Refusal&) override {
        is_over_ = true;
        return Step::over;
    }

  private:
    const std::shared_ptr<Farewell> farewell_;
    bool is_over_ = false;
};

}  // namespace peerlane

// The shapes of an operation's results, known before it runs: computed once for each form of its arguments.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace peerlane_torch {

using c10::IValue;
using torch::jit::Stack;

struct Shape {
    explicit Shape(const at::Tensor& tensor) : sizes(tensor.sizes()), strides(tensor.strides()), dtype(tensor.dtype()) {}
    c10::DimVector sizes, strides;
    caffe2::TypeMeta dtype;
};

struct Shapes {
    std::vector<size_t> counts;                        // by result: how many new tensors it has
    std::vector<Shape> made;                           // of all results
    std::vector<std::pair<size_t, Shape>> resized;     // outputs, by argument
};

// All of the arguments that shapes can depend on.
class ShapeKey {
  public:
    ShapeKey(const Stack& stack, size_t first) {
        words_.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
        for (size_t i = first; i < stack.size(); ++i) add(stack[i]);
        for (const int64_t word : words_) hash_ = (hash_ ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15u + (hash_ >> 29);
    }
    bool is_complete() const { return is_complete_; }
    bool operator==(const ShapeKey& other) const { return hash_ == other.hash_ && words_ == other.words_; }
    struct Hash {
        size_t operator()(const ShapeKey& key) const { return key.hash_; }
    };

  private:
    void add(const at::Tensor& tensor) {
        if (!tensor.defined()) return words_.push_back(-1);
        const bool is_wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
        words_.push_back(static_cast<int64_t>(tensor.scalar_type()) | static_cast<int64_t>(tensor.device().type()) << 8 | int64_t{is_wrapped} << 16 |
                         int64_t{tensor.is_conj()} << 17 | int64_t{tensor.is_neg()} << 18 | tensor.dim() << 20);
        words_.append(tensor.sizes().begin(), tensor.sizes().end());
        words_.append(tensor.strides().begin(), tensor.strides().end());
    }
    void add(double number) { words_.push_back(std::bit_cast<int64_t>(number)); }
    void add(const IValue& value) {
        words_.push_back(value.isTensor() ? 1 : value.isInt() ? 2 : value.isDouble() ? 3 : value.isBool() ? 4 : value.isNone() ? 5 : value.isIntList() ? 6 :
                         value.isTensorList() ? 7 : value.isOptionalTensorList() ? 8 : value.isString() ? 9 : value.isDevice() ? 10 : value.isComplexDouble() ? 11 :
                         value.isGenerator() ? 12 : value.isDoubleList() ? 13 : value.isList() ? 14 : 15);
        if (value.isTensor()) add(value.toTensor());
        else if (value.isInt()) words_.push_back(value.toInt());
        else if (value.isDouble()) add(value.toDouble());
        else if (value.isBool()) words_.push_back(value.toBool());
        else if (value.isComplexDouble()) {
            add(value.toComplexDouble().real());
            add(value.toComplexDouble().imag());
        } else if (value.isString()) {
            words_.push_back(static_cast<int64_t>(std::hash<std::string>()(value.toStringRef())));
        } else if (value.isList()) {
            const auto list = value.toListRef();
            words_.push_back(static_cast<int64_t>(list.size()));
            for (const IValue& each : list) add(each);
        } else if (!value.isNone() && !value.isDevice() && !value.isGenerator()) {
            is_complete_ = false;
        }
    }

    c10::SmallVector<int64_t, 64> words_;
    uint64_t hash_ = 0;
    bool is_complete_ = true;
};

// What a kernel makes, by the types of its arguments, and by those arguments that are no sizes.
class KnownTypes {
  public:
    enum class Kind { types, other_sizes, refused };
    using Key = std::vector<int64_t>;
    struct Answer {
        Kind kind;
        std::vector<std::optional<caffe2::TypeMeta>> types;   // nothing: it has left the result out
    };

    template <class Ask>
    Answer find(const Key& key, const Ask& ask) {
        {
            const std::lock_guard lock(mutex_);
            if (const auto found = known_.find(key); found != known_.end()) return found->second;
        }
        Answer answer = ask();
        const std::lock_guard lock(mutex_);
        return known_.emplace(key, std::move(answer)).first->second;
    }

  private:
    std::mutex mutex_;
    std::map<Key, Answer> known_;
};

class KnownShapes {
  public:
    std::shared_ptr<const Shapes> find(const ShapeKey& key) {
        const std::lock_guard lock(mutex_);
        const auto found = known_.find(key);
        return found == known_.end() ? nullptr : found->second;
    }
    void keep(const ShapeKey& key, std::shared_ptr<const Shapes> shapes) {
        if (!key.is_complete()) return;
        const std::lock_guard lock(mutex_);
        if (known_.size() == kMost) known_.clear();   // of a program whose shapes change with each step
        known_.emplace(key, std::move(shapes));
    }

  private:
    static constexpr size_t kMost = 4096;
    std::mutex mutex_;
    std::unordered_map<ShapeKey, std::shared_ptr<const Shapes>, ShapeKey::Hash> known_;
};

// While it lives, operations of this thread that write outputs do nothing: only the shapes of these are wanted.
class Probe {
  public:
    Probe() : before_(std::exchange(on(), true)) {}
    ~Probe() { on() = before_; }
    Probe(const Probe&) = delete;
    class Off {
      public:
        Off() : before_(std::exchange(on(), false)) {}
        ~Off() { on() = before_; }
        Off(const Off&) = delete;

      private:
        const bool before_;
    };

    static bool is_on() { return on(); }
    // Return the outputs as they are.
    static void leave(const std::vector<bool>& written, const std::vector<int>& returned, Stack& stack) {
        const size_t first = stack.size() - written.size();
        Stack results;
        for (const int argument : returned) results.push_back(argument >= 0 ? stack[first + static_cast<size_t>(argument)] : IValue());
        stack.resize(first);
        stack.insert(stack.end(), results.begin(), results.end());
    }

  private:
    static bool& on() {
        static thread_local bool is_on = false;
        return is_on;
    }
    const bool before_;
};

}  // namespace peerlane_torch

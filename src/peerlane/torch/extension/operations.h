// How an operation runs: its CPU kernel, on aliases of the same bytes.
//
// * At once, in the thread that calls it, where the stream is idle and the operation is small.
// * Queued, where the shapes of its results are known before (shapes.h).  The kernel runs in stream order, in any thread and without
//   the GIL.
// * After a wait for the stream, where the shapes depend on the bytes, and where a tensor is sparse, nested or quantized.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/MemoryFormat.h>

#include "aliases.h"
#include "generators.h"
#include "shapes.h"

namespace peerlane_torch {

using c10::IValue;
using torch::jit::Stack;

// What a schema tells of an operation.
struct Plan {
    explicit Plan(const c10::OperatorHandle& called)
        : op(called), schema(called.schema()), name(c10::toString(called.operator_name())), word(word_of(called)), is_copy(name == "aten::copy_" || name == "aten::copy_sparse_to_sparse_") {
        const auto& arguments = schema.arguments();
        written.resize(arguments.size(), false);
        const bool makes_quantized = word.find("quantize") != std::string::npos;
        bool takes_tensors = false, names_device = false;
        for (size_t i = 0; i < arguments.size(); ++i) {
            takes_tensors |= *arguments[i].type() == *c10::TensorType::get();
            names_device |= arguments[i].name() == "device";
            const c10::AliasInfo* const alias = arguments[i].alias_info();
            written[i] = alias && alias->isWrite();
            is_out |= written[i] && arguments[i].is_out();
            is_type.push_back(names_type(*arguments[i].real_type()));
            is_of_host.push_back(arguments[i].name().starts_with("cpu_") || (makes_quantized && (arguments[i].name() == "scales" || arguments[i].name() == "zero_points")));
            if (arguments[i].name() == "generator") generator = static_cast<int>(i);
            if (arguments[i].name() == "training") training = static_cast<int>(i);
        }
        static constexpr std::array kOfRows{"index_select", "index", "gather", "embedding", "index_put_", "_index_put_impl_", "index_copy_", "index_add_", "index_fill_", "index_reduce_",
                                            "scatter_", "scatter_add_", "scatter_reduce_"};
        if (name.starts_with("aten::") && std::ranges::find(kOfRows, word) != kOfRows.end()) {
            const auto position_of = [&](std::string_view wanted) {
                const auto found = std::ranges::find(arguments, wanted, [](const c10::Argument& each) -> std::string_view { return each.name(); });
                return found == arguments.end() ? -1 : static_cast<int>(found - arguments.begin());
            };
            chosen_by = std::max(position_of("index"), position_of("indices"));
            chosen_along = position_of("dim");
        }
        updates_statistics = name == "aten::native_batch_norm" || name == "aten::batch_norm_update_stats";
        bool makes_tensors = false, returns_tensors = false, returns_other = false;
        for (const auto& each : schema.returns()) {
            const c10::AliasInfo* const alias = each.alias_info();
            const bool is_tensor = *each.type() == *c10::TensorType::get(), is_list = *each.type() == *c10::ListType::ofTensors();
            int argument = -1;
            if (alias && alias->isWrite())
                for (size_t i = 0; i < arguments.size(); ++i)
                    if (written[i] && arguments[i].alias_info()->beforeSets() == alias->beforeSets()) argument = static_cast<int>(i);
            returned.push_back(argument);
            is_view |= alias && !alias->isWrite();
            (is_tensor || is_list ? returns_tensors : returns_other) = true;
            makes_tensors |= argument < 0;
        }
        is_index = called.operator_name().name == "aten::index";
        const bool is_dynamic = !is_index && (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output));
        is_structured = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
        has_meta = op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
        has_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
        makes_for_device = takes_tensors && names_device;
        is_structural = is_view || is_copy || makes_for_device || (returns_other && !returns_tensors && !is_dynamic);
        can_queue.store(!is_view && !returns_other && !is_dynamic && (has_meta || (!makes_tensors && !is_out)), std::memory_order_relaxed);
    }

    const c10::OperatorHandle op;
    const c10::FunctionSchema& schema;
    const std::string name;
    const std::string word;       // as programs call it
    const bool is_copy;
    std::vector<bool> written;    // by argument
    std::vector<bool> is_type;    // by argument: it is the type of elements, for which a stack has a number
    std::vector<bool> is_of_host;   // by argument: sizes of nested tensors, which the processor has on every device, and scales, which it may have
    std::vector<int> returned;    // by result: the argument that it is; -1: it is new
    bool is_index = false;        // by masks its result depends on the bytes, by numbers not
    bool is_structured = false;   // torch has its shapes in C++
    bool is_structural = false;   // of tensors of several parts it reads no bytes, or reads them by operations on the parts: a view, a copy, a number
    bool makes_for_device = false;   // of tensors, and of a device that it names
    bool is_out = false, is_view = false, has_meta = false, has_kernel = false;
    int generator = -1;           // the argument
    int chosen_by = -1;           // the argument with the numbers of those rows of the first one that it touches; -1: it touches all
    int chosen_along = -1;        // the argument with their dimension; -1: the place in a list of numbers, or the first one
    int training = -1;            // the argument
    bool updates_statistics = false;   // it writes the running ones, and its schema does not say so
    mutable std::atomic<bool> can_queue{false};   // until its meta function says that it cannot tell
    mutable KnownShapes shapes;
    mutable KnownTypes types;

    static const Plan& of(const c10::OperatorHandle& op) {
        static thread_local std::unordered_map<const void*, const Plan*> known;
        const Plan*& plan = known[&op.schema()];
        if (!plan) plan = &shared(op);
        return *plan;
    }

  private:
    static bool names_type(const c10::Type& type) {
        if (const auto* const optional = type.castRaw<c10::OptionalType>()) return names_type(*optional->getElementType());
        return type.kind() == c10::TypeKind::ScalarTypeType;
    }
    static std::string word_of(const c10::OperatorHandle& op) {
        const std::string& name = op.operator_name().name;
        return name.substr(name.rfind(':') + 1);
    }
    static const Plan& shared(const c10::OperatorHandle& op) {
        static auto& plans = *new std::unordered_map<const void*, std::unique_ptr<Plan>>;
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        auto& plan = plans[&op.schema()];
        if (!plan) plan = std::make_unique<Plan>(op);
        return *plan;
    }
};

template <class Visit>
void each_tensor(const IValue& value, const Visit& visit) {
    if (value.isTensor()) {
        if (const at::Tensor& tensor = value.toTensor(); tensor.defined()) visit(tensor);
    } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector())
            if (tensor.defined()) visit(tensor);
    } else if (value.isOptionalTensorList()) {
        for (const auto& tensor : value.toOptionalTensorVector())
            if (tensor && tensor->defined()) visit(*tensor);
    }
}

template <class Replace>
void replace_tensors(IValue& value, const Replace& replace) {
    if (value.isTensor()) {
        if (const at::Tensor& tensor = value.toTensor(); tensor.defined()) value = replace(tensor);
    } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensor.defined() ? replace(tensor) : tensor);
        value = std::move(list);
    } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& tensor : value.toOptionalTensorVector())
            list.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(replace(*tensor)) : tensor);
        value = std::move(list);
    }
}

// A tensor may have lost its memory: a storage that was resized to 0 bytes has none, and that of a tensor that does not keep it may have ended.
inline void check_memory(const char* operation, const at::Tensor& tensor) {
    const c10::DataPtr& bytes = tensor.storage().data_ptr();
    if (bytes.get_context()) [[likely]] return;
    if (!bytes.get()) {
        TORCH_CHECK(tensor.numel() == 0, operation, ": a tensor of sizes ", tensor.sizes(), " on ", tensor.device(),
                    " has no memory, as its storage has 0 bytes. Resize the storage before the tensor is used");
        return;
    }
    with_python([&](py::handle module) { module.attr("check_borrowed")(operation, reinterpret_cast<uintptr_t>(bytes.get()), tensor.storage().nbytes()); });
}

// One call of an operation, with its arguments on torch's stack.
class Operation {
  public:
    // `key`: whose kernel runs.
    Operation(const Plan& plan, Stack& stack, c10::DispatchKey key = c10::DispatchKey::CPU)
        : plan_(plan), stack_(stack), first_(stack.size() - plan.schema.arguments().size()), key_(key), asks_parts_(!are_dense() && plan.is_structural) {
        look();
    }

    void run() {
        Queue& queue = current_queue(device_);
        TORCH_CHECK_NOT_IMPLEMENTED(are_dense() ? plan_.has_kernel : plan_.op.hasComputedKernelForDispatchKey(key_), kDevice, ":", static_cast<int>(device_), " cannot run ",
                                    plan_.name, ": the device runs kernels of the processor, and torch has none for ", are_dense() ? "it" : "tensors of this layout");
        if (asks_parts_) return run_on_parts();
        if (plan_.is_view) return run_here(queue, false);
        const Called called(plan_.word.c_str());
        const Probe::Off real;
        const bool can_queue = are_dense() && !plan_.is_copy && plan_.can_queue.load(std::memory_order_relaxed) && !(plan_.is_index && has_mask());
        if (calls->runs_at_once() && (size_ <= kAtOnce || !can_queue) && run_at_once(queue)) return;
        if (can_queue && submit(queue, plan_.has_meta)) return;
        wait(queue);
        run_here(queue, true);
    }
    // All of the bytes are moved on return, or (false) in stream order.
    void copy(Queue& queue, bool waits) {
        const Called called(plan_.word.c_str());
        if (calls->runs_at_once() && (size_ <= kAtOnce || waits) && run_at_once(queue)) return;
        (void)submit(queue, false, !waits);
        if (waits) queue.synchronize();
    }

  private:
    static constexpr uint64_t kAtOnce = uint64_t{64} << 10;   // bytes; a smaller operation is over before another thread begins it

    // Which device it is, and that all tensors are there.
    void look() {
        bool is_known = false, is_of_tensor = false;
        const bool copies_parts = asks_parts_ && plan_.is_copy;
        const auto& arguments = plan_.schema.arguments();
        for (size_t i = 0; i < arguments.size(); ++i) {
            const IValue& value = stack_[first_ + i];
            const bool is_index = value.isOptionalTensorList();
            each_tensor(value, [&](const at::Tensor& tensor) {
                each_part(tensor, [&](const at::Tensor& part) { size_ += static_cast<uint64_t>(part.numel()) * part.itemsize(); });
                if (is_on_device(tensor)) {
                    if (is_known && tensor.device().index() != device_ && !copies_parts) refuse_devices(tensor.device(), arguments[i].name());
                    device_ = tensor.device().index();
                    is_known = is_of_tensor = true;
                    if (!plan_.is_view && !asks_parts_) each_part(tensor, [&](const at::Tensor& part) { check_memory(plan_.word.c_str(), part); });
                } else if (tensor.dim() != 0 && !is_index && !plan_.is_copy && !plan_.is_view && (!asks_parts_ || plan_.makes_for_device) && !plan_.is_of_host[i] && tensor.device().is_cpu()) {
                    strangers_.emplace_back(tensor.device(), i);
                }
            });
            if (value.isDevice() && value.toDevice().type() == kDevice && (!is_known || asks_parts_)) {
                device_ = value.toDevice().has_index() ? value.toDevice().index() : current_device;
                is_known = true;
            }
        }
        if (!is_known) device_ = current_device;
        if (asks_parts_ && !is_of_tensor) return;
        for (const auto& [device, i] : strangers_) refuse_devices(device, arguments[i].name());
    }
    [[noreturn]] void refuse_devices(Device other, const std::string& argument) const {
        TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", Device(kDevice, device_), " and ", other,
                    "! (when checking argument for argument ", argument, " of ", plan_.name, ")");
    }

    bool are_dense() const { return key_ == c10::DispatchKey::CPU; }

    bool has_mask() const {
        bool is_mask = false;
        for (size_t i = first_; i < stack_.size(); ++i)
            if (stack_[i].isOptionalTensorList())
                each_tensor(stack_[i], [&](const at::Tensor& tensor) { is_mask |= tensor.scalar_type() == c10::kBool || tensor.scalar_type() == c10::kByte; });
        return is_mask;
    }
    bool run_at_once(Queue& queue) {
        const std::unique_lock running(queue.running, std::try_to_lock);
        if (!running || !queue.is_settled()) return false;
        run_here(queue, true);
        return true;
    }
    // For what cannot be queued.  The checker sees it as an operation of the stream.
    void wait(Queue& queue) {
        if (calls->is_checked()) {
            auto work = std::make_unique<Touches>();
            note_bytes(work->spans, {});
            queue.submit(filled(std::move(work)));
        }
        queue.synchronize();
    }

    void run_on_parts() {
        const OnDevice current(device_);
        plan_.op.redispatchBoxed(c10::DispatchKeySet(key_), &stack_);
    }
    void run_here(Queue& queue, bool places) {
        Aliases aliases(Aliases::Kind::cpu);
        const std::vector<IValue> originals(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
        const auto arguments = replace(aliases, c10::kCPU, queue, false);
        {
            std::optional<Placement> placement;
            if (places) placement.emplace(queue);
            const KernelsOnly below;
            plan_.op.redispatchBoxed(c10::DispatchKeySet(key_), &stack_);
        }
        for (size_t i = 0; i < originals.size(); ++i)
            if (plan_.written[i]) follow(originals[i], arguments[i], aliases, queue);
        const size_t begin = stack_.size() - plan_.returned.size();
        for (size_t i = 0; i < plan_.returned.size(); ++i) {
            IValue& value = stack_[begin + i];
            if (plan_.returned[i] >= 0) value = originals[static_cast<size_t>(plan_.returned[i])];
            else replace_tensors(value, [&](const at::Tensor& tensor) { return aliases.back(tensor, queue); });
        }
    }
    static void follow(const IValue& original, const IValue& alias, Aliases& aliases, Queue& queue) {
        std::vector<at::Tensor> tensors, changed;
        each_tensor(original, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
        each_tensor(alias, [&](const at::Tensor& tensor) { changed.push_back(tensor); });
        for (size_t i = 0; i < tensors.size(); ++i)
            if (is_on_device(tensors[i])) aliases.follow(tensors[i], changed[i], queue);
    }

    // Put aliases in the place of the arguments, which are returned.  `keeps`: the operation runs later.
    std::vector<IValue> replace(Aliases& aliases, c10::DeviceType type, Queue& queue, bool keeps) {
        for (size_t i = first_; i < stack_.size(); ++i) {
            IValue& value = stack_[i];
            if (value.isDevice() && value.toDevice().type() == kDevice) value = Device(type);
            const bool is_written = plan_.written[i - first_];
            replace_tensors(value, [&](const at::Tensor& tensor) -> at::Tensor {
                if (is_on_device(tensor)) return aliases.of(tensor);
                if (!keeps || !tensor.device().is_cpu() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
                // The program may change it before the operation runs.  Of a copy it must not; there its bytes are kept, without the
                // object of Python, whose end takes the GIL.
                return is_written || plan_.is_copy ? tensor_on(tensor.storage(), c10::DispatchKey::CPU, tensor) : tensor.clone();
            });
        }
        if (plan_.generator >= 0) {
            IValue& value = stack_[first_ + static_cast<size_t>(plan_.generator)];
            if (type == c10::kCPU) value = generator(value, queue).of_operation();
            else value = IValue();
        }
        return {stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end()};
    }
    static DeviceGenerator& generator(const IValue& value, Queue& queue) {
        if (!value.isGenerator() || !value.toGenerator().defined()) return *default_generator(queue.device).get<DeviceGenerator>();
        const at::Generator passed = value.toGenerator();
        TORCH_CHECK(passed.device().type() == kDevice, "Expected a '", kDevice, "' device type for generator but found '", passed.device().type(), "'");
        return *passed.get<DeviceGenerator>();
    }

    // What a stream runs.
    struct Touches : peerlane::Work {
        std::vector<peerlane::WorkBytes> spans;
        static bool nothing(peerlane::Work*) noexcept { return true; }
    };
    struct Queued final : Touches {
        const Plan* plan = nullptr;
        Stack stack;                        // the arguments, as aliases
        std::vector<at::Tensor> results;    // aliases of the new ones
        std::shared_ptr<const Shapes> shapes;
        std::string failure;
        std::vector<peerlane::WorkBytes> late;

        peerlane::LateBytes find_rows() noexcept {
            try {
                const KernelsOnly below;
                add_chosen_rows(late, *plan, stack);
            } catch (const std::exception&) {   // the kernel says what is wrong
            }
            return {late.data(), late.size()};
        }
        bool run_kernel() noexcept {
            try {
                const KernelsOnly below;
                {
                    std::vector<Placement::Room> rooms;
                    for (const at::Tensor& each : results) rooms.push_back({static_cast<char*>(each.data_ptr()), each.storage().nbytes()});
                    const Placement placement(rooms);
                    plan->op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
                }
                finish();
                stack.clear();
                return true;
            } catch (const c10::IndexError& raised) {
                fail("IndexError", raised.what_without_backtrace());
            } catch (const c10::ValueError& raised) {
                fail("ValueError", raised.what_without_backtrace());
            } catch (const c10::TypeError& raised) {
                fail("TypeError", raised.what_without_backtrace());
            } catch (const c10::NotImplementedError& raised) {
                fail("NotImplementedError", raised.what_without_backtrace());
            } catch (const c10::Error& raised) {
                fail("RuntimeError", raised.what_without_backtrace());
            } catch (const std::exception& raised) {
                fail("RuntimeError", raised.what());
            }
            return false;
        }

      private:
        // Results lie where they should if the kernel asked for memory once for each; else they are copied.
        void finish() {
            const std::vector<at::Tensor> made = shapes ? results_of(*plan, *shapes, stack) : std::vector<at::Tensor>();
            TORCH_CHECK(made.size() == results.size(), plan->name, " made ", made.size(), " tensors, and its meta function ", results.size());
            std::vector<std::pair<at::Tensor, at::Tensor>> copies;
            for (size_t i = 0; i < made.size(); ++i) {
                const at::Tensor &from = made[i], &to = results[i];
                if (is_left_out(from, to.sizes())) {
                    to.zero_();
                    continue;
                }
                TORCH_CHECK(from.sizes().equals(to.sizes()) && from.dtype() == to.dtype(), plan->name, " made a tensor of sizes ", from.sizes(), " and type ", from.dtype(),
                            ", and its meta function one of sizes ", to.sizes(), " and type ", to.dtype());
                if (from.data_ptr() != to.data_ptr() || !from.strides().equals(to.strides())) copies.emplace_back(to, from);
            }
            // One of them may lie where another one should.
            if (copies.size() > 1 || (copies.size() == 1 && lies_in_results(copies[0].second)))
                for (auto& [to, from] : copies) from = from.clone();
            for (const auto& [to, from] : copies) to.copy_(from);
        }
        bool lies_in_results(const at::Tensor& tensor) const {
            return std::ranges::any_of(results, [&](const at::Tensor& each) { return each.storage().data() == tensor.storage().data(); });
        }
        void fail(const char* type, const char* text) noexcept {
            error_type = type;
            try {
                failure = text;
                error = failure.c_str();
            } catch (const std::bad_alloc&) {
                error = "out of memory";
            }
        }
    };

    template <class Submitted>
    peerlane::Work* filled(std::unique_ptr<Submitted> work) const {
        work->name = plan_.name.c_str();
        work->size = size_;
        work->bytes = work->spans.data();
        work->count = work->spans.size();
        if constexpr (std::is_same_v<Submitted, Queued>) work->run = [](peerlane::Work* self) noexcept { return static_cast<Queued*>(self)->run_kernel(); };
        else work->run = &Touches::nothing;
        work->end = [](peerlane::Work* self) noexcept { delete static_cast<Submitted*>(self); };
        return work.release();
    }

    // False, and nothing has happened, if the meta function cannot tell the results.
    bool submit(Queue& queue, bool asks_meta, bool is_watched = false) {
        std::vector<at::Tensor> results;    // flat
        Stack returns;
        std::shared_ptr<const Shapes> shapes;
        if (asks_meta && !(shapes = ask_meta(queue, results, returns))) return false;
        std::vector<IValue> originals(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
        Aliases aliases(Aliases::Kind::cpu);
        auto work = std::make_unique<Queued>();
        work->plan = &plan_;
        work->shapes = std::move(shapes);
        work->is_watched = is_watched;
        for (const at::Tensor& result : results) work->results.push_back(aliases.of(result));
        if (calls->is_checked()) {
            const bool has_rows = numbers_of_rows(plan_, stack_, first_).first.defined();
            note_bytes(work->spans, work->results, has_rows);
            if (has_rows) work->look = [](peerlane::Work* self) noexcept { return static_cast<Queued*>(self)->find_rows(); };
        }
        work->stack = replace(aliases, c10::kCPU, queue, true);
        aliases.let_go();
        queue.submit(filled(std::move(work)));
        stack_.resize(first_);
        for (size_t i = 0; i < plan_.returned.size(); ++i)
            stack_.push_back(plan_.returned[i] >= 0 ? originals[static_cast<size_t>(plan_.returned[i])] : returns[i]);
        return true;
    }
    // Null: it cannot tell.
    std::shared_ptr<const Shapes> ask_meta(Queue& queue, std::vector<at::Tensor>& results, Stack& returns) {
        const ShapeKey key(stack_, first_);
        std::shared_ptr<const Shapes> shapes = plan_.shapes.find(key);
        if (!shapes) {
            const std::shared_ptr<Shapes> computed = plan_.is_structured ? probed() : asked(queue);
            if (!computed || !correct(*computed)) return nullptr;
            plan_.shapes.keep(key, computed);
            shapes = computed;
        }
        size_t next = 0;
        for (size_t i = 0; i < plan_.returned.size(); ++i) {
            IValue& value = returns.emplace_back();
            if (plan_.returned[i] >= 0) continue;
            c10::List<at::Tensor> list;
            for (size_t left = shapes->counts[i]; left != 0; --left) {
                const Shape& shape = shapes->made[next++];
                results.push_back(empty_on(queue, shape.sizes, shape.strides, shape.dtype));
                list.push_back(results.back());
            }
            if (*plan_.schema.returns()[i].type() == *c10::ListType::ofTensors()) value = std::move(list);
            else value = list.empty() ? at::Tensor() : list.get(0);
        }
        for (const auto& [argument, shape] : shapes->resized) resize_as(stack_[first_ + argument].toTensor(), shape, queue);
        return shapes;
    }
    // By torch's composite kernel, which makes the results and calls the operation that writes them: that is caught.
    std::shared_ptr<Shapes> probed() {
        const Stack kept(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
        try {
            const Probe probe;
            const KernelsOnly below;
            plan_.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional, stack_);
        } catch (const std::exception&) {   // the kernel itself says what is wrong
            restore(kept);
            return nullptr;
        }
        auto shapes = shapes_of_returns();
        restore(kept);
        return shapes;
    }
    std::shared_ptr<Shapes> asked(Queue& queue) {
        Aliases metas(Aliases::Kind::meta);
        const Stack kept(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
        Stack arguments;
        try {
            arguments = replace(metas, c10::kMeta, queue, false);
            const KernelsOnly below;
            plan_.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack_);
        } catch (const c10::NotImplementedError&) {
            plan_.can_queue.store(false, std::memory_order_relaxed);
            restore(kept);
            return nullptr;
        } catch (const std::exception&) {   // as above
            restore(kept);
            return nullptr;
        }
        auto shapes = shapes_of_returns();
        restore(kept);
        if (!shapes) return nullptr;
        if (plan_.name == "aten::convolution") order_dimensions(shapes->made[0], &stack_[first_]);
        for (size_t i = 0; plan_.is_out && i < kept.size(); ++i) {
            if (!plan_.written[i] || !kept[i].isTensor() || !kept[i].toTensor().defined()) continue;
            const at::Tensor &before = kept[i].toTensor(), &after = arguments[i].toTensor();
            if (!before.sizes().equals(after.sizes()) || !before.strides().equals(after.strides())) shapes->resized.emplace_back(i, Shape(after));
        }
        return shapes;
    }
    // The meta function of a convolution knows no device, and its result is contiguous; the kernel's has the order of what it takes.
    static void order_dimensions(Shape& made, const IValue* arguments) {
        if ((made.sizes.size() != 4 && made.sizes.size() != 5) || !std::all_of(arguments + 3, arguments + 6, [](const IValue& each) { return each.isIntList(); }) || !arguments[7].isIntList()) return;
        Aliases hosts(Aliases::Kind::cpu);
        const at::Tensor input = hosts.of(arguments[0].toTensor()), weight = hosts.of(arguments[1].toTensor());
        const bool has_bias = arguments[2].isTensor() && arguments[2].toTensor().defined();
        const auto stride = arguments[3].toDimVector(), padding = arguments[4].toDimVector(), dilation = arguments[5].toDimVector(), output_padding = arguments[7].toDimVector();
        const at::native::ConvBackend backend = at::native::select_conv_backend(
            input, weight, has_bias ? std::optional<at::Tensor>(hosts.of(arguments[2].toTensor())) : std::nullopt, c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
            c10::fromIntArrayRefSlow(dilation), arguments[6].toBool(), c10::fromIntArrayRefSlow(output_padding), arguments[8].toInt(), std::nullopt);
        const c10::MemoryFormat format = at::native::_determine_backend_memory_format(input, weight, backend);
        if (format == c10::MemoryFormat::ChannelsLast) made.strides = c10::get_channels_last_strides_2d(made.sizes);
        if (format == c10::MemoryFormat::ChannelsLast3d) made.strides = c10::get_channels_last_strides_3d(made.sizes);
    }
    // Meta functions in Python err about types and sizes, and none refuses all types that its kernel refuses.  So the kernel itself is asked, once for each
    // combination of types and of what is no size.  False: its results are not known before.
    bool correct(Shapes& shapes) {
        KnownTypes::Key key;
        std::optional<c10::ScalarType> of_floats;
        bool are_mixed = false, are_short = false;
        for (size_t i = first_; i < stack_.size(); ++i) {
            const IValue& value = stack_[i];
            key.push_back(value.isNone() ? -2 : -1);
            if (value.isBool()) key.push_back(value.toBool());
            else if (value.isInt() && plan_.is_type[i - first_]) key.push_back(value.toInt());
            else if (value.isString()) key.push_back(static_cast<int64_t>(std::hash<std::string>()(value.toStringRef())));
            else if (value.isBoolList())
                for (const bool each : value.toBoolList()) key.push_back(each);
            each_tensor(value, [&](const at::Tensor& tensor) {
                const c10::ScalarType type = tensor.scalar_type();
                key.push_back(static_cast<int>(type));
                if (!c10::isFloatingType(type) || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
                are_short |= c10::isReducedFloatingType(type);
                are_mixed |= of_floats.value_or(type) != type;
                of_floats = type;
            });
        }
        if (!are_mixed && (plan_.is_structured || shapes.made.empty())) return true;
        const auto [kind, types] = plan_.types.find(key, [&] { return ask_kernel(shapes); });
        if (kind == KnownTypes::Kind::refused) return !are_mixed && !are_short;   // it may refuse zeros alone
        if (kind == KnownTypes::Kind::other_sizes) {
            plan_.can_queue.store(false, std::memory_order_relaxed);
            return false;
        }
        for (size_t i = 0; i < shapes.made.size(); ++i)
            if (types[i]) shapes.made[i].dtype = *types[i];
        return true;
    }
    // By a call of it on zeros.
    KnownTypes::Answer ask_kernel(const Shapes& shapes) {
        const Stack kept(stack_.begin() + static_cast<ptrdiff_t>(first_), stack_.end());
        KnownTypes::Answer answer{KnownTypes::Kind::refused, {}};
        try {
            const KernelsOnly below;
            for (size_t i = first_; i < stack_.size(); ++i) {
                IValue& value = stack_[i];
                if (value.isDevice() && value.toDevice().type() == kDevice) value = Device(c10::kCPU);
                replace_tensors(value, [](const at::Tensor& tensor) {
                    return is_on_device(tensor) ? at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU)).zero_() : tensor.clone();
                });
            }
            if (plan_.generator >= 0) stack_[first_ + static_cast<size_t>(plan_.generator)] = at::detail::createCPUGenerator();
            plan_.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
            const std::vector<at::Tensor> made = results_of(plan_, shapes, stack_);
            answer.kind = made.size() == shapes.made.size() ? KnownTypes::Kind::types : KnownTypes::Kind::other_sizes;
            for (size_t i = 0; i < made.size() && answer.kind == KnownTypes::Kind::types; ++i) {
                auto& type = answer.types.emplace_back();
                if (is_left_out(made[i], shapes.made[i].sizes)) continue;
                type = made[i].dtype();
                if (!is_plain(made[i]) || !made[i].sizes().equals(shapes.made[i].sizes)) answer.kind = KnownTypes::Kind::other_sizes;
            }
        } catch (const std::exception&) {   // the call itself says what is wrong
        }
        restore(kept);
        return answer;
    }
    // The new tensors on top of a stack, of those results that have any by their known shapes.
    static std::vector<at::Tensor> results_of(const Plan& plan, const Shapes& shapes, const Stack& stack) {
        std::vector<at::Tensor> made;
        const size_t begin = stack.size() - plan.returned.size();
        for (size_t i = 0; i < plan.returned.size(); ++i) {
            if (shapes.counts[i] == 0) continue;
            const IValue& value = stack[begin + i];
            if (value.isTensorList()) std::ranges::copy(value.toTensorVector(), std::back_inserter(made));
            else made.push_back(value.toTensor());
        }
        return made;
    }
    // A kernel leaves out what nobody wants, or what its gradient will not need.
    static bool is_left_out(const at::Tensor& made, c10::IntArrayRef expected) { return !made.defined() || (made.numel() == 0 && c10::multiply_integers(expected) != 0); }
    // It is neither sparse nor nested nor quantized: of a quantized one a meta function may make a dense one.
    static bool is_plain(const at::Tensor& tensor) { return is_dense(tensor) && !c10::isQIntType(tensor.scalar_type()); }
    // Null: one is not plain.
    std::shared_ptr<Shapes> shapes_of_returns() const {
        auto shapes = std::make_shared<Shapes>();
        bool are_plain = true;
        const size_t begin = stack_.size() - plan_.returned.size();
        for (size_t i = 0; i < plan_.returned.size(); ++i) {
            size_t count = 0;
            if (plan_.returned[i] < 0)
                each_tensor(stack_[begin + i], [&](const at::Tensor& tensor) {
                    are_plain &= is_plain(tensor);
                    if (!are_plain) return;
                    shapes->made.emplace_back(tensor);
                    ++count;
                });
            shapes->counts.push_back(count);
        }
        return are_plain ? shapes : nullptr;
    }
    void restore(const Stack& kept) {
        stack_.resize(first_);
        stack_.insert(stack_.end(), kept.begin(), kept.end());
    }
    // As the meta function has resized an output.
    static void resize_as(const at::Tensor& tensor, const Shape& shape, Queue& queue) {
        const size_t size = at::detail::computeStorageNbytes(shape.sizes, shape.strides, tensor.itemsize(), static_cast<size_t>(tensor.storage_offset()));
        if (size > tensor.storage().nbytes()) {
            tensor.storage().set_data_ptr_noswap(allocator().allocate(size, queue));
            tensor.storage().set_nbytes(size);
        }
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides);
    }

    // Which rows of its first tensor an operation touches, and along which dimension; undefined: it touches all.
    static std::pair<at::Tensor, int64_t> numbers_of_rows(const Plan& plan, const Stack& stack, size_t first) {
        if (plan.chosen_by < 0 || stack[first].toTensor().dim() == 0) return {};
        const IValue& value = stack[first + static_cast<size_t>(plan.chosen_by)];
        at::Tensor numbers;
        int64_t along = plan.chosen_along < 0 ? 0 : at::maybe_wrap_dim(stack[first + static_cast<size_t>(plan.chosen_along)].toInt(), stack[first].toTensor().dim());
        if (value.isTensor()) numbers = value.toTensor();
        else
            for (const c10::IValue& each : value.toListRef()) {
                if (each.isTensor() && (numbers = each.toTensor()).defined()) break;
                ++along;
            }
        const bool are_numbers = numbers.defined() && (numbers.scalar_type() == c10::kLong || numbers.scalar_type() == c10::kInt);
        return {are_numbers ? numbers : at::Tensor(), along};
    }
    static void add_chosen_rows(std::vector<peerlane::WorkBytes>& spans, const Plan& plan, const Stack& stack) {
        constexpr size_t kMostRuns = 1024;
        const at::Tensor whole = stack[0].toTensor();
        const auto [numbers, along] = numbers_of_rows(plan, stack, 0);
        const at::Tensor flat = numbers.to(c10::kLong).flatten().contiguous();
        std::vector<int64_t> rows(flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel());
        const int64_t size = whole.size(along);
        for (int64_t& row : rows) row += row < 0 ? size : 0;
        std::ranges::sort(rows);
        const bool is_written = plan.written[0];
        for (size_t at = 0; at < rows.size();) {
            const size_t begin = at++;
            while (at < rows.size() && rows[at] <= rows[at - 1] + 1) ++at;
            if (rows[begin] < 0 || rows[at - 1] >= size) continue;
            add_bytes(spans, whole.narrow(along, rows[begin], rows[at - 1] - rows[begin] + 1), is_written);
            if (spans.size() <= kMostRuns) continue;
            spans.clear();
            return add_bytes(spans, whole, is_written);
        }
    }

    // For the checker: which bytes it reads and writes.
    void note_bytes(std::vector<peerlane::WorkBytes>& spans, c10::ArrayRef<at::Tensor> results, bool skips_first = false) const {
        const auto& arguments = plan_.schema.arguments();
        const bool trains = plan_.updates_statistics && (plan_.training < 0 || stack_[first_ + static_cast<size_t>(plan_.training)].toBool());
        for (size_t i = skips_first ? 1 : 0; i < plan_.written.size(); ++i)
            each_tensor(stack_[first_ + i], [&](const at::Tensor& tensor) {
                const bool is_written = plan_.written[i] || (trains && arguments[i].name().starts_with("running_"));
                if (is_on_device(tensor) || plan_.is_copy) each_part(tensor, [&](const at::Tensor& part) { add_bytes(spans, part, is_written); });
            });
        for (const at::Tensor& result : results) add_bytes(spans, result, true);
    }
    static void add_bytes(std::vector<peerlane::WorkBytes>& spans, const at::Tensor& tensor, bool is_written) {
        constexpr uint64_t kMostRows = uint64_t{1} << 12;
        if (tensor.numel() == 0) return;
        struct Dimension {
            uint64_t stride, size;
        };
        c10::SmallVector<Dimension, 6> dimensions;
        const uint64_t element = tensor.itemsize();
        for (int64_t i = 0; i < tensor.dim(); ++i)
            if (tensor.size(i) != 1 && tensor.stride(i) != 0) dimensions.push_back({static_cast<uint64_t>(tensor.stride(i)) * element, static_cast<uint64_t>(tensor.size(i))});
        std::ranges::sort(dimensions, {}, &Dimension::stride);
        uint64_t width = element;   // contiguous bytes
        uint64_t whole = element;
        c10::SmallVector<Dimension, 6> apart;   // those that leave bytes out
        for (const Dimension& each : dimensions) {
            whole += each.stride * (each.size - 1);
            if (apart.empty() && each.stride <= width) width = whole;
            else if (!apart.empty() && each.stride == apart.back().stride * apart.back().size) apart.back().size *= each.size;
            else apart.push_back(each);
        }
        const char* const host = host_of(static_cast<const char*>(tensor.storage().data()) + static_cast<uint64_t>(tensor.storage_offset()) * element);
        Dimension rows{width, 1};
        if (const auto longest = std::ranges::max_element(apart, {}, &Dimension::size); longest != apart.end()) {
            rows = *longest;
            apart.erase(longest);
        }
        uint64_t others = 1;
        for (const Dimension& each : apart) others *= each.size;
        if (others > kMostRows) return spans.push_back({host, whole, whole, 1, is_written});
        for (uint64_t number = 0; number < others; ++number) {
            uint64_t offset = 0, left = number;
            for (const Dimension& each : apart) {
                offset += left % each.size * each.stride;
                left /= each.size;
            }
            spans.push_back({host + offset, rows.stride, width, rows.size, is_written});
        }
    }

    const Plan& plan_;
    Stack& stack_;
    const size_t first_;
    const c10::DispatchKey key_;
    const bool asks_parts_;   // the kernel takes the tensors of the device, and asks for their parts
    DeviceIndex device_ = 0;
    uint64_t size_ = 0;   // bytes of all tensors
    std::vector<std::pair<Device, size_t>> strangers_;
};

inline void run_boxed(const c10::OperatorHandle& op, Stack* stack) {
    const Plan& plan = Plan::of(op);
    if (Probe::is_on() && plan.is_out) return Probe::leave(plan.written, plan.returned, *stack);
    Operation(plan, *stack).run();
}

// Where a tensor is sparse, nested or quantized: the kernel of the processor for such ones.
template <c10::DispatchKey key>
void run_layout(const c10::OperatorHandle& op, Stack* stack) {
    Operation(Plan::of(op), *stack, key).run();
}

}  // namespace peerlane_torch

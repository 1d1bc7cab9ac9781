// What torch's operations on process groups call: the methods of a process group of Python.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime.h"

namespace peerlane_torch {

// A work of Python.  C++ would keep the part that is of C++ alone.
class KeptWork final : public c10d::Work {
  public:
    // With the GIL.
    explicit KeptWork(py::object work) : work_(work.cast<c10::intrusive_ptr<c10d::Work>>()), kept_(work.release().ptr()) {}
    ~KeptWork() override {
        if (!Py_IsInitialized()) return;
        const py::gil_scoped_acquire gil;
        Py_DECREF(kept_);
    }
    bool wait(std::chrono::milliseconds timeout) override { return work_->wait(timeout); }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }

  private:
    const c10::intrusive_ptr<c10d::Work> work_;
    PyObject* const kept_;
};

class Relay final : public c10d::Backend {
    using Tensors = std::vector<at::Tensor>;
    using Lists = std::vector<Tensors>;
    using Splits = std::vector<int64_t>;
    using Work = c10::intrusive_ptr<c10d::Work>;

  public:
    // Python's function gets the name of the method and its arguments.
    Relay(int rank, int size, py::object call) : Backend(rank, size), call_(call.release().ptr()) {}
    ~Relay() override {
        if (!Py_IsInitialized()) return;
        const py::gil_scoped_acquire gil;
        Py_DECREF(call_);
    }

    const std::string getBackendName() const override { return "peerlane"; }
    Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override { return call("broadcast", tensors, options); }
    Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override { return call("allreduce", tensors, options); }
    Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override { return call("allreduce_coalesced", tensors, options); }
    Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override { return call("reduce", tensors, options); }
    Work allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override { return call("allgather", outputs, inputs, options); }
    Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override { return call("_allgather_base", output, input, options); }
    Work allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override { return call("allgather_coalesced", outputs, inputs, options); }
    Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
        return call("allgather_into_tensor_coalesced", outputs, inputs, options);
    }
    Work gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override { return call("gather", outputs, inputs, options); }
    Work scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override { return call("scatter", outputs, inputs, options); }
    Work reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override { return call("reduce_scatter", outputs, inputs, options); }
    Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
        return call("_reduce_scatter_base", output, input, options);
    }
    Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
        return call("reduce_scatter_tensor_coalesced", outputs, inputs, options);
    }
    Work alltoall_base(at::Tensor& output, at::Tensor& input, Splits& output_splits, Splits& input_splits, const c10d::AllToAllOptions& options) override {
        return call("alltoall_base", output, input, output_splits, input_splits, options);
    }
    Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override { return call("alltoall", outputs, inputs, options); }
    Work send(Tensors& tensors, int peer, int tag) override { return call("send", tensors, peer, tag); }
    Work recv(Tensors& tensors, int peer, int tag) override { return call("recv", tensors, peer, tag); }

  private:
    template <class... Arguments>
    Work call(const char* name, const Arguments&... arguments) {
        const py::gil_scoped_acquire gil;
        return c10::make_intrusive<KeptWork>(py::handle(call_)(name, arguments...));
    }

    PyObject* const call_;
};

}  // namespace peerlane_torch

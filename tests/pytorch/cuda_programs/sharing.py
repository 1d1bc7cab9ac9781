"""Sends a tensor of ``cuda`` to another process, by a queue and by torch's functions for it."""

import torch
import torch.multiprocessing as multiprocessing
from torch.multiprocessing.reductions import reduce_tensor


def work(queue, back):
    tensor = queue.get()
    tensor.mul_(2)
    twice = queue.get()
    one_storage = twice.data_ptr() == tensor.data_ptr()
    make, arguments = queue.get()
    arguments = list(arguments)
    arguments[6] = 1  # the device, by this process's number
    again = make(*arguments)
    again.add_(1)
    torch.cuda.synchronize()
    back.put([str(tensor.device), str(again.device), one_storage])
    queue.get()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    child = context.Process(target=work, args=(queue, back))
    child.start()
    tensor, other = torch.ones(1000, device="cuda:0"), torch.ones(1000, device="cuda:1")
    queue.put(tensor)
    queue.put(tensor)
    queue.put(reduce_tensor(other))
    print(*back.get(), tensor.sum().item(), other.sum().item())
    queue.put("end")
    child.join()
    del tensor, other
    torch.cuda.ipc_collect()
    print(torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1))

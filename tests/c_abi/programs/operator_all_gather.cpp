// A custom operator, called twice: all ranks gather what each has, by writes.  Arguments: the description, how many floats.
#include "operator_host.h"

int main(int, char** words) {
    return run_ranks([=](const Rank& rank) {
        const size_t count = static_cast<size_t>(atoi(words[2]));
        std::vector<uint32_t> peers;
        for (uint32_t each = 0; each < rank.ranks; ++each)
            if (each != rank.number) peers.push_back(each);
        Operator op(rank, "gather", peers, kAicpuTs, 3);
        for (uint32_t round = 0; round < 2; ++round) {
            const auto value = [=](uint32_t of) { return static_cast<float>(100 * round + of); };
            void* const input = rank.filled(std::vector<float>(count, value(rank.number)));
            void* const output = rank.memory(sizeof(float) * count * rank.ranks);
            op.call.input = input;
            op.call.output = output;
            op.call.bytes = sizeof(float) * count;
            op.launch(words[1], "all_gather_kernel");
            OK(aclrtSynchronizeStream(rank.stream));
            std::vector<float> wanted;
            for (uint32_t each = 0; each < rank.ranks; ++each) wanted.insert(wanted.end(), count, value(each));
            rank.expect(output, wanted);
            OK(aclrtFree(input));
            OK(aclrtFree(output));
        }
    });
}

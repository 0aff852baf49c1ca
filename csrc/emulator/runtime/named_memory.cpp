/* The memory of a launch by its names in the kernel. */
#include "emulator/runtime/named_memory.h"

#include <string.h>

#include "emulator/runtime/guard.h"
#include "emulator/runtime/shared_memory.h"

namespace gr
{

std::vector<gr_memory> named_memory(const Launch *launch, const Shape &shape, uint32_t number)
{
    const Kernel *kernel = launch->kernel;
    std::vector<gr_memory> found;
    uint64_t front = shared_front(shape);
    for (unsigned i = 0; i < kernel->parameters && kernel->names[i]; ++i) {
        uintptr_t first, at = 0;
        uint32_t element = kernel->pointees[i];
        if (element)
            memcpy(&at, launch->args[i], sizeof at);
        size_t bytes = device_range(reinterpret_cast<const void *>(at), &first);
        if (at)
            found.push_back({kernel->names[i], number, 0, !bytes, at,
                             bytes ? first + bytes - at : element, bytes ? first : at, element});
    }
    for (const gr_variable *v = shape.variables; v; v = v->next)
        found.push_back(
            {v->name, number, 1, 0, front - v->before, v->bytes, 0, (uint32_t)v->element});
    if (shape.shared)
        found.push_back({nullptr, number, 1, 0, front, shape.shared, 0, 0});
    return found;
}

MemoryPlace memory_place(const Worker *w, uintptr_t address)
{
    uint64_t in_team = address - (uintptr_t)w->shared, stride = shared_stride(w->shape);
    if (!in_shared(w, address))
        return {false, address, 0};
    return {true, in_team % stride, w->blocks[in_team / stride].rank};
}

gr_memory *find_memory(std::vector<gr_memory> &list, uint32_t launch, const MemoryPlace &place)
{
    gr_memory *found = nullptr;
    uint64_t least = guard_bytes;
    for (gr_memory &one : list) {
        uint64_t in = place.at - one.first, away = in < one.bytes ? 0 : in - one.bytes + 1;
        if (!place.is_shared)
            away = in < one.bytes + guard_bytes ? 0 : UINT64_MAX;
        else if (place.at < one.first)
            away = one.first - place.at;
        if (one.launch == launch && one.is_shared == place.is_shared &&
            (away < least || (found && away == least && one.first > found->first))) {
            found = &one;
            least = away;
        }
    }
    if (found && !found->name)
        found->name = gr_shared_name ? gr_shared_name : "shared";
    return found;
}

} // namespace gr

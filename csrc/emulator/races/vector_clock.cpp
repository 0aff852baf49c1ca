/* Vector clocks. Joins work page by page, and copy only pages that differ. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/races/vector_clock.h"

#include <algorithm>

namespace gr
{

bool knows(const VectorClock &clock, unsigned block, unsigned slot, uint32_t time)
{
    if (!clock)
        return false;
    auto page = std::lower_bound(clock->begin(), clock->end(), block,
                                 [](const Page &p, unsigned wanted) { return p.block < wanted; });
    return page != clock->end() && page->block == block && (*page->clocks)[slot] > time;
}

Join::Sum &Join::sum_of(unsigned block)
{
    size_t at = (size_t)(std::lower_bound(blocks.begin(), blocks.end(), block) - blocks.begin());
    if (at == blocks.size() || blocks[at] != block) {
        blocks.insert(blocks.begin() + (ptrdiff_t)at, block);
        sums.insert(sums.begin() + (ptrdiff_t)at, Sum());
    }
    return sums[at];
}

Clocks &Join::writable(Sum *sum)
{
    if (!sum->own) {
        sum->own = sum->clocks ? std::make_shared<Clocks>(*sum->clocks)
                               : std::make_shared<Clocks>(slots, 0);
        sum->clocks = sum->own;
    }
    return *sum->own;
}

void Join::add(const VectorClock &clock)
{
    if (!clock || clock == last)
        return;
    last = clock;
    for (const Page &page : *clock) {
        Sum &sum = sum_of(page.block);
        if (sum.clocks == page.clocks)
            continue;
        if (!sum.clocks) {
            sum.clocks = page.clocks;
            continue;
        }
        Clocks &own = writable(&sum);
        for (unsigned slot = 0; slot < slots; ++slot)
            own[slot] = std::max(own[slot], (*page.clocks)[slot]);
    }
}

void Join::add(unsigned block, unsigned slot, uint32_t time)
{
    uint32_t &known = writable(&sum_of(block))[slot];
    known = std::max(known, time + 1);
}

VectorClock Join::result() const
{
    if (blocks.empty())
        return nullptr;
    auto pages = std::make_shared<Pages>();
    pages->reserve(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i)
        pages->push_back({blocks[i], sums[i].clocks});
    return pages;
}

} // namespace gr

#endif

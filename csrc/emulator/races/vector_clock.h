/* A vector clock over all lanes of a launch: how much a lane knows of every other one. It is stored
 * as one page per block, because a lane mostly knows of lanes in its own block. A clock is
 * immutable, so all lanes of a barrier share one. */
#pragma once

#include <memory>
#include <stdint.h>
#include <vector>

namespace gr
{

/* By lane of the block: everything that the lane did before this time of its clock is known. */
typedef std::vector<uint32_t> Clocks;

struct Page {
    unsigned block;
    std::shared_ptr<const Clocks> clocks;
};

typedef std::vector<Page> Pages; /* ascending by block */
typedef std::shared_ptr<const Pages> VectorClock;

/* Whether everything that this lane did up to and including `time` is known. A null clock is
 * empty. */
bool knows(const VectorClock &clock, unsigned block, unsigned slot, uint32_t time);

/* Joins several clocks. */
class Join
{
  public:
    explicit Join(unsigned slots) : slots(slots) {}
    void add(const VectorClock &clock);
    /* Everything that this lane did up to and including this time. */
    void add(unsigned block, unsigned slot, uint32_t time);
    VectorClock result() const;

  private:
    struct Sum {
        std::shared_ptr<const Clocks> clocks;
        std::shared_ptr<Clocks> own; /* same as `clocks` if it is writable, else null */
    };
    Sum &sum_of(unsigned block);
    Clocks &writable(Sum *sum);

    unsigned slots; /* per block */
    VectorClock last;
    std::vector<unsigned> blocks; /* ascending */
    std::vector<Sum> sums;
};

} // namespace gr

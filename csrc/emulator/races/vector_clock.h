/* What lanes know of each other: a vector clock over all lanes of a launch, kept as pages of one
 * block each, for a lane mostly knows of its own block. Knowledge is never changed once it is made,
 * so that the lanes of a barrier share one. */
#ifndef GPUREDUCE_EMULATOR_KNOWLEDGE_H
#define GPUREDUCE_EMULATOR_KNOWLEDGE_H

#include <memory>
#include <stdint.h>
#include <vector>

namespace gr
{

/* By lane of the block: all that it did before this time of its clock is known. */
typedef std::vector<uint32_t> Clocks;

struct Page {
    unsigned block;
    std::shared_ptr<const Clocks> clocks;
};

typedef std::vector<Page> Pages; /* by block */
typedef std::shared_ptr<const Pages> Knowledge;

/* Null knowledge is that of nothing. */
bool knows(const Knowledge &knowledge, unsigned block, unsigned slot, uint32_t time);

/* Adds up what several know. */
class Gathering
{
  public:
    explicit Gathering(unsigned slots) : slots(slots) {}
    void add(const Knowledge &knowledge);
    /* All that this lane did up to and with this time. */
    void add(unsigned block, unsigned slot, uint32_t time);
    Knowledge result() const;

  private:
    struct Sum {
        std::shared_ptr<const Clocks> clocks;
        std::shared_ptr<Clocks> own; /* the same, if it may be written to */
    };
    Sum &sum_of(unsigned block);
    Clocks &writable(Sum *sum);

    unsigned slots; /* lanes of a block */
    Knowledge last;
    std::vector<unsigned> blocks; /* ascending */
    std::vector<Sum> sums;
};

} // namespace gr

#endif

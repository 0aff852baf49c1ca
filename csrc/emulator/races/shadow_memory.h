/* Who has touched which word of memory, as far as it can still matter. */
#ifndef GPUREDUCE_EMULATOR_SHADOW_H
#define GPUREDUCE_EMULATOR_SHADOW_H

#include <memory>
#include <stdint.h>
#include <unordered_map>
#include <vector>

#include "emulator/trace/access.h"

namespace gr
{

/* A place in the code: a return address if `line` is 0, else the name of a file. Null: the end of
 * the block. */
struct Site {
    const void *at;
    int line;
};

/* One access to the bytes of a word, by a lane at a time of its clock. */
struct Record {
    unsigned block, slot;
    uint32_t time;
    uint32_t next; /* in its word's list, 0: none; of the same kind */
    Site site;
    uint8_t bytes; /* a bit for each of the word's */
};

struct Word {
    uint32_t first[3]; /* by Access */
};

class Shadow
{
  public:
    static constexpr unsigned word_bytes = 4;

    /* The word that lies at this address; the reference holds until the next call. */
    Word &word_at(uintptr_t address);
    Record &record(uint32_t number)
    {
        return records[number];
    }
    /* True: it took more memory. */
    bool insert(Word *word, Access kind, const Record &record);
    /* Takes out what *link leads to. */
    void remove(uint32_t *link);
    void clear();
    /* Memory that records take. */
    size_t bytes() const
    {
        return records.size() * sizeof(Record);
    }

  private:
    static constexpr unsigned page_words = 1024;
    std::unordered_map<uintptr_t, std::unique_ptr<Word[]>> pages;
    uintptr_t last_page = ~(uintptr_t)0;
    Word *last_words = nullptr;
    std::vector<Record> records = std::vector<Record>(1); /* the first is nobody's */
    uint32_t free_record = 0;
};

} // namespace gr

#endif

/* Shadow memory: for each word of memory, the accesses that later ones may still race with. */
#pragma once

#include <memory>
#include <stdint.h>
#include <unordered_map>
#include <vector>

#include "emulator/trace/access.h"

namespace gr
{

/* CACHED: a load through a cache that stores do not reach. OF_BLOCK: an atomic for its own block
 * alone. */
enum How : uint8_t { PLAIN, VOLATILE, CACHED, OF_BLOCK };

/* A place in the code. If `line` is 0, `at` is a return address, otherwise the name of a file. A
 * null `at` is the end of the block. */
struct Site {
    const void *at;
    int line;
    How how = PLAIN;
};

/* One access to bytes of a word, by a lane at a time of its clock. */
struct Record {
    unsigned block, slot;
    uint32_t time;
    uint32_t next; /* record of the same word and kind; 0: none */
    Site site;
    uint8_t bytes;  /* bit mask of the word's bytes */
    uint32_t round; /* a store: how many the lane made at this site since a block barrier; else 0 */
};

struct Word {
    uint32_t first[3]; /* head of the record list, by Access */
    uint8_t written;   /* bit mask of the bytes that a thread has written */
};

class Shadow
{
  public:
    static constexpr unsigned word_bytes = 4;

    /* The shadow of the word at this address. The reference is valid until the next call. */
    Word &word_at(uintptr_t address);
    Record &record(uint32_t number)
    {
        return records[number];
    }
    /* Returns true if it took new memory instead of reusing a removed record. */
    bool insert(Word *word, Access kind, const Record &record);
    /* Removes the record that *link refers to. */
    void remove(uint32_t *link);
    void clear();
    /* Memory used by records. */
    size_t bytes() const
    {
        return records.size() * sizeof(Record);
    }

  private:
    static constexpr unsigned page_words = 1024;
    std::unordered_map<uintptr_t, std::unique_ptr<Word[]>> pages;
    uintptr_t last_page = ~(uintptr_t)0;
    Word *last_words = nullptr;
    std::vector<Record> records = std::vector<Record>(1); /* record 0 is unused */
    uint32_t free_record = 0;
};

} // namespace gr

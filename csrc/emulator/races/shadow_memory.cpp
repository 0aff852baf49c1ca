/* Shadow memory: words in pages, allocated on first access; records in one array. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/races/shadow_memory.h"

namespace gr
{

Word &Shadow::word_at(uintptr_t address)
{
    uintptr_t word = address / word_bytes, page = word / page_words;
    if (page != last_page) {
        std::unique_ptr<Word[]> &words = pages[page];
        if (!words)
            words.reset(new Word[page_words]());
        last_words = words.get();
        last_page = page;
    }
    return last_words[word % page_words];
}

bool Shadow::insert(Word *word, Access kind, const Record &record)
{
    uint32_t number = free_record;
    bool grows = !number;
    if (number) {
        free_record = records[number].next;
    } else {
        number = (uint32_t)records.size();
        records.emplace_back();
    }
    records[number] = record;
    records[number].next = word->first[kind];
    word->first[kind] = number;
    return grows;
}

void Shadow::remove(uint32_t *link)
{
    uint32_t number = *link;
    *link = records[number].next;
    records[number].next = free_record;
    free_record = number;
}

void Shadow::clear()
{
    pages.clear();
    records.resize(1);
    free_record = 0;
    last_page = ~(uintptr_t)0;
}

} // namespace gr

#endif

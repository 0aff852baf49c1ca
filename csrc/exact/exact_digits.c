/* Accumulators as arrays of 64-bit integers: words.h has their layout. */
#include "exact/words.h"

_Static_assert(GR_WORDS_HEAD + GR_WORDS_COMPONENT == GR_WORDS, "exact.h says the same");

size_t gr_exact_words(int components)
{
    return GR_WORDS_HEAD + (size_t)components * GR_WORDS_COMPONENT;
}

bool gr_exact_component_to_words(const gr_exact *acc, int component, int64_t *words)
{
    gr_exact normal = *acc;
    gr_exact_normalize(&normal);
    words += GR_WORDS_HEAD + component * GR_WORDS_COMPONENT;
    gr_write_words_flags(words, normal.flags);
    memcpy(words + GR_WORDS_FLAGS, normal.digit, sizeof normal.digit);
    return gr_exact_top_fits(&normal);
}

bool gr_exact_to_words(const gr_exact *acc, int components, gr_load load, int64_t *words)
{
    bool fits = true;
    gr_write_words_head(words, acc[0].count, components, load);
    for (int i = 0; i < components; i++)
        fits &= gr_exact_component_to_words(&acc[i], i, words);
    return fits;
}

/* Reads one component. Returns false for words that no sum of `added` accumulators has. */
static bool read_component(gr_exact *acc, const int64_t *words, int64_t added)
{
    gr_exact_init(acc);
    for (int bit = 0; bit < GR_WORDS_FLAGS; bit++) {
        if (words[bit] < 0 || words[bit] > added)
            return false;
        acc->flags |= words[bit] ? 1u << bit : 0;
    }
    const int64_t *digit = words + GR_WORDS_FLAGS, most = added * (int64_t)UINT32_MAX;
    for (int k = 0; k < GR_EXACT_DIGITS - 1; k++)
        if (digit[k] < 0 || digit[k] > most)
            return false;
    if (digit[GR_EXACT_DIGITS - 1] > most || digit[GR_EXACT_DIGITS - 1] < -most)
        return false;
    return gr_exact_add_digits(acc, digit, GR_EXACT_DIGITS, 0);
}

gr_words_error gr_exact_from_words(const int64_t *words, int components, gr_exact acc[2],
                                   gr_load *load)
{
    int64_t added = gr_words_added(words);
    gr_exact read[2];
    int type = 1;
    if (added < 1 || added > GR_WORDS_MOST)
        return GR_WORDS_BAD_NUMBER;
    bool is_old = words[0] == added;
    if (!is_old && words[0] != added * gr_words_first(components))
        return GR_WORDS_BAD_FORMAT;
    while (type <= 4 &&
           words[1] != added * (is_old ? 256 + 16 * components + type : gr_words_type(type)))
        type++;
    if (!gr_load_of_type(type, load) || (components == 2 && gr_load_size(*load) < 4))
        return GR_WORDS_BAD_FORMAT;
    int64_t most = added * (int64_t)UINT32_MAX;
    if (words[2] < 0 || words[2] > most || words[3] < 0 || words[3] > UINT32_MAX)
        return GR_WORDS_BAD_CONTENT;
    uint64_t count;
    if (__builtin_add_overflow((uint64_t)words[3] << 32, (uint64_t)words[2], &count))
        return GR_WORDS_BAD_CONTENT;
    for (int i = 0; i < components; i++) {
        if (!read_component(&read[i], words + GR_WORDS_HEAD + i * GR_WORDS_COMPONENT, added))
            return GR_WORDS_BAD_CONTENT;
        read[i].count = count;
        gr_exact_normalize(&read[i]);
        if (!gr_exact_fits_count(&read[i]))
            return GR_WORDS_BAD_CONTENT;
    }
    memcpy(acc, read, (size_t)components * sizeof *acc);
    return GR_WORDS_OK;
}

/* Random arrays, long and short, by csrc/exact's quick ways and element by element: the same sums.
 *
 *     exact_fuzz ARRAYS SEED
 *
 * Which quick way an array takes depends on its exponents, so these are drawn in many ways. Prints
 * for each dtype how many elements were added up, and how many arrays came out differently. */
#include "exact/exact.h"
#include "exact/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 80000 };

static uint64_t state;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1d;
}

static unsigned below(unsigned n)
{
    return (unsigned)(random_bits() >> 32) % n;
}

static unsigned one_in(unsigned n)
{
    return below(n) == 0;
}

/* How the elements of one array are drawn. */
typedef struct {
    unsigned specials; /* the exponent field of inf and nan */
    unsigned kind, low, high, pivot;
    unsigned zeros, subnormals; /* of 100 */
    unsigned infinities;        /* of 10,000 */
    unsigned sign;
} recipe;

static recipe draw_recipe(gr_format format)
{
    recipe r = {.specials = (1u << format.exponent) - 1};
    r.kind = below(8);
    r.low = below(r.specials);
    r.high = r.low + below(r.specials - r.low);
    r.pivot = below(r.specials);
    r.zeros = one_in(3) ? below(100) : 0;
    r.subnormals = one_in(3) ? below(100) : 0;
    r.infinities = one_in(6) ? 1 + below(4) : 0;
    r.sign = below(3);
    return r;
}

static unsigned draw_exponent(const recipe *r, unsigned i)
{
    switch (r->kind) {
    case 0: return r->low + below(r->high - r->low + 1);
    case 1: return one_in(2) ? r->low : r->high;
    case 2: return i % 97 == 0 ? below(r->specials) : r->pivot; /* few that do not fit the bins */
    case 3: return one_in(50) ? below(r->specials) : (r->pivot + below(16)) % r->specials;
    case 4: return one_in(2) ? r->specials - 1 : below(4) % r->specials;
    case 5: return (below(r->specials) | 15) % r->specials; /* where tables change places */
    default: return below(r->specials);
    }
}

static uint64_t draw_element(const recipe *r, gr_format format, unsigned i)
{
    uint64_t ones = ((uint64_t)1 << format.fraction) - 1, fraction = random_bits() & ones;
    uint64_t negative = r->sign == 0 ? one_in(2) : r->sign == 1 ? i % 2 : 0;
    uint64_t exponent = draw_exponent(r, i);
    if (r->kind % 2 && one_in(2))
        fraction = one_in(4) ? (uint64_t)1 << below((unsigned)format.fraction) : ones;
    if (below(100) < r->zeros)
        exponent = fraction = 0;
    else if (below(100) < r->subnormals)
        exponent = 0;
    if (below(10000) < r->infinities) {
        exponent = r->specials;
        fraction = one_in(3) ? fraction : 0;
    }
    return negative << (format.fraction + format.exponent) | exponent << format.fraction | fraction;
}

static unsigned draw_length(void)
{
    return one_in(100) ? below(MOST) : one_in(4) ? 24 + below(3000) : 1 + below(200);
}

/* Once there is a nan, nobody needs to have added up the rest. */
static int same(const gr_exact *a, const gr_exact *b)
{
    if (a->flags & b->flags & GR_EXACT_NAN)
        return 1;
    return a->flags == b->flags && a->count == b->count && gr_exact_compare(a, b) == 0;
}

/* Adds up an array both ways; returns whether they differ. */
static int differs(const unsigned char *data, size_t n, gr_load load, int components)
{
    gr_format format = gr_format_of(load);
    gr_exact quick[2], slow[2];
    size_t size = (size_t)format.size, parts = (size_t)components;
    gr_exact_sum_array(data, n, load, components, 1, quick);
    for (size_t c = 0; c < parts; c++)
        gr_exact_init(&slow[c]);
    for (size_t i = 0; i < n * parts; i++)
        gr_add_element(&slow[i % parts], gr_element_bits(data + i * size, size), format);
    int found = 0;
    for (size_t c = 0; c < parts; c++) {
        slow[c].count = n;
        found |= !same(&quick[c], &slow[c]);
    }
    return found;
}

int main(int count, char **words)
{
    static const gr_load loads[] = {GR_LOAD_f16, GR_LOAD_bf16, GR_LOAD_f32, GR_LOAD_f64};
    static const char *const names[] = {"float16", "bfloat16", "float32", "float64"};
    static unsigned char buffer[8 * (MOST + 8)];
    if (count != 3)
        return 2;
    state = strtoull(words[2], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
    for (int t = 0; t < 4; t++) {
        gr_format format = gr_format_of(loads[t]);
        unsigned long elements = 0, wrong = 0;
        for (long a = strtol(words[1], NULL, 10); a > 0; a--) {
            recipe r = draw_recipe(format);
            unsigned n = draw_length();
            int components = 1 + (int)one_in(2);
            unsigned char *data = buffer + below(64);
            for (unsigned i = 0; i < n; i++) {
                uint64_t bits = draw_element(&r, format, i);
                memcpy(data + i * (size_t)format.size, &bits, (size_t)format.size);
            }
            elements += n;
            wrong += (unsigned long)differs(data, n / (unsigned)components, loads[t], components);
        }
        printf("%s %lu %lu\n", names[t], elements, wrong);
    }
    return 0;
}

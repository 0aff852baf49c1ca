/* Accumulators as bytes, little-endian. Each row gives offset, size and content:
 *    0  4  magic, "GRXA"
 *    4  1  version, 1
 *    5  1  components, 1 or 2
 *    6  1  element type: 1 float16, 2 bfloat16, 3 float32, 4 float64
 *    7  1  flags: those of component 0, plus 16 times those of component 1
 *    8  8  count
 *   16  272 per component: the value in units of 2^-1074, one integer in two's complement
 *    .  8  FNV-1a (64 bits) of all preceding bytes
 * Each step of FNV-1a is a bijection of its state, so a change of any one byte is always detected.
 */
#include "exact/exact.h"
#include "exact/format.h"

enum {
    HEADER = 16,
    BODY = 4 * GR_EXACT_DIGITS,
    CHECKSUM = 8,
    VERSION = 1,
    /* 2^63 elements are less than 2^(2161 - 2144) in the last digit. One more bit is a margin. */
    MOST_TOP = 1 << 18
};

_Static_assert(GR_EXACT_MOST_BYTES == HEADER + 2 * BODY + CHECKSUM, "exact.h says the same");

static const unsigned char MAGIC[4] = {'G', 'R', 'X', 'A'};

static void put(unsigned char *bytes, uint64_t x, int size)
{
    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get(const unsigned char *bytes, int size)
{
    uint64_t x = 0;
    for (int i = 0; i < size; i++)
        x |= (uint64_t)bytes[i] << 8 * i;
    return x;
}

static uint64_t checksum(const unsigned char *bytes, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

bool gr_exact_top_fits(const gr_exact *acc)
{
    int64_t top = acc->digit[GR_EXACT_DIGITS - 1];
    return top >= -MOST_TOP && top < MOST_TOP;
}

bool gr_exact_fits_count(const gr_exact *sum)
{
    enum { LAST = GR_EXACT_DIGITS - 1, BIT_OF_MOST = 1024 - GR_EXACT_UNIT - 32 * (LAST - 2) };
    const int64_t *top = &sum->digit[LAST - 2];
    /* Rounded towards minus infinity, in units of 2^1024. */
    uint64_t most = (uint64_t)top[2] << (64 - BIT_OF_MOST) |
                    (uint64_t)top[1] << (32 - BIT_OF_MOST) | (uint64_t)top[0] >> BIT_OF_MOST;
    return gr_exact_top_fits(sum) &&
           ((top[2] < 0 ? ~most : most) < sum->count || gr_exact_is_zero(sum));
}

size_t gr_exact_to_bytes(const gr_exact *acc, int components, gr_load load,
                         unsigned char bytes[GR_EXACT_MOST_BYTES])
{
    unsigned char *next = bytes + HEADER;
    unsigned flags = 0;
    for (int i = 0; i < components; i++) {
        gr_exact normal = acc[i];
        gr_exact_normalize(&normal);
        if (!gr_exact_top_fits(&normal))
            return 0;
        flags |= normal.flags << 4 * i;
        for (int k = 0; k < GR_EXACT_DIGITS; k++, next += 4)
            put(next, (uint32_t)normal.digit[k], 4);
    }
    memcpy(bytes, MAGIC, sizeof MAGIC);
    bytes[4] = VERSION;
    bytes[5] = (unsigned char)components;
    bytes[6] = (unsigned char)gr_type_number(load);
    bytes[7] = (unsigned char)flags;
    put(bytes + 8, acc[0].count, 8);
    size_t size = (size_t)(next - bytes);
    put(next, checksum(bytes, size), CHECKSUM);
    return size + CHECKSUM;
}

static gr_exact_error check(const unsigned char *bytes, size_t size)
{
    if (size < HEADER + BODY + CHECKSUM)
        return GR_EXACT_BAD_LENGTH;
    if (memcmp(bytes, MAGIC, sizeof MAGIC) != 0)
        return GR_EXACT_BAD_MAGIC;
    if (bytes[4] != VERSION)
        return GR_EXACT_BAD_VERSION;
    if (size != HEADER + (size_t)bytes[5] * BODY + CHECKSUM)
        return GR_EXACT_BAD_LENGTH;
    if (get(bytes + size - CHECKSUM, CHECKSUM) != checksum(bytes, size - CHECKSUM))
        return GR_EXACT_BAD_CHECKSUM;
    gr_load load;
    bool known = bytes[5] >= 1 && bytes[5] <= 2 && gr_load_of_type(bytes[6], &load);
    return known ? GR_EXACT_OK : GR_EXACT_BAD_CONTENT;
}

/* Returns false unless the bytes are those of a normalized accumulator. */
static bool read_value(gr_exact *acc, const unsigned char *bytes, unsigned flags)
{
    gr_exact_init(acc);
    acc->fill = 1;
    acc->flags = flags;
    uint64_t any = 0;
    for (int k = 0; k < GR_EXACT_DIGITS; k++) {
        uint64_t digit = get(bytes + 4 * k, 4);
        any |= digit;
        acc->digit[k] = (int64_t)digit;
    }
    int64_t *top = &acc->digit[GR_EXACT_DIGITS - 1];
    *top = (*top ^ 0x80000000) - 0x80000000; /* sign extension */
    if (flags == 0)
        return gr_exact_top_fits(acc);
    bool one = flags == GR_EXACT_NAN || flags == GR_EXACT_PLUS_INF || flags == GR_EXACT_MINUS_INF;
    return one && any == 0;
}

gr_exact_error gr_exact_from_bytes(const unsigned char *bytes, size_t size, gr_exact acc[2],
                                   int *components, gr_load *load)
{
    gr_exact_error error = check(bytes, size);
    if (error)
        return error;
    gr_exact read[2];
    int parts = bytes[5];
    if (parts == 1 && bytes[7] > 15)
        return GR_EXACT_BAD_CONTENT;
    for (int i = 0; i < parts; i++) {
        if (!read_value(&read[i], bytes + HEADER + i * BODY, (unsigned)bytes[7] >> 4 * i & 15))
            return GR_EXACT_BAD_CONTENT;
        read[i].count = get(bytes + 8, 8);
    }
    memcpy(acc, read, (size_t)parts * sizeof *acc);
    *components = parts;
    (void)gr_load_of_type(bytes[6], load);
    return GR_EXACT_OK;
}

const char *gr_exact_error_text(gr_exact_error error)
{
    switch (error) {
    case GR_EXACT_OK: return "no error";
    case GR_EXACT_BAD_LENGTH: return "wrong length";
    case GR_EXACT_BAD_MAGIC: return "not an accumulator";
    case GR_EXACT_BAD_VERSION: return "written by another version";
    case GR_EXACT_BAD_CHECKSUM: return "the checksum does not match";
    default: return "no accumulator has this content";
    }
}

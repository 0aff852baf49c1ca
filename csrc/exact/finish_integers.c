#include "exact/finish_integers.h"

#include "cpu/store.h"

#define FINISH_FUNCTION static
#include "exact/finish_integers_text.h"

static uint32_t total_of(gr_finish_room *room, integer *to, const gr_products *sums, int count)
{
    uint32_t flags = 0;
    to->negative = false;
    to->size = to->low = 0;
    for (int i = 0; i < count; i++) {
        flags |= sums[i].part[1].flags;
        for (int k = 0; k < GR_PRODUCTS_PARTS; k++) {
            integer_of_digits(&room->number, sums[i].part[k].digit, GR_EXACT_DIGITS,
                              GR_EXACT_UNIT + GR_PRODUCTS_SHIFT * (k - 1));
            add_integer(room, to, &room->number);
        }
    }
    return flags;
}

void gr_finish_in_integers(const gr_finish_how *how, gr_finish_sums *of, unsigned char *out)
{
    int pieces = how->first_count / how->parts;
    gr_finish_room room;
    room.n = of->n;
    room.mean = of->mean;
    room.first_flags = 0;
    for (int i = 0; i < how->parts; i++)
        room.first_flags |= total_of(&room, &room.first[i], of->first + i * pieces, pieces);
    room.second_flags = total_of(&room, &room.second, of->second, how->second_count);
    gr_store_integer(out, finish_in_integers(how, &room), how->target);
}

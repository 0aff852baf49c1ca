#include "shared/registry.h"

#include <string.h>

static const gr_strategy strategies[] = {
#define STRATEGY(name, kind, traits, capability, dtypes, aliases, lesson)                          \
    {#name, GR_KIND_##kind, traits, capability, GR_DTYPES_##dtypes, aliases, lesson},
#include "strategies.def"
#include "steps.def"
#undef STRATEGY
};

enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

static gr_strategy added[GR_MAX_ADDED_STRATEGIES];
static int added_count;

int gr_strategy_count(void)
{
    return STRATEGIES + __atomic_load_n(&added_count, __ATOMIC_ACQUIRE);
}

const gr_strategy *gr_strategy_at(int index)
{
    return index < STRATEGIES ? &strategies[index] : &added[index - STRATEGIES];
}

int gr_strategy_named(const char *name)
{
    for (int i = 0; i < STRATEGIES; i++)
        if (!strcmp(strategies[i].name, name))
            return i;
    return -1;
}

int gr_is_added_strategy(int index)
{
    return index >= STRATEGIES;
}

int gr_add_strategy(const gr_strategy *strategy)
{
    int count = added_count;
    if (count == GR_MAX_ADDED_STRATEGIES)
        return -1;
    added[count] = *strategy;
    __atomic_store_n(&added_count, count + 1, __ATOMIC_RELEASE);
    return STRATEGIES + count;
}

#include "shared/registry.h"

static const gr_strategy strategies[] = {
#define STRATEGY(name, kind, traits, capability, dtypes, aliases, lesson)                          \
    {#name, GR_KIND_##kind, traits, capability, GR_DTYPES_##dtypes, aliases, lesson},
#include "strategies.def"
#undef STRATEGY
};

int gr_strategy_count(void)
{
    return sizeof strategies / sizeof strategies[0];
}

const gr_strategy *gr_strategy_at(int index)
{
    return &strategies[index];
}

/* Numbers of groups whose keys are integers in a small range. */
#include "segments/segments.h"

bool gr_number_groups(const gr_numbering *of, size_t *groups)
{
    *groups = 0;
    for (size_t row = 0; row < of->rows; row++) {
        uint64_t key = (uint64_t)of->keys[row] - (uint64_t)of->least;
        if (key >= of->range)
            return false;
        int64_t group = of->numbers[key];
        if (group < 0) {
            if (*groups == of->most)
                return false;
            group = of->numbers[key] = (int64_t)(*groups)++;
            of->counts[group] = 0;
            of->first[group] = (int64_t)row;
        }
        of->counts[group]++;
        if (of->ids_size == 4)
            ((int32_t *)of->ids)[row] = (int32_t)group;
        else
            ((int64_t *)of->ids)[row] = group;
    }
    return true;
}

/* Prints the limits of a control group: control_groups MEMBERSHIP MOUNT */
#include "threads/control_group.h"

#include <inttypes.h>
#include <stdio.h>

int main(int count, char **argument)
{
    if (count != 3)
        return 2;
    gr_control_group group = {argument[1], argument[2]};
    printf("%d %" PRIu64 "\n", gr_processor_quota(&group), gr_memory_quota(&group));
    return 0;
}

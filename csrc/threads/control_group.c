#include "threads/control_group.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const gr_control_group gr_own_group = {"/proc/self/cgroup", "/sys/fs/cgroup"};

enum { MOST_PATH = 4096 };

/* Reads the group's path from its line "0::/path", the only one of version 2. Without one, the path
 * is empty: that of the root. */
static void find_path(const gr_control_group *group, char path[MOST_PATH])
{
    char line[MOST_PATH];
    FILE *file = fopen(group->membership, "re");
    path[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "0::/", 4))
            strcpy(path, line + 3);
    }
    if (file)
        fclose(file);
}

/* Reads one or two numbers. Returns how many there are: 0 for "max", and without the file. */
static int read_numbers(const char *mount, const char *path, const char *name, uint64_t number[2])
{
    char whole[2 * MOST_PATH];
    if (snprintf(whole, sizeof whole, "%s%s/%s", mount, path, name) >= (int)sizeof whole)
        return 0;
    FILE *file = fopen(whole, "re");
    if (!file)
        return 0;
    int count = fscanf(file, "%" SCNu64 " %" SCNu64, &number[0], &number[1]);
    fclose(file);
    return count < 0 ? 0 : count;
}

/* Goes to the group above. Returns false at the root. In a container, the path may be that of
 * another mount. Then only the root's files exist, and they are the container's. */
static bool go_up(char *path)
{
    char *last = strrchr(path, '/');
    if (!last)
        return false;
    *last = '\0';
    return true;
}

int gr_processor_quota(const gr_control_group *group)
{
    char path[MOST_PATH];
    uint64_t least = UINT64_MAX, number[2];
    find_path(group, path);
    do
        if (read_numbers(group->mount, path, "cpu.max", number) == 2 && number[1] > 0) {
            uint64_t whole = number[0] / number[1] + (number[0] % number[1] > 0);
            least = whole < least ? whole : least;
        }
    while (go_up(path));
    if (least > INT32_MAX)
        return 0;
    return least > 0 ? (int)least : 1;
}

uint64_t gr_memory_quota(const gr_control_group *group)
{
    char path[MOST_PATH];
    uint64_t least = UINT64_MAX, number[2];
    find_path(group, path);
    do
        if (read_numbers(group->mount, path, "memory.max", number) >= 1 && number[0] < least)
            least = number[0];
    while (go_up(path));
    return least;
}

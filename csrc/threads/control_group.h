/* Limits that containers set: those of Linux control groups, version 2. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where Linux names a process's group, and where the groups' files are. */
typedef struct {
    const char *membership, *mount;
} gr_control_group;

/* The group of this process. */
extern const gr_control_group gr_own_group;

/* The least quota of processors of the group and the groups above it, rounded up to whole
 * processors; 0 if there is none. */
int gr_processor_quota(const gr_control_group *group);

/* The least memory limit of the same groups, in bytes; UINT64_MAX if there is none. */
uint64_t gr_memory_quota(const gr_control_group *group);

#ifdef __cplusplus
}
#endif

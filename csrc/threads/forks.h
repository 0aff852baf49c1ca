/* What a file does around fork(): handlers that are registered when the file is loaded, so that no
 * other thread can be in the middle of that. Any handler may be NULL.
 *
 * before      in the parent, before the fork: takes the locks that the child will need
 * in_parent   after it: gives them back
 * in_child    the same in the child, where the other threads are gone */
#ifndef GPUREDUCE_FORKS_H
#define GPUREDUCE_FORKS_H

#include <pthread.h>

#define GR_AROUND_FORK(before, in_parent, in_child)                                                \
    __attribute__((constructor)) static void watch_forks(void)                                     \
    {                                                                                              \
        pthread_atfork(before, in_parent, in_child);                                               \
    }

#endif

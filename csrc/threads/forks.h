/* Registers a file's handlers for fork() when the file is loaded. At that time no other thread can
 * be running the file's functions. Any handler may be NULL.
 *
 * before      runs in the parent before the fork: takes the locks that the child will need
 * in_parent   runs in the parent after the fork: releases them
 * in_child    runs in the child, where the other threads are gone: releases them */
#pragma once

#include <pthread.h>

/* A file's lock, and handlers for it. If another thread held it at a fork, the child's copy would
 * stay locked, so the forking thread takes it first. */
#define GR_FILE_LOCK                                                                               \
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;                                       \
    static void take_lock(void)                                                                    \
    {                                                                                              \
        pthread_mutex_lock(&lock);                                                                 \
    }                                                                                              \
    static void give_lock_back(void)                                                               \
    {                                                                                              \
        pthread_mutex_unlock(&lock);                                                               \
    }

#define GR_AROUND_FORK(before, in_parent, in_child)                                                \
    __attribute__((constructor)) static void watch_forks(void)                                     \
    {                                                                                              \
        pthread_atfork(before, in_parent, in_child);                                               \
    }

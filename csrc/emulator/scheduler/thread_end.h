/* Memory that is freed when its OS thread ends. Not by the destructor of a thread_local object: the
 * C++ runtime ends the process if there is no memory to register one. */
#pragma once

#include <pthread.h>

namespace gr
{

class AtThreadEnd
{
    pthread_key_t key;
    bool made;

  public:
    explicit AtThreadEnd(void (*release)(void *))
        : key(), made(pthread_key_create(&key, release) == 0)
    {
    }

    /* Makes the end of the calling thread call release(pointer); nullptr cancels that. Returns
     * false if out of memory. A thread's second pointer takes no memory. */
    bool keep(void *pointer) const
    {
        return made && pthread_setspecific(key, pointer) == 0;
    }
};

} // namespace gr

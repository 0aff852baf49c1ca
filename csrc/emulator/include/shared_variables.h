/* The shared memory of a user's kernel. gpureduce/kernels/emulated_text.py rewrites declarations
 * with
 * __shared__ to calls of these functions, which give each variable a place of its own in the
 * block's memory, and tell the emulator its name and size. */
#pragma once

#include <type_traits>

#include "lane.h"

/* Bytes that belong to no variable, on both sides of each. Accesses there are faults. */
enum : size_t { GR_SHARED_GAP = 4096 };

struct gr_variable;
/* The variables of this library. */
inline __attribute__((visibility("hidden"))) const gr_variable *gr_variables = nullptr;

/* A __shared__ variable, other than extern ones. It begins `before` bytes before the block's
 * dynamic shared memory. */
struct gr_variable {
    const char *name;
    size_t element, bytes, before; /* element: bytes of an element of an array, or of all */
    const gr_variable *next;

    gr_variable(const char *its_name, size_t element_bytes, size_t all_bytes)
        : name(its_name), element(element_bytes), bytes(all_bytes),
          before((gr_variables ? gr_variables->before : 0) + GR_SHARED_GAP +
                 (all_bytes + 127) / 128 * 128),
          next(gr_variables)
    {
        gr_variables = this;
    }
};

/* The bytes of an element of an array or a std::array; of other types, all bytes. */
template <typename T, typename = void> struct gr_element {
    static constexpr size_t bytes = sizeof(T);
};
template <typename T> struct gr_element<T, std::void_t<typename T::value_type>> {
    static constexpr size_t bytes = sizeof(typename T::value_type);
};

/* One variable for each declaration: `Declaration` is a class of its own, with the variable's name
 * and type. In a template, each instance has its own. */
template <typename T, typename Declaration, int index> struct gr_slot {
    static const gr_variable variable;
};
template <typename T, typename Declaration, int index>
const gr_variable gr_slot<T, Declaration, index>::variable(
    Declaration::gr_name(index), gr_element<std::remove_all_extents_t<T>>::bytes, sizeof(T));

template <typename T, typename Declaration, int index> GR_INTRINSIC T &gr_static_shared()
{
    char *end = gr_shared - gr_slot<T, Declaration, index>::variable.before;
    return *reinterpret_cast<T *>(end);
}

/* extern __shared__ T name[]; */
template <typename T> GR_INTRINSIC T *gr_dynamic_shared(const char *name)
{
    gr_shared_name = name;
    return reinterpret_cast<T *>(gr_shared);
}

/* The kinds of memory access. */
#pragma once

namespace gr
{

enum Access { READ, WRITE, ATOMIC };

} // namespace gr

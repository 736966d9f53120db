#pragma once
// ggml's CPU backend offers "extra" buffer types that hold weights in another layout (CPU_REPACK).
// libllama copies weights into them at load and never reads the mapping again, so nothing would be
// under control. It asks for these types by name, through an exported function of ggml, and takes
// NULL for "there are none": answering NULL needs no knowledge of any structure of ggml's.

namespace resid::ggml {

// From now on ggml programs of this process are told that there are no extra buffer types. `told`
// is called each time one has asked. Programs that link ggml statically are out of reach.
void deny_extra_buffers(void (*told)());

}  // namespace resid::ggml

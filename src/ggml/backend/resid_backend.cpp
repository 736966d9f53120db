// libggml-resid.so: an out-of-tree ggml backend that computes nothing itself and sees every
// matrix product over experts before it is computed.
//
// How it comes to see them (ggml API version 2, llama.cpp of the pinned release):
//   - ggml_backend_load_all() loads the library that GGML_BACKEND_PATH names, last of all. Where
//     nothing calls that, or the variable is the user's, the preload library has it loaded before a
//     model is (preload/interpose_ggml.cpp).
//   - Its one device is of type ACCEL: llama.cpp adds such a device to every context's scheduler,
//     before the CPU. Its buffer type is the CPU's own, so no weight moves, none is copied, and the
//     mapping of the model stays where the pager put it.
//   - The scheduler gives an operation on weights to the first backend that supports it and the
//     weights' buffer. This one supports MUL_MAT_ID on weights that the pager controls, and what
//     moves no data. So the scheduler ends a piece of the graph before each of them, where the
//     routed ids have been computed, and hands the product over here.
//   - The product itself is computed by ggml's CPU backend on the same pointers: bit for bit what
//     it would be without us.
//
// Nothing of ggml is linked. Its functions are looked up in the library that loaded us and what
// that one depends on: a second copy of ggml, found by another name, would be fatal. The layout of
// the structures is that of ggml-backend-impl.h of one release; where ggml says another version of
// itself, or a function is missing, we refuse, and the program goes on as without us.

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "ggml-backend-impl.h"
#include "ggml/backend/routed.h"

namespace {

constexpr const char* kName = RESID_GGML_NAME;

// ---- What is used of ggml and of the preload library

struct Functions {
  decltype(&ggml_backend_cpu_buffer_type) cpu_buffer_type = nullptr;
  decltype(&ggml_backend_cpu_buffer_from_ptr) cpu_buffer_from_ptr = nullptr;
  decltype(&ggml_backend_buft_is_host) is_host = nullptr;
  decltype(&ggml_backend_dev_by_type) dev_by_type = nullptr;
  decltype(&ggml_backend_dev_init) dev_init = nullptr;
  decltype(&ggml_backend_dev_backend_reg) dev_reg = nullptr;
  decltype(&ggml_backend_reg_get_proc_address) proc_address = nullptr;
  decltype(&ggml_backend_graph_compute) graph_compute = nullptr;
  decltype(&ggml_backend_free) backend_free = nullptr;
  decltype(&ggml_graph_n_nodes) n_nodes = nullptr;
  decltype(&ggml_graph_node) node = nullptr;
  decltype(&ggml_version) version = nullptr;
  resid_ggml_attach_t attach = nullptr;
  resid_ggml_controls_t controls = nullptr;
  resid_ggml_routed_t routed = nullptr;
};
Functions g_use;

template <class F>
bool look_up(void* library, const char* symbol, F& into) {
  into = reinterpret_cast<F>(::dlsym(library, symbol));
  return into != nullptr;
}

bool resolve(void* caller) {
  Dl_info info{};
  if (::dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  // It is loaded; the handle stays open for as long as the pointers are used.
  void* ggml = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (ggml == nullptr) ggml = RTLD_DEFAULT;  // linked into the program
  Functions& f = g_use;
  return look_up(ggml, "ggml_backend_cpu_buffer_type", f.cpu_buffer_type) &&
         look_up(ggml, "ggml_backend_cpu_buffer_from_ptr", f.cpu_buffer_from_ptr) &&
         look_up(ggml, "ggml_backend_buft_is_host", f.is_host) &&
         look_up(ggml, "ggml_backend_dev_by_type", f.dev_by_type) &&
         look_up(ggml, "ggml_backend_dev_init", f.dev_init) &&
         look_up(ggml, "ggml_backend_dev_backend_reg", f.dev_reg) &&
         look_up(ggml, "ggml_backend_reg_get_proc_address", f.proc_address) &&
         look_up(ggml, "ggml_backend_graph_compute", f.graph_compute) &&
         look_up(ggml, "ggml_backend_free", f.backend_free) &&
         look_up(ggml, "ggml_graph_n_nodes", f.n_nodes) &&
         look_up(ggml, "ggml_graph_node", f.node) && look_up(ggml, "ggml_version", f.version) &&
         look_up(RTLD_DEFAULT, RESID_GGML_ATTACH, f.attach) &&
         look_up(RTLD_DEFAULT, RESID_GGML_CONTROLS, f.controls) &&
         look_up(RTLD_DEFAULT, RESID_GGML_ROUTED, f.routed);
}

// ---- The stream: one a context, around a CPU backend of its own

struct Stream {
  ggml_backend_t cpu = nullptr;
};

const char* stream_name(ggml_backend_t /*backend*/) {
  return kName;
}

void stream_free(ggml_backend_t backend) {
  auto* stream = static_cast<Stream*>(backend->context);
  g_use.backend_free(stream->cpu);
  delete stream;
  delete backend;
}

void tell(const ggml_tensor* product) {
  const ggml_tensor* stack = product->src[0];
  const ggml_tensor* ids = product->src[2];
  if (stack == nullptr || ids == nullptr || stack->data == nullptr || ids->data == nullptr) return;
  resid_routed routed{};
  routed.stack = stack->data;
  routed.experts = static_cast<std::uint32_t>(stack->ne[2]);
  routed.used = static_cast<std::uint32_t>(ids->ne[0]);
  routed.tokens = static_cast<std::uint32_t>(ids->ne[1]);
  routed.used_stride = ids->nb[0];
  routed.token_stride = ids->nb[1];
  routed.ids = ids->data;
  // One row a token, the same for each of its experts: not so in front of a layer's last product.
  const ggml_tensor* input = product->src[1];
  if (input != nullptr && input->data != nullptr && input->type == GGML_TYPE_F32 &&
      input->ne[1] == 1 && input->ne[2] == ids->ne[1] && input->ne[3] == 1 &&
      input->nb[0] == sizeof(float)) {
    routed.state = static_cast<const float*>(input->data);
    routed.state_width = static_cast<std::uint32_t>(input->ne[0]);
    routed.state_stride = input->nb[2];
  }
  g_use.routed(&routed);
}

ggml_status stream_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  const int nodes = g_use.n_nodes(graph);
  // All of the piece first: gate and up are one after the other in it.
  for (int i = 0; i < nodes; ++i) {
    const ggml_tensor* node = g_use.node(graph, i);
    if (node->op == GGML_OP_MUL_MAT_ID) tell(node);
  }
  return g_use.graph_compute(static_cast<Stream*>(backend->context)->cpu, graph);
}

ggml_guid_t guid() {
  static ggml_guid value = {0x72, 0x65, 0x73, 0x69, 0x64, 0x63, 0x74, 0x6c,
                            0x2d, 0x65, 0x78, 0x70, 0x65, 0x72, 0x74, 0x73};
  return &value;
}

// ---- The device

const char* device_name(ggml_backend_dev_t /*device*/) {
  return kName;
}
const char* device_description(ggml_backend_dev_t /*device*/) {
  return "residctl: tells the pager which experts come next; computes on the CPU";
}
void device_memory(ggml_backend_dev_t /*device*/, std::size_t* free, std::size_t* total) {
  *free = 0;
  *total = 0;
}
enum ggml_backend_dev_type device_type(ggml_backend_dev_t /*device*/) {
  return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}
void device_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
  *props = {};
  props->name = device_name(device);
  props->description = device_description(device);
  props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
  props->caps.buffer_from_host_ptr = true;
  props->caps.mmap_support = true;
}

ggml_backend_t device_init(ggml_backend_dev_t device, const char* /*parameters*/) {
  ggml_backend_dev_t cpu = g_use.dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  ggml_backend_t inner = cpu == nullptr ? nullptr : g_use.dev_init(cpu, nullptr);
  if (inner == nullptr) return nullptr;
  auto* stream = new (std::nothrow) Stream{inner};
  auto* backend = new (std::nothrow) ggml_backend{};
  if (stream == nullptr || backend == nullptr) {
    delete stream;
    delete backend;
    g_use.backend_free(inner);
    return nullptr;
  }
  backend->guid = guid();
  backend->iface.get_name = stream_name;
  backend->iface.free = stream_free;
  backend->iface.graph_compute = stream_compute;
  backend->device = device;
  backend->context = stream;
  return backend;
}

ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t /*device*/) {
  return g_use.cpu_buffer_type();
}
ggml_backend_buffer_t device_from_host(ggml_backend_dev_t /*device*/, void* memory,
                                       std::size_t bytes, std::size_t /*largest*/) {
  return g_use.cpu_buffer_from_ptr(memory, bytes);
}

bool device_supports_op(ggml_backend_dev_t /*device*/, const ggml_tensor* op) {
  switch (op->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    case GGML_OP_MUL_MAT_ID:
      return op->src[0] != nullptr && op->src[0]->data != nullptr &&
             g_use.controls(op->src[0]->data) != 0;
    default:
      return false;
  }
}
bool device_supports_buft(ggml_backend_dev_t /*device*/, ggml_backend_buffer_type_t type) {
  return g_use.is_host(type);
}

// ---- The registry's entry

const char* reg_name(ggml_backend_reg_t /*reg*/) {
  return kName;
}
// None beside a GPU: the scheduler would no longer offer it the products of large batches, nor run
// several GPUs as a pipeline, which it does with devices that have events alone.
std::size_t reg_devices(ggml_backend_reg_t /*reg*/) {
  const bool gpu = g_use.dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) != nullptr ||
                   g_use.dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU) != nullptr;
  return gpu ? 0 : 1;
}
// Asked for once the loader has accepted us: from now on routing will be told of.
ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, std::size_t /*index*/) {
  g_use.attach();
  static ggml_backend_device device = [&] {
    ggml_backend_device d{};
    d.iface.get_name = device_name;
    d.iface.get_description = device_description;
    d.iface.get_memory = device_memory;
    d.iface.get_type = device_type;
    d.iface.get_props = device_props;
    d.iface.init_backend = device_init;
    d.iface.get_buffer_type = device_buffer_type;
    d.iface.buffer_from_host_ptr = device_from_host;
    d.iface.supports_op = device_supports_op;
    d.iface.supports_buft = device_supports_buft;
    d.reg = reg;
    return d;
  }();
  return &device;
}

// What llama.cpp sets on every backend that has the function is passed on to the CPU backend
// inside.
template <class F>
F inner_function(ggml_backend_t cpu, const char* name) {
  return reinterpret_cast<F>(g_use.proc_address(g_use.dev_reg(cpu->device), name));
}
constexpr const char* kSetThreads = "ggml_backend_set_n_threads";
constexpr const char* kSetAbort = "ggml_backend_set_abort_callback";

void set_threads(ggml_backend_t backend, int threads) {
  ggml_backend_t cpu = static_cast<Stream*>(backend->context)->cpu;
  const auto set = inner_function<ggml_backend_set_n_threads_t>(cpu, kSetThreads);
  if (set != nullptr) set(cpu, threads);
}
void set_abort(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
  ggml_backend_t cpu = static_cast<Stream*>(backend->context)->cpu;
  const auto set = inner_function<ggml_backend_set_abort_callback_t>(cpu, kSetAbort);
  if (set != nullptr) set(cpu, callback, data);
}

void* reg_function(ggml_backend_reg_t /*reg*/, const char* name) {
  if (std::strcmp(name, kSetThreads) == 0) return reinterpret_cast<void*>(set_threads);
  if (std::strcmp(name, kSetAbort) == 0) return reinterpret_cast<void*>(set_abort);
  return nullptr;
}

}  // namespace

// Called by ggml's loader, once. Null is a refusal: the program goes on without us.
extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
  static ggml_backend_reg reg = [] {
    ggml_backend_reg r{};
    r.api_version = GGML_BACKEND_API_VERSION;
    r.iface.get_name = reg_name;
    r.iface.get_device_count = reg_devices;
    r.iface.get_device = reg_device;
    r.iface.get_proc_address = reg_function;
    return r;
  }();
  if (!resolve(__builtin_return_address(0))) return nullptr;
  // The API's number has stayed the same over changes of layout.
  if (std::strcmp(g_use.version(), RESID_GGML_VERSION) != 0) return nullptr;
  return &reg;
}

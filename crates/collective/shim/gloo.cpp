// A C interface to the parts of c10d in libtorch that an all-reduce over Gloo needs: a key-value store on TCP, and a
// process group on it. No function throws; each writes the reason of a failure to `error`, of `capacity` bytes.

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace {

using Milliseconds = std::chrono::milliseconds;
using Store = c10::intrusive_ptr<c10d::Store>;
using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

void report(const char* reason, char* error, std::size_t capacity) {
  const std::size_t length = std::min(std::strlen(reason), capacity - 1);
  std::memcpy(error, reason, length);
  error[length] = '\0';
}

// Returns what `work` returns, or `failed` with the reason in `error`.
template <typename Work, typename Result>
Result guarded(Work work, Result failed, char* error, std::size_t capacity) {
  try {
    return work();
  } catch (const c10::Error& exception) {
    report(exception.what_without_backtrace(), error, capacity);
  } catch (const std::exception& exception) {
    report(exception.what(), error, capacity);
  } catch (...) {
    report("an exception of an unknown type", error, capacity);
  }
  return failed;
}

c10d::TCPStoreOptions options(bool is_server, std::uint16_t port, std::int64_t timeout_ms) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = is_server;
  options.waitWorkers = false;
  options.timeout = Milliseconds(timeout_ms);
  return options;
}

// A tensor of `count` elements at `data`, which it does not own.
at::Tensor tensor(void* data, std::int64_t count, at::ScalarType type) {
  return at::from_blob(data, {count}, at::TensorOptions().dtype(type));
}

} // namespace

extern "C" {

// Serves a store on a free port of this machine, whose number is written to `port`.
void* zf_store_serve(const char* host, std::int64_t timeout_ms, std::uint16_t* port, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        auto store = c10::make_intrusive<c10d::TCPStore>(std::string(host), options(true, 0, timeout_ms));
        *port = store->getPort();
        return new Store(std::move(store));
      },
      static_cast<void*>(nullptr), error, capacity);
}

void zf_store_free(void* store) {
  delete static_cast<Store*>(store);
}

// Joins the group whose store is at `host:port`; `own_host` is the name or address at which the others reach this
// machine. It returns when all `size` ranks are connected.
void* zf_group_join(
    const char* host, std::uint16_t port, const char* prefix, const char* own_host, int rank, int size,
    std::int64_t timeout_ms, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        Store tcp = c10::make_intrusive<c10d::TCPStore>(std::string(host), options(false, port, timeout_ms));
        tcp->setTimeout(Milliseconds(timeout_ms));
        Store store = c10::make_intrusive<c10d::PrefixStore>(std::string(prefix), tcp);
        auto settings = c10d::ProcessGroupGloo::Options::create(Milliseconds(timeout_ms));
        settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(std::string(own_host)));
        return new Group(c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, settings));
      },
      static_cast<void*>(nullptr), error, capacity);
}

void zf_group_free(void* group) {
  delete static_cast<Group*>(group);
}

// Replaces `count` floats by their sums over all ranks.
bool zf_all_reduce(void* group, float* data, std::int64_t count, std::int64_t timeout_ms, char* error, std::size_t capacity) {
  return guarded(
      [&] {
        std::vector<at::Tensor> tensors{tensor(data, count, at::kFloat)};
        c10d::AllreduceOptions options;
        options.timeout = Milliseconds(timeout_ms);
        return (*static_cast<Group*>(group))->allreduce(tensors, options)->wait();
      },
      false, error, capacity);
}

// Replaces `count` bytes by those of the rank `root`.
bool zf_broadcast(
    void* group, std::uint8_t* data, std::int64_t count, int root, std::int64_t timeout_ms, char* error,
    std::size_t capacity) {
  return guarded(
      [&] {
        std::vector<at::Tensor> tensors{tensor(data, count, at::kByte)};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        options.rootTensor = 0;
        options.timeout = Milliseconds(timeout_ms);
        return (*static_cast<Group*>(group))->broadcast(tensors, options)->wait();
      },
      false, error, capacity);
}

} // extern "C"

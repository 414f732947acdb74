// A C interface to the part of c10d in libtorch that an all-reduce over Gloo needs: a process group, whose members
// exchange their addresses through functions of the caller. No function throws; each writes the reason of a failure to `error`, of `capacity` bytes.

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Milliseconds = std::chrono::milliseconds;
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

// Where the members of a group leave the addresses at which they listen. Both functions return false and write the
// reason to `error` if they fail; `get` waits until the key is set and gives its value to `put`.
struct Addresses {
  void* context;
  bool (*set)(void* context, const char* key, const std::uint8_t* value, std::size_t length, char* error, std::size_t capacity);
  bool (*get)(
      void* context, const char* key, std::int64_t timeout_ms, void* sink,
      void (*put)(void* sink, const std::uint8_t* value, std::size_t length), char* error, std::size_t capacity);
};

// The part of a store that Gloo needs to connect the ranks.
class AddressStore final : public c10d::Store {
 public:
  AddressStore(const Addresses& addresses, Milliseconds timeout) : c10d::Store(timeout), addresses_(addresses) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<AddressStore>(*this);
  }

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    char reason[REASON_BYTES]{};
    if (!addresses_.set(addresses_.context, key.c_str(), value.data(), value.size(), reason, sizeof reason)) {
      throw std::runtime_error(reason);
    }
  }

  std::vector<std::uint8_t> get(const std::string& key) override {
    return await(key, getTimeout());
  }

  void wait(const std::vector<std::string>& keys) override {
    wait(keys, getTimeout());
  }

  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    for (const std::string& key : keys) {
      await(key, timeout);
    }
  }

  std::int64_t add(const std::string&, std::int64_t) override {
    throw std::runtime_error("addresses are not counted");
  }

  bool deleteKey(const std::string&) override {
    throw std::runtime_error("addresses are not removed");
  }

  bool check(const std::vector<std::string>&) override {
    throw std::runtime_error("addresses are waited for");
  }

  std::int64_t getNumKeys() override {
    throw std::runtime_error("addresses are not counted");
  }

 private:
  static constexpr std::size_t REASON_BYTES = 1024;

  std::vector<std::uint8_t> await(const std::string& key, const Milliseconds& timeout) {
    std::vector<std::uint8_t> value;
    const auto put = [](void* sink, const std::uint8_t* bytes, std::size_t length) {
      static_cast<std::vector<std::uint8_t>*>(sink)->assign(bytes, bytes + length);
    };
    char reason[REASON_BYTES]{};
    if (!addresses_.get(addresses_.context, key.c_str(), timeout.count(), &value, put, reason, sizeof reason)) {
      throw std::runtime_error(reason);
    }
    return value;
  }

  Addresses addresses_;
};

// A tensor of `count` elements at `data`, which it does not own.
at::Tensor tensor(void* data, std::int64_t count, at::ScalarType type) {
  return at::from_blob(data, {count}, at::TensorOptions().dtype(type));
}

} // namespace

extern "C" {

// Joins a group whose members exchange their addresses at `addresses`, which must live as long as the group;
// `own_host` is the name or address at which the others reach this machine, and at which it listens. It returns when
// all `size` ranks are connected.
void* zf_group_join(
    const Addresses* addresses, const char* own_host, int rank, int size, std::int64_t timeout_ms, char* error,
    std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        const Milliseconds timeout(timeout_ms);
        auto settings = c10d::ProcessGroupGloo::Options::create(timeout);
        settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(std::string(own_host)));
        auto store = c10::make_intrusive<AddressStore>(*addresses, timeout);
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

// A C interface to the CUDA graphs of libtorch: a stream on which work is captured, a memory pool that graphs share, and
// graphs. The library is opened after the CUDA half of libtorch, which defines everything that is undefined here.
//
// No function throws. A function that can fail returns a handle, or null with the reason in `error`, of `capacity`
// bytes. All of them take a handle and a number, so that callers need one signature.

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

void report(const char* reason, char* error, std::size_t capacity) {
  const std::size_t length = std::min(std::strlen(reason), capacity - 1);
  std::memcpy(error, reason, length);
  error[length] = '\0';
}

// Returns what `work` returns, or null with the reason in `error`.
template <typename Work>
void* guarded(Work work, char* error, std::size_t capacity) {
  try {
    return work();
  } catch (const c10::Error& exception) {
    report(exception.what_without_backtrace(), error, capacity);
  } catch (const std::exception& exception) {
    report(exception.what(), error, capacity);
  } catch (...) {
    report("an exception of an unknown type", error, capacity);
  }
  // Otherwise the next operation would report the error of this one.
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

struct Recorder {
  explicit Recorder(c10::DeviceIndex index)
      : stream(c10::cuda::getStreamFromPool(false, index)),
        former(c10::cuda::getDefaultCUDAStream(index)),
        pool(at::cuda::graph_pool_handle()) {}

  // The stream of captures: CUDA captures no work of the default stream.
  c10::cuda::CUDAStream stream;
  // The stream that was current before `stream`.
  c10::cuda::CUDAStream former;
  c10::MempoolId_t pool;
  c10::Event before{c10::DeviceType::CUDA};
  c10::Event after{c10::DeviceType::CUDA};
};

struct Graph {
  explicit Graph(const Recorder& recorder)
      : device(recorder.stream.device()), pool(recorder.pool), graph(std::make_unique<at::cuda::CUDAGraph>()) {}

  c10::Device device;
  c10::MempoolId_t pool;
  std::unique_ptr<at::cuda::CUDAGraph> graph;
};

// Undoes a capture that failed. `CUDAGraph` then leaves the allocators directing memory to the pool, by a filter that
// refers to the graph. (The random numbers of the device stay unusable after that; nothing draws any.)
void undo(Graph& graph) noexcept {
  try {
    caching::endAllocateToPool(graph.device.index(), graph.pool);
  } catch (...) {
    // The allocators had finished with the capture, so that nothing refers to the graph.
    return;
  }
  // A filter of pinned memory may remain, so that the graph must stay. Callers record nothing after a failure, unless
  // memory is missing, and then no graph of this batch size.
  static_cast<void>(graph.graph.release());
  try {
    caching::releasePool(graph.device.index(), graph.pool);
    at::HostAllocator* const pinned = at::getHostAllocator(c10::DeviceType::CUDA);
    pinned->end_allocate_to_pool(graph.pool);
    pinned->release_pool(graph.pool);
  } catch (...) {
    // Memory of the pool stays allocated.
  }
}

} // namespace

extern "C" {

// Creates a recorder for CUDA device `index`, with a stream and a memory pool of its own.
void* zf_graphs_open(void*, int index, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        const auto device = static_cast<c10::DeviceIndex>(index);
        const c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, device));
        return new Recorder(device);
      },
      error, capacity);
}

// Makes the stream of the recorder current for this thread, after all work of the stream that was current.
void* zf_graphs_enter(void* recorder, int, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        Recorder& of = *static_cast<Recorder*>(recorder);
        of.former = c10::cuda::getCurrentCUDAStream(of.stream.device_index());
        of.before.record(of.former.unwrap());
        of.before.block(of.stream.unwrap());
        c10::cuda::setCurrentCUDAStream(of.stream);
        return recorder;
      },
      error, capacity);
}

// Makes the former stream current again, after all work of the recorder's stream.
void* zf_graphs_leave(void* recorder, int, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        Recorder& of = *static_cast<Recorder*>(recorder);
        c10::cuda::setCurrentCUDAStream(of.former);
        of.after.record(of.stream.unwrap());
        of.after.block(of.former.unwrap());
        return recorder;
      },
      error, capacity);
}

// Begins to capture the work of the current stream, in a `cudaStreamCaptureMode`. Returns the graph, which must be
// ended on the same thread.
void* zf_graphs_begin(void* recorder, int mode, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        const Recorder& of = *static_cast<Recorder*>(recorder);
        const c10::DeviceGuard guard(of.stream.device());
        auto graph = std::make_unique<Graph>(of);
        // During the capture the allocator cannot give memory that it keeps for reuse to the pool.
        caching::emptyCache();
        try {
          graph->graph->capture_begin(of.pool, static_cast<cudaStreamCaptureMode>(mode));
        } catch (...) {
          undo(*graph);
          throw;
        }
        return graph.release();
      },
      error, capacity);
}

// Ends the capture and makes the graph ready for replays. After a failure the graph can only be freed.
void* zf_graphs_end(void* graph, int, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        Graph& of = *static_cast<Graph*>(graph);
        const c10::DeviceGuard guard(of.device);
        try {
          of.graph->capture_end();
        } catch (...) {
          undo(of);
          throw;
        }
        return graph;
      },
      error, capacity);
}

// Submits the work of the graph to the current stream.
void* zf_graphs_replay(void* graph, int, char* error, std::size_t capacity) {
  return guarded(
      [&]() -> void* {
        static_cast<Graph*>(graph)->graph->replay();
        return graph;
      },
      error, capacity);
}

// Frees a graph; replays in progress are completed.
void zf_graphs_free(void* graph) {
  delete static_cast<Graph*>(graph);
}

// Frees a recorder. Graphs stay usable.
void zf_graphs_close(void* recorder) {
  delete static_cast<Recorder*>(recorder);
}

} // extern "C"

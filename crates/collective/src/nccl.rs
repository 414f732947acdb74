//! Groups over NCCL, the library for collective operations on NVIDIA GPUs.
//!
//! NCCL is loaded at run time ([`Nccl::load`]), so that one binary works on machines with and without NCCL. A group
//! member, a [`Communicator`], sums numbers in GPU memory in place, on a separate stream. Calls to NCCL return before
//! the operation has finished, and the communicator polls for completion. Every wait is therefore bounded: by a
//! timeout, an error that NCCL reports, or the interrupt of the group. The communicator is then aborted, which frees
//! the GPU from an operation that waits for missing members. NCCL connects the members, over plain TCP or links between
//! the GPUs, without encryption or credentials.

mod functions;
mod stream;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use self::functions::Lookup;
use self::functions::{Config, Functions};
use self::stream::{Buffer, Event, Stream};
use crate::{Collective, CudaNumbers, Error, Memory, Numbers, loader};

/// The operation in errors of loading.
const LOAD: &str = "load NCCL";
/// `ncclInProgress`.
const IN_PROGRESS: c_int = 7;
/// `cudaErrorNotReady`.
const NOT_READY: c_int = 600;
/// `ncclUint8` and `ncclFloat32`.
const UINT8: c_int = 1;
const FLOAT32: c_int = 7;
/// `ncclSum`.
const SUM: c_int = 0;
/// `cudaMemcpyHostToDevice` and `cudaMemcpyDeviceToHost`.
const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;
/// Size of the GPU buffer for numbers in host memory, in bytes; longer arguments pass in several parts.
const STAGED_BYTES: usize = 16 << 20;
/// Maximum wait for an abort, and after it for the GPU to leave the operation.
const ABORT_TIME: Duration = Duration::from_secs(2);
/// Minimum and maximum pause between two polls of an operation.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// The id of a group. The first member creates the id, and the caller passes it to all members.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniqueId(pub [u8; 128]);

/// The clock for timeouts, and the functions to pause between polls and to give up.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Returns the current time of a monotonic clock.
    pub now: fn() -> Instant,
    /// Blocks the thread for the given time.
    pub pause: fn(Duration),
    /// Called if NCCL does not return from an abort. The GPU is then lost for this process, which should end.
    pub give_up: fn(),
}

/// The NCCL and CUDA functions, for one GPU.
#[derive(Debug, Clone, Copy)]
pub struct Nccl {
    functions: Functions,
    device: usize,
    gpu: [u8; 16],
    clock: Clock,
}

impl Nccl {
    /// Loads NCCL and the necessary CUDA functions, for CUDA device `device`.
    ///
    /// # Errors
    /// NCCL or a function is missing, or the driver returns no identity for the device.
    pub fn load(device: usize, clock: Clock) -> Result<Self, Error> {
        // The CUDA part of libtorch, which is linked with NCCL, was loaded before.
        loader::open(c"libnccl.so.2").map_err(|reason| Error { operation: LOAD, reason })?;
        Self::found_by(loader::in_this_process, device, clock)
    }

    /// Uses the functions that `lookup` finds, for CUDA device `device`.
    ///
    /// # Errors
    /// A function is missing, or the driver returns no identity for the device.
    pub fn found_by(lookup: Lookup, device: usize, clock: Clock) -> Result<Self, Error> {
        let mut nccl = Self { functions: Functions::found_by(lookup)?, device, gpu: [0; 16], clock };
        let mut handle = 0;
        // SAFETY: the results are written before they are read. Parts of a GPU have the identity of the whole GPU,
        // which NCCL compares too.
        let code = unsafe {
            match (nccl.functions.driver_device)(&raw mut handle, nccl.ordinal()) {
                0 => (nccl.functions.driver_uuid)(&raw mut nccl.gpu, handle),
                code => code,
            }
        };
        match code {
            0 => Ok(nccl),
            _ => Err(Error {
                operation: LOAD,
                reason: format!("cannot read the identity of GPU {device}: driver error {code}"),
            }),
        }
    }

    /// Returns the identity of the GPU, which is unique: NCCL allows one group member per GPU.
    #[must_use]
    pub fn gpu(&self) -> [u8; 16] {
        self.gpu
    }

    /// Creates the id of a group. The members find each other through a port of this machine, which is closed when all
    /// members have joined.
    ///
    /// # Errors
    /// The machine has no network that NCCL supports.
    pub fn unique_id(&self) -> Result<UniqueId, Error> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: NCCL writes the 128 bytes of the id.
        let code = unsafe { (self.functions.get_unique_id)(&raw mut id) };
        self.check("create a group", code, null_mut()).map(|()| id)
    }

    /// Joins a group as `rank` of `size`, and returns when all members have joined. Once `interrupt` is set, every
    /// operation that waits for other members fails.
    ///
    /// # Errors
    /// Not all members have joined within `timeout`, `interrupt` is set, two members are on one GPU, NCCL cannot
    /// connect the members, or CUDA fails.
    pub fn join(
        &self,
        id: &UniqueId,
        [rank, size]: [usize; 2],
        timeout: Duration,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Communicator, Error> {
        let operation = "join";
        let number = |number: usize| {
            c_int::try_from(number).map_err(|_| Error { operation, reason: "too many ranks".to_owned() })
        };
        let (of_rank, of_size) = (number(rank)?, number(size)?);
        let deadline = (self.clock.now)() + timeout;
        let mut communicator = self.on(operation, || {
            Ok(Communicator {
                nccl: *self,
                communicator: null_mut(),
                stream: Stream::new(&self.functions)?,
                ready: Event::new(&self.functions)?,
                done: Event::new(&self.functions)?,
                staged: None,
                rank,
                size,
                interrupt: Arc::clone(interrupt),
            })
        })?;
        self.on(operation, || {
            let mut config = Config::NON_BLOCKING;
            // SAFETY: the handle is written before it is used, and `config` outlives the call.
            let code = unsafe {
                let handle = &raw mut communicator.communicator;
                (self.functions.comm_init)(handle, of_size, *id, of_rank, &raw mut config)
            };
            communicator.submitted(operation, code)?;
            communicator.wait(operation, deadline, |state| Ok(state == 0))
        })?;
        Ok(communicator)
    }

    fn ordinal(&self) -> c_int {
        c_int::try_from(self.device).unwrap_or(c_int::MAX)
    }

    /// Runs `work` with the device as the current device of this thread, and then restores the previous device.
    fn on<T>(&self, operation: &'static str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let mut before: c_int = 0;
        // SAFETY: the current device is written before it is read.
        let [got, set] =
            unsafe { [(self.functions.get_device)(&raw mut before), (self.functions.set_device)(self.ordinal())] };
        self.check_cuda(operation, got)?;
        self.check_cuda(operation, set)?;
        let outcome = work();
        // SAFETY: the function takes an integer and no pointer.
        let reset = unsafe { (self.functions.set_device)(before) };
        let outcome = outcome?;
        self.check_cuda(operation, reset).map(|()| outcome)
    }

    /// Waits up to [`ABORT_TIME`] until `is_done` returns true, and returns false if it never did.
    fn within_limit(&self, is_done: impl Fn() -> bool) -> bool {
        let begun = (self.clock.now)();
        while !is_done() {
            if (self.clock.now)().duration_since(begun) >= ABORT_TIME {
                return false;
            }
            (self.clock.pause)(PAUSES[1]);
        }
        true
    }

    fn check_cuda(&self, operation: &'static str, code: c_int) -> Result<(), Error> {
        stream::check(&self.functions, operation, code)
    }

    /// Checks a result of NCCL. An error has NCCL's text for `code` and the last error of `communicator`.
    fn check(&self, operation: &'static str, code: c_int, communicator: *mut c_void) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: both functions return null or strings that outlive this call.
        let [text, last] = unsafe {
            [(self.functions.error_text)(code), (self.functions.last_error)(communicator)].map(|text| {
                if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().trim().to_owned() }
            })
        };
        let last = last.lines().next_back().unwrap_or_default();
        let reason = if last.is_empty() { format!("{text} (error {code})") } else { format!("{text}: {last}") };
        Err(Error { operation, reason })
    }
}

/// A member of an NCCL group, which sums numbers in GPU memory.
#[derive(Debug)]
pub struct Communicator {
    nccl: Nccl,
    /// Null before initialization and after an abort.
    communicator: *mut c_void,
    stream: Stream,
    /// Recorded after earlier work on the device's default stream, which an operation waits for.
    ready: Event,
    /// Recorded after an operation.
    done: Event,
    staged: Option<Buffer>,
    rank: usize,
    size: usize,
    interrupt: Arc<AtomicBool>,
}

// SAFETY: a communicator belongs to no thread and is used by one thread at a time.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Submits an operation after all earlier operations on the default stream, and waits until the operation has
    /// finished.
    fn run(
        &mut self,
        operation: &'static str,
        deadline: Instant,
        submit: impl FnOnce(&Functions, *mut c_void, *mut c_void) -> c_int,
    ) -> Result<(), Error> {
        if self.communicator.is_null() {
            return Err(Error { operation, reason: "the group was aborted".to_owned() });
        }
        let functions = self.nccl.functions;
        self.ready.record(operation, null_mut())?;
        self.stream.wait_for(operation, &self.ready)?;
        let code = submit(&functions, self.communicator, self.stream.handle);
        self.submitted(operation, code)?;
        if code == IN_PROGRESS {
            self.wait(operation, deadline, |state| Ok(state == 0))?;
        }
        self.drained(operation, deadline)
    }

    /// Waits until the stream has finished all submitted operations.
    fn drained(&mut self, operation: &'static str, deadline: Instant) -> Result<(), Error> {
        let recorded = self.done.record(operation, self.stream.handle);
        let (nccl, done) = (self.nccl, self.done.handle);
        recorded.and_then(|()| {
            self.wait(operation, deadline, |_| {
                // SAFETY: the event exists as long as this communicator.
                match unsafe { (nccl.functions.event_query)(done) } {
                    NOT_READY => Ok(false),
                    code => nccl.check_cuda(operation, code).map(|()| true),
                }
            })
        })
    }

    /// Checks the result of a submission; aborts the communicator on an error.
    fn submitted(&mut self, operation: &'static str, code: c_int) -> Result<(), Error> {
        if code == IN_PROGRESS {
            return Ok(());
        }
        let outcome = self.nccl.check(operation, code, self.communicator);
        outcome.inspect_err(|_| self.abort())
    }

    /// Polls until `is_done` returns true for the state of the communicator; aborts the communicator on an error, the
    /// interrupt or the deadline.
    fn wait(
        &mut self,
        operation: &'static str,
        deadline: Instant,
        mut is_done: impl FnMut(c_int) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let Clock { now, pause, .. } = self.nccl.clock;
        let begun = now();
        let outcome = loop {
            let mut state = 0;
            // SAFETY: the communicator is not aborted, and the state is written before it is read.
            let code = unsafe { (self.nccl.functions.comm_async_error)(self.communicator, &raw mut state) };
            // Completion is checked before errors: a member may leave as soon as the operation has finished there.
            match is_done(state) {
                Ok(false) => {}
                other => break other.map(|_| ()),
            }
            let failed = |code: c_int| code != 0 && code != IN_PROGRESS;
            if let Some(code) = [code, state].into_iter().find(|&code| failed(code)) {
                break self.nccl.check(operation, code, self.communicator);
            }
            let time = now();
            let reason = match (self.interrupt.load(Ordering::Relaxed), time >= deadline) {
                (true, _) => "a member left the group",
                (_, true) => "a member did not arrive in time",
                _ => {
                    pause((time.duration_since(begun) / 16).clamp(PAUSES[0], PAUSES[1]));
                    continue;
                }
            };
            break Err(Error { operation, reason: reason.to_owned() });
        };
        outcome.inspect_err(|_| self.abort())
    }

    /// Aborts the operations of the group on the GPU, and waits up to [`ABORT_TIME`] until the GPU has stopped using
    /// the memory of the operation. NCCL may hang in an abort (NVIDIA/nccl#1777), so another thread makes the call.
    fn abort(&mut self) {
        if self.communicator.is_null() {
            return;
        }
        let (nccl, device) = (self.nccl, self.nccl.ordinal());
        let communicator = std::mem::replace(&mut self.communicator, null_mut()).expose_provenance();
        let call = move || {
            // SAFETY: the communicator was created, is not aborted yet, and is not used afterwards.
            let _ = unsafe {
                (nccl.functions.set_device)(device);
                (nccl.functions.comm_abort)(with_exposed_provenance_mut(communicator))
            };
        };
        let Ok(aborting) = std::thread::Builder::new().name("nccl-abort".into()).spawn(call) else {
            return (nccl.clock.give_up)();
        };
        if !nccl.within_limit(|| aborting.is_finished()) {
            return (nccl.clock.give_up)();
        }
        let _ = aborting.join();
        let done = self.done.handle;
        if self.done.record("abort", self.stream.handle).is_ok() {
            // SAFETY: the event exists as long as this communicator.
            nccl.within_limit(|| unsafe { (nccl.functions.event_query)(done) } != NOT_READY);
        }
    }

    /// Makes `submit` replace bytes in host memory, which pass through GPU memory in parts of up to [`STAGED_BYTES`].
    /// All parts except the last are a multiple of four bytes long.
    fn staged(
        &mut self,
        operation: &'static str,
        bytes: &mut [u8],
        timeout: Duration,
        submit: impl Fn(&Functions, *mut c_void, usize, *mut c_void, *mut c_void) -> c_int,
    ) -> Result<(), Error> {
        let nccl = self.nccl;
        let deadline = (nccl.clock.now)() + timeout;
        nccl.on(operation, || {
            for part in bytes.chunks_mut(STAGED_BYTES) {
                let len = part.len();
                let memory = match &self.staged {
                    Some(buffer) if buffer.bytes >= len => buffer.address,
                    _ => self.staged.insert(Buffer::new(&nccl.functions, len)?).address,
                };
                self.stream.copy(operation, memory, part.as_ptr().cast(), len, TO_DEVICE)?;
                let submit =
                    |functions: &Functions, communicator, stream| submit(functions, memory, len, communicator, stream);
                self.run(operation, deadline, submit)?;
                self.stream.copy(operation, part.as_mut_ptr().cast(), memory, len, TO_HOST)?;
                self.drained(operation, deadline)?;
            }
            Ok(())
        })
    }
}

impl Collective for Communicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn memory(&self) -> Memory {
        Memory::Cuda(self.nccl.device)
    }

    fn all_reduce(&mut self, numbers: Numbers<'_>, timeout: Duration) -> Result<(), Error> {
        let operation = "all-reduce";
        match numbers {
            Numbers::Cuda(CudaNumbers { address, len, device, .. }) => {
                if device != self.nccl.device {
                    let reason = format!("the numbers are on GPU {device}, the group is on GPU {}", self.nccl.device);
                    return Err(Error { operation, reason });
                }
                let (nccl, address) = (self.nccl, address.as_ptr().cast::<c_void>());
                let deadline = (nccl.clock.now)() + timeout;
                nccl.on(operation, || {
                    self.run(operation, deadline, |functions, communicator, stream| {
                        // SAFETY: the numbers are borrowed until the operation has finished or was aborted.
                        unsafe { (functions.all_reduce)(address, address, len, FLOAT32, SUM, communicator, stream) }
                    })
                })
            }
            Numbers::Host(numbers) => {
                let len = size_of_val(numbers);
                // SAFETY: every bit pattern is a valid number, and memory of four-byte numbers is aligned for bytes.
                let bytes = unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast::<u8>(), len) };
                self.staged(operation, bytes, timeout, |functions, memory, len, communicator, stream| {
                    // SAFETY: the memory holds `len` bytes until the operation has finished or was aborted.
                    unsafe { (functions.all_reduce)(memory, memory, len / 4, FLOAT32, SUM, communicator, stream) }
                })
            }
        }
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8], timeout: Duration) -> Result<(), Error> {
        assert!(root < self.size, "the root is a rank of the group");
        self.staged("broadcast", bytes, timeout, |functions, memory, len, communicator, stream| {
            // SAFETY: as in `all_reduce`.
            unsafe { (functions.broadcast)(memory, memory, len, UINT8, root as c_int, communicator, stream) }
        })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let nccl = self.nccl;
        // The communicator is aborted: finalizing it would wait for the other members, which may be gone.
        let freed = nccl.on("leave", || {
            self.abort();
            self.staged = None;
            self.ready.destroy();
            self.done.destroy();
            self.stream.destroy();
            Ok(())
        });
        // If the device has failed, the exit of the process frees everything.
        drop(freed);
    }
}

#[cfg(test)]
mod tests;

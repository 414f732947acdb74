//! The functions of NCCL.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::without_provenance_mut;

use super::cuda::{self, Event, Stream, current};
use super::{Alive, Fault, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SUCCESS, SYSTEM_ERROR, with};

const UINT8: c_int = 1;
const FLOAT32: c_int = 7;
const SUM: c_int = 0;

/// All objects, by handle.
#[derive(Debug, Default)]
pub(super) struct State {
    handles: usize,
    pub(super) faults: HashMap<usize, Fault>,
    aborted: HashMap<usize, usize>,
    /// Groups by identity.
    groups: HashMap<u64, Group>,
    communicators: HashMap<usize, Communicator>,
    pub(super) streams: HashMap<usize, Stream>,
    pub(super) events: HashMap<usize, Event>,
    /// Device and memory, by address.
    pub(super) buffers: HashMap<usize, (usize, Box<[f32]>)>,
}

/// An operation of a communicator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    communicator: usize,
    number: u64,
}

#[derive(Debug)]
struct Group {
    /// Communicator of each rank; `None` until it has joined.
    ranks: Vec<Option<usize>>,
    /// Shares submitted by the ranks, by operation number.
    submitted: HashMap<u64, Vec<Option<Share>>>,
    /// Number of completed operations.
    done: u64,
    error: c_int,
}

#[derive(Debug)]
struct Communicator {
    group: u64,
    rank: usize,
    device: usize,
    submitted: u64,
    hangs: bool,
}

/// Part of one rank in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    work: Work,
    count: usize,
    address: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Sum,
    Broadcast(usize),
}

/// Identity of a group; the first eight bytes identify it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId([u8; 128]);

/// Head of the configuration.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

impl State {
    pub(super) fn handle(&mut self) -> usize {
        self.handles += 16;
        self.handles
    }

    pub(super) fn alive(&self, device: usize) -> Alive {
        Alive {
            communicators: self.communicators.values().filter(|of| of.device == device).count(),
            streams: self.streams.values().filter(|of| of.device == device).count(),
            events: self.events.values().filter(|of| of.device == device).count(),
            buffers: self.buffers.values().filter(|(of, _)| *of == device).count(),
            aborted: self.aborted.get(&device).copied().unwrap_or_default(),
        }
    }

    /// Returns true if an operation is done. An aborted communicator abandons pending operations, so that these count
    /// as done.
    pub(super) fn is_done(&self, Pending { communicator, number }: Pending) -> bool {
        let group = self.communicators.get(&communicator).and_then(|of| self.groups.get(&of.group));
        group.is_none_or(|group| number < group.done)
    }

    fn join(&mut self, id: u64, [rank, size]: [usize; 2]) -> usize {
        let (handle, device) = (self.handle(), current());
        let hangs = self.faults.get(&device) == Some(&Fault::JoinHangs);
        self.communicators.insert(handle, Communicator { group: id, rank, device, submitted: 0, hangs });
        let new = || Group { ranks: vec![None; size], submitted: HashMap::new(), done: 0, error: SUCCESS };
        let group = self.groups.entry(id).or_insert_with(new);
        if !hangs {
            group.ranks[rank] = Some(handle);
        }
        let devices = |group: &Group| {
            group.ranks.iter().flatten().filter(|&handle| self.communicators[handle].device == device).count()
        };
        if devices(group) > 1 {
            group.error = INVALID_USAGE;
        }
        handle
    }

    /// Returns the state of a communicator, as NCCL reports it.
    fn state(&self, handle: usize) -> c_int {
        let Some(of) = self.communicators.get(&handle) else { return INVALID_ARGUMENT };
        let group = &self.groups[&of.group];
        match self.faults.get(&of.device) {
            Some(Fault::FailsAfter(operations)) if of.submitted > *operations => SYSTEM_ERROR,
            _ if group.error != SUCCESS => group.error,
            _ if of.hangs || group.ranks.contains(&None) => IN_PROGRESS,
            _ => SUCCESS,
        }
    }

    /// Returns true while a call that aborts the communicator must not return.
    fn hangs_in_abort(&self, handle: usize) -> bool {
        let of = self.communicators.get(&handle);
        of.is_some_and(|of| self.faults.get(&of.device) == Some(&Fault::AbortHangs))
    }

    fn leave(&mut self, handle: usize) -> c_int {
        let Some(Communicator { group, device, .. }) = self.communicators.remove(&handle) else {
            return INVALID_ARGUMENT;
        };
        *self.aborted.entry(device).or_default() += 1;
        let is_silent = self.faults.get(&device) == Some(&Fault::LeavesSilently);
        if let Some(group) = self.groups.get_mut(&group)
            && group.error == SUCCESS
            && !is_silent
        {
            group.error = REMOTE_ERROR;
        }
        SUCCESS
    }

    fn submit(&mut self, handle: usize, stream: usize, share: Share) -> c_int {
        // For a communicator that is not ready, NCCL returns the error, which another member may have caused meanwhile.
        match self.state(handle) {
            SUCCESS => {}
            IN_PROGRESS => return INVALID_ARGUMENT,
            error => return error,
        }
        let Some(of) = self.communicators.get_mut(&handle) else { return INVALID_ARGUMENT };
        // Refuses an operation on the default stream, or one that does not wait for the default stream.
        match self.streams.get_mut(&stream) {
            Some(stream) if stream.is_ordered && stream.device == of.device && current() == of.device => {
                stream.is_ordered = false;
                stream.last = Some(Pending { communicator: handle, number: of.submitted });
            }
            _ => return INVALID_USAGE,
        }
        let number = of.submitted;
        of.submitted += 1;
        if matches!(self.faults.get(&of.device), Some(Fault::FailsAfter(most)) if of.submitted > *most) {
            return SUCCESS;
        }
        let Some(group) = self.groups.get_mut(&of.group) else { return INVALID_ARGUMENT };
        let shares = group.submitted.entry(number).or_insert_with(|| vec![None; group.ranks.len()]);
        shares[of.rank] = Some(share);
        if let Some(shares) = shares.iter().copied().collect::<Option<Vec<Share>>>() {
            group.submitted.remove(&number);
            match compute(&shares) {
                true => group.done = number + 1,
                false => group.error = INVALID_USAGE,
            }
        }
        SUCCESS
    }
}

/// Computes an operation over all ranks; returns false if the ranks submitted different operations.
fn compute(shares: &[Share]) -> bool {
    let Share { work, count, .. } = shares[0];
    if shares.iter().any(|share| (share.work, share.count) != (work, count)) {
        return false;
    }
    match work {
        Work::Sum => {
            // SAFETY: each rank waits until the operation is done, or leaves the group before it frees the memory.
            let numbers = |share: &Share| unsafe {
                std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<f32>(share.address), count)
            };
            let sums: Vec<f32> =
                (0..count).map(|index| shares.iter().map(|share| numbers(share)[index]).sum()).collect();
            shares.iter().for_each(|share| numbers(share).copy_from_slice(&sums));
        }
        Work::Broadcast(root) => {
            // SAFETY: as above.
            let bytes = |share: &Share| unsafe {
                std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(share.address), count)
            };
            let Some(of_root) = shares.get(root) else { return false };
            let copy = bytes(of_root).to_vec();
            shares.iter().for_each(|share| bytes(share).copy_from_slice(&copy));
        }
    }
    true
}

pub(super) unsafe extern "C" fn get_unique_id(id: *mut UniqueId) -> c_int {
    let mut bytes = [0; 128];
    let number = with(State::handle) as u64;
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    // SAFETY: as for the function that it stands in for.
    unsafe { *id = UniqueId(bytes) };
    SUCCESS
}

pub(super) unsafe extern "C" fn comm_init(
    communicator: *mut *mut c_void,
    size: c_int,
    UniqueId(id): UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    // SAFETY: as for the function that it stands in for.
    let Config { size: bytes, magic, version, blocking } = unsafe { config.read() };
    let is_good = bytes >= size_of::<Config>() && magic == 0xcafe_beef && version >= 21_400 && blocking == 0;
    let (Ok(rank), Ok(size), true) = (usize::try_from(rank), usize::try_from(size), is_good && rank < size) else {
        return INVALID_ARGUMENT;
    };
    let (head, _) = id.split_first_chunk().unwrap_or((&[0; 8], &[]));
    let joined = with(|state| match state.faults.get(&current()) {
        Some(Fault::JoinRefused) => None,
        _ => Some(state.join(u64::from_le_bytes(*head), [rank, size])),
    });
    let handle = joined.map_or(cuda::null(), without_provenance_mut);
    // SAFETY: as for the function that it stands in for.
    unsafe { *communicator = handle };
    if joined.is_some() { IN_PROGRESS } else { SYSTEM_ERROR }
}

pub(super) unsafe extern "C" fn comm_async_error(communicator: *mut c_void, result: *mut c_int) -> c_int {
    let state = with(|state| state.state(communicator.addr()));
    // SAFETY: as for the function that it stands in for.
    unsafe { *result = state };
    SUCCESS
}

pub(super) unsafe extern "C" fn comm_abort(communicator: *mut c_void) -> c_int {
    while with(|state| state.hangs_in_abort(communicator.addr())) {
        std::thread::yield_now();
    }
    with(|state| state.leave(communicator.addr()))
}

pub(super) unsafe extern "C" fn all_reduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    operation: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    if (kind, operation) != (FLOAT32, SUM) || from.addr() != to.addr() {
        return INVALID_ARGUMENT;
    }
    let share = Share { work: Work::Sum, count, address: to.expose_provenance() };
    with(|state| state.submit(communicator.addr(), stream.addr(), share))
}

pub(super) unsafe extern "C" fn broadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    root: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let (Ok(root), true) = (usize::try_from(root), kind == UINT8 && from.addr() == to.addr()) else {
        return INVALID_ARGUMENT;
    };
    let share = Share { work: Work::Broadcast(root), count, address: to.expose_provenance() };
    with(|state| state.submit(communicator.addr(), stream.addr(), share))
}

pub(super) unsafe extern "C" fn error_text(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        SUCCESS => c"no error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unhandled system error",
    };
    text.as_ptr()
}

pub(super) unsafe extern "C" fn last_error(communicator: *mut c_void) -> *const c_char {
    let error = with(|state| {
        let group = state.communicators.get(&communicator.addr()).and_then(|of| state.groups.get(&of.group));
        group.map_or(SUCCESS, |group| group.error)
    });
    match error {
        INVALID_USAGE => c"Duplicate GPU detected".as_ptr(),
        _ => c"".as_ptr(),
    }
}

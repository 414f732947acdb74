//! Groups over Gloo, the library for collective operations on CPUs that libtorch contains.
//!
//! One process serves a [`Store`], through which the members of a group learn each other's addresses; it is needed
//! until all have [joined](Gloo::join). Connections are plain TCP, without encryption or credentials.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use crate::{Collective, Error, Numbers};

/// The longest reason of an error that is kept, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// The functions of `shim/gloo.cpp`.
mod shim {
    use super::{c_char, c_int, c_void};

    unsafe extern "C" {
        pub(super) fn zf_store_serve(
            host: *const c_char,
            timeout_ms: i64,
            port: *mut u16,
            error: *mut c_char,
            capacity: usize,
        ) -> *mut c_void;
        pub(super) fn zf_store_free(store: *mut c_void);
        pub(super) fn zf_group_join(
            host: *const c_char,
            port: u16,
            prefix: *const c_char,
            own_host: *const c_char,
            rank: c_int,
            size: c_int,
            timeout_ms: i64,
            error: *mut c_char,
            capacity: usize,
        ) -> *mut c_void;
        pub(super) fn zf_group_free(group: *mut c_void);
        pub(super) fn zf_all_reduce(
            group: *mut c_void,
            data: *mut f32,
            count: i64,
            timeout_ms: i64,
            error: *mut c_char,
            capacity: usize,
        ) -> bool;
        pub(super) fn zf_broadcast(
            group: *mut c_void,
            data: *mut u8,
            count: i64,
            root: c_int,
            timeout_ms: i64,
            error: *mut c_char,
            capacity: usize,
        ) -> bool;
    }
}

/// A key-value store on a free port of this machine, served until it is dropped.
#[derive(Debug)]
pub struct Store {
    handle: NonNull<c_void>,
    port: u16,
}

/// A member of a group.
#[derive(Debug)]
pub struct Gloo {
    handle: NonNull<c_void>,
    rank: usize,
    size: usize,
}

/// A group and this process's place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The host and the port of the [`Store`].
    pub store: (String, u16),
    /// The name of the group, which no other group of the store has.
    pub group: String,
    /// The name or address by which the other members reach this machine.
    pub host: String,
    /// The rank of this process.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
}

// SAFETY: the objects of c10d behind the handles belong to no thread; they are used by one thread at a time.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Send for Gloo {}

impl Store {
    /// Serves a store, which this process reaches as `host`.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn serve(host: &str, timeout: Duration) -> Result<Self, Error> {
        let host = text("serve a store", host)?;
        let mut port = 0;
        let handle = with_reason("serve a store", |error, capacity| {
            // SAFETY: the text ends with a zero, `error` has `capacity` bytes, `port` outlives the call.
            NonNull::new(unsafe {
                shim::zf_store_serve(host.as_ptr(), millis(timeout), &raw mut port, error, capacity)
            })
        })?;
        Ok(Self { handle, port })
    }

    /// The port that it is served at.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: the handle is that of `zf_store_serve`, and freed once.
        unsafe { shim::zf_store_free(self.handle.as_ptr()) }
    }
}

impl Gloo {
    /// Joins a group, and returns when all its members have.
    ///
    /// # Errors
    /// The store cannot be reached, or not all members have joined in time.
    pub fn join(place: &Place, timeout: Duration) -> Result<Self, Error> {
        let &Place { store: (ref host, port), ref group, host: ref own_host, rank, size } = place;
        let operation = "join";
        let [host, group, own_host] = [host, group, own_host].map(|name| text(operation, name));
        let (host, group, own_host) = (host?, group?, own_host?);
        let number = |number: usize| {
            c_int::try_from(number).map_err(|_| Error { operation, reason: "there are too many ranks".to_owned() })
        };
        let (of_rank, of_size) = (number(rank)?, number(size)?);
        let handle = with_reason(operation, |error, capacity| {
            // SAFETY: each text ends with a zero, `error` has `capacity` bytes.
            NonNull::new(unsafe {
                shim::zf_group_join(
                    host.as_ptr(),
                    port,
                    group.as_ptr(),
                    own_host.as_ptr(),
                    of_rank,
                    of_size,
                    millis(timeout),
                    error,
                    capacity,
                )
            })
        })?;
        Ok(Self { handle, rank, size })
    }
}

impl Drop for Gloo {
    fn drop(&mut self) {
        // SAFETY: the handle is that of `zf_group_join`, and freed once; no operation is in progress, since each waits
        // for its end.
        unsafe { shim::zf_group_free(self.handle.as_ptr()) }
    }
}

impl Collective for Gloo {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&mut self, numbers: Numbers<'_>, timeout: Duration) -> Result<(), Error> {
        let numbers = numbers.of_host("all-reduce")?;
        with_reason("all-reduce", |error, capacity| {
            // SAFETY: the handle lives, and the numbers are borrowed until the operation has ended.
            let is_done = unsafe {
                shim::zf_all_reduce(
                    self.handle.as_ptr(),
                    numbers.as_mut_ptr(),
                    count(numbers.len()),
                    millis(timeout),
                    error,
                    capacity,
                )
            };
            is_done.then_some(())
        })
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8], timeout: Duration) -> Result<(), Error> {
        assert!(root < self.size, "the root is a rank of the group");
        with_reason("broadcast", |error, capacity| {
            // SAFETY: as in `all_reduce`.
            let is_done = unsafe {
                shim::zf_broadcast(
                    self.handle.as_ptr(),
                    bytes.as_mut_ptr(),
                    count(bytes.len()),
                    root as c_int,
                    millis(timeout),
                    error,
                    capacity,
                )
            };
            is_done.then_some(())
        })
    }
}

/// Calls a function of the shim, which returns `None` and writes a reason if it fails.
fn with_reason<T>(operation: &'static str, call: impl FnOnce(*mut c_char, usize) -> Option<T>) -> Result<T, Error> {
    let mut reason = [0_u8; REASON_BYTES_MAX];
    call(reason.as_mut_ptr().cast(), reason.len()).ok_or_else(|| {
        let text = CStr::from_bytes_until_nul(&reason).map(CStr::to_string_lossy).unwrap_or_default();
        Error { operation, reason: text.lines().next().unwrap_or_default().to_owned() }
    })
}

fn text(operation: &'static str, name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error { operation, reason: format!("the name {name:?} contains a zero") })
}

fn millis(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis().max(1)).unwrap_or(i64::MAX)
}

fn count(len: usize) -> i64 {
    i64::try_from(len).expect("a slice fits memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{LONG, keeps_the_contract};

    const LOOPBACK: &str = "127.0.0.1";

    fn group(size: usize) -> Vec<Box<dyn Collective>> {
        let store = Store::serve(LOOPBACK, LONG).unwrap();
        let join = |rank| {
            let place = Place {
                store: (LOOPBACK.to_owned(), store.port()),
                group: "1".to_owned(),
                host: LOOPBACK.to_owned(),
                rank,
                size,
            };
            move || Box::new(Gloo::join(&place, LONG).unwrap()) as Box<dyn Collective>
        };
        let threads: Vec<_> = (0..size).map(|rank| std::thread::spawn(join(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn gloo_keeps_the_contract() {
        keeps_the_contract(group);
    }

    #[test]
    fn a_group_that_is_not_complete_in_time_is_an_error_with_its_reason() {
        let store = Store::serve(LOOPBACK, LONG).unwrap();
        let (store, host) = ((LOOPBACK.to_owned(), store.port()), LOOPBACK.to_owned());
        let place = Place { store, group: "1".to_owned(), host, rank: 0, size: 2 };
        let error = Gloo::join(&place, Duration::from_millis(200)).unwrap_err();
        assert!(error.operation == "join" && !error.reason.is_empty(), "{error}");
        let unserved = Place { store: (LOOPBACK.to_owned(), 1), ..place };
        assert!(Gloo::join(&unserved, Duration::from_millis(200)).is_err());
    }
}

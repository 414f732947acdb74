//! Groups over Gloo, the library for collective operations on CPUs in libtorch.
//!
//! Each member listens at [`Place::host`], and members exchange ports through [`Addresses`], which the caller
//! implements over separate connections. Gloo connections are plain TCP, without encryption or credentials.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use crate::{Collective, Error, Numbers};

/// Size of the buffer for the reason of an error, in bytes; longer reasons are cut.
const REASON_BYTES_MAX: usize = 1024;

/// The functions of `shim/gloo.cpp`.
mod shim {
    use super::{c_char, c_int, c_void};

    /// The address table of the ranks. Both functions return false and write a reason on failure.
    #[repr(C)]
    pub(super) struct Addresses {
        pub(super) context: *mut c_void,
        pub(super) set: unsafe extern "C" fn(*mut c_void, *const c_char, *const u8, usize, *mut c_char, usize) -> bool,
        pub(super) get:
            unsafe extern "C" fn(*mut c_void, *const c_char, i64, *mut c_void, Put, *mut c_char, usize) -> bool,
    }

    /// Receives the value of a key: sink, bytes and length.
    pub(super) type Put = unsafe extern "C" fn(*mut c_void, *const u8, usize);

    unsafe extern "C" {
        pub(super) fn zf_group_join(
            addresses: *const Addresses,
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

/// A shared table of the addresses at which the members of one group listen.
pub trait Addresses: Send + Sync {
    /// Sets the address for `key`, once.
    ///
    /// # Errors
    /// The reason, if the address cannot be set.
    fn set(&self, key: &str, address: &[u8]) -> Result<(), String>;

    /// Waits for the address for `key`, and returns the address.
    ///
    /// # Errors
    /// The reason, if the address cannot be read or is not set within `timeout`.
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, String>;
}

/// A member of a Gloo group, which sums numbers in host memory.
pub struct Gloo {
    handle: NonNull<c_void>,
    rank: usize,
    size: usize,
    /// Kept until after the handle is freed, since the handle refers to the addresses.
    _addresses: Box<Box<dyn Addresses>>,
}

/// The rank and host of a process in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name or address at which this process listens and the other members connect.
    pub host: String,
    /// Rank of this process, from 0 to `size - 1`.
    pub rank: usize,
    /// Number of processes in the group.
    pub size: usize,
}

// SAFETY: the objects of c10d behind the handle belong to no thread; they are used by one thread at a time.
unsafe impl Send for Gloo {}

impl Gloo {
    /// Joins a group, and returns when all members have joined.
    ///
    /// # Errors
    /// The host name contains a zero byte, the rank or size exceeds a C `int`, addresses cannot be exchanged, or
    /// not all members have joined within `timeout`.
    pub fn join(place: &Place, addresses: Box<dyn Addresses>, timeout: Duration) -> Result<Self, Error> {
        let &Place { ref host, rank, size } = place;
        let operation = "join";
        let own_host = CString::new(host.as_str())
            .map_err(|_| Error { operation, reason: format!("the name {host:?} contains a NUL byte") })?;
        let number = |number: usize| {
            c_int::try_from(number).map_err(|_| Error { operation, reason: "too many ranks".to_owned() })
        };
        let (of_rank, of_size) = (number(rank)?, number(size)?);
        // The outer box makes the context a thin pointer: a pointer to a trait object has two words.
        let addresses = Box::new(addresses);
        let of_shim =
            shim::Addresses { context: (&raw const *addresses).cast_mut().cast(), set: set_address, get: get_address };
        let handle = with_reason(operation, |error, capacity| {
            // SAFETY: the text ends with a zero byte, `error` has `capacity` bytes, and the addresses outlive the
            // handle.
            NonNull::new(unsafe {
                shim::zf_group_join(
                    &raw const of_shim,
                    own_host.as_ptr(),
                    of_rank,
                    of_size,
                    millis(timeout),
                    error,
                    capacity,
                )
            })
        })?;
        Ok(Self { handle, rank, size, _addresses: addresses })
    }
}

/// Sets an address for the shim.
///
/// # Safety
/// `context` is the context in [`Gloo::join`], `key` ends with a zero byte, `value` has `length` bytes, and `error` has
/// `capacity` bytes.
unsafe extern "C" fn set_address(
    context: *mut c_void,
    key: *const c_char,
    value: *const u8,
    length: usize,
    error: *mut c_char,
    capacity: usize,
) -> bool {
    // SAFETY: as the caller promises.
    let (addresses, key) = unsafe { (&*context.cast::<Box<dyn Addresses>>(), CStr::from_ptr(key)) };
    let value = match length {
        0 => &[],
        // SAFETY: as the caller promises; an empty C++ vector, which may have a null address, is handled above.
        _ => unsafe { std::slice::from_raw_parts(value, length) },
    };
    let set = addresses.set(&key.to_string_lossy(), value);
    // SAFETY: as the caller promises.
    set.map_err(|reason| unsafe { write_reason(&reason, error, capacity) }).is_ok()
}

/// Gets an address for the shim, and passes the bytes to `put`.
///
/// # Safety
/// Same as [`set_address`], and `put` accepts `sink`.
unsafe extern "C" fn get_address(
    context: *mut c_void,
    key: *const c_char,
    timeout_ms: i64,
    sink: *mut c_void,
    put: shim::Put,
    error: *mut c_char,
    capacity: usize,
) -> bool {
    // SAFETY: as the caller promises.
    let (addresses, key) = unsafe { (&*context.cast::<Box<dyn Addresses>>(), CStr::from_ptr(key)) };
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    match addresses.get(&key.to_string_lossy(), timeout) {
        // SAFETY: `value` outlives the call.
        Ok(value) => unsafe { put(sink, value.as_ptr(), value.len()) },
        Err(reason) => {
            // SAFETY: as the caller promises.
            unsafe { write_reason(&reason, error, capacity) };
            return false;
        }
    }
    true
}

/// Writes `reason` with a terminating zero byte, cut to `capacity` bytes in total.
///
/// # Safety
/// `error` has `capacity` bytes, at least one.
unsafe fn write_reason(reason: &str, error: *mut c_char, capacity: usize) {
    let length = reason.len().min(capacity - 1);
    // SAFETY: as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(reason.as_ptr(), error.cast(), length);
        error.add(length).write(0);
    }
}

impl Drop for Gloo {
    fn drop(&mut self) {
        // SAFETY: `zf_group_join` returned the handle, which is freed once. No operation is in progress, since each
        // operation blocks until finished.
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
        let Numbers::Host(numbers) = numbers else {
            let reason = "the group sums in host memory only".to_owned();
            return Err(Error { operation: "all-reduce", reason });
        };
        with_reason("all-reduce", |error, capacity| {
            // SAFETY: the handle is valid, and the numbers are borrowed until the operation has finished.
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

/// Calls a shim function, which returns `None` and writes a reason on failure. The error keeps the first line of the
/// reason.
fn with_reason<T>(operation: &'static str, call: impl FnOnce(*mut c_char, usize) -> Option<T>) -> Result<T, Error> {
    let mut reason = [0_u8; REASON_BYTES_MAX];
    call(reason.as_mut_ptr().cast(), reason.len()).ok_or_else(|| {
        let text = CStr::from_bytes_until_nul(&reason).map(CStr::to_string_lossy).unwrap_or_default();
        Error { operation, reason: text.lines().next().unwrap_or_default().to_owned() }
    })
}

fn millis(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis().max(1)).unwrap_or(i64::MAX)
}

fn count(len: usize) -> i64 {
    i64::try_from(len).expect("a slice fits memory")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;
    use crate::tests::{LONG, keeps_the_contract};

    const LOOPBACK: &str = "127.0.0.1";

    /// Addresses in the memory of this process.
    #[derive(Default)]
    struct Table {
        addresses: Mutex<HashMap<String, Vec<u8>>>,
        is_changed: Condvar,
    }

    impl Addresses for Arc<Table> {
        fn set(&self, key: &str, address: &[u8]) -> Result<(), String> {
            self.addresses.lock().unwrap().insert(key.to_owned(), address.to_vec());
            self.is_changed.notify_all();
            Ok(())
        }

        fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, String> {
            let is_missing = |addresses: &mut HashMap<String, Vec<u8>>| !addresses.contains_key(key);
            let addresses = self.addresses.lock().unwrap();
            let (addresses, _) = self.is_changed.wait_timeout_while(addresses, timeout, is_missing).unwrap();
            addresses.get(key).cloned().ok_or_else(|| format!("{key} is not set in {timeout:?}"))
        }
    }

    fn place(rank: usize, size: usize) -> Place {
        Place { host: LOOPBACK.to_owned(), rank, size }
    }

    fn members(size: usize) -> Vec<Gloo> {
        let table = Arc::<Table>::default();
        let join = |rank| {
            let table = Box::new(Arc::clone(&table));
            move || Gloo::join(&place(rank, size), table, LONG).unwrap()
        };
        let threads: Vec<_> = (0..size).map(|rank| std::thread::spawn(join(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn gloo_keeps_the_contract() {
        keeps_the_contract(|size| {
            members(size).into_iter().map(|member| Box::new(member) as Box<dyn Collective>).collect()
        });
    }

    #[test]
    fn a_group_that_is_not_complete_in_time_is_an_error_with_the_key_that_is_missing() {
        let error = Gloo::join(&place(0, 2), Box::<Arc<Table>>::default(), Duration::from_millis(200)).err().unwrap();
        assert!(error.operation == "join" && error.reason.contains("is not set in"), "{error}");
    }

    /// Addresses that cannot be exchanged.
    struct Nowhere;

    impl Addresses for Nowhere {
        fn set(&self, _: &str, _: &[u8]) -> Result<(), String> {
            Err("r".repeat(2 * REASON_BYTES_MAX))
        }

        fn get(&self, _: &str, _: Duration) -> Result<Vec<u8>, String> {
            Err("nothing is here".to_owned())
        }
    }

    #[test]
    fn a_reason_of_any_length_arrives() {
        let error = Gloo::join(&place(0, 2), Box::new(Nowhere), LONG).err().unwrap();
        assert!(error.reason.contains("rrr"), "{error}");
    }

    /// Returns the listening addresses of this process in kernel notation: `0100007F:1F90` is 127.0.0.1:8080.
    #[expect(clippy::disallowed_methods, reason = "the kernel lists sockets in files")]
    fn listening() -> Vec<String> {
        let of = |table| std::fs::read_to_string(table).unwrap_or_default();
        let inodes: Vec<String> = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| {
                let link = std::fs::read_link(entry.ok()?.path()).ok()?;
                Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
            })
            .collect();
        let tables = of("/proc/net/tcp") + &of("/proc/net/tcp6");
        let is_own =
            |fields: &Vec<&str>| fields.len() > 9 && fields[3] == "0A" && inodes.iter().any(|own| own == fields[9]);
        tables
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(is_own)
            .map(|fields| fields[1].to_owned())
            .collect()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn members_listen_at_their_own_host_only() {
        let members = members(2);
        let addresses = listening();
        assert!(!addresses.is_empty(), "the members listen");
        assert!(addresses.iter().all(|address| address.starts_with("0100007F:")), "{addresses:?}");
        drop(members);
    }
}

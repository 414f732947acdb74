use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use super::{Functions, ordinal};
use crate::Error;

/// A function of the library in shim/graphs.cpp that can fail: it takes a handle, a number, and a buffer for the reason
/// of a failure with the length of the buffer, and returns a handle or null.
type Call = unsafe extern "C" fn(*mut c_void, c_int, *mut c_char, usize) -> *mut c_void;
/// A function of this library that frees a handle.
type Free = unsafe extern "C" fn(*mut c_void);

/// Name of the interface in errors.
const INTERFACE: &str = "CUDA graphs";

/// Threads without calls to CUDA that a capture forbids, such as an allocation. Values of `cudaStreamCaptureMode`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Restricted {
    /// All threads of the process, for work that several threads submit.
    AllThreads = 0,
    /// The capturing thread, which submits all of the work.
    CapturingThread = 1,
}

/// A stream for captures on a CUDA device, and the memory pool of the graphs. Belongs to one thread at a time.
#[derive(Debug)]
pub(crate) struct Capture {
    handle: NonNull<c_void>,
    restricted: Restricted,
    functions: Functions,
}

// SAFETY: the library keeps nothing per thread for a handle, which has no other owner and is not `Sync`.
unsafe impl Send for Capture {}

impl Capture {
    /// Creates a stream and a memory pool on CUDA device `index`.
    ///
    /// # Errors
    /// [`Error::Cuda`] if the library is not loaded, [`Error::Libtorch`] if the device fails.
    pub(crate) fn new(index: usize, restricted: Restricted) -> Result<Self, Error> {
        Self::found_by(Functions::loaded(), index, restricted)
    }

    fn found_by(functions: Functions, index: usize, restricted: Restricted) -> Result<Self, Error> {
        // All functions are looked up now, so that none is missing during a capture.
        for name in [c"zf_graphs_enter", c"zf_graphs_leave", c"zf_graphs_begin", c"zf_graphs_end", c"zf_graphs_replay"]
        {
            functions.find(INTERFACE, name)?;
        }
        let handle = call(functions, c"zf_graphs_open", null_mut(), ordinal(INTERFACE, index)?)?;
        Ok(Self { handle, restricted, functions })
    }

    /// Runs `work` on the stream of captures, after earlier and before later work of this thread.
    ///
    /// # Errors
    /// The error of `work`, or [`Error::Libtorch`] if the device fails.
    pub(crate) fn on_stream<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        call(self.functions, c"zf_graphs_enter", self.handle.as_ptr(), 0)?;
        let outcome = work();
        let left = call(self.functions, c"zf_graphs_leave", self.handle.as_ptr(), 0);
        outcome.and_then(|outcome| left.map(|_| outcome))
    }

    /// Captures the operations of `work`, which are not computed. A failure ends the capture too.
    ///
    /// # Errors
    /// The error of `work`, or [`Error::Libtorch`] if the operations cannot be captured.
    pub(crate) fn captured<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<(T, Captured), Error> {
        self.on_stream(|| {
            let mode = self.restricted as c_int;
            let handle = call(self.functions, c"zf_graphs_begin", self.handle.as_ptr(), mode)?;
            let graph = Captured { handle, functions: self.functions };
            let outcome = work();
            let ended = call(self.functions, c"zf_graphs_end", handle.as_ptr(), 0);
            outcome.and_then(|outcome| ended.map(|_| (outcome, graph)))
        })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        free(self.functions, c"zf_graphs_close", self.handle);
    }
}

/// Captured operations.
#[derive(Debug)]
pub(crate) struct Captured {
    handle: NonNull<c_void>,
    functions: Functions,
}

// SAFETY: as for `Capture`.
unsafe impl Send for Captured {}

impl Captured {
    /// Submits the operations to the current stream.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub(crate) fn replay(&self) -> Result<(), Error> {
        call(self.functions, c"zf_graphs_replay", self.handle.as_ptr(), 0).map(drop)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        free(self.functions, c"zf_graphs_free", self.handle);
    }
}

fn call(functions: Functions, name: &CStr, handle: *mut c_void, number: c_int) -> Result<NonNull<c_void>, Error> {
    let mut reason: [c_char; 512] = [0; 512];
    // SAFETY: functions with these names have this signature; the handle is null for the first call, or comes from the
    // library and is alive. A reason is written within the buffer, with a final zero.
    let result = unsafe {
        let call: Call = std::mem::transmute(functions.find(INTERFACE, name)?);
        call(handle, number, reason.as_mut_ptr(), reason.len())
    };
    NonNull::new(result).ok_or_else(|| {
        // SAFETY: the buffer holds a final zero, since it was filled with zeros and the library keeps the last one.
        let text = unsafe { CStr::from_ptr(reason.as_ptr()) }.to_string_lossy();
        // Further lines are advice for debugging.
        Error::of_message(text.lines().next().unwrap_or_default().to_owned())
    })
}

fn free(functions: Functions, name: &CStr, handle: NonNull<c_void>) {
    if let Ok(function) = functions.find(INTERFACE, name) {
        // SAFETY: functions with these names have this signature; the handle comes from the library and is not used
        // again.
        unsafe { std::mem::transmute::<NonNull<c_void>, Free>(function)(handle.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    thread_local! {
        /// Calls of the stand-in, and the function that fails.
        static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
        static FAILS: Cell<&'static str> = const { Cell::new("") };
    }

    fn called(name: &'static str, error: *mut c_char, capacity: usize) -> *mut c_void {
        CALLS.with_borrow_mut(|calls| calls.push(name));
        if FAILS.get() != name {
            return NonNull::<u64>::dangling().as_ptr().cast();
        }
        let text = c"CUDA error: operation not permitted when stream is capturing\nSearch for it";
        assert!(capacity > text.count_bytes());
        // SAFETY: the text with the final zero is shorter than the buffer.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), error, text.to_bytes_with_nul().len()) };
        null_mut()
    }

    macro_rules! stand_ins {
        ($($name:ident)*) => {
            $(unsafe extern "C" fn $name(_: *mut c_void, _: c_int, error: *mut c_char, capacity: usize) -> *mut c_void {
                called(stringify!($name), error, capacity)
            })*
        };
    }

    stand_ins!(open enter leave end replay);

    unsafe extern "C" fn begin(_: *mut c_void, mode: c_int, error: *mut c_char, capacity: usize) -> *mut c_void {
        assert_eq!(mode, 1);
        called("begin", error, capacity)
    }

    unsafe extern "C" fn free_graph(_: *mut c_void) {
        CALLS.with_borrow_mut(|calls| calls.push("free"));
    }

    unsafe extern "C" fn close(_: *mut c_void) {
        CALLS.with_borrow_mut(|calls| calls.push("close"));
    }

    fn capture() -> Capture {
        let lookup = |symbol: &CStr| {
            let function = match symbol.to_bytes() {
                b"zf_graphs_open" => open as *const c_void,
                b"zf_graphs_enter" => enter as *const c_void,
                b"zf_graphs_leave" => leave as *const c_void,
                b"zf_graphs_begin" => begin as *const c_void,
                b"zf_graphs_end" => end as *const c_void,
                b"zf_graphs_replay" => replay as *const c_void,
                b"zf_graphs_free" => free_graph as *const c_void,
                b"zf_graphs_close" => close as *const c_void,
                _ => return None,
            };
            NonNull::new(function.cast_mut())
        };
        Capture::found_by(Functions { lookup }, 0, Restricted::CapturingThread).unwrap()
    }

    #[test]
    fn work_is_captured_on_the_stream_of_captures_and_replayed_on_the_current_one() {
        let capture = capture();
        assert_eq!(capture.on_stream(|| Ok(3)).unwrap(), 3);
        let work = || {
            CALLS.with_borrow_mut(|calls| calls.push("work"));
            Ok(4)
        };
        let (outcome, graph) = capture.captured(work).unwrap();
        graph.replay().unwrap();
        drop((graph, capture));
        assert_eq!(outcome, 4);
        let expected = "open enter leave enter begin work end leave replay free close";
        assert_eq!(CALLS.take().join(" "), expected);
    }

    #[test]
    fn a_failed_capture_is_ended_and_freed_and_the_former_stream_is_current_again() {
        let capture = capture();
        let failed = || Err::<(), _>(Error::Libtorch("no such operator".to_owned()));
        assert_eq!(capture.captured(failed).map(drop).unwrap_err().to_string(), "libtorch: no such operator");
        assert_eq!(CALLS.take().join(" "), "open enter begin end free leave");
        FAILS.set("end");
        let error = capture.captured(|| Ok(())).map(drop).unwrap_err().to_string();
        assert_eq!(error, "libtorch: CUDA error: operation not permitted when stream is capturing");
        assert_eq!(CALLS.take().join(" "), "enter begin end free leave");
    }

    #[test]
    fn without_the_library_there_is_a_reason() {
        let error = Capture::found_by(Functions { lookup: |_| None }, 0, Restricted::AllThreads).unwrap_err();
        assert!(error.to_string().starts_with("CUDA graphs: "), "{error}");
    }
}

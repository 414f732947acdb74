//! Tests that tracing does not allocate while it is off, in a separate test binary that counts allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use service::trace;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls are forwarded to the system allocator; the thread-local count itself does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the same contract for the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract for the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn requesting_a_span_while_tracing_is_off_allocates_nothing() {
    let parent = trace::TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert!(parent.is_some());
    let before = ALLOCATIONS.get();
    for _ in 0..1000 {
        assert!(trace::root("game").is_none() && trace::joined("store", parent).is_none());
        assert!(trace::within(None, trace::current).is_none());
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

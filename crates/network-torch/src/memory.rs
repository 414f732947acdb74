/// Lets this process keep the memory that a training step frees, for the next step. For a process that trains on a CPU,
/// before it starts its threads.
///
/// A step allocates and frees some hundred activations of a few megabytes. The allocator of the GNU C library gives
/// them back to the system each time, and the pages are cleared when they are touched again: an eighth of the time of a
/// step with 256 positions of a 4x64 tower (the example `throughput` with and without this). Elsewhere this does
/// nothing.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The most that the allocator takes: `HEAP_MAX_SIZE / 2`.
        const LARGEST_BLOCK: libc::c_int = 32 << 20;
        let settings = [
            (libc::M_ARENA_MAX, 1),
            (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
            (libc::M_MMAP_THRESHOLD, LARGEST_BLOCK),
        ];
        for (setting, value) in settings {
            // SAFETY: the call takes two numbers and changes how memory is kept, not what it holds. A setting that is
            // refused leaves the allocator as it was.
            unsafe { libc::mallopt(setting, value) };
        }
    }
}

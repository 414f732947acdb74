//! Features that the standard library does not cover: matrix tiles of the CPU, and huge pages of the operating
//! system.

/// Returns whether the CPU has AMX for bfloat16 and 8-bit integers, and the system lets this process use it. The
/// first call requests the permission from the system.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[must_use]
pub fn grants_amx() -> bool {
    use std::sync::OnceLock;

    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| has_amx() && saves_tiles() && request_tiles())
}

/// Returns false on other systems.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[must_use]
pub fn grants_amx() -> bool {
    false
}

/// Reads CPUID leaf 7: AMX-TILE is bit 24 of EDX, AMX-BF16 bit 22, AMX-INT8 bit 25.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn has_amx() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    const ALL: u32 = 1 << 24 | 1 << 22 | 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & ALL == ALL
}

/// Reads XCR0: bits 17 and 18 are set if the system saves the tiles of suspended threads.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn saves_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, _xgetbv};

    #[target_feature(enable = "xsave")]
    fn extended_states() -> u64 {
        // SAFETY: the caller has checked that the system has enabled XGETBV.
        unsafe { _xgetbv(0) }
    }

    const OSXSAVE: u32 = 1 << 27;
    const TILES: u64 = 1 << 17 | 1 << 18;
    // SAFETY: OSXSAVE is set, so the instruction is enabled.
    __cpuid(1).ecx & OSXSAVE != 0 && unsafe { extended_states() } & TILES == TILES
}

/// Requests tile state from Linux: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn request_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and accesses no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// A configuration of palette 1: eight tiles with rows of 64 bytes.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Configures the eight matrix tiles of this thread, tile i with `rows[i]` rows of 64 bytes, and zeroes them.
///
/// # Safety
/// [`grants_amx`] must have returned true; no tile has more than 16 rows.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn configure_tiles(rows: [u8; 8]) {
    let mut configuration =
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    configuration.row_bytes[..rows.len()].fill(64);
    configuration.rows[..rows.len()].copy_from_slice(&rows);
    // SAFETY: the caller fulfils the contract of this function; the configuration is valid for palette 1.
    unsafe { std::arch::asm!("ldtilecfg [{0}]", in(reg) &raw const configuration, options(nostack, readonly)) }
}

/// Releases the tiles of this thread, so that the system need not save them.
///
/// # Safety
/// The conditions of [`configure_tiles`] apply.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn release_tiles() {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { std::arch::asm!("tilerelease", options(nomem, nostack)) }
}

/// Zeroes tiles 0 to 5, the accumulators of products.
///
/// # Safety
/// The tiles must be configured, all six with rows.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn zero_sums() {
    // SAFETY: the caller fulfils the contract of this function. Nothing else on this thread uses tiles until they are
    // released, so tile contents persist between blocks of assembly.
    unsafe {
        std::arch::asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tilezero tmm4",
            "tilezero tmm5",
            options(nomem, nostack),
        );
    }
}

/// Stores the sums in tiles 0 to 5, `TILES` row tiles by two column tiles, as `[tile of rows, 16, 32]`.
///
/// # Safety
/// The tiles must be configured, and `to` must be writable for `TILES` times 512 numbers.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn store_sums<const TILES: usize>(to: *mut f32) {
    /// Bytes between rows of sums.
    const STRIDE: usize = 32 * size_of::<f32>();
    macro_rules! store {
        ($left:literal, $right:literal, $first:literal, $second:literal) => {
            std::arch::asm!(
                concat!("tilestored [{to} + {stride}*1 + ", $first, "], ", $left),
                concat!("tilestored [{to} + {stride}*1 + ", $second, "], ", $right),
                to = in(reg) to,
                stride = in(reg) STRIDE,
                options(nostack),
            )
        };
    }
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        store!("tmm0", "tmm1", "0", "64");
        if TILES > 1 {
            store!("tmm2", "tmm3", "2048", "2112");
        }
        if TILES > 2 {
            store!("tmm4", "tmm5", "4096", "4160");
        }
    }
}

/// Size and alignment of a huge page, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Advises the system to use huge pages for `memory`, as far as whole huge pages fit into it, before the first use.
/// If the system ignores the advice, nothing changes.
#[cfg(target_os = "linux")]
pub fn advise_huge_pages<T>(memory: &mut [std::mem::MaybeUninit<T>]) {
    let start = memory.as_mut_ptr().cast::<u8>();
    let before = start.align_offset(HUGE_PAGE_BYTES);
    let pages = size_of_val(memory).saturating_sub(before) / HUGE_PAGE_BYTES;
    if pages > 0 {
        // SAFETY: the pages lie in `memory`, and the call does not change their contents.
        unsafe { libc::madvise(start.add(before).cast(), pages * HUGE_PAGE_BYTES, libc::MADV_HUGEPAGE) };
    }
}

/// Does nothing on other systems.
#[cfg(not(target_os = "linux"))]
pub fn advise_huge_pages<T>(_memory: &mut [std::mem::MaybeUninit<T>]) {}

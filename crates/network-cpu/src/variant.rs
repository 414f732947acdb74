use std::ops::Range;

use crate::multiply::Lanes;
use crate::paths;
use crate::planes::{Board, Format, INTEGERS, Layout, Planes, TILE_ROWS};
use crate::product::{Edges, Packing, RUN_ROWS, Run, Taps};
use crate::quantise::quantise_pixels;

/// Variant of the kernel: instruction set and number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelVariant {
    /// AMX tiles: bfloat16 products, float32 sums.
    AmxBf16,
    /// AVX-512 bf16: bfloat16 products, float32 sums.
    Avx512Bf16,
    /// AVX-512 in float32.
    Avx512F32,
    /// AVX2 with FMA in float32.
    Avx2F32,
    /// NEON in float32.
    NeonF32,
    /// Plain Rust in float32.
    PortableF32,
    /// AMX tiles: 8-bit integer products in the blocks, the rest as [`Self::Avx512F32`].
    AmxI8,
    /// AVX-512 VNNI: 8-bit integer products in the blocks, the rest as [`Self::Avx512F32`].
    Avx512I8,
    /// Plain Rust: 8-bit integer products in the blocks, the rest as [`Self::PortableF32`].
    PortableI8,
}

/// Calls a function in the leaf of an available path. The given arms come before the float32 arms; without them, paths
/// that multiply bfloat16 use the float32 arm of AVX-512, since only products differ.
macro_rules! of_leaf {
    ($path:expr, $function:ident $arguments:tt) => {
        of_leaf!($path, $function $arguments, {
            #[cfg(target_arch = "x86_64")]
            KernelVariant::AmxBf16 | KernelVariant::Avx512Bf16 => paths::avx512::$function $arguments,
        })
    };
    ($path:expr, $function:ident $arguments:tt, { $($arms:tt)* }) => {
        // SAFETY: the path is available.
        unsafe {
            match $path {
                $($arms)*
                #[cfg(target_arch = "x86_64")]
                KernelVariant::Avx512F32 => paths::avx512::$function $arguments,
                #[cfg(target_arch = "x86_64")]
                KernelVariant::Avx2F32 => paths::avx2::$function $arguments,
                #[cfg(target_arch = "aarch64")]
                KernelVariant::NeonF32 => paths::neon::$function $arguments,
                _ => paths::portable::$function $arguments,
            }
        }
    };
}
pub(crate) use of_leaf;

/// Returns whether the CPU has all of these instructions.
macro_rules! has {
    ($($feature:tt),+) => {{
        #[cfg(target_arch = "x86_64")]
        let all = $(is_x86_feature_detected!($feature))&&+;
        #[cfg(not(target_arch = "x86_64"))]
        let all = false;
        all
    }};
}

impl KernelVariant {
    /// All variants that use weights without scaling, the widest first.
    pub const ALL: [Self; 6] =
        [Self::AmxBf16, Self::Avx512Bf16, Self::Avx512F32, Self::Avx2F32, Self::NeonF32, Self::PortableF32];

    /// All variants that multiply integers, the widest first; they need weights scaled by the activations'
    /// [`Ranges`](crate::Ranges).
    pub const INT8: [Self; 3] = [Self::AmxI8, Self::Avx512I8, Self::PortableI8];

    /// Returns the name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AmxBf16 => "amx-bf16",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Avx512F32 => "avx512-f32",
            Self::Avx2F32 => "avx2-f32",
            Self::NeonF32 => "neon-f32",
            Self::PortableF32 => "portable-f32",
            Self::AmxI8 => "amx-i8",
            Self::Avx512I8 => "avx512-i8",
            Self::PortableI8 => "portable-i8",
        }
    }

    /// Returns whether the variant multiplies bfloat16.
    #[must_use]
    pub fn is_bf16(self) -> bool {
        matches!(self, Self::AmxBf16 | Self::Avx512Bf16)
    }

    /// Returns whether the variant multiplies 8-bit integers.
    #[must_use]
    pub fn is_int8(self) -> bool {
        Self::INT8.contains(&self)
    }

    /// Returns the widest integer variant of this CPU, except plain Rust, which is slower than floating point.
    #[must_use]
    pub fn fast_integers() -> Option<Self> {
        Self::INT8.into_iter().find(|path| *path != Self::PortableI8 && path.is_available())
    }

    /// Returns whether the variant multiplies float32 only.
    pub(crate) fn is_float32(self) -> bool {
        self.packing().format == Format::F32
    }

    /// Returns the path for the floating-point parts of a network; `self` if all parts are.
    #[must_use]
    pub fn base(self) -> Self {
        match self {
            Self::AmxI8 | Self::Avx512I8 => Self::Avx512F32,
            Self::PortableI8 => Self::PortableF32,
            float => float,
        }
    }

    /// Returns whether the registers hold sixteen float32, so that weights are needed at a high rate.
    pub(crate) fn has_wide_registers(self) -> bool {
        matches!(self.base(), Self::Avx512F32)
    }

    /// Returns whether the variant computes in matrix tiles.
    pub(crate) fn has_tiles(self) -> bool {
        matches!(self, Self::AmxBf16 | Self::AmxI8)
    }

    /// Returns whether the variant can multiply the same cell of sixteen interleaved positions.
    pub(crate) fn lays_together(self) -> bool {
        matches!(self, Self::AmxBf16)
    }

    /// Returns whether the CPU and the operating system support the variant.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::PortableF32 | Self::PortableI8 => true,
            Self::NeonF32 => cfg!(target_arch = "aarch64"),
            Self::AmxBf16 => Self::Avx512Bf16.is_available() && cpu::grants_amx(),
            Self::Avx512Bf16 => has_avx512() && has!("avx512bf16"),
            Self::Avx512F32 => has_avx512(),
            Self::Avx2F32 => has!("avx2", "fma"),
            Self::AmxI8 => Self::Avx512I8.is_available() && cpu::grants_amx(),
            Self::Avx512I8 => has_avx512() && has!("avx512vnni"),
        }
    }

    /// Runs multiply-adds on registers only, a few in each of `rounds` rounds, and returns the count. Timing it gives
    /// the peak rate of one core.
    ///
    /// # Panics
    /// If the path is not available.
    #[must_use]
    pub fn burst(self, rounds: usize) -> usize {
        assert!(self.is_available(), "{self} is not available here");
        of_leaf!(self, burst(rounds), {
            #[cfg(target_arch = "x86_64")]
            Self::AmxBf16 => paths::amx::burst::<paths::avx512_bf16::Avx512Bf16>(rounds),
            #[cfg(target_arch = "x86_64")]
            Self::AmxI8 => paths::amx::burst::<paths::avx512_i8::Avx512I8>(rounds),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => paths::avx512_bf16::burst(rounds),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512I8 => paths::avx512_i8::burst(rounds),
            Self::PortableI8 => paths::portable_i8::burst(rounds),
        })
    }

    pub(crate) fn packing(self) -> Packing {
        let packing = |format, panel_groups, whole| Packing { format, panel_groups, whole };
        match self {
            Self::AmxBf16 => packing(Format::Bf16, 2, true),
            Self::Avx512Bf16 => packing(Format::Bf16, 2, false),
            Self::Avx512F32 => packing(Format::F32, 2, false),
            Self::Avx2F32 | Self::NeonF32 | Self::PortableF32 => packing(Format::F32, 1, false),
            Self::AmxI8 => packing(Format::I8, 2, true),
            Self::Avx512I8 => packing(Format::I8, 2, false),
            Self::PortableI8 => packing(Format::I8, 1, false),
        }
    }

    /// Returns the maximum rows of a tile.
    fn rows_max(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2F32 => paths::avx2::Avx2::ROWS_MAX,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512F32 | Self::Avx512Bf16 | Self::Avx512I8 => paths::avx512::Avx512::ROWS_MAX,
            #[cfg(target_arch = "aarch64")]
            Self::NeonF32 => paths::neon::Neon::ROWS_MAX,
            _ => paths::portable::Portable::ROWS_MAX,
        }
    }

    /// Returns the maximum rows of a run that make whole tiles.
    pub(crate) fn rows_of_run(self) -> usize {
        RUN_ROWS / self.rows_max() * self.rows_max()
    }

    /// Returns the number of tiles of a contiguous position.
    pub(crate) fn tiles(self, board: Board) -> usize {
        board.lines() * board.per_line().div_ceil(self.rows_max())
    }

    /// Returns the board, turned if the columns make fewer tiles than the rows.
    pub(crate) fn turn(self, board: Board) -> Board {
        let turned = board.turned();
        if !self.has_tiles() && self.tiles(turned) < self.tiles(board) { turned } else { board }
    }

    /// Returns the cells of all positions, as runs of adjacent lines.
    pub(crate) fn cells(self, layout: Layout) -> Vec<Run> {
        let Layout { board, positions, together, .. } = layout;
        let line = |position, pixel| layout.margin() + layout.line(position, pixel);
        let run = |position, pixels: Range<usize>, wanted| {
            let hidden = Taps::hidden(board, pixels.clone().filter(|&pixel| board.is_cell(pixel)));
            let edges = Edges { hidden, ..Edges::default() };
            Run { edges, wanted, ..Run::new(line(position, pixels.start), pixels.len() * together, 1) }
        };
        match self {
            // A tile takes any sixteen adjacent lines, border pixels included.
            _ if self.has_tiles() && together == 1 => {
                let end = board.pixel(board.cells() - 1) + 1;
                let tile = |position, first: usize| {
                    let pixels = first..end.min(first + TILE_ROWS);
                    let cells = pixels.clone().enumerate().filter(|&(_, pixel)| board.is_cell(pixel));
                    run(position, pixels, cells.fold(0, |wanted, (row, _)| wanted | 1 << row))
                };
                let tiles = |position| (0..end).step_by(TILE_ROWS).map(move |first| tile(position, first));
                (0..positions).flat_map(tiles).collect()
            }
            _ if self.has_tiles() => {
                let mut cells: Vec<Run> = (0..board.cells())
                    .map(|cell| board.pixel(cell))
                    .map(|pixel| run(0, pixel..pixel + 1, u32::MAX >> (u32::BITS as usize - together)))
                    .collect();
                // Cells with the same edges are multiplied together.
                cells.sort_by_key(|run| run.edges.hidden.around());
                cells
            }
            _ => {
                let (first, last) = Taps::beyond_line(board);
                // A line with more cells than a run has rows makes several runs of nearly equal length.
                let (cells, parts) = (board.per_line(), board.per_line().div_ceil(RUN_ROWS));
                let run = |position, index, part: usize| {
                    let [start, end] = [part, part + 1].map(|part| index * board.pitch() + part * cells / parts);
                    let edges = Edges {
                        hidden: Taps::hidden(board, start..end),
                        first: if part == 0 { first } else { Taps::default() },
                        last: if part + 1 == parts { last } else { Taps::default() },
                    };
                    Run { edges, ..Run::new(line(position, start), end - start, 1) }
                };
                let of_line = |position, index| (0..parts).map(move |part| run(position, index, part));
                let of_position = |position| (0..board.lines()).flat_map(move |index| of_line(position, index));
                (0..positions).flat_map(of_position).collect()
            }
        }
    }

    /// Quantises the cells of `positions` positions to integers; `inverse` holds the multiplier of each channel.
    ///
    /// # Panics
    /// If the path is not available or the planes have different boards.
    pub(crate) fn quantise(self, input: &Planes, inverse: &[[f32; INTEGERS]], positions: usize, output: &mut Planes) {
        assert!(self.is_available(), "{self} is not available here");
        assert!(input.format == Format::F32 && output.format == Format::I8, "planes of another format");
        assert!(input.layout == output.layout && input.layout.together == 1, "planes that lie differently");
        let len = positions * input.layout.board.pixels();
        for (block, inverse) in inverse.iter().enumerate() {
            let part = |part: usize| {
                let first = input.index(4 * block + part, 0, 0);
                // The last block may hold fewer channels.
                input.lines.get(first..first + len).filter(|_| 4 * block + part < input.blocks()).unwrap_or_default()
            };
            let first = output.index(block, 0, 0);
            let (inputs, outputs) = ([0, 1, 2, 3].map(part), &mut output.lines[first..first + len]);
            match self {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the path is available.
                Self::AmxI8 | Self::Avx512I8 => unsafe { paths::avx512_i8::quantise(inputs, inverse, outputs) },
                _ => quantise_pixels(inputs, inverse, outputs),
            }
        }
    }
}

fn has_avx512() -> bool {
    has!("avx512f", "avx512bw", "avx512vl", "avx512dq")
}

impl std::fmt::Display for KernelVariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for KernelVariant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().chain(Self::INT8).find(|path| path.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is not a path of the CPU kernel: expected one of {names}")
        })
    }
}

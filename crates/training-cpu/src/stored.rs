//! Numbers in a storage format: float32, or bfloat16 with two numbers in the space of one float32.

use half::bf16;

use crate::Path;
use crate::buffer::Buffer;
use crate::vector::{Formats, Task, Vector};

/// Storage format of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    F32,
    /// The count of numbers per position is even.
    Bf16,
}

impl Format {
    /// Returns the float32 units that `numbers` numbers take.
    pub(crate) fn floats(self, numbers: usize) -> usize {
        match self {
            Self::F32 => numbers,
            Self::Bf16 => numbers.div_ceil(2),
        }
    }
}

/// Stored numbers, for reading.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stored<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

/// Stored numbers of all positions, including the readable slack of the buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) format: Format,
}

impl<'a> Operand<'a> {
    /// Returns the numbers.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn numbers(self) -> Stored<'a> {
        Stored::new(self.format, self.buffer)
    }

    /// Returns the buffer of float32 numbers.
    pub(crate) fn floats(self) -> &'a Buffer {
        match self.format {
            Format::F32 => self.buffer,
            Format::Bf16 => unreachable!("only operations on tiles read bfloat16"),
        }
    }
}

/// Stored numbers, for writing.
#[derive(Debug)]
pub(crate) enum StoredMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
}

impl<'a> Stored<'a> {
    /// Returns the numbers of a bfloat16 value.
    pub(crate) fn bf16(self) -> &'a [bf16] {
        match self {
            Self::Bf16(numbers) => numbers,
            Self::F32(_) => unreachable!("the value is bfloat16"),
        }
    }

    /// Interprets memory as numbers in a format.
    pub(crate) fn new(format: Format, memory: &'a [f32]) -> Self {
        match format {
            Format::F32 => Self::F32(memory),
            // SAFETY: a float32 is as many bits as two bfloat16, which need less alignment and have every bit pattern.
            Format::Bf16 => Self::Bf16(unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), 2 * memory.len()) }),
        }
    }

    /// Returns the number of numbers.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn len(self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::Bf16(numbers) => numbers.len(),
        }
    }

    /// Returns a sub-range, counted in numbers.
    pub(crate) fn slice(self, range: std::ops::Range<usize>) -> Self {
        match self {
            Self::F32(numbers) => Self::F32(&numbers[range]),
            Self::Bf16(numbers) => Self::Bf16(&numbers[range]),
        }
    }

    /// Returns the numbers as float32: the stored numbers themselves, or a copy in `room`.
    pub(crate) fn widened<'b>(self, path: Path, room: &'b mut Vec<f32>) -> &'b [f32]
    where
        'a: 'b,
    {
        match self {
            Self::F32(numbers) => numbers,
            Self::Bf16(from) => {
                room.resize(from.len(), 0.0);
                path.run(Widen { from, to: room });
                room
            }
        }
    }

    /// Returns the numbers as bfloat16: the stored numbers themselves, or a rounded copy in `room`.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn narrowed<'b>(self, path: Path, room: &'b mut Vec<bf16>) -> &'b [bf16]
    where
        'a: 'b,
    {
        match self {
            Self::F32(from) => {
                room.resize(from.len(), bf16::ZERO);
                path.run(Narrow { from, to: room });
                room
            }
            Self::Bf16(numbers) => numbers,
        }
    }

    /// Returns the numbers of a float32 value.
    pub(crate) fn floats(self) -> &'a [f32] {
        match self {
            Self::F32(numbers) => numbers,
            Self::Bf16(_) => unreachable!("only operations on tiles read bfloat16"),
        }
    }
}

impl<'a> StoredMut<'a> {
    /// Returns the numbers of a bfloat16 value.
    pub(crate) fn bf16(self) -> &'a mut [bf16] {
        match self {
            Self::Bf16(numbers) => numbers,
            Self::F32(_) => unreachable!("the value is bfloat16"),
        }
    }

    /// Interprets memory as numbers in a format.
    pub(crate) fn new(format: Format, memory: &'a mut [f32]) -> Self {
        match format {
            Format::F32 => Self::F32(memory),
            // SAFETY: as in `Stored::new`, and the borrow is exclusive.
            Format::Bf16 => {
                Self::Bf16(unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 2 * memory.len()) })
            }
        }
    }

    /// Lets `write` write the numbers as float32, in place or into `room`, from which they are rounded.
    pub(crate) fn write(self, path: Path, room: &mut Vec<f32>, write: impl FnOnce(&mut [f32])) {
        match self {
            Self::F32(numbers) => write(numbers),
            Self::Bf16(to) => {
                room.resize(to.len(), 0.0);
                write(room);
                path.run(Narrow { from: room, to });
            }
        }
    }

    /// Lets `change` modify the numbers as float32, in place or in `room`, from which they are rounded.
    pub(crate) fn change(self, path: Path, room: &mut Vec<f32>, change: impl FnOnce(&mut [f32])) {
        match self {
            Self::F32(numbers) => change(numbers),
            Self::Bf16(numbers) => {
                room.resize(numbers.len(), 0.0);
                path.run(Widen { from: numbers, to: room });
                change(room);
                path.run(Narrow { from: room, to: numbers });
            }
        }
    }

    /// Returns the numbers of a float32 value.
    pub(crate) fn floats(self) -> &'a mut [f32] {
        match self {
            Self::F32(numbers) => numbers,
            Self::Bf16(_) => unreachable!("only operations on tiles write bfloat16"),
        }
    }
}

/// Widens bfloat16 to float32.
struct Widen<'a> {
    from: &'a [bf16],
    to: &'a mut [f32],
}

impl Task for Widen<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { from, to } = self;
        assert_eq!(from.len(), to.len(), "equal lengths");
        let whole = from.len() / V::WIDTH * V::WIDTH;
        for first in (0..whole).step_by(V::WIDTH) {
            // SAFETY: the caller fulfils the contract of this function; whole registers lie within both slices.
            unsafe { V::store(V::load_bf16(from.as_ptr().add(first)), to.as_mut_ptr().add(first)) };
        }
        to[whole..].iter_mut().zip(&from[whole..]).for_each(|(to, from)| *to = from.to_f32());
    }
}

/// Rounds each float32 to the nearest bfloat16.
struct Narrow<'a> {
    from: &'a [f32],
    to: &'a mut [bf16],
}

impl Task for Narrow<'_> {
    const FORMATS: Formats = Formats::Bf16;
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { from, to } = self;
        assert_eq!(from.len(), to.len(), "equal lengths");
        let whole = from.len() / V::WIDTH * V::WIDTH;
        for first in (0..whole).step_by(V::WIDTH) {
            // SAFETY: the caller fulfils the contract of this function; whole registers lie within both slices.
            unsafe { V::store_bf16(V::load(from.as_ptr().add(first)), to.as_mut_ptr().add(first)) };
        }
        to[whole..].iter_mut().zip(&from[whole..]).for_each(|(to, from)| *to = bf16::from_f32(*from));
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use training::Precision;

    use super::{Format, Stored, StoredMut};
    use crate::Path;

    #[test]
    fn numbers_are_rounded_to_the_nearest_bfloat16_and_widened_exactly() {
        let numbers: Vec<f32> =
            (0..70).map(|index| (index as f32 - 31.3) * 1.017).chain([f32::NAN, f32::INFINITY]).collect();
        for path in Path::ALL.into_iter().filter(|path| path.is_available() && path.precision() == Precision::Bf16) {
            let mut memory = vec![0.0; Format::Bf16.floats(numbers.len())];
            let mut room = Vec::new();
            StoredMut::new(Format::Bf16, &mut memory).write(path, &mut room, |to| to.copy_from_slice(&numbers));
            let mut room = Vec::new();
            let got = Stored::new(Format::Bf16, &memory).widened(path, &mut room);
            for (got, number) in got.iter().zip(&numbers) {
                assert_eq!(got.to_bits() >> 16, u32::from(bf16::from_f32(*number).to_bits()), "{number}, {path}");
            }
            StoredMut::new(Format::Bf16, &mut memory)
                .change(path, &mut Vec::new(), |to| to.iter_mut().for_each(|number| *number *= 2.0));
            let mut room = Vec::new();
            let doubled = Stored::new(Format::Bf16, &memory).widened(path, &mut room);
            assert!(doubled.iter().zip(&numbers).all(|(doubled, number)| doubled.is_nan() == number.is_nan()));
            assert_eq!(doubled[3], 2.0 * bf16::from_f32(numbers[3]).to_f32());
        }
    }
}

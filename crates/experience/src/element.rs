/// The type in which numbers of observations are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Numbers in `[0, 1]`, rounded to multiples of 1/255: pixels. One byte.
    U8,
    /// Finite numbers, rounded to the nearest bfloat16, which has 8 significant bits. Two bytes.
    Bf16,
    /// Finite numbers, unchanged. Four bytes.
    F32,
}

impl Element {
    pub(crate) const ALL: [Self; 3] = [Self::U8, Self::Bf16, Self::F32];

    /// Returns the size of a number in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }

    /// Appends the little-endian bytes of a number; returns the reason if the type cannot hold it.
    pub(crate) fn put(self, number: f32, bytes: &mut Vec<u8>) -> Result<(), String> {
        match self {
            // The conditions are written so that NaN is rejected.
            Self::U8 if !(0.0..=1.0).contains(&number) => return Err(format!("{number} is not in [0, 1]")),
            Self::U8 => bytes.push((number * 255.0).round() as u8),
            Self::Bf16 => {
                let rounded = bf16(number);
                if !f32_of(rounded).is_finite() {
                    return Err(format!("{number} is not finite in bfloat16"));
                }
                bytes.extend_from_slice(&rounded.to_le_bytes());
            }
            Self::F32 if !number.is_finite() => return Err(format!("{number} is not finite")),
            Self::F32 => bytes.extend_from_slice(&number.to_le_bytes()),
        }
        Ok(())
    }

    /// Decodes `bytes` into `out`, up to the length of `out`.
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::U8 => out.iter_mut().zip(bytes).for_each(|(out, &byte)| *out = f32::from(byte) / 255.0),
            Self::Bf16 => {
                let pairs = bytes.as_chunks().0.iter();
                out.iter_mut().zip(pairs).for_each(|(out, &pair)| *out = f32_of(u16::from_le_bytes(pair)));
            }
            Self::F32 => {
                let numbers = bytes.as_chunks().0.iter();
                out.iter_mut().zip(numbers).for_each(|(out, &number)| *out = f32::from_le_bytes(number));
            }
        }
    }

    /// Returns true if all numbers are finite.
    pub(crate) fn are_finite(self, bytes: &[u8]) -> bool {
        match self {
            Self::U8 => true,
            Self::Bf16 => bytes.as_chunks().0.iter().all(|&pair| f32_of(u16::from_le_bytes(pair)).is_finite()),
            Self::F32 => bytes.as_chunks().0.iter().all(|&number| f32::from_le_bytes(number).is_finite()),
        }
    }
}

/// Rounds a finite number to the nearest bfloat16, ties to even. A NaN may become infinite, which is not finite either.
fn bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    let lowest_kept = bits >> 16 & 1;
    // The sum overflows for a few NaNs only.
    (bits.saturating_add(0x7fff + lowest_kept) >> 16) as u16
}

fn f32_of(bf16: u16) -> f32 {
    f32::from_bits(u32::from(bf16) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(element: Element, number: f32) -> Result<f32, String> {
        let (mut bytes, mut back) = (Vec::new(), [0.0]);
        element.put(number, &mut bytes)?;
        assert_eq!(bytes.len(), element.bytes());
        assert!(element.are_finite(&bytes));
        element.decode(&bytes, &mut back);
        Ok(back[0])
    }

    #[test]
    fn every_pixel_comes_back_exactly() {
        for byte in 0..=u8::MAX {
            let pixel = f32::from(byte) / 255.0;
            assert_eq!(stored(Element::U8, pixel), Ok(pixel));
        }
    }

    #[test]
    fn bfloat16_rounds_to_the_nearest_and_ties_to_even() {
        let step = 2.0_f32.powi(-7);
        for (number, expected) in [
            (1.0 + step, 1.0 + step),
            (1.0 + 0.49 * step, 1.0),
            (1.0 + 0.5 * step, 1.0),
            (1.0 + 1.5 * step, 1.0 + 2.0 * step),
            (-1.0 - 0.51 * step, -1.0 - step),
            (0.0, 0.0),
        ] {
            assert_eq!(stored(Element::Bf16, number), Ok(expected), "{number}");
        }
        // No bfloat16 is nearer than the one chosen.
        for bits in (0..0x7f00_0000_u32).step_by(65_521) {
            let number = f32::from_bits(bits);
            let chosen = bf16(number);
            let distance = |bf16: u16| (f64::from(f32_of(bf16)) - f64::from(number)).abs();
            let neighbours = [chosen.saturating_sub(1), chosen + 1];
            assert!(neighbours.into_iter().all(|other| distance(chosen) <= distance(other)), "{number}");
        }
    }

    #[test]
    fn a_number_that_the_type_cannot_hold_is_refused_by_value() {
        for (element, number, expected) in [
            (Element::U8, 1.5, "1.5 is not in [0, 1]"),
            (Element::U8, f32::NAN, "NaN is not in [0, 1]"),
            (Element::Bf16, f32::MAX, "340282350000000000000000000000000000000 is not finite in bfloat16"),
            (Element::Bf16, f32::NAN, "NaN is not finite in bfloat16"),
            (Element::Bf16, f32::from_bits(u32::MAX), "NaN is not finite in bfloat16"),
            (Element::F32, f32::NEG_INFINITY, "-inf is not finite"),
        ] {
            assert_eq!(stored(element, number), Err(expected.to_owned()));
        }
        assert_eq!(stored(Element::F32, f32::MAX), Ok(f32::MAX));
    }
}

//! LEB128: whole numbers in as few groups of seven bits as they need, the lowest first.

/// Appends a number: one byte if it is below 128, ten at most.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        // The lowest seven bits, and a mark that more follow.
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number from the front; `None` if there is none, or one in more bytes than it needs.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let group = u64::from(byte & 0x7f);
        number |= group << shift;
        if byte < 0x80 {
            // A group of zeros on top is redundant, and the tenth one has room for a single bit.
            let is_shortest = (shift == 0 || byte > 0) && (group << shift) >> shift == group;
            return is_shortest.then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, number);
        bytes
    }

    #[test]
    fn numbers_take_a_byte_for_every_seven_bits() {
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(127), [0x7f]);
        assert_eq!(bytes(128), [0x80, 1]);
        // The example of the DWARF standard.
        assert_eq!(bytes(12857), [0xb9, 0x64]);
        assert_eq!(bytes(u64::MAX).len(), 10);
    }

    #[test]
    fn what_ends_early_or_never_is_no_number() {
        assert_eq!(take(&mut [].as_slice()), None);
        assert_eq!(take(&mut [0x80].as_slice()), None);
        assert_eq!(take(&mut [0x80; 11].as_slice()), None);
    }

    #[test]
    fn a_number_in_more_bytes_than_it_needs_or_than_there_are_bits_is_refused() {
        assert_eq!(take(&mut [0x80, 0].as_slice()), None);
        assert_eq!(take(&mut [0xff, 0x80, 0].as_slice()), None);
        let mut greatest = bytes(u64::MAX);
        *greatest.last_mut().unwrap() = 2;
        assert_eq!(take(&mut greatest.as_slice()), None);
    }

    proptest! {
        #[test]
        fn numbers_come_back_in_their_order(numbers in prop::collection::vec(any::<u64>(), 0..9), shift in 0..64_u32) {
            let numbers: Vec<u64> = numbers.iter().map(|number| number >> shift).collect();
            let bytes: Vec<u8> = numbers.iter().flat_map(|&number| bytes(number)).collect();
            let mut rest = bytes.as_slice();
            let back: Vec<u64> = std::iter::from_fn(|| take(&mut rest)).collect();
            prop_assert_eq!(back, numbers);
        }
    }
}

//! TFRecord framing: length, length checksum, payload, payload checksum; all little-endian.

/// Frames a payload as one record.
pub(crate) fn record(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(payload.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked_crc(&length).to_le_bytes());
    record.extend_from_slice(payload);
    record.extend_from_slice(&masked_crc(payload).to_le_bytes());
    record
}

/// Computes TFRecord's masked CRC-32C, rotated and shifted so that data containing checksums is protected as well.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRC-32C of these nine digits is 0xe3069283 (polynomial of RFC 3720); the mask was applied by hand.
    #[test]
    fn checksums_are_masked_crc32c() {
        assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5);
    }

    /// The first record of an event file, at second 1 000, as written by `RecordWriter` of TensorBoard 2.21.0
    /// (`tensorboard.summary.writer.record_writer`).
    #[test]
    fn a_record_has_the_bytes_of_another_writer() {
        let payload = b"\x09\x00\x00\x00\x00\x00\x40\x8f\x40\x1a\x0dbrain.Event:2";
        assert_eq!(record(payload), GOLDEN);
    }

    const GOLDEN: [u8; 40] = [
        24, 0, 0, 0, 0, 0, 0, 0, 163, 127, 75, 34, 9, 0, 0, 0, 0, 0, 64, 143, 64, 26, 13, 98, 114, 97, 105, 110, 46,
        69, 118, 101, 110, 116, 58, 50, 115, 174, 107, 86,
    ];
}

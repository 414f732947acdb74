use super::*;

/// CRC-32C of nine digits is 0xe3069283 (RFC 3720's polynomial); rotated and shifted by hand.
#[test]
fn checksums_are_masked_crc32c() {
    assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5);
}

#[test]
fn a_record_holds_length_payload_and_both_checksums() {
    let record = record(b"abc");
    assert_eq!(record.len(), 8 + 4 + 3 + 4);
    assert_eq!(record[..8], 3_u64.to_le_bytes());
    assert_eq!(record[8..12], masked_crc(&3_u64.to_le_bytes()).to_le_bytes());
    assert_eq!(record[12..15], *b"abc");
    assert_eq!(record[15..], masked_crc(b"abc").to_le_bytes());
}

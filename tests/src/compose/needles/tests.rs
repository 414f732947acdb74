use super::*;

/// Hands out a few bytes at a time.
struct Slowly<'a>(&'a [u8], usize);

impl Read for Slowly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn a_text_is_found_wherever_the_pieces_of_a_stream_end() {
    let needles = ["secret", "secrets", "cretin", "absent"].map(str::to_owned);
    let haystack = b"\0\xffsecsecretsecret\0secrecretin";
    for piece in 1..=haystack.len() {
        let found = found(Slowly(haystack, piece), &needles).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["cretin", "secret", "secrets"], "pieces of {piece}");
    }
}

#[test]
fn nothing_is_found_in_nothing() {
    assert!(found(&b""[..], &["aa".to_owned()]).unwrap().is_empty());
    assert!(found(&b"aa"[..], &[]).unwrap().is_empty());
}

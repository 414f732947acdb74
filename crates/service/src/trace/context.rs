use std::fmt::{self, Write as _};

/// The trace context of a message, by which spans of several processes form one trace. Only recorded traces are
/// propagated.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

/// The length of a `traceparent` of version 00 in bytes.
const LENGTH: usize = 55;
/// The flag of a recorded trace.
const SAMPLED: u8 = 1;

impl TraceContext {
    /// Parses a `traceparent` (W3C Trace Context, level 1). `None` if it is missing, malformed or of a trace that is
    /// not recorded; none of these is an error.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let head = bytes.get(..LENGTH)?;
        let dashes = [2, 35, 52].iter().all(|&at| head[at] == b'-');
        let version = hex::<1>(&head[..2])?[0];
        // Later versions may append fields; version 00 has none, and 255 is reserved.
        let ends_well =
            if version == 0 { bytes.len() == LENGTH } else { matches!(bytes.get(LENGTH), None | Some(b'-')) };
        let (trace, span) = (hex::<16>(&head[3..35])?, hex::<8>(&head[36..52])?);
        let is_recorded = hex::<1>(&head[53..])?[0] & SAMPLED != 0;
        let is_valid = dashes && ends_well && version != u8::MAX && trace != [0; 16] && span != [0; 8];
        (is_valid && is_recorded).then_some(Self { trace, span })
    }
}

/// Formats a `traceparent` of version 00: 55 characters.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_char('-')?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{SAMPLED:02x}")
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses lower-case digits only, as the recommendation requires.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

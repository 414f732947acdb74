//! The header `traceparent` of a message.

use service::trace::TraceContext;

/// Checks that any text is a trace context or is ignored, as a naive reader of the recommendation decides, and that a
/// context is written as read.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = TraceContext::parse(text);
    let expected = naive(text);
    assert_eq!(parsed.map(|context| context.to_string()), expected, "{text:?}");
    if let Some(context) = parsed {
        assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
    }
}

/// Returns the header of version 00 for a recorded trace.
fn naive(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let [version, trace, span, flags, ..] = parts[..] else { return None };
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.chars().all(|digit| digit.is_ascii_digit() || ('a'..='f').contains(&digit))
    };
    let is_zero = |part: &str| part.chars().all(|digit| digit == '0');
    let is_whole = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    // Version 00 has no further fields, and ff is reserved.
    let is_known = version != "ff" && (version != "00" || parts.len() == 4);
    let is_recorded = is_whole && u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
    let is_valid = is_recorded && is_known && !is_zero(trace) && !is_zero(span);
    is_valid.then(|| format!("00-{trace}-{span}-01"))
}

/// Returns headers of this version and of later versions.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-later",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

//! Messages of the protocol as bytes. Messages from a process are untrusted: all lengths are checked first.

use game::ObservationShape;
use service::live::PICTURE_BYTES_MAX;

use crate::description::{Description, OBSERVATION_VALUES_MAX};
use crate::error::Violation;
use crate::settings::Values;

const MAGIC: &[u8] = b"ZFGY";
const VERSION: u16 = 1;

/// Size of the length before a message, in bytes.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Largest first message, in bytes: a description, or a refusal with the reason.
pub(crate) const GREETING_BYTES_MAX: usize = 8192;
/// Largest answer to a request, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// Largest failure reason of an environment, with the length, in bytes.
const REASON_BYTES_MAX: usize = 2 + 300;
/// Maximum number of actions; every index fits a [`game::Action`].
const ACTIONS_MAX: usize = u16::MAX as usize;

const HELLO: u8 = 1;
const REFUSAL: u8 = 2;
const BEGIN: u8 = 3;
const STEP: u8 = 4;
const ANSWER: u8 = 5;
const RENDER: u8 = 6;
const PICTURE: u8 = 7;

const TERMINATED: u8 = 1;
const TRUNCATED: u8 = 2;
const FAILED: u8 = 4;

/// The first message of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    Hello(Description),
    /// The environment cannot be run, for this reason.
    Refusal(String),
}

/// One entry of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Index of the environment in the process.
    pub(crate) environment: usize,
    pub(crate) order: Order,
}

/// The operation requested from an environment. All entries in a request have the same kind, and a request for a
/// picture has one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Begin { seed: u64 },
    Step { action: u16 },
    Render,
}

/// The answer for one environment.
#[derive(Debug, PartialEq)]
pub(crate) enum Row<'a> {
    Arrived {
        /// The reward; 0 at the start of an episode.
        reward: f32,
        end: Option<End>,
        /// Bytes of one frame.
        frame: &'a [u8],
    },
    /// The environment raised an exception or returned a result other than declared.
    Failed { reason: String },
}

/// The end of an episode, as reported by the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Terminated,
    Truncated,
}

/// Replaces `message` with a request, including the length. `entries` is not empty.
pub(crate) fn write_request(entries: &[Entry], message: &mut Vec<u8>) {
    let kind = match entries.first().expect("a request has an entry").order {
        Order::Begin { .. } => BEGIN,
        Order::Step { .. } => STEP,
        Order::Render => RENDER,
    };
    let narrow = |n: usize| u32::try_from(n).expect("settings limit the number of environments");
    message.clear();
    message.extend([0; LENGTH_BYTES]);
    message.push(kind);
    message.extend(narrow(entries.len()).to_le_bytes());
    for entry in entries {
        message.extend(narrow(entry.environment).to_le_bytes());
    }
    for entry in entries {
        match entry.order {
            Order::Begin { seed } => message.extend(seed.to_le_bytes()),
            Order::Step { action } => message.extend(u32::from(action).to_le_bytes()),
            Order::Render => {}
        }
    }
    let length = narrow(message.len() - LENGTH_BYTES);
    message[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Returns the maximum answer size of a process with these environments, including the length.
///
/// # Errors
/// The answer would exceed the maximum size of any answer.
pub(crate) fn answer_bytes_max(description: &Description) -> Result<usize, Violation> {
    let row = 4 + 1 + description.frame_bytes() + REASON_BYTES_MAX;
    let bytes = description.count.saturating_mul(row).saturating_add(LENGTH_BYTES + 5);
    let bytes = bytes.max(LENGTH_BYTES + 2 + PICTURE_BYTES_MAX);
    if bytes > ANSWER_BYTES_MAX {
        return Err(Violation::Length { bytes, bytes_max: ANSWER_BYTES_MAX });
    }
    Ok(bytes)
}

/// Parses the first message of a process, without the length.
pub(crate) fn parse_greeting(message: &[u8]) -> Result<Greeting, Violation> {
    let mut reader = Reader(message);
    match reader.u8("kind")? {
        HELLO => {}
        REFUSAL => return Ok(Greeting::Refusal(printable_lines(reader.0))),
        kind => return Err(Violation::Kind(kind)),
    }
    if reader.take(MAGIC.len(), "greeting")? != MAGIC {
        return Err(Violation::Magic);
    }
    let theirs = reader.u16("version")?;
    if theirs != VERSION {
        return Err(Violation::Version { ours: VERSION, theirs });
    }
    let count = reader.u32("number of environments")?;
    let actions = within("the number of actions", reader.u32("number of actions")?, ACTIONS_MAX, "1 to 65,535")?;
    let steps_max = reader.u32("limit of steps")?;
    let values = match reader.u8("type of values")? {
        0 => Values::F32,
        1 => Values::U8,
        other => return Err(Violation::Value { what: "the type of values", value: other.into(), expected: "0 or 1" }),
    };
    let mut side = || within("a dimension", reader.u32("shape")?, OBSERVATION_VALUES_MAX, "1 to 16,777,216");
    let frame = ObservationShape { planes: side()?, height: side()?, width: side()? };
    let values_in_frame = frame.planes.saturating_mul(frame.height).saturating_mul(frame.width);
    if values_in_frame > OBSERVATION_VALUES_MAX {
        let value = values_in_frame as u64;
        return Err(Violation::Value { what: "the observation size", value, expected: "at most 16,777,216" });
    }
    // A process that draws no pictures sends no further byte.
    let draws = reader.0 == [1_u8];
    if !draws {
        reader.end()?;
    }
    Ok(Greeting::Hello(Description {
        count: count as usize,
        actions,
        steps_max: (steps_max > 0).then_some(steps_max as usize),
        values,
        frame,
        draws,
    }))
}

/// Parses the answer to a request for `count` environments, without the length, and calls `apply` with the index and
/// the row of each environment. Calls `apply` for none if the answer is invalid.
pub(crate) fn parse_answer(
    message: &[u8],
    count: usize,
    frame_bytes: usize,
    mut apply: impl FnMut(usize, Row<'_>),
) -> Result<(), Violation> {
    let mut reader = Reader(message);
    let kind = reader.u8("kind")?;
    if kind != ANSWER {
        return Err(Violation::Kind(kind));
    }
    let answered = reader.u32("count")? as usize;
    if answered != count {
        return Err(Violation::Count { requested: count, answered });
    }
    let rewards = reader.take(4 * count, "rewards")?;
    let flags = reader.take(count, "flags")?;
    let frames = reader.take(frame_bytes * count, "observations")?;
    let reasons = reader.clone();
    for flag in flags {
        match *flag {
            FAILED => {
                let bytes = reader.u16("reason")?;
                reader.take(bytes.into(), "reason")?;
            }
            0..FAILED => {}
            other => return Err(Violation::Value { what: "flags", value: other.into(), expected: "0 to 4" }),
        }
    }
    reader.end()?;
    let mut reader = reasons;
    for (row, (flag, reward)) in flags.iter().zip(rewards.as_chunks::<4>().0).enumerate() {
        if *flag == FAILED {
            let bytes = reader.u16("reason")?;
            apply(row, Row::Failed { reason: printable(reader.take(bytes.into(), "reason")?) });
            continue;
        }
        let end = match flag & (TERMINATED | TRUNCATED) {
            0 => None,
            TRUNCATED => Some(End::Truncated),
            // No reward follows a terminal state, even at the step limit.
            _ => Some(End::Terminated),
        };
        let frame = &frames[row * frame_bytes..][..frame_bytes];
        apply(row, Row::Arrived { reward: f32::from_le_bytes(*reward), end, frame });
    }
    Ok(())
}

/// Parses the answer to a request for a picture, without the length: the picture, or the reason for its absence.
pub(crate) fn parse_picture(message: &[u8]) -> Result<Result<String, String>, Violation> {
    let mut reader = Reader(message);
    let (kind, flags) = (reader.u8("kind")?, reader.u8("flags")?);
    if kind != PICTURE {
        return Err(Violation::Kind(kind));
    }
    if reader.0.len() > PICTURE_BYTES_MAX {
        return Err(Violation::Length { bytes: reader.0.len(), bytes_max: PICTURE_BYTES_MAX });
    }
    match flags {
        0 => match reader.0.iter().find(|byte| !byte.is_ascii_alphanumeric() && !b"+/=".contains(byte)) {
            Some(&other) => Err(Violation::Value { what: "a character", value: other.into(), expected: "base64" }),
            None => Ok(Ok(printable(reader.0))),
        },
        FAILED => Ok(Err(printable(reader.0))),
        other => Err(Violation::Value { what: "flags", value: other.into(), expected: "0 or 4" }),
    }
}

/// Returns text from outside without control characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns text from outside, with line feeds as the only control characters: it may hold code.
fn printable_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim().chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

fn within(what: &'static str, value: u32, max: usize, expected: &'static str) -> Result<usize, Violation> {
    let wide = value as usize;
    if wide == 0 || wide > max {
        return Err(Violation::Value { what, value: value.into(), expected });
    }
    Ok(wide)
}

/// The unread rest of a message.
#[derive(Clone)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], Violation> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Violation::Cut(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Violation> {
        Ok(self.take(N, what)?.try_into().expect("N bytes were taken"))
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, Violation> {
        self.array(what).map(u8::from_le_bytes)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, Violation> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, Violation> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn end(&self) -> Result<(), Violation> {
        if self.0.is_empty() { Ok(()) } else { Err(Violation::Trailing(self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Vec<u8> {
        let mut message = vec![HELLO];
        message.extend(MAGIC);
        message.extend(VERSION.to_le_bytes());
        for number in [3_u32, 2, 500] {
            message.extend(number.to_le_bytes());
        }
        message.push(1);
        for side in [2_u32, 3, 4] {
            message.extend(side.to_le_bytes());
        }
        message
    }

    /// Returns an answer for three environments with frames of two bytes; the second has failed.
    fn answer() -> Vec<u8> {
        let mut message = vec![ANSWER, 3, 0, 0, 0];
        message.extend([1.5_f32, 0.0, -2.0].iter().flat_map(|reward| reward.to_le_bytes()));
        message.extend([0, FAILED, TERMINATED | TRUNCATED]);
        message.extend([10, 11, 0, 0, 30, 31]);
        message.extend([4, 0]);
        message.extend(b"a\nb\xff");
        message
    }

    fn rows(message: &[u8], count: usize) -> Result<Vec<String>, Violation> {
        let mut rows = Vec::new();
        parse_answer(message, count, 2, |_, row| rows.push(format!("{row:?}"))).map(|()| rows)
    }

    #[test]
    fn a_description_has_all_its_parts() {
        let description = Description {
            count: 3,
            actions: 2,
            steps_max: Some(500),
            values: Values::U8,
            frame: ObservationShape { planes: 2, height: 3, width: 4 },
            draws: false,
        };
        assert_eq!(parse_greeting(&hello()), Ok(Greeting::Hello(description.clone())));
        let drawing = [hello(), vec![1]].concat();
        assert_eq!(parse_greeting(&drawing), Ok(Greeting::Hello(Description { draws: true, ..description })));
    }

    #[test]
    fn an_answer_has_rewards_ends_frames_and_reasons() {
        let expected = [
            Row::Arrived { reward: 1.5, end: None, frame: &[10, 11] },
            Row::Failed { reason: "a b\u{fffd}".into() },
            Row::Arrived { reward: -2.0, end: Some(End::Terminated), frame: &[30, 31] },
        ];
        assert_eq!(rows(&answer(), 3).unwrap(), expected.map(|row| format!("{row:?}")));
    }

    #[test]
    fn every_message_that_is_cut_or_too_long_is_refused() {
        for length in 0..hello().len() {
            assert!(matches!(parse_greeting(&hello()[..length]), Err(Violation::Cut(_))), "{length} bytes");
        }
        for length in 0..answer().len() {
            assert!(matches!(rows(&answer()[..length], 3), Err(Violation::Cut(_))), "{length} bytes");
        }
        let longer = |mut message: Vec<u8>| {
            message.push(0);
            message
        };
        assert_eq!(parse_greeting(&longer(hello())), Err(Violation::Trailing(1)));
        assert_eq!(rows(&longer(answer()), 3), Err(Violation::Trailing(1)));
        assert_eq!(rows(&answer(), 2), Err(Violation::Count { requested: 2, answered: 3 }));
    }

    #[test]
    fn a_single_wrong_byte_of_a_description_never_panics_and_no_size_is_beyond_its_limit() {
        for position in 0..hello().len() {
            for value in 0..=u8::MAX {
                let mut message = hello();
                message[position] = value;
                if let Ok(Greeting::Hello(description)) = parse_greeting(&message) {
                    assert!(description.frame.len() <= OBSERVATION_VALUES_MAX, "{description}");
                    assert!((1..=ACTIONS_MAX).contains(&description.actions), "{description}");
                }
            }
        }
    }

    #[test]
    fn another_version_of_the_protocol_is_named() {
        let mut message = hello();
        message[5] = 9;
        assert_eq!(parse_greeting(&message), Err(Violation::Version { ours: 1, theirs: 9 }));
    }

    #[test]
    fn a_picture_is_bounded_text_or_the_reason_for_its_absence() {
        assert_eq!(parse_picture(b"\x07\x00iVBO"), Ok(Ok("iVBO".to_owned())));
        assert_eq!(parse_picture(b"\x07\x04no\ndisplay"), Ok(Err("no display".to_owned())));
        assert_eq!(parse_picture(b"\x07"), Err(Violation::Cut("flags")));
        assert_eq!(parse_picture(b"\x05\x00iVBO"), Err(Violation::Kind(ANSWER)));
        assert!(matches!(parse_picture(b"\x07\x01iVBO"), Err(Violation::Value { value: 1, .. })));
        assert!(matches!(parse_picture(b"\x07\x00iV\"BO"), Err(Violation::Value { value: 34, .. })));
        let large = [b"\x07\x00".to_vec(), vec![b'A'; PICTURE_BYTES_MAX + 1]].concat();
        assert!(parse_picture(&large[..large.len() - 1]).is_ok());
        assert!(matches!(parse_picture(&large), Err(Violation::Length { .. })));
    }

    #[test]
    fn a_request_is_a_length_a_kind_a_count_and_two_columns() {
        let mut message = Vec::new();
        let entries = [7, 1].map(|environment| Entry { environment, order: Order::Step { action: 258 } });
        write_request(&entries, &mut message);
        assert_eq!(message, [21, 0, 0, 0, STEP, 2, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 2, 1, 0, 0]);
        write_request(&[Entry { environment: 3, order: Order::Begin { seed: 1 << 40 } }], &mut message);
        assert_eq!(message, [17, 0, 0, 0, BEGIN, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        write_request(&[Entry { environment: 3, order: Order::Render }], &mut message);
        assert_eq!(message, [9, 0, 0, 0, RENDER, 1, 0, 0, 0, 3, 0, 0, 0]);
    }
}

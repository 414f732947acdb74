use std::time::Duration;

use ::inference::{Batch, Predictions, Wdl};
use bytes::Bytes;
use game::{Action, ObservationShape, Outcome};
use half::f16;
use service::trace::{self, TraceContext};

use super::{Invalid, between, invalid, length, name, sentence, wire_count};
use crate::inference::v1::ask::Observations;
use crate::inference::v1::refusal;
use crate::inference::{Asked, Hello, Refusal, Rows, Welcome, Why, v1};
use crate::limits::{ACTIONS_MAX, DIMENSION_MAX, MESSAGE_BYTES_MAX};
use crate::replay::order::Fault;

#[cfg(test)]
mod tests;

/// Bytes of a float32 on the wire.
const FLOAT_BYTES: usize = size_of::<f32>();
/// Bytes of a number in half precision on the wire.
const HALF_BYTES: usize = size_of::<f16>();
/// The tolerance for the sum of an answer's probabilities around one: the rounding of many small probabilities in half
/// precision.
const SUM_TOLERANCE: f32 = 0.05;

/// The fields of a message.
pub(crate) fn required_message<T>(message: Option<T>) -> Result<T, Fault> {
    message.ok_or(Fault::Empty)
}

impl From<Hello> for v1::Hello {
    fn from(Hello { name, game, shape: ObservationShape { planes, height, width }, actions }: Hello) -> Self {
        Self {
            name,
            game,
            planes: wire_count(planes),
            height: wire_count(height),
            width: wire_count(width),
            actions: wire_count(actions),
        }
    }
}

impl TryFrom<v1::Hello> for Hello {
    type Error = Invalid;

    fn try_from(message: v1::Hello) -> Result<Self, Invalid> {
        let v1::Hello { name: who, game, planes, height, width, actions } = message;
        let side = |field, value| between(field, value, 1, DIMENSION_MAX as usize);
        let shape = ObservationShape {
            planes: side("planes", planes)?,
            height: side("height", height)?,
            width: side("width", width)?,
        };
        let numbers = shape.planes.checked_mul(shape.height).and_then(|cells| cells.checked_mul(shape.width));
        if numbers.is_none_or(|numbers| numbers > MESSAGE_BYTES_MAX) {
            return Err(invalid("planes", "an observation does not fit a message"));
        }
        let actions = between("actions", actions, 1, ACTIONS_MAX)?;
        Ok(Self { name: name("name", who)?, game: name("game", game)?, shape, actions })
    }
}

impl From<Welcome> for v1::Welcome {
    fn from(Welcome { version, positions_max, asks_max }: Welcome) -> Self {
        Self { version, positions_max: wire_count(positions_max), asks_max: wire_count(asks_max) }
    }
}

impl TryFrom<v1::Welcome> for Welcome {
    type Error = Invalid;

    fn try_from(v1::Welcome { version, positions_max, asks_max }: v1::Welcome) -> Result<Self, Invalid> {
        let most = u32::MAX as usize;
        Ok(Self {
            version,
            positions_max: between("positions_max", positions_max, 1, most)?,
            asks_max: between("asks_max", asks_max, 1, most)?,
        })
    }
}

/// Converts a batch to a request without an id: bits where all numbers are 0 or 1.
pub(crate) fn ask_to_wire(batch: &Batch, actions: usize, version: Option<u64>, timeout: Option<Duration>) -> v1::Ask {
    v1::Ask {
        id: 0,
        version: version.unwrap_or(0),
        positions: wire_count(batch.len()),
        timeout_us: timeout.map_or(0, |timeout| u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).max(1)),
        observations: Some(match bits_to_wire(batch) {
            Some(bits) => Observations::Bits(bits),
            None => Observations::Floats(
                batch.observations().iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>().into(),
            ),
        }),
        legal: legal_to_wire(batch, actions),
        trace: trace::current().map(|context| context.to_string()).unwrap_or_default(),
    }
}

/// `None` if there is another number than 0 and 1.
fn bits_to_wire(batch: &Batch) -> Option<Bytes> {
    let numbers = batch.shape().len();
    let mut bits = Vec::with_capacity(batch.len() * numbers.div_ceil(8));
    for position in 0..batch.len() {
        for eight in batch.observation(position).chunks(8) {
            let mut byte = 0;
            for (bit, &number) in eight.iter().enumerate() {
                let is_one = number.to_bits() == 1.0_f32.to_bits();
                if !is_one && number != 0.0 {
                    return None;
                }
                byte |= u8::from(is_one) << bit;
            }
            bits.push(byte);
        }
    }
    Some(bits.into())
}

fn legal_to_wire(batch: &Batch, actions: usize) -> Bytes {
    let row_bytes = actions.div_ceil(8);
    let mut legal = vec![0_u8; batch.len() * row_bytes];
    for (position, row) in legal.chunks_exact_mut(row_bytes).enumerate() {
        for action in batch.legal(position) {
            row[action.index() / 8] |= 1 << (action.index() % 8);
        }
    }
    legal.into()
}

/// Converts a request for positions of `shape` with `actions` actions, at most `positions_max` of them.
pub(crate) fn ask_from_wire(
    message: v1::Ask,
    shape: ObservationShape,
    actions: usize,
    positions_max: usize,
) -> Result<Asked, Invalid> {
    let v1::Ask { id, version, positions, timeout_us, observations, legal, trace } = message;
    let positions = between("ask.positions", positions, 1, positions_max)?;
    let numbers = shape.len();
    let legal_row = actions.div_ceil(8);
    length("ask.legal", legal.len(), positions.saturating_mul(legal_row))?;
    let observations = super::required("ask.observations", observations)?;
    let row = match &observations {
        Observations::Bits(bits) => {
            let row = numbers.div_ceil(8);
            length("ask.bits", bits.len(), positions.saturating_mul(row))?;
            row
        }
        Observations::Floats(floats) => {
            let row = numbers * FLOAT_BYTES;
            length("ask.floats", floats.len(), positions.saturating_mul(row))?;
            row
        }
    };
    let mut batch = Batch::new(shape);
    let mut actions_of = Vec::with_capacity(actions);
    let mut are_in_range = true;
    for (position, bits) in legal.chunks_exact(legal_row).enumerate() {
        actions_of.clear();
        actions_from_bits(bits, &mut actions_of);
        match actions_of.last() {
            None => return Err(invalid(format!("ask.legal[{position}]"), "has no legal action")),
            Some(last) if last.index() >= actions => {
                let reason = format!("{} is legal, actions are below {actions}", last.index());
                return Err(invalid(format!("ask.legal[{position}]"), reason));
            }
            Some(_) => {}
        }
        let start = position * row;
        batch.push(&actions_of, |planes| match &observations {
            Observations::Bits(bits) => unpack(&bits[start..start + row], planes),
            Observations::Floats(floats) => are_in_range &= read(&floats[start..start + row], planes),
        });
        // One wild number could make the network answer NaN, and fail a batch that others share.
        if !are_in_range {
            return Err(invalid(format!("ask.floats[{position}]"), "has a number that is not from 0 to 1"));
        }
    }
    let timeout = (timeout_us > 0).then(|| Duration::from_micros(timeout_us));
    let (Observations::Bits(observations) | Observations::Floats(observations)) = observations;
    let rows = Rows { observations, legal, observation_bytes: row, legal_bytes: legal_row };
    let trace = TraceContext::parse(&trace);
    Ok(Asked { id, version: (version > 0).then_some(version), timeout, batch, rows, trace })
}

fn actions_from_bits(bits: &[u8], actions: &mut Vec<Action>) {
    for (index, &byte) in bits.iter().enumerate() {
        let mut byte = byte;
        while byte != 0 {
            let action = index * 8 + byte.trailing_zeros() as usize;
            // ACTIONS_MAX fits: a row has no more bytes than it takes, rounded up.
            actions.push(Action(u16::try_from(action).unwrap_or(u16::MAX)));
            byte &= byte - 1;
        }
    }
}

fn unpack(bits: &[u8], planes: &mut [f32]) {
    for (eight, &byte) in planes.chunks_mut(8).zip(bits) {
        for (bit, number) in eight.iter_mut().enumerate() {
            *number = f32::from((byte >> bit) & 1);
        }
    }
}

/// Returns true if all values are allowed in an observation.
fn read(floats: &[u8], planes: &mut [f32]) -> bool {
    let (floats, _) = floats.as_chunks::<FLOAT_BYTES>();
    let mut are_in_range = true;
    for (number, &bytes) in planes.iter_mut().zip(floats) {
        *number = f32::from_le_bytes(bytes);
        are_in_range &= (0.0..=1.0).contains(number);
    }
    are_in_range
}

/// Converts the answer to the request `id`.
#[must_use]
pub fn predictions_to_wire(id: u64, version: u64, predictions: &Predictions) -> v1::Predictions {
    let (mut priors, mut wdl) = (Vec::new(), Vec::with_capacity(predictions.len() * Outcome::RESULTS * HALF_BYTES));
    for position in 0..predictions.len() {
        priors.extend(predictions.priors(position).iter().flat_map(|&prior| f16::from_f32(prior).to_le_bytes()));
        let Wdl { win, draw, loss } = predictions.value(position);
        wdl.extend([win, draw, loss].into_iter().flat_map(|chance| f16::from_f32(chance).to_le_bytes()));
    }
    v1::Predictions { id, version, priors: priors.into(), wdl: wdl.into() }
}

/// Adds the answers to `batch`; what half precision rounded off is put right.
pub(crate) fn predictions_from_wire(
    message: &v1::Predictions,
    batch: &Batch,
    predictions: &mut Predictions,
) -> Result<(), Invalid> {
    let legal: usize = (0..batch.len()).map(|position| batch.legal(position).len()).sum();
    length("predictions.priors", message.priors.len(), legal * HALF_BYTES)?;
    length("predictions.wdl", message.wdl.len(), batch.len() * Outcome::RESULTS * HALF_BYTES)?;
    let (mut halves, _) = message.priors.as_chunks::<HALF_BYTES>();
    let (wdl, _) = message.wdl.as_chunks::<HALF_BYTES>();
    let mut priors = Vec::new();
    for (position, wdl) in wdl.chunks_exact(Outcome::RESULTS).enumerate() {
        let (of_this, rest) = halves.split_at(batch.legal(position).len());
        halves = rest;
        priors.clear();
        priors.extend(of_this.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32()));
        let mut chances = [0, 1, 2].map(|k| f16::from_le_bytes(wdl[k]).to_f32());
        normalise(&mut priors).map_err(|reason| invalid(format!("predictions.priors[{position}]"), reason))?;
        normalise(&mut chances).map_err(|reason| invalid(format!("predictions.wdl[{position}]"), reason))?;
        let [win, draw, loss] = chances;
        predictions.push(&priors, Wdl { win, draw, loss });
    }
    Ok(())
}

/// Makes probabilities of numbers that nearly are.
fn normalise(probabilities: &mut [f32]) -> Result<(), String> {
    if let Some(wrong) = probabilities.iter().find(|p| !(0.0..=1.0).contains(*p)) {
        return Err(format!("holds {wrong}, which is no probability"));
    }
    let sum: f32 = probabilities.iter().sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE {
        return Err(format!("sums to {sum}"));
    }
    probabilities.iter_mut().for_each(|p| *p /= sum);
    Ok(())
}

/// Converts the rejection of the request `id`.
#[must_use]
pub fn refusal_to_wire(id: u64, refusal: Refusal) -> v1::Refusal {
    let Refusal { why, reason, retry_after } = refusal;
    let why = match why {
        Why::Full => refusal::Why::Full,
        Why::Late => refusal::Why::Late,
        Why::Version => refusal::Why::Version,
        Why::Failed => refusal::Why::Failed,
    };
    let retry_after_us = retry_after.map_or(0, |after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX).max(1));
    v1::Refusal { id, why: why.into(), reason: super::cut(reason), retry_after_us }
}

/// Returns the id of the request, and the reason for its rejection.
pub(crate) fn refusal_from_wire(message: v1::Refusal) -> Result<(u64, Refusal), Invalid> {
    let why = match message.why() {
        refusal::Why::Full => Why::Full,
        refusal::Why::Late => Why::Late,
        refusal::Why::Version => Why::Version,
        refusal::Why::Failed => Why::Failed,
        refusal::Why::Unspecified => return Err(invalid("refusal.why", format!("{} is not known", message.why))),
    };
    let v1::Refusal { id, why: _, reason, retry_after_us } = message;
    let retry_after = (retry_after_us > 0).then(|| Duration::from_micros(retry_after_us));
    Ok((id, Refusal { why, reason: sentence("refusal.reason", reason)?, retry_after }))
}

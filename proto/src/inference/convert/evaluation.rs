use std::time::Duration;

use ::inference::{Batch, Predictions, Wdl};
use bytes::Bytes;
use game::{Action, ObservationShape, Outcome};
use half::f16;
use service::trace::{self, TraceContext};
use transport::limits::MESSAGE_BYTES_MAX;

use crate::convert::{Invalid, between, cut, invalid, name, required, sentence, wire_count};
use crate::inference::v1::eval_request::Observations;
use crate::inference::{EvalRequest, Hello, PackedPositions, RejectReason, Rejection, Welcome, v1};
use crate::limits::{ACTIONS_MAX, DIMENSION_MAX};

/// Bytes of a float32 on the wire.
const FLOAT_BYTES: usize = size_of::<f32>();
/// Bytes of a half-precision float on the wire.
const HALF_BYTES: usize = size_of::<f16>();
/// Maximum distance of the sum of received probabilities from 1. It allows for many small probabilities, each rounded
/// to half precision.
const SUM_TOLERANCE: f32 = 0.05;

/// Checks that there are exactly `expected` entries.
fn length(field: &str, got: usize, expected: usize) -> Result<(), Invalid> {
    if got == expected { Ok(()) } else { Err(invalid(field, format!("has {got} entries, expected {expected}"))) }
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
    fn from(Welcome { version, positions_max, requests_max }: Welcome) -> Self {
        Self { version, positions_max: wire_count(positions_max), requests_max: wire_count(requests_max) }
    }
}

impl TryFrom<v1::Welcome> for Welcome {
    type Error = Invalid;

    fn try_from(v1::Welcome { version, positions_max, requests_max }: v1::Welcome) -> Result<Self, Invalid> {
        let most = u32::MAX as usize;
        Ok(Self {
            version,
            positions_max: between("positions_max", positions_max, 1, most)?,
            requests_max: between("requests_max", requests_max, 1, most)?,
        })
    }
}

/// Converts a batch to a request without an id: bits if all observation values are 0 or 1, floats otherwise.
pub(crate) fn request_to_wire(
    batch: &Batch,
    actions: usize,
    version: Option<u64>,
    timeout: Option<Duration>,
) -> v1::EvalRequest {
    v1::EvalRequest {
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

/// Packs observations into bits; returns `None` if a value is neither 0 nor 1.
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

/// Converts a request for at most `positions_max` positions of `shape`, with `actions` actions.
pub(crate) fn request_from_wire(
    message: v1::EvalRequest,
    shape: ObservationShape,
    actions: usize,
    positions_max: usize,
) -> Result<EvalRequest, Invalid> {
    let v1::EvalRequest { id, version, positions, timeout_us, observations, legal, trace } = message;
    let count = between("request.positions", positions, 1, positions_max)?;
    let legal_bytes = actions.div_ceil(8);
    length("request.legal", legal.len(), count.saturating_mul(legal_bytes))?;
    let observations = required("request.observations", observations)?;
    match &observations {
        Observations::Bits(bits) => length("request.bits", bits.len(), count.saturating_mul(shape.len().div_ceil(8)))?,
        Observations::Floats(floats) => {
            length("request.floats", floats.len(), count.saturating_mul(shape.len() * FLOAT_BYTES))?;
            let is_wrong = |&number: &[u8; FLOAT_BYTES]| !(0.0..=1.0).contains(&f32::from_le_bytes(number));
            // One extreme value could make the network return NaN, and fail a batch shared with other clients.
            if let Some(wrong) = floats.as_chunks().0.iter().position(is_wrong) {
                let field = format!("request.floats[{}]", wrong / shape.len());
                return Err(invalid(field, "has a value outside 0 to 1"));
            }
        }
    }
    for (position, bits) in legal.chunks_exact(legal_bytes).enumerate() {
        let field = || format!("request.legal[{position}]");
        let Some(last) = bits.iter().rposition(|&byte| byte != 0) else {
            return Err(invalid(field(), "has no legal action"));
        };
        let action = last * 8 + bits[last].ilog2() as usize;
        if action >= actions {
            return Err(invalid(field(), format!("{action} is not below {actions}")));
        }
    }
    let timeout = (timeout_us > 0).then(|| Duration::from_micros(timeout_us));
    let positions = PackedPositions { shape, count, observations, legal };
    let trace = TraceContext::parse(&trace);
    Ok(EvalRequest { id, version: (version > 0).then_some(version), timeout, positions, trace })
}

impl PackedPositions {
    /// Returns the number of positions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the observation and the legal actions of position `i`: equal positions in one stream have equal bytes.
    #[must_use]
    pub fn row(&self, i: usize) -> (&[u8], &[u8]) {
        let (Observations::Bits(observations) | Observations::Floats(observations)) = &self.observations;
        let (numbers, actions) = (observations.len() / self.count, self.legal.len() / self.count);
        (&observations[i * numbers..][..numbers], &self.legal[i * actions..][..actions])
    }

    /// Returns the number of legal actions of position `i`.
    #[must_use]
    pub fn legal_actions(&self, i: usize) -> usize {
        self.row(i).1.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Unpacks some of the positions.
    #[must_use]
    pub fn batch(&self, positions: impl IntoIterator<Item = usize>) -> Batch {
        let (mut batch, mut actions) = (Batch::new(self.shape), Vec::new());
        for position in positions {
            let (observation, legal) = self.row(position);
            actions.clear();
            actions_from_bits(legal, &mut actions);
            batch.push(&actions, |planes| match &self.observations {
                Observations::Bits(_) => unpack(observation, planes),
                Observations::Floats(_) => {
                    let numbers = observation.as_chunks().0.iter();
                    planes.iter_mut().zip(numbers).for_each(|(plane, &number)| *plane = f32::from_le_bytes(number));
                }
            });
        }
        batch
    }
}

fn actions_from_bits(bits: &[u8], actions: &mut Vec<Action>) {
    for (index, &byte) in bits.iter().enumerate() {
        let mut byte = byte;
        while byte != 0 {
            let action = index * 8 + byte.trailing_zeros() as usize;
            // The action fits u16: a row has at most `ACTIONS_MAX` bits, in whole bytes.
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

/// Converts the response to the request `id`. The predictions have probabilities of win, draw and loss, since no server
/// evaluates networks of returns.
#[must_use]
pub fn predictions_to_wire(id: u64, version: u64, predictions: &Predictions) -> v1::Predictions {
    let (mut priors, mut wdl) = (Vec::new(), Vec::with_capacity(predictions.len() * Outcome::RESULTS * HALF_BYTES));
    for (position, &Wdl { win, draw, loss }) in predictions.wdl().iter().enumerate() {
        priors.extend(predictions.priors(position).iter().flat_map(|&prior| f16::from_f32(prior).to_le_bytes()));
        wdl.extend([win, draw, loss].into_iter().flat_map(|chance| f16::from_f32(chance).to_le_bytes()));
    }
    v1::Predictions { id, version, priors: priors.into(), wdl: wdl.into() }
}

/// Returns the predictions for `batch`, normalised to correct the rounding to half precision.
pub(crate) fn predictions_from_wire(message: &v1::Predictions, batch: &Batch) -> Result<Predictions, Invalid> {
    let legal: usize = (0..batch.len()).map(|position| batch.legal(position).len()).sum();
    length("predictions.priors", message.priors.len(), legal * HALF_BYTES)?;
    length("predictions.wdl", message.wdl.len(), batch.len() * Outcome::RESULTS * HALF_BYTES)?;
    let (mut halves, _) = message.priors.as_chunks::<HALF_BYTES>();
    let (wdl, _) = message.wdl.as_chunks::<HALF_BYTES>();
    let (mut priors, mut predictions) = (Vec::new(), Predictions::new());
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
    Ok(predictions)
}

/// Divides probabilities that sum to almost 1 by the sum.
fn normalise(probabilities: &mut [f32]) -> Result<(), String> {
    if let Some(wrong) = probabilities.iter().find(|p| !(0.0..=1.0).contains(*p)) {
        return Err(format!("has {wrong}, which is not a probability"));
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
pub fn rejection_to_wire(id: u64, rejection: Rejection) -> v1::Rejection {
    let Rejection { reason, message, retry_after } = rejection;
    let retry_after_us = retry_after.map_or(0, |after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX).max(1));
    v1::Rejection { id, reason: reason.into(), message: cut(message), retry_after_us }
}

/// Returns the id of the rejected request, and the rejection.
pub(crate) fn rejection_from_wire(message: v1::Rejection) -> Result<(u64, Rejection), Invalid> {
    let v1::Rejection { id, reason, message, retry_after_us } = message;
    let reason = match RejectReason::try_from(reason) {
        Ok(RejectReason::Unspecified) | Err(_) => {
            return Err(invalid("rejection.reason", format!("{reason} is unknown")));
        }
        Ok(reason) => reason,
    };
    let retry_after = (retry_after_us > 0).then(|| Duration::from_micros(retry_after_us));
    Ok((id, Rejection { reason, message: sentence("rejection.message", message)?, retry_after }))
}

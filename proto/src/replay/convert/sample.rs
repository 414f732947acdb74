use std::time::Duration;

use experience::{Sample, Segment, WeightsVersion};
use prost::Message as _;

use super::table::checked_table;
use crate::convert::{
    Invalid, between, cut, inside, invalid, name, one_to, required, sentence, table_name, time_to_ms, wire_count,
};
use crate::limits::{ANY_TRAJECTORY, CREDIT_BATCHES_MAX, PART_BYTES_MAX, SAMPLES_PER_BATCH_MAX, UNROLL_STEPS_MAX};
use crate::replay::{SampleBatch, SampleQuery, v1};

impl From<SampleQuery> for v1::Open {
    fn from(SampleQuery { game, batch_size, unroll_steps, table, timeout }: SampleQuery) -> Self {
        let (batch_size, unroll_steps) = (wire_count(batch_size), wire_count(unroll_steps));
        Self { game, batch_size, unroll_steps, table, timeout_ms: time_to_ms(timeout) }
    }
}

impl TryFrom<v1::Open> for SampleQuery {
    type Error = Invalid;

    fn try_from(v1::Open { game, batch_size, unroll_steps, table, timeout_ms }: v1::Open) -> Result<Self, Invalid> {
        Ok(Self {
            game: name("game", game)?,
            batch_size: between("batch_size", batch_size, 1, SAMPLES_PER_BATCH_MAX)?,
            unroll_steps: between("unroll_steps", unroll_steps, 0, UNROLL_STEPS_MAX)?,
            table: table_name("table", table)?,
            timeout: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into())),
        })
    }
}

/// Returns the number of batches, from 1 to [`CREDIT_BATCHES_MAX`], and the latest published version, if the client
/// publishes any.
pub(crate) fn credit_from_wire(credit: v1::Credit) -> Result<(u32, Option<WeightsVersion>), Invalid> {
    let v1::Credit { batches, newest_weights_version } = credit;
    between("batches", batches, 1, CREDIT_BATCHES_MAX as usize)?;
    Ok((batches, (newest_weights_version > 0).then_some(WeightsVersion(newest_weights_version))))
}

/// Returns a `waiting` message, with a truncated reason.
#[must_use]
pub fn waiting_to_wire(reason: String) -> v1::SampleResponse {
    let waiting = v1::Waiting { reason: cut(reason) };
    v1::SampleResponse { message: Some(v1::sample_response::Message::Waiting(waiting)) }
}

/// Checks a `waiting` message and returns the reason.
pub(crate) fn waiting_from_wire(v1::Waiting { reason }: v1::Waiting) -> Result<String, Invalid> {
    sentence("reason", reason)
}

/// Returns the messages of a batch, in order: parts of at most [`PART_BYTES_MAX`], or single samples.
#[must_use]
pub fn batch_to_wire(batch: &SampleBatch) -> Vec<v1::SampleResponse> {
    let response = |part| v1::SampleResponse { message: Some(v1::sample_response::Message::Batch(part)) };
    parts(batch, PART_BYTES_MAX).into_iter().map(response).collect()
}

/// Splits a batch into parts. Each part repeats the table statistics of the whole batch, so that a part can be decoded
/// alone.
pub(crate) fn parts(batch: &SampleBatch, part_bytes_max: usize) -> Vec<v1::Batch> {
    let v1::Batch { samples, table } = batch.into();
    let mut parts: Vec<v1::Batch> = Vec::new();
    let mut room = 0;
    for sample in samples {
        let bytes = sample.encoded_len();
        match parts.last_mut() {
            Some(part) if bytes <= room => {
                part.samples.push(sample);
                room -= bytes;
            }
            _ => {
                parts.push(v1::Batch { samples: vec![sample], table: table.clone() });
                room = part_bytes_max.saturating_sub(bytes);
            }
        }
    }
    parts
}

/// The message shares the buffer of the segment.
impl From<&Sample> for v1::Sample {
    fn from(Sample { segment, probability, table_items }: &Sample) -> Self {
        Self {
            trajectory: Some(segment.trajectory().into()),
            segment: segment.columns().clone(),
            probability: *probability,
            table_items: *table_items,
        }
    }
}

impl TryFrom<v1::Sample> for Sample {
    type Error = Invalid;

    fn try_from(message: v1::Sample) -> Result<Self, Invalid> {
        let v1::Sample { trajectory, segment, probability, table_items } = message;
        let trajectory = required("trajectory", trajectory)?.into();
        let segment = Segment::parse(trajectory, segment, ANY_TRAJECTORY).map_err(inside("segment"))?;
        one_to("segment.steps", segment.len(), "entries", UNROLL_STEPS_MAX + 1)?;
        // Written so that NaN is rejected.
        if !(probability > 0.0 && probability <= 1.0) {
            return Err(invalid("probability", format!("{probability} is not a probability")));
        }
        if table_items == 0 {
            return Err(invalid("table_items", "is zero"));
        }
        Ok(Self { segment, probability, table_items })
    }
}

/// Converts a whole batch to a single message, however large. [`batch_to_wire`] splits a batch by size instead.
impl From<&SampleBatch> for v1::Batch {
    fn from(SampleBatch { samples, table }: &SampleBatch) -> Self {
        Self { samples: samples.iter().map(v1::Sample::from).collect(), table: Some(table.clone()) }
    }
}

/// Converts a part of a batch, or a whole batch.
impl TryFrom<v1::Batch> for SampleBatch {
    type Error = Invalid;

    fn try_from(v1::Batch { samples, table }: v1::Batch) -> Result<Self, Invalid> {
        one_to("samples", samples.len(), "entries", SAMPLES_PER_BATCH_MAX)?;
        let samples = samples
            .into_iter()
            .enumerate()
            .map(|(index, sample)| sample.try_into().map_err(inside(format_args!("samples[{index}]"))))
            .collect::<Result<_, _>>()?;
        let table = checked_table(required("table", table)?).map_err(inside("table"))?;
        Ok(Self { samples, table })
    }
}

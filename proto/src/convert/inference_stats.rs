use std::time::Duration;

use super::wire_count;
use crate::inference::{BatchesOfSize, InferenceStats, v1};

impl From<InferenceStats> for v1::StatsResponse {
    fn from(stats: InferenceStats) -> Self {
        let InferenceStats {
            game,
            versions,
            evaluator,
            asks,
            positions,
            cached_positions,
            refused_asks,
            failed_asks,
            batches,
            streams,
            waiting_positions,
            explanation,
        } = stats;
        Self {
            game,
            versions,
            evaluator,
            asks,
            positions,
            cached_positions,
            refused_asks,
            failed_asks,
            batches: batches.into_iter().map(v1::BatchesOfSize::from).collect(),
            streams: wire_count(streams),
            waiting_positions,
            explanation,
        }
    }
}

impl From<BatchesOfSize> for v1::BatchesOfSize {
    fn from(BatchesOfSize { size, full, delay, idle, compute_time }: BatchesOfSize) -> Self {
        let compute_us = u64::try_from(compute_time.as_micros()).unwrap_or(u64::MAX);
        Self { size: wire_count(size), full, delay, idle, compute_us }
    }
}

/// Numbers and sentences for people: there is nothing to check.
impl From<v1::StatsResponse> for InferenceStats {
    fn from(message: v1::StatsResponse) -> Self {
        let v1::StatsResponse {
            game,
            versions,
            evaluator,
            asks,
            positions,
            cached_positions,
            refused_asks,
            failed_asks,
            batches,
            streams,
            waiting_positions,
            explanation,
        } = message;
        Self {
            game,
            versions,
            evaluator,
            asks,
            positions,
            cached_positions,
            refused_asks,
            failed_asks,
            batches: batches.into_iter().map(BatchesOfSize::from).collect(),
            streams: streams as usize,
            waiting_positions,
            explanation,
        }
    }
}

impl From<v1::BatchesOfSize> for BatchesOfSize {
    fn from(v1::BatchesOfSize { size, full, delay, idle, compute_us }: v1::BatchesOfSize) -> Self {
        Self { size: size as usize, full, delay, idle, compute_time: Duration::from_micros(compute_us) }
    }
}

use proto::inference::InferenceStats;

use crate::engine::Handle;

/// Returns the model served, its load and its counters.
pub(super) fn of(handle: &Handle, cached_positions: u64, streams: usize) -> InferenceStats {
    let (model, counts) = (handle.model(), handle.counts());
    let explanation = counts.explain(model.as_ref().map_or(1, |model| model.batch_max));
    let (game, versions, evaluator) =
        model.map(|model| (model.game, model.versions, model.evaluator.to_string())).unwrap_or_default();
    InferenceStats {
        game,
        versions,
        evaluator,
        asks: counts.asks,
        positions: counts.positions,
        cached_positions,
        refused_asks: counts.refused,
        failed_asks: counts.failed,
        batches: counts.by_batch_size,
        streams,
        waiting_positions: counts.waiting_positions as u64,
        explanation,
    }
}

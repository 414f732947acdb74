use experience::{Trajectory, TrajectoryId};
use proto::replay::{ListOrder, ListQuery};

/// Returns the ids that a query requests, of the trajectories held, newest first.
pub(super) fn ids(held: Vec<Trajectory>, query: &ListQuery) -> Vec<TrajectoryId> {
    let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
    let mut ids: Vec<TrajectoryId> = match query.order {
        ListOrder::Newest => held.iter().map(|trajectory| trajectory.id()).collect(),
        ListOrder::Ascending => {
            let ids = held.iter().map(|trajectory| trajectory.id());
            let mut ids: Vec<_> = ids.filter(|&id| query.after.is_none_or(|after| id > after)).collect();
            ids.sort_unstable();
            ids
        }
        ListOrder::Surprising => {
            // Nothing is less surprising than what was foreseen but what was never searched.
            let surprise = |trajectory: &Trajectory| trajectory.surprise().unwrap_or(-1.0);
            let mut ids: Vec<_> = held.into_iter().map(|trajectory| (surprise(&trajectory), trajectory.id())).collect();
            // Stable: of equals the newest comes first.
            ids.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            ids.into_iter().map(|(_, id)| id).collect()
        }
    };
    ids.truncate(limit);
    ids
}

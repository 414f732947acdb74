//! Messages survive a round trip; malformed messages are rejected, with the field name, and never cause a panic.

mod malformed;
mod round_trips;

use std::num::NonZeroU64;
use std::time::Duration;

use experience::{
    ActionProbability, Episode, Filter, Sample, Step, StepKind, Trajectory, TrajectoryId, WeightsVersion,
};
use game::{Action, Outcome, Player};
use proptest::prelude::*;

use crate::convert::Invalid;
use crate::convert::tests::{names, versions};
use crate::limits::{CREDIT_BATCHES_MAX, SAMPLES_PER_BATCH_MAX, SEARCH_PAGE_MAX, UNROLL_STEPS_MAX};
use crate::replay::{
    Actor, ActorState, Actors, Answer, Found, ItemPriority, ListOrder, ListQuery, Located, Origin, PriorityUpdate,
    Quarantine, Report, Revisable, SampleBatch, SampleQuery, SearchPage, SearchQuery, ServerStats, Suspect,
    TableChange, TableEdge, TableStats, v1,
};

fn sentences() -> impl Strategy<Value = String> {
    "[ -~ü]{0,80}"
}

fn ids() -> impl Strategy<Value = TrajectoryId> {
    any::<(u64, u64, u64)>().prop_map(|(actor, epoch, sequence)| TrajectoryId { actor, epoch, sequence })
}

fn episodes() -> impl Strategy<Value = Episode> {
    let outcomes = [Outcome::Win(Player::First), Outcome::Win(Player::Second), Outcome::Draw, Outcome::Finished];
    let facts = prop_oneof![
        proptest::sample::select(outcomes.to_vec()).prop_map(|outcome| (outcome, 0.0)),
        finite().prop_map(|value| (Outcome::Truncated, value)),
    ];
    (prop_oneof![Just(0), any::<u64>()], facts).prop_map(|(seed, (outcome, truncation_value))| Episode {
        seed,
        outcome,
        truncation_value,
    })
}

fn finite() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0), Just(-0.0), -1.0_f32..1.0, Just(f32::MAX), Just(f32::MIN_POSITIVE)]
}

/// Distributions over a few actions.
fn policies() -> impl Strategy<Value = Vec<ActionProbability>> {
    proptest::collection::btree_map(any::<u16>(), 1_u16..1000, 1..8).prop_map(|visits| {
        let sum = visits.values().map(|&count| f32::from(count)).sum::<f32>();
        let entry = |(action, count)| ActionProbability { action: Action(action), probability: f32::from(count) / sum };
        visits.into_iter().map(entry).collect()
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let kinds = prop_oneof![
        Just(StepKind::Opening),
        finite().prop_map(|value| StepKind::Fast { value }),
        (policies(), finite()).prop_map(|(policy, value)| StepKind::Full { policy, value }),
    ];
    (any::<u16>(), prop_oneof![Just(0.0), finite()], kinds, versions()).prop_map(
        |(action, reward, kind, weights_version)| Step { action: Action(action), reward, kind, weights_version },
    )
}

fn trajectories() -> impl Strategy<Value = Trajectory> {
    (ids(), names(), proptest::collection::vec(steps(), 1..12), episodes()).prop_map(|(id, game, steps, episode)| {
        Trajectory::of_episode(id, &game, &steps, episode).expect("steps are valid")
    })
}

fn samples() -> impl Strategy<Value = Sample> {
    let probabilities = prop_oneof![Just(1.0), Just(f64::MIN_POSITIVE), 1e-6_f64..1.0];
    (trajectories(), any::<proptest::sample::Index>(), 0_usize..4, probabilities, 1..=u64::MAX).prop_map(
        |(trajectory, ply, unroll_steps, probability, table_items)| {
            let ply = ply.index(trajectory.plies());
            let segment = trajectory.segment(ply, unroll_steps).expect("the trajectory has that ply");
            Sample { segment, probability, table_items }
        },
    )
}

fn edges() -> impl Strategy<Value = TableEdge> {
    (ids(), versions())
        .prop_map(|(id, weights_version)| TableEdge { id: Some(id.into()), weights_version: weights_version.0 })
}

fn tables() -> impl Strategy<Value = TableStats> {
    let counts = any::<[u64; 10]>();
    let reasons = "[a-z ]{0,40}";
    let total_weights = (0.0_f64..1e300).prop_map(|weight| v1::TotalWeight { weight });
    let rest = (names(), proptest::option::of(total_weights));
    let edges = (proptest::option::of(edges()), proptest::option::of(edges()), rest);
    (counts, 0.0_f64..1e9, 0.0_f64..1e9, reasons, edges).prop_map(
        |(
            counts,
            samples_per_insert_target,
            samples_per_insert,
            waiting_reason,
            (oldest, newest, (name, total_weight)),
        )| {
            TableStats {
                trajectories: counts[0],
                items: counts[1],
                window_items: counts[2],
                trajectories_inserted_total: counts[3],
                items_inserted_total: counts[4],
                samples_total: counts[5],
                duplicates_total: counts[6],
                refused_total: counts[7],
                quarantined_total: counts[8],
                samples_per_insert_target,
                samples_per_insert,
                waiting_reason,
                bytes: counts[9],
                oldest,
                newest,
                name,
                total_weight,
            }
        },
    )
}

fn batches() -> impl Strategy<Value = SampleBatch> {
    (proptest::collection::vec(samples(), 1..4), tables()).prop_map(|(samples, table)| SampleBatch { samples, table })
}

fn answers() -> impl Strategy<Value = Answer> {
    let fault = (sentences(), sentences()).prop_map(|(field, reason)| Invalid { field, reason });
    (any::<u64>(), proptest::option::of(fault), any::<bool>()).prop_map(|(sequence, fault, stored)| match fault {
        Some(fault) => Answer::Refused { sequence, fault },
        None if stored => Answer::Duplicate { sequence },
        None => Answer::Inserted { sequence },
    })
}

fn origins() -> impl Strategy<Value = Origin> {
    (any::<(u64, u64)>(), names()).prop_map(|((actor, epoch), game)| Origin { actor, epoch, game })
}

fn sample_queries() -> impl Strategy<Value = SampleQuery> {
    let timeouts = proptest::option::of((1..=u64::from(u32::MAX)).prop_map(Duration::from_millis));
    (names(), 1..=SAMPLES_PER_BATCH_MAX, 0..=UNROLL_STEPS_MAX, names(), timeouts).prop_map(
        |(game, batch_size, unroll_steps, table, timeout)| SampleQuery {
            game,
            batch_size,
            unroll_steps,
            table,
            timeout,
        },
    )
}

fn list_queries() -> impl Strategy<Value = ListQuery> {
    let orders = proptest::sample::select(vec![ListOrder::ASCENDING, ListOrder::Newest, ListOrder::Surprising]);
    (names(), orders, proptest::option::of(ids()), any::<u64>()).prop_map(|(table, order, after, limit)| {
        let after = after.filter(|_| order == ListOrder::ASCENDING);
        ListQuery { table, order, after, limit: NonZeroU64::new(limit) }
    })
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    episodes().prop_map(|episode| episode.outcome)
}

fn filters() -> impl Strategy<Value = Filter> {
    let (outcome, actor) = (proptest::option::of(outcomes()), proptest::option::of(any::<u64>()));
    (outcome, actor, any::<[u64; 2]>(), any::<[u32; 2]>()).prop_map(|(outcome, actor, [a, b], [c, d])| Filter {
        outcome,
        actor,
        weights_versions: a.min(b)..=a.max(b),
        plies: c.min(d)..=c.max(d),
    })
}

fn search_queries() -> impl Strategy<Value = SearchQuery> {
    let orders = proptest::sample::select(vec![ListOrder::ASCENDING, ListOrder::Newest, ListOrder::Surprising]);
    let filters = prop_oneof![Just(Filter::default()), filters()];
    let (quarantined, cursor) = (proptest::option::of(any::<bool>()), proptest::option::of(names()));
    (names(), orders, filters, quarantined, cursor, 1..=SEARCH_PAGE_MAX).prop_map(
        |(table, order, filter, quarantined, cursor, limit)| SearchQuery {
            table,
            order,
            filter,
            quarantined,
            cursor,
            limit,
        },
    )
}

fn search_pages() -> impl Strategy<Value = SearchPage> {
    let surprise = proptest::option::of(0.0_f32..2.0);
    let found = (ids(), 1_usize..1 << 16, outcomes(), versions(), surprise, any::<bool>(), any::<[u64; 2]>());
    let found =
        found.prop_map(|(id, plies, outcome, weights_version, surprise, quarantined, [inserted_unix_ms, revision])| {
            Found { id, plies, outcome, weights_version, surprise, quarantined, inserted_unix_ms, revision }
        });
    (proptest::collection::vec(found, 1..5), proptest::option::of(names()))
        .prop_map(|(found, next)| SearchPage { found, next })
}

fn suspects() -> impl Strategy<Value = Suspect> {
    prop_oneof![ids().prop_map(Suspect::Trajectory), any::<u64>().prop_map(Suspect::Actor)]
}

fn quarantines() -> impl Strategy<Value = Quarantine> {
    (suspects(), sentences()).prop_map(|(suspect, reason)| Quarantine { suspect, reason })
}

fn priority_updates() -> impl Strategy<Value = PriorityUpdate> {
    let item = (ids(), 0_usize..1 << 16, 0.0_f64..1e300).prop_map(|(trajectory, ply, priority)| ItemPriority {
        trajectory,
        ply,
        priority,
    });
    (names(), proptest::collection::vec(item, 0..9))
        .prop_map(|(table, priorities)| PriorityUpdate { table, priorities })
}

fn table_changes() -> impl Strategy<Value = TableChange> {
    let settings = proptest::collection::btree_map(names(), sentences(), 0..9);
    (names(), settings).prop_map(|(table, settings)| TableChange { table, settings })
}

fn actors() -> impl Strategy<Value = Actors> {
    let states = proptest::sample::select(vec![ActorState::Live, ActorState::Draining, ActorState::Lost]);
    let times = any::<[u64; 2]>();
    let actor =
        (any::<(u64, u64, u64)>(), states, sentences(), times, proptest::option::of(any::<u64>()), any::<(u32, u32)>())
            .prop_map(
                |(
                    (actor, epoch, trajectories),
                    state,
                    address,
                    [since_ms, silent_ms],
                    weights_version,
                    (unanswered, credit),
                )| {
                    Actor {
                        actor,
                        epoch,
                        state: state.into(),
                        address,
                        since_ms,
                        silent_ms,
                        weights_version,
                        trajectories,
                        unanswered,
                        credit,
                    }
                },
            );
    (proptest::collection::vec(actor, 0..4), any::<u64>(), any::<u32>())
        .prop_map(|(actors, lost_total, heartbeat_ms)| Actors { actors, lost_total, heartbeat_ms })
}

fn server_stats() -> impl Strategy<Value = ServerStats> {
    (tables(), proptest::collection::vec(names(), 0..4), any::<u64>())
        .prop_map(|(table, tables, memory_bytes)| ServerStats { table, tables, memory_bytes })
}

fn located() -> impl Strategy<Value = Located> {
    let tables = proptest::collection::vec(names(), 0..4);
    (trajectories(), tables, any::<[u64; 3]>(), any::<bool>()).prop_map(
        |(trajectory, tables, [inserted_unix_ms, revision, revised_unix_ms], quarantined)| Located {
            trajectory,
            tables,
            inserted_unix_ms,
            quarantined,
            revision,
            revised_unix_ms,
        },
    )
}

fn revisions() -> impl Strategy<Value = Revisable> {
    (trajectories(), 0..u64::MAX).prop_map(|(trajectory, revision)| Revisable { trajectory, revision })
}

fn reports() -> impl Strategy<Value = Report> {
    (ids(), 0_usize..1 << 16, sentences()).prop_map(|(trajectory, ply, reason)| Report { trajectory, ply, reason })
}

fn credits() -> impl Strategy<Value = u32> {
    1..=CREDIT_BATCHES_MAX
}

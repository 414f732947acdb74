//! Planted bugs: each defect of the server is found within the stated number of seeds.

use replay_server::defect::Defect;

use crate::oracle::Promise;
use crate::plan::plan;
use crate::run::{Story, run_with};

/// Asserts that the first `seeds` seeds find the defect, as a violation of one of these promises.
fn is_found(defect: Defect, seeds: u64, promises: &[Promise]) {
    is_found_by(defect, 0..seeds, promises);
}

fn is_found_by(defect: Defect, mut seeds: impl Iterator<Item = u64>, promises: &[Promise]) {
    let found = seeds.find_map(|seed| run_with(seed, &plan(seed), Story::Dropped, Some(defect)).violation);
    let found = found.unwrap_or_else(|| panic!("{defect:?} is not found"));
    assert!(promises.contains(&found.promise), "{defect:?} is found as {found}");
}

#[test]
fn acknowledgements_before_the_sync_are_found() {
    is_found(
        Defect::AcknowledgedBeforeSync,
        10,
        &[Promise::Once, Promise::Counts, Promise::Held, Promise::Settings, Promise::Quarantine],
    );
}

#[test]
fn names_that_are_not_synced_are_found() {
    is_found(
        Defect::DirectoryNotSynced,
        20,
        &[Promise::Once, Promise::Counts, Promise::Held, Promise::Settings, Promise::Quarantine, Promise::Start],
    );
}

#[test]
fn records_inside_of_records_are_found() {
    is_found(Defect::ResynchronisedInside, 40, &[Promise::Counts]);
}

#[test]
fn reused_epochs_are_found() {
    is_found(Defect::EpochReused, 10, &[Promise::Own]);
}

#[test]
fn a_missing_check_for_duplicates_after_a_restart_is_found() {
    is_found(Defect::DuplicatesNotChecked, 10, &[Promise::Once]);
}

#[test]
fn a_limiter_that_starts_anew_is_found() {
    is_found(Defect::LimiterNotRestored, 10, &[Promise::Counts]);
}

#[test]
fn lost_quarantines_are_found() {
    is_found(Defect::QuarantineLost, 10, &[Promise::Quarantine]);
}

#[test]
fn a_capacity_that_is_off_by_one_is_found() {
    is_found(Defect::CapacityOffByOne, 10, &[Promise::Capacity]);
}

#[test]
fn lost_priorities_are_found() {
    is_found(Defect::PrioritiesNotRestored, 40, &[Promise::Priorities]);
}

#[test]
fn lost_settings_are_found() {
    is_found(Defect::SettingsNotRestored, 10, &[Promise::Settings]);
}

#[test]
fn inserts_beyond_the_ratio_are_found() {
    is_found(Defect::RatioIgnored, 10, &[Promise::Ratio]);
}

#[test]
fn records_that_are_applied_twice_are_found() {
    is_found(Defect::RecordsAppliedTwice, 10, &[Promise::Counts, Promise::Once, Promise::Panic]);
}

#[test]
fn lost_revisions_are_found() {
    is_found(Defect::RevisionsLost, 10, &[Promise::Revisions]);
}

#[test]
fn bytes_of_failed_commits_are_found() {
    is_found(Defect::FailedCommitNotCut, 10, &[Promise::Held, Promise::Counts, Promise::Once]);
}

#[test]
fn segments_that_are_dropped_early_are_found() {
    is_found(Defect::SegmentsDroppedEarly, 10, &[Promise::Held]);
}

#[test]
fn acknowledged_failures_are_found() {
    is_found(Defect::FailureAcknowledged, 10, &[Promise::Once]);
}

#[test]
fn stored_trajectories_without_items_are_found() {
    is_found(Defect::ItemlessStored, 40, &[Promise::Capacity, Promise::Memory]);
}

#[test]
fn growth_of_tables_over_the_memory_limit_is_found() {
    // Only seeds with a tight limit can find it; about one in seventy of these does.
    is_found_by(Defect::GrowthNotCounted, (3..4000).step_by(4), &[Promise::Memory]);
}

#[test]
fn a_server_that_is_ready_and_stores_nothing_is_found() {
    is_found(Defect::NotStoredCountsAsProgress, 10, &[Promise::Liveness]);
}

#[test]
fn unbounded_ids_are_found() {
    is_found(Defect::SeenUnbounded, 200, &[Promise::LogBytes]);
}

#[test]
fn an_ignored_head_is_found() {
    is_found(
        Defect::DamagedHeadIgnored,
        400,
        &[Promise::Counts, Promise::Settings, Promise::Quarantine, Promise::Once, Promise::Own],
    );
}

#[test]
fn a_trusted_page_cache_is_found() {
    is_found(
        Defect::PageCacheTrusted,
        40,
        &[Promise::Once, Promise::Counts, Promise::Held, Promise::Settings, Promise::Revisions, Promise::Start],
    );
}

#[test]
fn logged_priorities_of_unknown_items_are_found() {
    is_found(Defect::UnknownPrioritiesLogged, 10, &[Promise::LogBytes]);
}

#[test]
fn a_restore_that_is_taken_as_complete_is_found() {
    is_found(
        Defect::RestoreTakenAsComplete,
        40,
        &[Promise::Archive, Promise::Counts, Promise::Held, Promise::Once, Promise::Settings, Promise::Revisions],
    );
}

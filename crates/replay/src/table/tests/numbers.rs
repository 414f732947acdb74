use super::*;

fn insert(table: &mut Table, trajectory: Trajectory) {
    let _ = table.insert(trajectory, Duration::ZERO);
}

fn below(table: &Table, number: u64) -> Vec<(u64, u64)> {
    table.held_below(number).map(|(number, held)| (number, held.trajectory.id().sequence)).collect()
}

#[test]
fn numbers_stay_with_trajectories_while_others_come_and_go() {
    let mut table = Table::new(TableSettings { window: window(1, 6), ..by(Selector::Uniform) });
    for sequence in 10..13 {
        insert(&mut table, trajectory(sequence, "FF"));
    }
    assert_eq!(below(&table, u64::MAX), [(2, 12), (1, 11), (0, 10)]);
    assert_eq!(below(&table, 2), [(1, 11), (0, 10)]);
    insert(&mut table, trajectory(13, "FF"));
    assert_eq!(table.evict_oldest().map(|removed| removed.id), Some(id(11)));
    assert_eq!(below(&table, u64::MAX), [(3, 13), (2, 12)]);
    assert_eq!(below(&table, 3), [(2, 12)]);
    for gone in [0, 1, 2] {
        assert_eq!(below(&table, gone), [], "{gone}");
    }
}

#[test]
fn numbers_go_on_after_a_restart() {
    let mut table = Table::new(by(Selector::Uniform));
    insert(&mut table, trajectory(7, "FF"));
    table.remember(TableTotals { trajectories: 41, items: 82 });
    insert(&mut table, trajectory(8, "FF"));
    assert_eq!(below(&table, u64::MAX), [(41, 8), (40, 7)]);
    assert_eq!(below(&table, 0), []);
}

/// Returns a drawn game with one searched step.
fn valued(sequence: u64, value: f32) -> Trajectory {
    let step =
        Step { action: Action(0), reward: 0.0, kind: StepKind::Fast { value }, weights_version: WeightsVersion(1) };
    Trajectory::of(id(sequence), "test", [&step], Outcome::Draw).unwrap()
}

fn surprise(table: &mut Table, sequence: u64) -> Option<f32> {
    table.lookup(id(sequence)).unwrap().surprise
}

#[test]
fn surprises_are_kept_to_a_fine_step_and_follow_revisions() {
    let mut table = Table::new(by(Selector::Uniform));
    let values = [0.0, 1e-4, 0.25, 0.987_654, 1.0, 2.0, 7.5, f32::MAX];
    for (sequence, value) in (0..).zip(values) {
        insert(&mut table, valued(sequence, value));
        let kept = surprise(&mut table, sequence).unwrap();
        assert!((kept - value.min(2.0)).abs() <= 0.5 / 32_767.0 + 1e-7, "{value} became {kept}");
    }
    insert(&mut table, trajectory(100, "o"));
    assert_eq!(surprise(&mut table, 100), None, "no step was searched");
    assert!(table.revise(&valued(0, -0.5), 1, Duration::ZERO));
    assert!((surprise(&mut table, 0).unwrap() - 0.5).abs() < 1e-4);
}

use super::*;

/// Returns the memory of all state except the trajectories, in bytes.
fn state_bytes(table: &Table) -> u64 {
    table.bytes() - table.trajectory_bytes()
}

#[test]
fn a_table_grows_by_no_more_than_its_growth_whatever_comes() {
    let steps = ["F", "FFF", "FfF", &"F".repeat(40)];
    let merging = TableSettings { merge_positions: true, ..by(Selector::Uniform) };
    let settings = [by(Selector::Uniform), by(Selector::MaxHeap), prioritised(0.6), merging];
    // After removals, an index of 128 buckets and counts of positions in 256 may double once more.
    for (settings, capacity, slack) in settings.into_iter().flat_map(|s| [(s, 20_000, 0), (s, 50, 128 * 33 + 256 * 17)])
    {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut table = Table::new(TableSettings { window: window(10, capacity), ..settings });
        let coming: Vec<&str> = (0..400).map(|_| steps[rng.random_range(0..steps.len())]).collect();
        for burst in [1, 3, 120] {
            for (number, burst) in coming.chunks(burst).enumerate() {
                let items = burst.iter().map(|steps| steps.matches('F').count() as u64).sum();
                let expected = Expected { trajectories: burst.len() as u64, items, items_each_max: 40 };
                let most = state_bytes(&table) + table.growth(expected) + slack;
                for (at, steps) in burst.iter().enumerate() {
                    let sequence = (burst.len() * 10_000 + number * 200 + at) as u64;
                    let positions: Vec<u64> = steps.matches('F').map(|_| rng.random()).collect();
                    let trajectory = trajectory(sequence, steps).with_positions(&positions, &[]).unwrap();
                    let _ = table.insert(trajectory, Duration::ZERO);
                    assert!(state_bytes(&table) <= most, "{} of {most} bytes", state_bytes(&table));
                    table.lookup(id(sequence));
                    assert!(state_bytes(&table) <= most, "{} of {most} bytes, with an index", state_bytes(&table));
                }
            }
        }
    }
}

#[test]
fn the_oldest_is_evicted_unless_it_is_the_only_one() {
    let mut table = Table::new(by(Selector::Uniform));
    for sequence in 0..3 {
        let _ = table.insert(trajectory(sequence, "FF"), Duration::ZERO);
    }
    let evicted: Vec<_> = std::iter::from_fn(|| table.evict_oldest()).collect();
    assert_eq!(evicted, [0, 1].map(|sequence| Removed { id: id(sequence), items: 2 }));
    assert_eq!((table.items(), table.trajectories()), (2, 1));
}

#[test]
fn an_index_counts_at_least_a_key_and_a_number_for_each_trajectory() {
    let bytes_by = |selector| {
        let mut table = Table::new(by(selector));
        for sequence in 0..500 {
            let _ = table.insert(trajectory(sequence, ""), Duration::ZERO);
        }
        state_bytes(&table) - table.mark_bytes
    };
    let index = 500 * size_of::<(TrajectoryId, u64)>() as u64;
    let (without, with) = (bytes_by(Selector::Uniform), bytes_by(Selector::MaxHeap));
    assert!(with >= without + index, "{with} and {without} bytes");
}

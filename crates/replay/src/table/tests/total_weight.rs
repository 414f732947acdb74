use experience::TotalWeight;

use super::*;

#[test]
fn each_item_weighs_one_under_a_selector_without_weights() {
    for selector in [Selector::Uniform, Selector::Fifo, Selector::Lifo, Selector::MinHeap, Selector::MaxHeap] {
        assert_eq!(table(by(selector), &["FF", "FfF"]).total_weight(), TotalWeight::of_items(4), "{selector:?}");
    }
    assert_eq!(table(prioritised(0.5), &[]).total_weight(), TotalWeight::default());
}

#[test]
fn only_items_in_the_window_count_towards_the_total_weight() {
    let settings = TableSettings { window: window(2, 1000), ..prioritised(1.0) };
    let table = table(settings, &["FFFFFFFF"]);
    assert!(table.window_items() < 8, "{}", table.window_items());
    assert_eq!(table.total_weight(), TotalWeight::of_items(table.window_items()));
}

#[test]
fn the_weight_of_an_item_divided_by_the_total_weight_is_its_probability() {
    let mut table = table(prioritised(0.5), &["FFFF"]);
    let key = |ply| ItemKey { trajectory: id(0), ply };
    table.update_priorities(&[(key(0), 4.0), (key(1), 9.0), (key(2), 16.0), (key(3), 0.0)]).unwrap();
    assert_eq!(table.total_weight(), TotalWeight { weight: 2.0 + 3.0 + 4.0, log2_scale: 0.0 });
    let mut rng = rng();
    for _ in 0..20 {
        let drawn = table.sample(&mut rng).unwrap();
        assert!((drawn.probability * 9.0 - (drawn.ply() + 2) as f64).abs() < 1e-12, "{drawn:?}");
    }
}

#[test]
fn total_weights_by_staleness_are_comparable_across_tables_of_different_versions() {
    let settings = by(Selector::StalenessAware { half_life_versions: 2.0 });
    let of_versions = |versions: &[u64]| {
        let mut table = Table::new(settings);
        for (sequence, &version) in (0..).zip(versions) {
            let _ = table.insert(trajectory_by(id(sequence), "F", version), Duration::ZERO);
        }
        // A draw may change the base version.
        let _ = table.sample(&mut rng());
        table.total_weight()
    };
    let (old, new) = (of_versions(&[10_000, 10_002]), of_versions(&[10_004]));
    // Relative to version 10 002, the old table has weight 1 + 1/2. The new table is one half-life newer and has weight
    // 2.
    let shares = TotalWeight::shares(&[old, new]);
    assert!((shares[0] - 1.5 / 3.5).abs() < 1e-9, "{shares:?} of {old:?} and {new:?}");
    assert_eq!(TotalWeight::shares(&[of_versions(&[1]), new]), [0.0, 1.0]);
}
